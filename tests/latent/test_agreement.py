"""A posterior that was trained, against the exact one: irregular times, 30 % of the channels missing."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from stochflow import LatentConfig, Trajectories, fit_latent
from stochflow.inference import forecast_latent, kalman, likelihood_bound
from stochflow.latent import SmoothingPosterior

from .linear import ExactPosterior, linear_flow, linear_model, linear_series

pytestmark = pytest.mark.slow

ROWS, SERIES, HELD_OUT = 24, 4096, 64
# Rows of a series whose states are ranked, among how many, in how many bins; and how many series.
RANKED, RANKS, BINS, SIMULATED = 6, 200, 10, 4000
FALSE_ALARM = 1e-4
CONFIG = LatentConfig(
    steps=12_000,
    log_every=1000,
    batch_size=128,
    learning_rate=5e-3,
    beta_skip=0.0,
    standardise=False,
    skip_starts=1,
    skip_samples=1,
)


def many(number, key):
    """Series of every length up to `ROWS`: the last row of each is filtered, not smoothed."""
    make = jax.jit(jax.vmap(lambda k: linear_series(ROWS, key=k)))
    series = make(jr.split(key, number))
    lengths = np.random.default_rng(0).integers(2, ROWS + 1, number)
    lengths[: number // 2] = ROWS
    values = np.where(series.mask, series.values, np.nan)
    return (
        Trajectories.from_series(
            [np.asarray(t[:n], np.float64) for t, n in zip(series.times, lengths, strict=True)],
            [v[:n] for v, n in zip(values, lengths, strict=True)],
        ),
        series,
    )


@pytest.fixture(scope="module")
def fitted():
    data, _ = many(SERIES, jr.key(1))
    posterior = SmoothingPosterior(3, 2, hidden=64, width=64, mask_input=True, key=jr.key(2))
    single = lambda leaf: leaf.astype(jnp.float32) if eqx.is_inexact_array(leaf) else leaf
    model = jax.tree.map(single, linear_flow(posterior))
    result = fit_latent(
        model, data, config=CONFIG, trainable=lambda m: m.posterior, progress=False, key=jr.key(3)
    )
    return result.flow


@pytest.fixture(scope="module")
def truth():
    _, series = many(HELD_OUT, jr.key(4))
    return series, jax.jit(jax.vmap(lambda s: kalman(linear_model(), s)))(series)


def row_by_row(fitted, series):
    read = jax.jit(jax.vmap(fitted.model.posterior.marginals))
    return read(jax.tree.map(lambda a: a.astype(jnp.float32) if a.dtype == jnp.float64 else a, series))


def test_smoothed_means_and_variances_are_those_of_the_smoother(fitted, truth):
    series, exact = truth
    found = row_by_row(fitted, series)
    std = jax.vmap(lambda m: m.std)(exact.smoothed)
    error = jnp.abs(found.mean - exact.smoothed.mean) / std
    ratio = (found.std / std) ** 2
    print(f"smoother: mean off by {float(error.mean()):.3f} std, variance ratio {float(ratio.mean()):.3f}")
    assert float(error.mean()) < 0.1
    assert float(jnp.abs(ratio - 1).mean()) < 0.1


def test_the_last_row_is_filtered(fitted, truth):
    series, exact = truth
    errors, ratios = [], []
    for n in (4, 12, 20):
        prefix = jax.tree.map(lambda leaf, n=n: leaf[:, :n], series)
        found = row_by_row(fitted, prefix)
        std = jax.vmap(lambda m: m.std)(exact.filtered)[:, n - 1]
        errors.append(jnp.abs(found.mean[:, -1] - exact.filtered.mean[:, n - 1]) / std)
        ratios.append((found.std[:, -1] / std) ** 2)
    error, ratio = jnp.stack(errors), jnp.stack(ratios)
    print(f"filter: mean off by {float(error.mean()):.3f} std, variance ratio {float(ratio.mean()):.3f}")
    assert float(error.mean()) < 0.1
    assert float(jnp.abs(ratio - 1).mean()) < 0.1


def test_the_bound_of_importance_weights_is_the_log_likelihood(fitted, truth):
    series, exact = truth
    short = []
    for i in range(16):
        values = np.where(series.mask[i], series.values[i], np.nan)
        bound = likelihood_bound(fitted, np.asarray(series.times[i]), values, samples=512, key=jr.key(i))
        short.append((float(exact.log_likelihood[i]) - bound.iwae) / ROWS)
    print(f"importance-weighted bound: {np.mean(short):.4f} nats a row short")
    assert abs(np.mean(short)) < 0.05


def test_forecasts_are_those_of_the_filter(fitted, truth):
    series, exact = truth
    law, gap = linear_model().transition, 0.8
    errors = []
    for i in range(16):
        times, values = np.asarray(series.times[i]), np.where(series.mask[i], series.values[i], np.nan)
        at = times[-1:] + gap
        drawn = forecast_latent(fitted, times, values, at, samples=4096, key=jr.key(i)).states[:, 0]
        decay, shift, variance = law.decay_offset_variance(jnp.array(gap))
        mean = decay * exact.filtered.mean[i, -1] + shift
        std = jnp.sqrt(decay**2 * jnp.diag(exact.filtered.covariance[i, -1]) + variance)
        errors.append([(drawn.mean(axis=0) - mean) / std, (drawn.std(axis=0) / std) ** 2 - 1])
    of_mean, of_variance = np.abs(errors).mean(axis=(0, 2))
    print(f"forecast: mean off by {of_mean:.3f} std, variance by {of_variance:.3f} of itself")
    assert of_mean < 0.1
    assert of_variance < 0.1


def test_the_posterior_is_calibrated_by_simulation(fitted):
    """Ranks of the true state among draws of the posterior are uniform, over many simulated series with irregular
    times and 30 % of the channels missing: at a row in the middle, which is smoothed, and at the last."""
    pytest.importorskip("scipy")
    from scipy.stats import chisquare

    @jax.jit
    @jax.vmap
    def ranks(key):
        series_key, state_key, path_key = jr.split(key, 3)
        series = linear_series(RANKED, key=series_key)
        # A path that the observations could have come from, whatever path they did come from.
        exact = ExactPosterior().sample_and_log_prob(series, key=state_key).x
        single = jax.tree.map(lambda a: a.astype(jnp.float32) if a.dtype == jnp.float64 else a, series)
        draw = lambda k: fitted.model.posterior.sample_and_log_prob(single, key=k).x
        drawn = jax.vmap(draw)(jr.split(path_key, RANKS - 1))
        rows = jnp.array([RANKED // 2, RANKED - 1])
        return (drawn[:, rows] < exact[rows][None]).sum(axis=0)

    found = np.asarray(ranks(jr.split(jr.key(7), SIMULATED)))
    for row, dim in np.ndindex(2, 2):
        counts = np.bincount(found[:, row, dim] * BINS // RANKS, minlength=BINS)
        p, excess = chisquare(counts).pvalue, np.abs(counts * BINS / SIMULATED - 1).max()
        print(
            f"ranks, {('middle', 'last')[row]} row, dimension {dim}: p = {p:.3f}, largest excess {excess:.3f}"
        )
        assert p > FALSE_ALARM
        assert excess < 0.2
