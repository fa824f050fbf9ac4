"""What can be found out about an SDE by calling it: its symmetries, and the solver and the step that it needs."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from ..flows.nets import FIRST_REACH
from ..sde import SDE, AbstractSolver, brownian_increments, coarsen, solve_driven
from ..sde.solvers import SOLVERS, find_solver

# Steps per horizon that the choice of `dt` is made from; the finest is the truth of the test.
FINEST, COARSEST = 1024, 64
TEST_PATHS = 1024
# States at which derivatives are taken, a quarter of them starts and the others where paths lead: a symmetry that holds
# at all of them is no accident. Values are the same if they differ by no more than this share of the largest.
PROBED, SAME = 256, 1e-5
# Of a standard deviation: below what a flow of moderate size learns. In an energy distance it is about 5e-6.
TOLERANCE = 3e-3
# Solvers of noise that each coordinate has for itself.
OWN_NOISE = ("milstein", "runge_kutta")
# Beyond the noise of the test itself, in standard errors.
BEYOND_NOISE = 2.0


def first_line(error: Exception) -> str:
    """What was raised, in a line that a sentence may go on after."""
    said = str(error).strip().splitlines()
    return f"{type(error).__name__}: {said[0].rstrip('.')}" if said else type(error).__name__


@eqx.filter_jit
def _derivatives(sde, states, times):
    """Largest derivative of the drift and of the diffusion by each coordinate, and by time."""
    # Of diagonal noise the diagonal alone: of twenty coordinates a matrix has half a million derivatives, all zeros.
    both = lambda t, x: (sde.drift(t, x, None), sde.diffusion(t, x, None).reshape(sde.dim, -1))
    by_state = jax.vmap(jax.jacfwd(both, argnums=1))(times, states)
    by_time = jax.vmap(jax.jacfwd(both, argnums=0))(times, states)
    largest = lambda leaf: jnp.abs(leaf).reshape(-1, leaf.shape[-1]).max(axis=0)
    own = jnp.abs(by_state[1]).max(axis=(0, 2))  # [i, l]: of row i of the diffusion by coordinate l
    driven = jnp.abs(by_state[0]).max(axis=0)  # [i, l]: of the drift of i by coordinate l
    by_state = largest(by_state[0]) + largest(by_state[1])
    return by_state, own, driven, [jnp.abs(leaf).max() for leaf in by_time]


class Symmetries(eqx.Module):
    """Coordinates that nothing depends on; whether time does not matter; whether noise is each coordinate's own; and
    whether all coordinates stand in a ring, each driven by its neighbours as all others are."""

    relative: tuple[int, ...] = eqx.field(static=True)
    autonomous: bool = eqx.field(static=True)
    own_noise: bool = eqx.field(static=True)
    ring: bool = eqx.field(static=True)


def find_symmetries(sde: SDE, states: Float[Array, "n dim"], times: Float[Array, " n"]) -> Symmetries:
    """From derivatives at many states and times, which must all be zero, exactly; and from values, which must not
    change when a coordinate, or the time, is that of another state. A step has no derivative and does change."""
    by_state, own, driven, by_time = _derivatives(sde, states, times)
    free = [i for i, value in enumerate(np.asarray(by_state)) if value == 0]
    turns = shifts(states)
    swapped = lambda i, by: states.at[:, i].set(jnp.roll(states[:, i], by))
    relative = tuple(i for i in free if all(_same(sde, states, times, swapped(i, by), times) for by in turns))
    autonomous = all(float(value) == 0 for value in by_time) and all(
        _same(sde, states, times, states, jnp.roll(times, by)) for by in turns
    )
    own = np.asarray(own)
    own_noise = sde.noise == "diagonal" and not own[~np.eye(sde.dim, dtype=bool)].any()
    ring = own_noise and _is_local(np.asarray(driven)) and _turns(sde, states, times)
    return Symmetries(relative, autonomous, own_noise, ring)


def shifts(states) -> tuple[int, ...]:
    """By how many places states are moved to stand beside others."""
    return tuple(max(1, len(states) // share) for share in (2, 3, 7))


def _is_local(driven: np.ndarray) -> bool:
    """Whether coordinates, at least as many as a ring's network sees at once, are driven by some that stand near them
    in the ring, and by none that is further away."""
    dim = len(driven)
    away = np.abs(np.subtract.outer(np.arange(dim), np.arange(dim)))
    away = np.minimum(away, dim - away)
    return bool(dim > 2 * FIRST_REACH and not driven[away > FIRST_REACH].any() and driven[away > 0].any())


def _turns(sde, states, times) -> bool:
    """Whether a state that is turned by one place moves as the state itself does, turned by one place."""
    return _same(sde, states, times, jnp.roll(states, 1, axis=1), times, turned=1)


def _same(sde, states, times, others, other_times, turned: int = 0) -> bool:
    """Whether drift and diffusion have the same values at other states and times, turned by so many places."""
    return bool(_differ_by(sde, states, times, others, other_times, turned) < SAME)


@eqx.filter_jit
def _differ_by(sde, states, times, others, other_times, turned):
    both = jax.vmap(lambda t, x: (sde.drift(t, x, None), sde.diffusion(t, x, None)))
    pairs = zip(both(times, states), both(other_times, others), strict=True)
    largest = lambda a: jnp.abs(a).reshape(a.shape[0], a.shape[1], -1).max(axis=(0, 2))

    def differ(a, b):
        """By coordinates, as each has units of its own."""
        turned_a = jnp.roll(a, turned, axis=1)
        return (largest(turned_a - b) / (largest(turned_a) + jnp.finfo(a.dtype).tiny)).max()

    return jnp.stack([differ(a, b) for a, b in pairs]).max()


def choose_solver(sde: SDE, name: str | None, symmetries: Symmetries) -> AbstractSolver:
    """The solver of that name or, without one, that of the highest order that fits the noise."""
    if name is None:
        if sde.additive:
            name = "additive_runge_kutta"
        elif symmetries.own_noise:
            name = "milstein"
        else:
            name = "heun" if sde.interpretation == "stratonovich" else "euler_maruyama"
    scheme = find_solver(name)
    scheme.check(sde)
    if name in OWN_NOISE and not symmetries.own_noise:
        raise ValueError(
            f"`solver` must not be {name} where the noise of a coordinate depends on another one: choose "
            "'euler_maruyama' or 'heun', or leave it out."
        )
    return scheme


def solver_name(scheme: AbstractSolver) -> str:
    return next(
        (name for name, known in SOLVERS.items() if type(known) is type(scheme)), type(scheme).__name__
    )


def choose_steps(
    sde: SDE, scheme: AbstractSolver, x0: Float[Array, "n dim"], horizon: float, *, key: PRNGKeyArray
) -> int:
    """The fewest steps a horizon, of 64, 128, … 1024, whose means and standard deviations at the horizon are those of
    1024 steps on the same Brownian paths, within `TOLERANCE` of a standard deviation or the noise of the test. Far
    from zero so many steps are rounded by more than that, and fewer are the truth of the test."""
    ends = _ends(sde, scheme, x0, horizon, key)  # level, path, coordinate
    dtype, ends = ends.dtype, np.asarray(ends, np.float64)
    ends = ends[:, np.isfinite(ends).all(axis=(0, 2))]
    if ends.shape[1] < TEST_PATHS // 8:  # `distill` will say what is wrong
        return FINEST
    finest = FINEST
    while finest > COARSEST and (rounded(ends[-1], finest, dtype) > TOLERANCE).any():
        finest //= 2
    ends = ends[(FINEST // finest).bit_length() - 1 :]
    fine = ends[0]
    std = np.maximum(fine.std(axis=0), 1e-30)
    chosen = finest
    for level, end in enumerate(ends[1:], 1):
        shift = (end - fine) / std
        widened = ((end - end.mean(0)) ** 2 - (fine - fine.mean(0)) ** 2) / (2 * std**2)
        noise = BEYOND_NOISE * np.maximum(shift.std(0), widened.std(0)) / np.sqrt(ends.shape[1])
        if (np.maximum(abs(shift.mean(0)), abs(widened.mean(0))) > np.maximum(TOLERANCE, noise)).any():
            break
        chosen = finest >> level
    return chosen


def rounded(ends: Float[np.ndarray, "n dim"], steps: int, dtype: np.dtype) -> Float[np.ndarray, " dim"]:
    """By which share so many steps, each rounded to the last digit of the state, widen a coordinate."""
    last = np.spacing(np.abs(ends).max(axis=0).astype(dtype)).astype(np.float64)
    return steps * last**2 / 12 / (2 * ends.var(axis=0) + np.finfo(np.float64).tiny)


@eqx.filter_jit
def _ends(sde, scheme, x0, horizon, key):
    def one(item):
        x0, key = item
        increments = brownian_increments(horizon, FINEST, sde.noise_dim, key=key)
        increments = jax.tree.map(lambda leaf: leaf.astype(x0.dtype), increments)
        ends = [solve_driven(sde, x0, 0.0, horizon, increments, solver=scheme)]
        while increments.dw.shape[0] > COARSEST:
            increments = coarsen(increments)
            ends.append(solve_driven(sde, x0, 0.0, horizon, increments, solver=scheme))
        return jnp.stack(ends)

    return jax.lax.map(one, (x0, jr.split(key, x0.shape[0])), batch_size=256).swapaxes(0, 1)
