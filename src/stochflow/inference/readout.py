"""What a law says about the process at an instant: its drift and its diffusion."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, ArrayLike, Float, PRNGKeyArray, ScalarLike

from ..laws import AbstractTransition, check_state

# States of a grid that are read at once.
AT_ONCE = 64


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

    Draws come in pairs of opposite noise whose covariance is made to be one, so errors are of order `gap` where the law
    is nearly Gaussian over a short one, and not $1/\sqrt{\text{gap} \cdot \text{samples}}$. Choose a gap over which
    the process hardly moves, and no shorter than the data has taught. One state at a time:
    [`drift_field`][stochflow.inference.drift_field] is a grid.
    """
    if not isinstance(law, AbstractTransition):
        raise ValueError(
            "`law` must be a transition law, such as `fit(...).flow` or `fit_latent(...).flow.model.transition`; got "
            f"{type(law).__name__}."
        )
    if not gap > 0:
        raise ValueError(f"`gap` must be positive; got {gap}.")
    if samples < 2:
        raise ValueError(f"`samples` must be at least 2; got {samples}.")
    x = jnp.asarray(x, jnp.result_type(x, float))
    half = _balanced(jr.normal(key, ((samples + 1) // 2, law.dim), x.dtype))
    start = jnp.asarray(time, x.dtype)
    ends = jax.vmap(lambda noise: law.transform(noise, x, start, start + gap, u))(
        jnp.concatenate([half, -half])
    )
    mean = ends.mean(axis=0)
    spread = ends - mean[None]
    return DriftAndDiffusion((mean - x) / gap, spread.T @ spread / (len(ends) * gap))


def _balanced(noise: Float[Array, "n dim"]) -> Float[Array, "n dim"]:
    """The same noise, stretched so that its second moments are those of a standard normal law; if it is enough."""
    number, dim = noise.shape
    if number <= dim:
        return noise
    root = jnp.linalg.cholesky(noise.T @ noise / number)
    return jax.scipy.linalg.solve_triangular(root, noise.T, lower=True).T


class Field(NamedTuple):
    """Drift and squared diffusion on a grid of states: the axes of the grid come first."""

    points: Float[Array, "*grid dim"]
    drift: Float[Array, "*grid dim"]
    covariance_rate: Float[Array, "*grid dim dim"]


def drift_field(
    law: AbstractTransition,
    low: ArrayLike | list,
    high: ArrayLike | list,
    *,
    gap: float,
    points: int = 15,
    over: tuple[int, ...] | None = None,
    at: ArrayLike | list | None = None,
    time: ScalarLike = 0.0,
    u: Float[Array, " cond"] | None = None,
    samples: int = 512,
    key: PRNGKeyArray,
) -> Field:
    """[`drift_and_diffusion`][stochflow.inference.drift_and_diffusion] on a grid of states, to be looked at with
    [`plots.drift_field`][stochflow.plots.drift_field].

    **Arguments:**

    - `low`, `high`: the ends of the grid, one number for each coordinate of `over`.
    - `points`: states along each of them.
    - `over`: which coordinates of the state the grid goes over, one or two; the first two, or the only one, by default.
    - `at`: where the others stand; zero by default.
    - `gap`, `time`, `u`, `samples`, `key`: as for one state. All states see the same noise, so that what differs from
        one to the next is the law.
    """
    over = tuple(range(min(2, law.dim))) if over is None else tuple(over)
    known = all(isinstance(i, int) and 0 <= i < law.dim for i in over)
    if not known or len(over) not in (1, 2) or len(set(over)) < len(over):
        raise ValueError(f"`over` must name one or two of the {law.dim} coordinates, from 0; got {over}.")
    ends = [jnp.atleast_1d(jnp.asarray(end, jnp.result_type(float))) for end in (low, high)]
    if any(end.shape != (len(over),) for end in ends) or not (ends[0] < ends[1]).all():
        raise ValueError(
            f"`low` and `high` must hold {len(over)} numbers each, the first below the second; got {low} and {high}."
        )
    if points < 2:
        raise ValueError(f"`points` must be at least 2; got {points}.")
    origin = jnp.zeros(law.dim) if at is None else check_state("at", at, law.dim)
    lines = [jnp.linspace(a, b, points) for a, b in zip(*ends, strict=True)]
    grid = jnp.stack(jnp.meshgrid(*lines, indexing="ij"), axis=-1)
    states = jnp.broadcast_to(origin, (*grid.shape[:-1], law.dim)).at[..., jnp.array(over)].set(grid)
    read = lambda x: drift_and_diffusion(law, x, gap=gap, time=time, u=u, samples=samples, key=key)
    found = jax.lax.map(read, states.reshape(-1, law.dim), batch_size=AT_ONCE)
    shaped = lambda leaf: leaf.reshape(*grid.shape[:-1], *leaf.shape[1:])
    pick = jnp.array(over)
    return Field(
        grid, shaped(found.drift)[..., pick], shaped(found.covariance_rate)[..., pick[:, None], pick]
    )
