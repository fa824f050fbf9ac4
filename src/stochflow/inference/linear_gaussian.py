"""The exact answer where there is one: states of a linear-Gaussian model, filtered, smoothed and forecast."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Scalar

from ..latent import Series
from ..laws import AbstractTransition


class LinearGaussianModel(NamedTuple):
    r"""$x_{t_0} \sim N(m, P)$, an affine transition law, and $o = C x + d + \varepsilon$, $\varepsilon \sim N(0, R)$
    with $R$ diagonal. `transition` may be any law whose samples are affine in the state and in the noise."""

    transition: AbstractTransition
    mean: Float[Array, " dim"]
    covariance: Float[Array, "dim dim"]
    matrix: Float[Array, "channels dim"]
    offset: Float[Array, " channels"]
    std: Float[Array, " channels"]


class Moments(NamedTuple):
    """Means and covariances of the state at each row."""

    mean: Float[Array, "rows dim"]
    covariance: Float[Array, "rows dim dim"]

    @property
    def std(self) -> Float[Array, "rows dim"]:
        return jnp.sqrt(jnp.diagonal(self.covariance, axis1=1, axis2=2))


class KalmanResult(NamedTuple):
    """Given the past and present (`filtered`), given everything (`smoothed`), and the exact log-likelihood."""

    filtered: Moments
    smoothed: Moments
    log_likelihood: Scalar


def kalman(model: LinearGaussianModel, series: Series) -> KalmanResult:
    """Kalman filter and Rauch–Tung–Striebel smoother at irregular times, with channels missing."""
    steps = jax.vmap(lambda s, t: affine_step(model.transition, s, t))
    first = jnp.arange(len(series.times)) == 0
    # The first row has no step before it; that of the padding is never used.
    gaps = jnp.where(first | ~series.present, 1.0, series.gaps)
    matrices, shifts, noises = steps(series.times - gaps, series.times)

    def forward(carry, now):
        mean, covariance = carry
        matrix, shift, noise, value, mask, is_first, here = now
        ahead = matrix @ mean + shift, matrix @ covariance @ matrix.T + noise
        prior = jax.tree.map(lambda a, b: jnp.where(is_first, a, b), (model.mean, model.covariance), ahead)
        posterior, log_prob = _update(model, prior, value, mask & here)
        posterior = jax.tree.map(lambda new, old: jnp.where(here, new, old), posterior, carry)
        return posterior, (prior, posterior, jnp.where(here, log_prob, 0.0))

    start = model.mean, model.covariance
    inputs = matrices, shifts, noises, series.seen, series.mask, first, series.present
    _, (priors, filtered, log_probs) = jax.lax.scan(forward, start, inputs)

    def backward(carry, now):
        (prior_mean, prior_covariance), (mean, covariance), matrix, follows = now
        gain = jnp.linalg.solve(prior_covariance, matrix @ covariance).T
        better = (
            mean + gain @ (carry[0] - prior_mean),
            covariance + gain @ (carry[1] - prior_covariance) @ gain.T,
        )
        smoothed = jax.tree.map(lambda a, b: jnp.where(follows, a, b), better, (mean, covariance))
        return smoothed, smoothed

    ahead = jax.tree.map(lambda leaf: jnp.roll(leaf, -1, axis=0), (priors, matrices))
    follows = jnp.roll(series.present, -1) & (jnp.arange(len(first)) < len(first) - 1)
    last = jax.tree.map(lambda leaf: leaf[-1], filtered)
    _, smoothed = jax.lax.scan(backward, last, (ahead[0], filtered, ahead[1], follows), reverse=True)
    return KalmanResult(Moments(*filtered), Moments(*smoothed), log_probs.sum())


def affine_step(
    law: AbstractTransition, s, t
) -> tuple[Float[Array, "dim dim"], Float[Array, " dim"], Float[Array, "dim dim"]]:
    """Matrix, shift and noise covariance of a law whose samples are affine in the state and in the noise."""
    zero = jnp.zeros(law.dim)
    matrix = jax.jacfwd(lambda x: law.transform(zero, x, s, t))(zero)
    root = jax.jacfwd(lambda noise: law.transform(noise, zero, s, t))(zero)
    return matrix, law.transform(zero, zero, s, t), root @ root.T


def _update(model, prior, value, mask):
    """Condition on the observed channels; the others have infinite noise, and so no weight."""
    mean, covariance = prior
    matrix = jnp.where(mask[:, None], model.matrix, 0.0)
    variance = jnp.where(mask, model.std**2, 1.0)
    surprise = jnp.where(mask, value - model.matrix @ mean - model.offset, 0.0)
    spread = matrix @ covariance @ matrix.T + jnp.diag(variance)
    gain = jnp.linalg.solve(spread, matrix @ covariance).T
    _, log_det = jnp.linalg.slogdet(spread)
    distance = surprise @ jnp.linalg.solve(spread, surprise)
    log_prob = -0.5 * (distance + log_det + mask.sum() * jnp.log(2 * jnp.pi))
    left = jnp.eye(mean.shape[0]) - gain @ matrix
    updated = left @ covariance @ left.T + (gain * variance[None]) @ gain.T
    return (mean + gain @ surprise, updated), log_prob
