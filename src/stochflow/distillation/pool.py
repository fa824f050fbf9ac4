"""Paths of a solver, and the pairs that are drawn from them."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, Int, PRNGKeyArray, ScalarLike

from ..data.pairs import Pairs
from ..laws import Support
from ..sde import SDE, AbstractSolver
from ..sde.solvers import Increments, draw_increment
from .even import block_increments, number_of_blocks, shifted, sobol_points
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
    """Simulated paths in the flow's units; what a batch is drawn from. `order` says which of the first half to take in
    turn, those first that are finite, as their mirror images in the second half are; `finite` how many of them;
    `folded` the share of states that lay beyond the support and were mirrored back. A path starts at the row that
    `since` says, and rests before."""

    paths: Float[Array, "rows paths dim"]
    since: Int[Array, " twins"]
    order: Int[Array, " twins"]
    finite: Int[Array, ""]
    folded: Float[Array, ""]
    rows: int = eqx.field(static=True)
    start_fraction: float = eqx.field(static=True)

    def draw(self, batch: int, turn: Int[Array, ""] | int, *, key: PRNGKeyArray) -> Pairs:
        """Pairs whose gap is uniform or, for half of them, the square of that: short gaps change the fastest.

        Batches take turns through the paths, so that all serve alike, and gaps are spread evenly over a batch. Paths
        come in the order of their Sobol points: those of about the same gap are spread evenly, too. A path and its
        mirror image come together, with the same gap: in their mean most of the noise is gone.
        """
        lag_key, start_key, share_key = jr.split(key, 3)
        twins = batch // 2
        path = self.order[(turn * twins + jnp.arange(twins)) % self.finite]
        since = self.since[path]
        longest = jnp.minimum(round(MARGIN * self.rows), self.paths.shape[0] - 1 - since)
        # Turned by chance, or a path would have the same gap whenever its turn comes.
        even = 2 * ((jnp.arange(twins) / twins + jr.uniform(lag_key)) % 1)
        lag = jnp.where(even < 1, even, jnp.square(even - 1)) * longest
        lag = 1 + lag.astype(jnp.int32).clip(0, longest - 1)
        first = jr.randint(start_key, (twins,), since, self.paths.shape[0] - lag)
        first = jnp.where(jr.uniform(share_key, (twins,)) < self.start_fraction, since, first)
        path = jnp.stack([path, path + self.paths.shape[1] // 2], axis=1).reshape(-1)
        first, lag = jnp.repeat(first, 2), jnp.repeat(lag, 2)
        s, t = first / self.rows, (first + lag) / self.rows
        return Pairs(self.paths[first, path], self.paths[first + lag, path], s, t, None)

    @property
    def lost(self) -> Float[Array, ""]:
        """The share of paths that are not finite."""
        return 1 - self.finite / self.order.shape[0]


@dataclasses.dataclass(frozen=True)
class Simulator:
    """Whole batches of paths by a plain scan: `rows` states a horizon, `substeps` of the solver between two.

    With `any_time` half of the paths start at later times: of an SDE that depends on the time, starts at time zero say
    nothing of what comes from there later.
    """

    sde: SDE
    starts: Box | States | StartLaw
    scheme: AbstractSolver
    horizon: float
    rows: int
    substeps: int
    onward: float
    any_time: bool = False

    @property
    def dt(self) -> float:
        return self.horizon / (self.rows * self.substeps)

    @property
    def length(self) -> int:
        """Rows of a path after its start."""
        return max(round(MARGIN * self.rows), round((1 + self.onward) * self.rows))

    @property
    def latest(self) -> float | None:
        """When paths end, if time matters."""
        return self.length * self.substeps * self.dt if self.any_time else None

    def paths(self, number: int, *, key: PRNGKeyArray) -> Float[Array, "rows paths dim"]:
        """In the user's units, not yet folded into the support. The second half starts where the first does and is
        driven by the mirror image of its noise: means then need far fewer paths, and half the noise is saved. Starts
        and the noise over each eighth of the horizon are spread evenly (Sobol points)."""
        return self._paths_and_since(number, key)[0]

    def _paths_and_since(self, number, key):
        """With the row at which each of the first half starts; it rests before."""
        point_key, start_key, path_key = jr.split(key, 3)
        blocks, noise_dim = number_of_blocks(self.rows), self.sde.noise_dim
        places, driven = self.starts.size, self.starts.size + blocks * self.sde.noise_dim
        points = shifted(sobol_points(number // 2, driven + self.any_time), key=point_key)
        # Half of the paths start at time zero, the others evenly over all rows but the last.
        late = jnp.maximum(2 * points[:, -1] - 1, 0) if self.any_time else jnp.zeros(number // 2)
        since = (late * self.length).astype(jnp.int32)
        half = self.starts.place(points[:, :places], key=start_key)
        aims = block_increments(points[:, places:driven], noise_dim, blocks, self.horizon / blocks).astype(
            half.dtype
        )
        keys = jr.split(path_key, self.length)
        rows = self.rows // blocks

        def row(carry, item):
            x, left = carry
            i, key = item
            left = jnp.where(i % rows == 0, aims[jnp.minimum(i // rows, blocks - 1)], left)
            steps_left = (rows - i % rows) * self.substeps
            moved, left = self._advance(x, left, i, jnp.where(i < self.rows, steps_left, 0), key)
            x = jnp.where((i >= jnp.tile(since, 2))[:, None], moved, x) if self.any_time else moved
            return (x, left), x

        x0 = jnp.concatenate([half, half])
        _, rest = jax.lax.scan(row, (x0, aims[0]), (jnp.arange(self.length), keys))
        return jnp.concatenate([x0[None], rest]), since

    def _advance(self, x, left, i, steps_left, key):
        """One row further, towards what is `left` of the increment of this stretch; freely if no steps of it are."""
        h = jnp.asarray(self.dt, x.dtype)

        def step(k, carry):
            x, left = carry
            dw_key, average_key = jr.split(jr.fold_in(key, k))
            # Given what is left of a sum of `n` increments, the next one has a mean of 1/n of it.
            share = jnp.where(steps_left > 0, 1 / jnp.maximum(steps_left - k, 1), 0.0).astype(x.dtype)
            chance = lambda key: jr.normal(key, left.shape, x.dtype)
            dw = share * left + jnp.sqrt(h * (1 - share)) * chance(dw_key)
            average = dw / 2 + jnp.sqrt(h / 12) * chance(average_key)
            both = Increments(*(jnp.concatenate([leaf, -leaf]) for leaf in (dw, average)))
            t = (i * self.substeps + k) * h
            one = lambda x, increment: self.scheme.step(self.sde, x, t, h, None, increment)
            return jax.vmap(one)(x, both).astype(x.dtype), left - dw

        return jax.lax.fori_loop(0, self.substeps, step, (x, left))

    def pool(self, number: int, units: Units, start_fraction: float, *, key: PRNGKeyArray) -> Pool:
        paths, since = self._paths_and_since(number, key)
        finite = jnp.isfinite(paths).all(axis=(0, 2))
        each = lambda function: jax.vmap(jax.vmap(function))
        folded = each(lambda x: units.apply(units.support.fold(x)))(paths)
        beyond = (finite[None] & ~each(units.support.contains)(paths)).sum() / (paths.shape[0] * finite.sum())
        finite &= jnp.isfinite(folded).all(axis=(0, 2))
        finite = finite.reshape(2, -1).all(axis=0)
        order = jnp.argsort(~finite, stable=True)
        return Pool(folded, since, order, finite.sum(), beyond.astype(paths.dtype), self.rows, start_fraction)


def advance(
    sde: SDE,
    scheme: AbstractSolver,
    x: Float[Array, "paths dim"],
    t: ScalarLike,
    h: ScalarLike,
    steps: int | Int[Array, ""],
    *,
    key: PRNGKeyArray,
) -> Float[Array, "paths dim"]:
    """`steps` steps of a whole batch from time `t`: noise for all from one key, the least that a solver can cost."""
    number = x.shape[0]

    def step(k, x):
        flat = draw_increment(
            jnp.asarray(h, x.dtype), number * sde.noise_dim, x.dtype, key=jr.fold_in(key, k)
        )
        increments = jax.tree.map(lambda leaf: leaf.reshape(number, sde.noise_dim), flat)
        one = lambda x, increment: scheme.step(sde, x, t + k * h, jnp.asarray(h, x.dtype), None, increment)
        return jax.vmap(one)(x, increments).astype(x.dtype)

    return jax.lax.fori_loop(0, steps, step, x)
