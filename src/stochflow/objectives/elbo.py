"""Evidence lower bounds of a latent flow, one series and one sample at a time."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PRNGKeyArray, Scalar, ScalarLike

from ..latent import LatentFlow, PathSample, Series
from ..laws import AbstractTransition


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
    return path_terms(model, series, model.posterior.sample_and_log_prob(series, key=key))


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
