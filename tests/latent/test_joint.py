"""A latent flow learnt as a whole, transition, emission and noise, against the model that the data came from."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from stochflow import LatentConfig, Trajectories, fit_latent
from stochflow.inference import forecast_latent, kalman, likelihood_bound
from stochflow.latent import GaussianEmission, KalmanPosterior, LatentFlow
from stochflow.laws import OrnsteinUhlenbeck

from .linear import linear_model, linear_series

pytestmark = pytest.mark.slow

ROWS, SERIES, HELD_OUT, GAP = 24, 512, 32, 0.8
CONFIG = LatentConfig(
    steps=1500,
    log_every=500,
    batch_size=64,
    learning_rate=1e-2,
    optimiser="adamw",
    ema=0.99,
    beta_skip=0.0,
    standardise=False,
    skip_starts=1,
    skip_samples=1,
)


def far_off(key) -> LatentFlow:
    """The right kind of model, with everything in it wrong."""
    law = OrnsteinUhlenbeck([1.5, 0.8], [0.0, 0.0], [0.5, 0.5])
    emission = GaussianEmission(2, 3, depth=0, std="channel", initial_std=1.0, key=key)
    flow = LatentFlow(law, emission, KalmanPosterior(2))
    single = lambda leaf: leaf.astype(jnp.float32) if eqx.is_inexact_array(leaf) else leaf
    return jax.tree.map(single, flow)


@pytest.fixture(scope="module")
def learnt():
    made = jax.jit(jax.vmap(lambda k: linear_series(ROWS, key=k)))(jr.split(jr.key(1), SERIES))
    values = np.where(made.mask, made.values, np.nan)
    data = Trajectories.from_series(list(np.asarray(made.times, np.float64)), list(values))
    return fit_latent(far_off(jr.key(2)), data, config=CONFIG, progress=False, key=jr.key(3)).flow


@pytest.fixture(scope="module")
def others():
    """Series that it has not seen, and what the true model makes of them."""
    series = jax.jit(jax.vmap(lambda k: linear_series(ROWS, key=k)))(jr.split(jr.key(4), HELD_OUT))
    return series, jax.jit(jax.vmap(lambda s: kalman(linear_model(), s)))(series)


def past(series, i):
    """Times, counted as in training from the first row, and values."""
    times = np.asarray(series.times[i], np.float64)
    return times - times[0], np.where(series.mask[i], series.values[i], np.nan)


def test_it_is_as_likely_as_the_truth(learnt, others):
    series, exact = others
    bounds = [likelihood_bound(learnt, *past(series, i), samples=4, key=jr.key(i)) for i in range(HELD_OUT)]
    # The posterior is exact for the learnt model: every sample of the bound is its likelihood.
    assert max(abs(bound.iwae - bound.elbo) for bound in bounds) < 0.05
    short = (np.asarray(exact.log_likelihood) - [bound.iwae for bound in bounds]) / ROWS
    print(
        f"the learnt model is {short.mean():.4f} nats a row less likely than the true one, at most {short.max():.3f}"
    )
    assert short.mean() < 0.05


def test_its_forecasts_are_those_of_the_truth(learnt, others):
    series, exact = others
    model = linear_model()
    decay, shift, variance = model.transition.decay_offset_variance(jnp.array(GAP))
    errors = []
    for i in range(HELD_OUT):
        times, values = past(series, i)
        drawn = forecast_latent(learnt, times, values, times[-1:] + GAP, samples=4096, key=jr.key(i)).values[
            :, 0
        ]
        state = decay * exact.filtered.mean[i, -1] + shift
        spread = decay[:, None] * exact.filtered.covariance[i, -1] * decay[None] + jnp.diag(variance)
        mean = model.matrix @ state + model.offset
        std = jnp.sqrt(jnp.diag(model.matrix @ spread @ model.matrix.T) + model.std**2)
        errors.append([(drawn.mean(axis=0) - mean) / std, (drawn.std(axis=0) / std) ** 2 - 1])
    of_mean, of_variance = np.abs(errors).mean(axis=(0, 2))
    print(f"forecasts: mean off by {of_mean:.3f} std, variance by {of_variance:.3f} of itself")
    assert of_mean < 0.1
    assert of_variance < 0.1
