"""Evidence lower bounds of a latent flow, one series and one sample at a time."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Bool, Float, PRNGKeyArray, Scalar, ScalarLike

from ..latent import AbstractEmission, LatentFlow, PathSample, Series
from ..laws import AbstractTransition, Gaussian


class Terms(NamedTuple):
    r"""Row by row at one path of the posterior: $-\log p(o \mid x)$ and $\log q(x) - \log p(x \mid x_{\text{before}})$.

    Zero in the padding. `rows` marks those that have a state; the first is measured against the initial law.
    """

    reconstruction: Float[Array, " rows"]
    kl: Float[Array, " rows"]
    rows: Bool[Array, " rows"]

    def nelbo(self, beta: ScalarLike = 1.0) -> Scalar:
        """The negative bound; with another `beta` than one, the weighted one of the paper."""
        return (self.reconstruction + beta * self.kl).sum()


def state_rows(model: LatentFlow, series: Series) -> Bool[Array, " rows"]:
    """Rows that have a state: all that were observed, but for those that a window is filled with first."""
    return series.present & (jnp.arange(len(series.times)) >= model.posterior.context)


def elbo_terms(model: LatentFlow, series: Series, *, key: PRNGKeyArray) -> Terms:
    """The terms of the bound at one path drawn from the posterior."""
    return path_terms(model, series, model.reader.sample_and_log_prob(series, key=key))


def path_terms(model: LatentFlow, series: Series, path: PathSample) -> Terms:
    """The terms of the bound at a given path."""
    rows = state_rows(model, series)
    first = jnp.arange(len(rows)) == model.posterior.context
    log_emission = jax.vmap(model.emission.log_prob)(series.values, series.mask, path.x)
    # Where there is no step, one of no consequence: the gap must be positive for the gradient to be finite.
    step = rows & ~first
    s = jnp.where(step, jnp.roll(series.times, 1), 0.0)
    t = jnp.where(step, series.times, 1.0)
    u = None if series.u is None else jnp.roll(series.u, 1, axis=0)
    moved = jax.vmap(model.transition.log_prob, in_axes=(0, 0, 0, 0, None if u is None else 0))(
        path.x, jnp.roll(path.x, 1, axis=0), s, t, u
    )
    prior = jnp.where(first, jax.vmap(model.initial.log_prob)(path.x), moved)
    return Terms(
        reconstruction=jnp.where(rows, -log_emission, 0.0),
        kl=jnp.where(rows, path.log_prob - prior, 0.0),
        rows=rows,
    )


def skip_ahead_gap(
    law: AbstractTransition,
    x_i: Float[Array, " dim"],
    x_j: Float[Array, " dim"],
    log_q: Scalar,
    s: ScalarLike,
    t: ScalarLike,
    u: Float[Array, " cond"] | None = None,
) -> Scalar:
    r"""$\log q(x_{t_j}) - \log p(x_{t_j} \mid x_{t_i})$ at a sample of the posterior: the paper's Eq. 16.

    Its mean is the KL divergence of a forecast that skips the rows between from what the posterior makes of row $j$.
    """
    return log_q - law.log_prob(x_j, x_i, s, t, u)


# Keeps the root of a squared distance smooth at zero, in units of the data's standard deviation.
SMOOTH = 1e-3


def forecast_energy(
    law: AbstractTransition,
    emission: AbstractEmission,
    start: Gaussian,
    value: Float[Array, " channels"],
    mask: Bool[Array, " channels"],
    s: ScalarLike,
    t: ScalarLike,
    u: Float[Array, " cond"] | None = None,
    *,
    key: PRNGKeyArray,
) -> Scalar:
    r"""The energy score of a forecast of one row, by two draws: $\tfrac12\big(|O - o| + |O' - o| - |O - O'|\big)$.

    Its mean is smallest for the true law of what is to be observed. Each draw starts from a state of its own, drawn
    from `start`, what the past has told, and takes one step; noise is normal with the emission's standard deviation.
    """
    start_key, step_key, noise_key = jr.split(key, 3)

    def draw(start_noise, step_noise, noise):
        x_s, _ = start.transform_and_log_prob(start_noise)
        x_t = law.transform(step_noise, x_s, s, t, u)
        mean, std = emission.mean_and_std(x_t)
        return mean + std * noise

    normal = lambda key, size: jr.normal(key, (2, size), start.mean.dtype)
    one, other = jax.vmap(draw)(
        normal(start_key, law.dim), normal(step_key, law.dim), normal(noise_key, value.shape[0])
    )
    distance = lambda gap: jnp.sqrt(jnp.where(mask, gap**2, 0.0).sum() + SMOOTH**2)
    return 0.5 * (distance(one - value) + distance(other - value) - distance(one - other))
