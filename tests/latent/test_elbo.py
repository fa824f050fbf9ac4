"""The bound, with the exact posterior as truth."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from stochflow import latent_flow
from stochflow.inference import (
    forecast_latent,
    impute_latent,
    kalman,
    likelihood_bound,
    observed_series,
)
from stochflow.latent import LatentUnits, ObservedFlow
from stochflow.objectives import elbo_terms

from .linear import ExactPosterior, linear_flow, linear_model, linear_series

STANDARD_ERRORS = 5  # one false alarm in two million


@pytest.mark.parametrize("padding", [0, 3])
def test_with_the_exact_posterior_every_sample_gives_the_log_likelihood(padding, getkey):
    series = linear_series(8, padding=padding, key=getkey())
    truth = exact(series).log_likelihood
    flow = linear_flow(ExactPosterior())
    bounds = jax.jit(jax.vmap(lambda k: -elbo_terms(flow, series, key=k).nelbo()))(jr.split(getkey(), 16))
    assert jnp.allclose(bounds, truth, atol=1e-7)


@jax.jit
def exact(series):
    return kalman(linear_model(), series)


def arrays(series):
    return np.asarray(series.times), np.where(series.mask, series.values, np.nan)


def observed(flow, loc=0.0, scale=1.0, time_scale=1.0):
    channels = flow.channels
    return ObservedFlow(flow, LatentUnits(np.full(channels, loc), np.full(channels, scale), time_scale))


def test_the_bound_of_importance_weights_is_tighter_and_in_the_users_units(getkey):
    times, values = arrays(linear_series(6, key=getkey()))
    flow, key = latent_flow(3, 2, key=getkey()), getkey()
    plain = likelihood_bound(observed(flow), times, values, samples=256, key=key)
    scaled = likelihood_bound(
        observed(flow, loc=1.0, scale=2.0, time_scale=10.0), 10 * times, 1 + 2 * values, samples=256, key=key
    )
    assert plain.elbo < plain.iwae
    observations = int((~np.isnan(values)).sum())
    assert np.isclose(scaled.iwae, plain.iwae - observations * np.log(2.0), atol=1e-6)
    assert scaled.rows == plain.rows == 6


def test_forecasts_of_the_exact_model_have_the_moments_of_the_kalman_forecast(getkey):
    series = linear_series(5, key=getkey())
    times, values = arrays(series)
    flow, at = observed(linear_flow(ExactPosterior())), times[-1] + np.array([0.2, 1.5])
    last = exact(series).filtered
    law, samples = linear_model().transition, 4096
    for settings in ({}, {"max_gap": 0.4}, {"joint": True}):
        draws = forecast_latent(flow, times, values, at, samples=samples, **settings, key=getkey()).states
        for j, gap in enumerate([0.2, 1.5]):
            decay, shift, variance = law.decay_offset_variance(jnp.array(gap))
            mean = decay * last.mean[-1] + shift
            std = jnp.sqrt(decay**2 * last.std[-1] ** 2 + variance)
            error = (draws[:, j].mean(axis=0) - mean) / (std / np.sqrt(samples))
            assert jnp.abs(error).max() < STANDARD_ERRORS, settings
            ratio = draws[:, j].var(axis=0) / std**2
            assert jnp.abs(ratio - 1).max() < STANDARD_ERRORS * np.sqrt(2 / samples), settings


def test_imputed_states_have_the_moments_of_the_smoother(getkey):
    series = linear_series(6, key=getkey())
    times, values = arrays(series)
    between = (times[2] + times[3]) / 2
    # The truth at a time between: a row with nothing observed.
    asked = np.insert(times, 3, between)
    unseen = np.insert(values, 3, np.nan, axis=0)
    full = series._replace(
        times=jnp.asarray(asked),
        values=jnp.asarray(np.nan_to_num(unseen)),
        mask=jnp.asarray(~np.isnan(unseen)),
        present=jnp.ones(7, bool),
    )
    truth, samples = exact(full).smoothed, 4096
    draws = impute_latent(
        observed(linear_flow(ExactPosterior())), times, values, asked, samples=samples, key=getkey()
    ).states
    error = (draws.mean(axis=0) - truth.mean) / (truth.std / np.sqrt(samples))
    assert jnp.abs(error).max() < STANDARD_ERRORS
    ratio = draws.var(axis=0) / truth.std**2
    assert jnp.abs(ratio - 1).max() < STANDARD_ERRORS * np.sqrt(2 / samples)


def test_imputation_in_between_is_one_path(getkey):
    """Close neighbours between two observations must be close in every draw."""
    times, values = arrays(linear_series(4, key=getkey()))
    at = times[1] + (times[2] - times[1]) * np.array([0.5, 0.5 + 1e-6])
    states = impute_latent(
        observed(linear_flow(ExactPosterior())), times, values, at, samples=32, key=getkey()
    ).states
    assert jnp.abs(states[:, 0] - states[:, 1]).max() < 0.05


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t, v: (t[::-1], v), "increase"),
        (lambda t, v: (t, v[:, 0]), "shapes"),
        (lambda t, v: (t, v * np.nan), "at least one observation"),
        (lambda t, v: (t, v / 0), "infinite"),
    ],
)
@pytest.mark.filterwarnings("ignore:divide by zero", "ignore:invalid value")
def test_bad_series_are_refused(change, message):
    times, values = np.arange(3.0), np.ones((3, 2))
    with pytest.raises(ValueError, match=message):
        observed_series(*change(times, values))


def test_times_on_the_wrong_side_are_refused(getkey):
    times, values = arrays(linear_series(4, key=getkey()))
    flow = observed(linear_flow(ExactPosterior()))
    with pytest.raises(ValueError, match="before the last observation"):
        forecast_latent(flow, times, values, times[-2:], key=getkey())
    with pytest.raises(ValueError, match="forecast_latent"):
        impute_latent(flow, times, values, times[-1:] + 1, key=getkey())
