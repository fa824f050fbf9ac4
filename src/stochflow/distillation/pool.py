"""Paths of a solver, and the pairs that are drawn from them."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, Int, PRNGKeyArray

from ..data.pairs import Pairs
from ..laws import Support
from ..sde import SDE, AbstractSolver
from ..sde.solvers import draw_increment
from .starts import Box, StartLaw, States

# Gaps up to this many horizons are learnt: the very last has pairs on both sides of it.
MARGIN = 1.125


class Units(eqx.Module):
    """From the user's states and times to those that the flow is trained in."""

    support: Support
    loc: Float[Array, " dim"]
    scale: Float[Array, " dim"]

    def apply(self, x: Float[Array, " dim"]) -> Float[Array, " dim"]:
        return (self.support.to_line(x) - self.loc) / self.scale


class Pool(eqx.Module):
    """Simulated paths in the flow's units, finite ones first; what a batch is drawn from."""

    paths: Float[Array, "rows paths dim"]
    order: Int[Array, " paths"]
    finite: Int[Array, ""]
    rows: int = eqx.field(static=True)
    start_fraction: float = eqx.field(static=True)

    def draw(self, batch: int, *, key: PRNGKeyArray) -> Pairs:
        """Pairs whose gap is uniform, or for every other one the square of that: short gaps change the fastest."""
        path_key, lag_key, start_key, share_key = jr.split(key, 4)
        path = self.order[jr.randint(path_key, (batch,), 0, self.finite)]
        longest = min(round(MARGIN * self.rows), self.paths.shape[0] - 1)
        uniform = jr.uniform(lag_key, (batch,))
        power = jnp.where(jnp.arange(batch) % 2 == 0, uniform, jnp.square(uniform))
        lag = 1 + jnp.floor(power * longest).astype(jnp.int32).clip(0, longest - 1)
        first = jr.randint(start_key, (batch,), 0, self.paths.shape[0] - lag)
        first = jnp.where(jr.uniform(share_key, (batch,)) < self.start_fraction, 0, first)
        s, t = first / self.rows, (first + lag) / self.rows
        return Pairs(self.paths[first, path], self.paths[first + lag, path], s, t, None)

    @property
    def lost(self) -> Float[Array, ""]:
        """The share of paths that are not finite."""
        return 1 - self.finite / self.order.shape[0]


@dataclasses.dataclass(frozen=True)
class Simulator:
    """Whole batches of paths by a plain scan: `rows` states a horizon, `substeps` of the solver between two."""

    sde: SDE
    starts: Box | States | StartLaw
    scheme: AbstractSolver
    horizon: float
    rows: int
    substeps: int
    onward: float

    @property
    def dt(self) -> float:
        return self.horizon / (self.rows * self.substeps)

    @property
    def length(self) -> int:
        """Rows of a path after its start."""
        return max(round(MARGIN * self.rows), round((1 + self.onward) * self.rows))

    def paths(self, number: int, *, key: PRNGKeyArray) -> Float[Array, "rows paths dim"]:
        """In the user's units, folded back into the support by whoever needs it."""
        start_key, path_key = jr.split(key)
        x0 = self.starts.draw(number, key=start_key)
        keys = jr.split(path_key, self.length)
        h = self.dt

        def row(x, item):
            i, key = item
            x = advance(self.sde, self.scheme, x, i * self.substeps * h, h, self.substeps, key=key)
            return x, x

        _, rest = jax.lax.scan(row, x0, (jnp.arange(self.length), keys))
        return jnp.concatenate([x0[None], rest])

    def pool(self, number: int, units: Units, start_fraction: float, *, key: PRNGKeyArray) -> Pool:
        paths = self.paths(number, key=key)
        finite = jnp.isfinite(paths).all(axis=(0, 2))
        fold = jax.vmap(jax.vmap(lambda x: units.apply(units.support.fold(x))))
        folded = fold(paths)
        finite &= jnp.isfinite(folded).all(axis=(0, 2))
        return Pool(folded, jnp.argsort(~finite), finite.sum(), self.rows, start_fraction)


def advance(
    sde: SDE,
    scheme: AbstractSolver,
    x: Float[Array, "paths dim"],
    t: Float[Array, ""],
    h: float,
    steps: int,
    *,
    key: PRNGKeyArray,
) -> Float[Array, "paths dim"]:
    """`steps` steps of a whole batch from time `t`: noise for all from one key, the least that a solver can cost."""
    size = x.shape[0] * sde.noise_dim

    def step(x, item):
        k, key = item
        flat = draw_increment(jnp.asarray(h, x.dtype), size, x.dtype, key=key)
        increments = jax.tree.map(lambda leaf: leaf.reshape(x.shape[0], sde.noise_dim), flat)
        one = lambda x, increment: scheme.step(sde, x, t + k * h, jnp.asarray(h, x.dtype), None, increment)
        return jax.vmap(one)(x, increments).astype(x.dtype), None

    return jax.lax.scan(step, x, (jnp.arange(steps), jr.split(key, steps)))[0]
