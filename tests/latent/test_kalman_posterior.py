"""The posterior that is computed: exact where the model is linear, and of use where it is not."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from stochflow import StochasticFlow
from stochflow.inference import forecast_latent, impute_latent, kalman
from stochflow.latent import (
    GaussianEmission,
    KalmanPosterior,
    LatentFlow,
    LatentUnits,
    ObservedFlow,
    PeriodicEmission,
    Series,
)
from stochflow.latent.small import cholesky, inverse_and_log_det
from stochflow.laws import Rhythm
from stochflow.objectives import elbo_terms

from .linear import linear_flow, linear_model, linear_series

STANDARD_ERRORS = 5  # one false alarm in two million


@pytest.mark.parametrize("padding", [0, 3])
def test_it_is_exact_for_a_linear_model(padding, getkey):
    series = linear_series(8, padding=padding, key=getkey())
    exact = jax.jit(kalman)(linear_model(), series)
    flow = linear_flow(KalmanPosterior(2))
    found = eqx.filter_jit(flow.reader.marginals)(series)
    assert jnp.allclose(found.mean[:8], exact.smoothed.mean[:8], atol=1e-9)
    assert jnp.allclose(found.std[:8], exact.smoothed.std[:8], atol=1e-9)
    bounds = jax.jit(jax.vmap(lambda k: -elbo_terms(flow, series, key=k).nelbo()))(jr.split(getkey(), 8))
    assert jnp.allclose(bounds, exact.log_likelihood, atol=1e-7)  # at every sample


def test_what_the_past_tells_is_the_filter(getkey):
    series = linear_series(7, key=getkey())
    exact = jax.jit(kalman)(linear_model(), series)
    reader = linear_flow(KalmanPosterior(2)).reader
    filtered = jax.jit(lambda s, k: reader.read(s, key=k).filtered)(series, getkey())
    assert jnp.allclose(filtered.mean, exact.filtered.mean, atol=1e-9)
    covariance = filtered.scale_tril @ jnp.swapaxes(filtered.scale_tril, 1, 2)
    assert jnp.allclose(covariance, exact.filtered.covariance, atol=1e-9)
    last = eqx.filter_jit(reader.last)(series)
    assert jnp.allclose(last.scale_tril @ last.scale_tril.T, exact.filtered.covariance[-1], atol=1e-9)


def test_a_masked_value_changes_no_gradient(getkey):
    series, key = linear_series(6, key=getkey()), getkey()
    flow = linear_flow(KalmanPosterior(2))
    gradient = eqx.filter_jit(eqx.filter_grad(lambda f, s: elbo_terms(f, s, key=key).nelbo()))
    other = series._replace(values=jnp.where(series.mask, series.values, 1e6))
    for one, two in zip(
        jax.tree.leaves(gradient(flow, series)), jax.tree.leaves(gradient(flow, other)), strict=True
    ):
        assert jnp.array_equal(one, two)


def rhythmic(noise=0.1, channels=4, *, key) -> ObservedFlow:
    """A circle in four channels, gone round at a pace that wanders."""
    law = Rhythm([0.05, 1.0], [0.06, 0.0], 1.0, 0.02)
    emission = GaussianEmission(3, channels, depth=0, initial_std=noise, key=key)
    flow = LatentFlow(
        law,
        PeriodicEmission(emission, harmonics=1, unseen=1),
        KalmanPosterior(3, phases=1),
    )
    flow = eqx.tree_at(lambda f: f.initial.log_std, flow, jnp.array([0.0, 0.0, 0.6]))
    return ObservedFlow(flow, LatentUnits(np.zeros(channels), np.ones(channels), 1.0, 50.0))


@eqx.filter_jit
def simulate(flow, times, key):
    start_key, path_key, noise_key = jr.split(key, 3)
    first = flow.model.initial.sample(key=start_key)

    def step(x, now):
        s, t, k = now
        x = flow.model.transition.sample(x, s, t, key=k)
        return x, x

    keys = jr.split(path_key, len(times) - 1)
    _, rest = jax.lax.scan(step, first, (times[:-1], times[1:], keys))
    x = jnp.concatenate([first[None], rest])
    keys = jr.split(noise_key, len(times))
    return x, jax.vmap(lambda x, k: flow.model.emission.sample(x, key=k))(x, keys)


def test_phase_and_pace_are_found_again_from_any_start(getkey):
    """Nothing is known of the phase at first; after two turns it is known to a whole turn, and the pace too."""
    flow, times = rhythmic(key=getkey()), jnp.linspace(0.0, 12.0, 61)
    far, surprises = 0, []
    for _ in range(24):
        x, values = simulate(flow, times, getkey())
        series = Series(times, values, jnp.ones(values.shape, bool), jnp.ones(len(times), bool))
        last = eqx.filter_jit(flow.model.reader.last)(series)
        turns = (last.mean[-1] - x[-1, -1]) / (2 * jnp.pi)
        far += abs(float(turns - jnp.round(turns))) > 0.05
        surprises.append((last.mean[0] - x[-1, 0]) / jnp.linalg.norm(last.scale_tril[0]))
    assert far == 0
    squares = np.square(surprises)
    assert abs(squares.mean() - 1) < STANDARD_ERRORS * np.sqrt(2 / len(squares))


def test_forecasts_are_the_same_in_one_step_and_in_many(getkey):
    flow, times = rhythmic(key=getkey()), np.linspace(0.0, 6.0, 31)
    _, values = simulate(flow, jnp.asarray(times), getkey())
    at, samples = times[-1] + np.array([3.0, 9.0]), 4096
    draws = [
        np.asarray(
            forecast_latent(
                flow, times, np.asarray(values), at, samples=samples, max_gap=gap, key=getkey()
            ).means
        )
        for gap in (None, 0.5)
    ]
    error = np.sqrt(sum(part.var(axis=0) for part in draws) / samples)
    assert (np.abs(draws[0].mean(axis=0) - draws[1].mean(axis=0)) < STANDARD_ERRORS * error).all()


def test_states_between_rows_need_no_bridge_of_their_own(getkey):
    flow, times = rhythmic(key=getkey()), np.linspace(0.0, 6.0, 13)
    _, values = simulate(flow, jnp.asarray(times), getkey())
    found = impute_latent(
        flow, times, np.asarray(values), np.array([1.1, 1.25, 4.0]), samples=8, key=getkey()
    )
    assert found.states.shape == (8, 3, 3)
    assert np.isfinite(found.values).all()


def test_one_row_and_missing_rows_are_enough(getkey):
    flow = rhythmic(key=getkey())
    values = np.array([[0.3, np.nan, 0.1, np.nan], [np.nan] * 4, [0.2, 0.0, np.nan, 0.5]])
    for rows in (1, 3):
        found = forecast_latent(
            flow, np.arange(rows) * 0.5, values[:rows], np.array([2.0]), samples=4, key=getkey()
        )
        assert np.isfinite(found.values).all()


def test_a_transition_that_is_not_gaussian_is_refused(getkey):
    emission = GaussianEmission(2, 3, key=getkey())
    flow = LatentFlow(StochasticFlow(2, key=getkey()), emission, KalmanPosterior(2))
    with pytest.raises(ValueError, match="must have Gaussian steps, affine in the state"):
        _ = flow.reader
    with pytest.raises(ValueError, match=r"use `model\.reader`"):
        flow.posterior.marginals(linear_series(3, key=getkey()))


@pytest.mark.parametrize("wrong", [{"rounds": 0}, {"starts": 0}, {"phases": 3}, {"phases": -1}])
def test_wrong_settings_are_refused(wrong):
    with pytest.raises(ValueError, match=r"`(rounds|phases)`"):
        KalmanPosterior(2, **wrong)


def test_small_matrices_are_inverted_and_rooted(getkey):
    root = jr.normal(getkey(), (6, 6)) * jnp.logspace(-3, 2, 6)[:, None]
    matrix = root @ root.T
    inverse, log_det = inverse_and_log_det(matrix)
    assert jnp.allclose(inverse @ matrix, jnp.eye(6), atol=1e-6)
    assert jnp.allclose(log_det, jnp.linalg.slogdet(matrix)[1], rtol=1e-9)
    assert jnp.allclose(cholesky(matrix), jnp.linalg.cholesky(matrix), rtol=1e-6)
