"""What a law says about the process at an instant: its drift and its diffusion."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, PRNGKeyArray, ScalarLike

from ..laws import AbstractTransition


class DriftAndDiffusion(NamedTuple):
    r"""$\lim E[x_{t+h} - x]/h$ and $\lim \mathrm{Cov}[x_{t+h}]/h$, the squared diffusion matrix."""

    drift: Float[Array, " dim"]
    covariance_rate: Float[Array, "dim dim"]


def drift_and_diffusion(
    law: AbstractTransition,
    x: Float[Array, " dim"],
    *,
    gap: float,
    time: ScalarLike = 0.0,
    u: Float[Array, " cond"] | None = None,
    samples: int = 512,
    key: PRNGKeyArray,
) -> DriftAndDiffusion:
    r"""The rates of change of a law's mean and covariance at a state, from draws a short `gap` ahead.

    Draws come in pairs of opposite noise, so the error of the drift is of order `gap`, and not
    $1/\sqrt{\text{gap} \cdot \text{samples}}$. Choose a gap over which the process hardly moves, and no shorter than
    the data has taught. One state at a time: `jax.vmap` for a grid.
    """
    if not gap > 0:
        raise ValueError(f"`gap` must be positive; got {gap}.")
    if samples < 2:
        raise ValueError(f"`samples` must be at least 2; got {samples}.")
    x = jnp.asarray(x, jnp.result_type(x, float))
    half = jr.normal(key, ((samples + 1) // 2, law.dim), x.dtype)
    start = jnp.asarray(time, x.dtype)
    ends = jax.vmap(lambda noise: law.transform(noise, x, start, start + gap, u))(
        jnp.concatenate([half, -half])
    )
    mean = ends.mean(axis=0)
    spread = ends - mean[None]
    return DriftAndDiffusion((mean - x) / gap, spread.T @ spread / (len(ends) * gap))
