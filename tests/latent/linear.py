"""A linear-Gaussian state-space model, for which everything is known exactly."""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np

from stochflow.inference import LinearGaussianModel, affine_step, kalman
from stochflow.latent import AbstractPosterior, GaussianEmission, InitialLaw, LatentFlow, PathSample, Series
from stochflow.latent.posteriors import Marginals
from stochflow.laws import OrnsteinUhlenbeck, OrnsteinUhlenbeckBridge

RATE, MEAN, STD = [0.7, 2.0], [0.3, -0.2], [0.9, 1.1]
MATRIX = np.array([[1.0, 0.4], [-0.5, 0.8], [0.2, 1.1]])
OFFSET, NOISE = np.array([0.1, 0.0, -0.3]), 0.4


def linear_model() -> LinearGaussianModel:
    law = OrnsteinUhlenbeck(RATE, MEAN, STD)
    return LinearGaussianModel(
        law, jnp.zeros(2), jnp.eye(2), jnp.asarray(MATRIX), jnp.asarray(OFFSET), jnp.full(3, NOISE)
    )


def linear_flow(posterior: AbstractPosterior) -> LatentFlow:
    """The same model as a latent flow."""
    law = OrnsteinUhlenbeck(RATE, MEAN, STD)
    emission = GaussianEmission(2, 3, depth=0, std="fixed", initial_std=NOISE, key=jr.key(0))
    layer = emission.net.layers[0]
    emission = eqx.tree_at(
        lambda e: (e.net.layers[0].weight, e.net.layers[0].bias),
        emission,
        (jnp.asarray(MATRIX, layer.weight.dtype), jnp.asarray(OFFSET, layer.bias.dtype)),
    )
    flow = LatentFlow(law, emission, posterior, OrnsteinUhlenbeckBridge(law))
    return eqx.tree_at(lambda f: f.initial, flow, InitialLaw(2))


@functools.partial(jax.jit, static_argnames=("rows", "missing", "padding"))
def linear_series(rows: int, *, missing: float = 0.3, padding: int = 0, key) -> Series:
    """Observations at irregular times with a share of the channels missing, never all of a row."""
    gap_key, start_key, path_key, noise_key, mask_key, keep_key = jr.split(key, 6)
    times = jnp.cumsum(0.05 + jr.exponential(gap_key, (rows,)) * 0.3)
    law = OrnsteinUhlenbeck(RATE, MEAN, STD)

    def step(x, now):
        s, t, k = now
        x = law.sample(x, s, t, key=k)
        return x, x

    x0 = jr.normal(start_key, (2,))
    _, x = jax.lax.scan(step, x0, (times[:-1], times[1:], jr.split(path_key, rows - 1)))
    x = jnp.concatenate([x0[None], x])
    values = x @ MATRIX.T + OFFSET[None] + NOISE * jr.normal(noise_key, (rows, 3))
    mask = jr.uniform(mask_key, (rows, 3)) > missing
    kept = jax.nn.one_hot(jr.randint(keep_key, (rows,), 0, 3), 3, dtype=bool)
    mask = mask | kept
    pad = lambda array, fill: jnp.concatenate(
        [array, jnp.full((padding, *array.shape[1:]), fill, array.dtype)]
    )
    return Series(pad(times, times[-1]), pad(values, 7.0), pad(mask, False), pad(jnp.ones(rows, bool), False))


class ExactPosterior(AbstractPosterior):
    """The true posterior of the linear model, as a Markov chain forward in time."""

    dim: int = eqx.field(static=True, default=2)
    context: int = eqx.field(static=True, default=0)
    independent: bool = eqx.field(static=True, default=False)

    def marginals(self, series):
        smoothed = kalman(linear_model(), series).smoothed
        return Marginals(smoothed.mean, smoothed.std)

    def sample_and_log_prob(self, series, *, key):
        model = linear_model()
        found = kalman(model, series)
        noise = jr.normal(key, (len(series.times), 2))

        def step(x, now):
            i, noise = now
            before = jnp.maximum(i - 1, 0)
            matrix, _, spread = affine_step(model.transition, series.times[before], series.times[i])
            covariance = found.filtered.covariance[before]
            prior = matrix @ covariance @ matrix.T + spread
            gain = jnp.linalg.solve(jnp.where(i == 0, jnp.eye(2), prior), matrix @ covariance).T
            cross = found.smoothed.covariance[i] @ gain.T  # Cov(x_i, x_before | all)
            slope = jnp.linalg.solve(found.smoothed.covariance[before], cross.T).T
            slope = jnp.where(i == 0, 0.0, slope)
            mean = found.smoothed.mean[i] + slope @ (x - found.smoothed.mean[before])
            left = found.smoothed.covariance[i] - slope @ jnp.where(i == 0, 0.0, cross.T)
            root = jnp.linalg.cholesky(left)
            x = mean + root @ noise
            log_prob = -0.5 * (noise @ noise + 2 * jnp.log(2 * jnp.pi)) - jnp.log(jnp.diag(root)).sum()
            return x, (x, log_prob)

        _, (x, log_prob) = jax.lax.scan(step, jnp.zeros(2), (jnp.arange(len(noise)), noise))
        return PathSample(x, log_prob)
