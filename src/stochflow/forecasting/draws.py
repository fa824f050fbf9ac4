"""Draws of many series at later times: in bounded memory, by one compiled program."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree, Scalar

# Draws in one call of the compiled program: memory stays small whatever the number of series, and one series alone
# costs little.
AT_ONCE = 1 << 14
# States on the way that a log-density is a mean over, where it is one.
LOG_DRAWS = 1024
# Of a step: a gap longer than the horizon by rounding alone is crossed in one.
SLACK = 1e-6

# Of a state, a gap and a key: the state after the gap.
Step = Callable[[PyTree[Array], Scalar, PRNGKeyArray], PyTree[Array]]


def in_chunks(
    draw: Callable[[Int[np.ndarray, " chunk"], tuple[int, ...]], Array | np.ndarray],
    shape: tuple[int, int, int, int],
    kinds: Int[np.ndarray, "series what"],
    *,
    each: int = 1,
) -> Float[np.ndarray, "series samples times dim"]:
    """`draw(rows, kind)` of all series, chunk by chunk, each chunk of one kind and as large as the others.

    How large is decided by what is asked of one series, and the last chunk is filled up: so the same program draws a
    series whatever the others are, and its numbers are the same to the last digit. `each` is how many draws are behind
    one number.
    """
    _, samples, times, _ = shape
    most = max(1, AT_ONCE // max(1, samples * times * each))
    chunk = 1 << (most.bit_length() - 1)
    out = np.empty(shape)
    for kind in np.unique(kinds, axis=0):
        members = np.flatnonzero((kinds == kind).all(axis=1))
        for first in range(0, len(members), chunk):
            rows = members[first : first + chunk]
            filled = np.concatenate([rows, np.repeat(rows[-1:], chunk - len(rows))])
            out[rows] = np.asarray(draw(filled, tuple(map(int, kind))))[: len(rows)]
    return out


def require_finite(draws: np.ndarray, say: Callable[[np.ndarray], str]) -> np.ndarray:
    """The same, all of them finite: means and quantiles of what is left would hide the others. `say` begins the error,
    given which of the first axis are lost."""
    lost = np.asarray(~np.isfinite(draws).all(axis=tuple(range(1, draws.ndim))))
    if lost.any():
        raise ValueError(
            f"{say(lost)}: the law breaks down there; leave out rows that lie far off those before, or fit on more of "
            "them."
        )
    return draws


def gaps_to(
    at: Float[np.ndarray, "series times"], last: Float[np.ndarray, " series"], horizon: float, *, joint: bool
) -> Float[np.ndarray, "series times"]:
    """In units of the horizon: from the last row of each series to each time or, if `joint`, from the time before."""
    gaps = (at - last[:, None]) / horizon
    return np.diff(gaps, axis=1, prepend=0.0) if joint else gaps


def most_steps(gaps: Float[np.ndarray, "series times"]) -> Int[np.ndarray, " series"]:
    """How many steps the longest gap of each series takes, in units of the horizon: a power of two, so that few
    programs serve all."""
    steps = np.maximum(1.0, np.ceil(gaps.max(axis=1, initial=0.0) - SLACK))
    return (2 ** np.ceil(np.log2(steps))).astype(int)


def in_steps(
    step: Step, state: PyTree[Array], gap: Scalar, steps: int, *, key: PRNGKeyArray
) -> PyTree[Array]:
    """Over a gap in units of the horizon, in as many equal steps as it takes, at most `steps`."""
    number = jnp.maximum(1, jnp.ceil(gap - SLACK))

    def one(state, i):
        moved = step(state, jnp.where(i < number, gap / number, 0.0), jr.fold_in(key, i))
        return jax.tree.map(lambda new, old: jnp.where(i < number, new, old), moved, state), None

    if steps == 1:
        return one(state, 0)[0]
    return jax.lax.scan(one, state, jnp.arange(steps))[0]


def at_times(
    make_step: Callable[[Array], Step],
    state: PyTree[Array],
    gaps: Float[Array, " times"],
    ahead: Float[Array, "times ahead"],
    *,
    steps: int,
    joint: bool,
    key: PRNGKeyArray,
) -> PyTree[Array]:
    """The state after each gap: all from the same start or, if `joint`, each gap from where the one before ended.

    `make_step` is told what is known ahead of the time that is gone to.
    """
    move = lambda state, gap, known, i: in_steps(make_step(known), state, gap, steps, key=jr.fold_in(key, i))
    numbers = jnp.arange(gaps.shape[0])
    if not joint:
        return jax.vmap(lambda gap, known, i: move(state, gap, known, i))(gaps, ahead, numbers)

    def walk(state, now):
        state = move(state, *now)
        return state, state

    return jax.lax.scan(walk, state, (gaps, ahead, numbers))[1]
