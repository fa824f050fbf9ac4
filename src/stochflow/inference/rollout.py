"""From a law to paths and forecasts: one step where one will do, chained steps where they are asked for."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, ArrayLike, Float, Num, PRNGKeyArray

from ..laws import (
    BRIDGE_LESS,
    AbstractBridge,
    AbstractTransition,
    check_state,
    horizon_of,
    latest_of,
    warn_beyond_horizon,
    warn_beyond_latest,
)

# A gap that rounding changes by more than this share of itself is not the one that was asked for.
LARGEST_CHANGE = 0.1
# In steps of less than that a law is no longer what one wants.
MOST_STEPS = 10_000_000


class _Plan(NamedTuple):
    """Steps to take one after another, and which of them end at a time that was asked for."""

    starts: Float[np.ndarray, " steps"]
    ends: Float[np.ndarray, " steps"]
    wanted: np.ndarray


def rollout(
    law: AbstractTransition,
    x0: Num[ArrayLike, " dim"] | list,
    times: Num[ArrayLike, " n"] | list,
    *,
    max_gap: float | None = None,
    u: Float[Array, " cond"] | None = None,
    key: PRNGKeyArray,
) -> Float[Array, "n dim"]:
    """One path: the states at `times`, each drawn given the one before. `times[0]` is the time of `x0`.

    A gap between two times is one step, or as few equal steps as `max_gap` (the paper's H_pred) allows. A step
    longer than the horizon that the law was trained on draws a warning. One path at a time: `jax.vmap` over
    `x0` and `key`.
    """
    x0 = check_state("x0", x0, law.dim)
    plan = _plan(_concrete_times(times), max_gap)
    warn_beyond_horizon(plan.starts, plan.ends, horizon_of(law))
    warn_beyond_latest(plan.ends, latest_of(law))
    starts, ends = _as_seen(law, x0.dtype, plan.starts, plan.ends)
    return jnp.concatenate([x0[None], _walk(law, x0, starts, ends, u, key)[plan.wanted]])


def _walk(law, x0, starts, ends, u, key):
    """The states after each of several steps."""

    def step(x, now):
        s, t, i = now
        x = law.sample(x, s, t, u, key=jr.fold_in(key, i))
        return x, x

    return jax.lax.scan(step, x0, (starts, ends, jnp.arange(len(ends))))[1]


def forecast(
    law: AbstractTransition,
    x0: Num[ArrayLike, " dim"] | list,
    s: float,
    times: Num[ArrayLike, " n"] | list,
    *,
    max_gap: float | None = None,
    u: Float[Array, " cond"] | None = None,
    key: PRNGKeyArray,
) -> Float[Array, "n dim"]:
    """One draw from the law of the state at each of `times`, straight from `x0` at `s`: one step a time.

    The draws are independent of each other given `x0`; for a joint path use
    [`rollout`][stochflow.inference.rollout]. With `max_gap`, a time further off is reached in as few equal steps as it
    allows; all times are drawn together, in as many turns as the furthest needs.
    """
    x0 = check_state("x0", x0, law.dim)
    starts, ends = _turns(_concrete_times(s, times), max_gap)
    warn_beyond_horizon(starts, ends, horizon_of(law))
    warn_beyond_latest(ends, latest_of(law))
    starts, ends = _as_seen(law, x0.dtype, starts, ends)
    return _leap(law, x0, starts, ends, u, key)


def _turns(times, max_gap) -> tuple[Float[np.ndarray, "n turns"], Float[np.ndarray, "n turns"]]:
    """Starts and ends of the equal steps from the first time to each of the others."""
    ahead = times[1:] - times[0]
    number = _steps(ahead, max_gap)
    # Times that need fewer steps than others stand still for the rest: a gap of zero moves nothing.
    turns = np.minimum(np.arange(number.max(initial=1) + 1), number[:, None])
    edges = times[0] + ahead[:, None] * turns / number[:, None]
    return edges[:, :-1], edges[:, 1:]


def _leap(law, x0, starts, ends, u, key):
    """The state after each of several chains of steps, all from `x0`."""
    number = len(starts)
    if starts.shape[1] == 1:
        # In one long row: numbers for many short ones are drawn one at a time on a CPU, at six times the cost.
        noise = jr.normal(key, (number * law.dim,), x0.dtype).reshape(number, law.dim)
        return jax.vmap(lambda z, s, t: law.transform(z, x0, s, t, u))(noise, starts[:, 0], ends[:, 0])

    def draw(starts, ends, key):
        def step(x, now):
            s, t, i = now
            return law.sample(x, s, t, u, key=jr.fold_in(key, i)), None

        return jax.lax.scan(step, x0, (starts, ends, jnp.arange(len(starts))))[0]

    keys = jax.vmap(lambda i: jr.fold_in(key, i))(jnp.arange(number))
    return jax.vmap(draw)(starts, ends, keys)


class Itinerary(NamedTuple):
    """Steps from a start to several times, as arrays: programs that take them serve all times.

    - `starts`, `ends`: of the steps, those to each time in a row or, if the times are one path, all in one row.
    - `wanted`: after which step of a path each time is reached; `None` where each has steps of its own.
    """

    starts: Float[Array, "rows steps"]
    ends: Float[Array, "rows steps"]
    wanted: Array | None

    def follow(
        self, law: AbstractTransition, x0: Float[Array, " dim"], u: Array | None, *, key: PRNGKeyArray
    ) -> Float[Array, "n dim"]:
        """The state at each time."""
        if self.wanted is None:
            return _leap(law, x0, self.starts, self.ends, u, key)
        return _walk(law, x0, self.starts[0], self.ends[0], u, key)[self.wanted]


def plan_steps(
    law: AbstractTransition,
    dtype,
    s: float,
    times: Float[np.ndarray, " n"],
    *,
    max_gap: float | None,
    joint: bool,
    rounded: Callable[[int], int] = lambda number: number,
) -> Itinerary:
    """Plan the steps of [`forecast`][stochflow.inference.forecast] or, if `joint`, of
    [`rollout`][stochflow.inference.rollout].

    `rounded` rounds numbers of times and of steps up: those that are added stand still, and what is asked for comes
    first.
    """
    known = _concrete_times(s, times)
    if joint:
        plan = _plan(known, max_gap)
        starts, ends, wanted = plan.starts[None], plan.ends[None], plan.wanted
        wanted = np.pad(wanted, (0, rounded(len(wanted)) - len(wanted)), mode="edge")
    else:
        (starts, ends), wanted = _turns(known, max_gap), None
        more = rounded(len(starts)) - len(starts)
        starts, ends = (np.pad(edges, ((0, more), (0, 0)), mode="edge") for edges in (starts, ends))
    idle = rounded(starts.shape[1]) - starts.shape[1]
    end = np.repeat(ends[:, -1:], idle, axis=1)
    starts, ends = (np.concatenate([edges, end], axis=1) for edges in (starts, ends))
    starts, ends = _as_seen(law, dtype, starts, ends)
    return Itinerary(starts, ends, None if wanted is None else jnp.asarray(wanted))


def interpolate(
    bridge: AbstractBridge,
    x_s: Num[ArrayLike, " dim"] | list,
    x_t: Num[ArrayLike, " dim"] | list,
    s: float,
    t: float,
    times: Num[ArrayLike, " n"] | list,
    *,
    u: Float[Array, " cond"] | None = None,
    key: PRNGKeyArray,
) -> Float[Array, "n dim"]:
    """One path between two known states: the states at `times`, each given the one before and the far end.

    Ends further apart than those that the bridge was trained on draw a warning.
    """
    x_s, x_t = check_state("x_s", x_s, bridge.dim), check_state("x_t", x_t, bridge.dim)
    grid = _concrete_times(s, times, t)
    warn_beyond_horizon(grid[0], grid[-1], horizon_of(bridge), BRIDGE_LESS)
    far_end = np.full(len(grid) - 2, grid[-1])
    seen = _as_seen(bridge, x_s.dtype, grid[:-2], grid[1:-1], far_end)

    def step(x, now):
        before, r, end, i = now
        x = bridge.sample(x, x_t, before, r, end, u, key=jr.fold_in(key, i))
        return x, x

    _, path = jax.lax.scan(step, x_s, (*seen, jnp.arange(len(far_end))))
    return path


def _as_seen(
    law: AbstractTransition | AbstractBridge, dtype, starts: np.ndarray, *later: np.ndarray
) -> list[Array]:
    """Times of steps in the precision of the states, which is too coarse for unix seconds: where gaps are all that
    matters each step counts from its own start, and else times that rounding would merge are refused."""
    if law.homogeneous:
        seen = [np.zeros_like(starts), *[times - starts for times in later]]
    else:
        seen = [starts, *later]
        _refuse_merged(starts, later[0], dtype)
    return [jnp.asarray(times, dtype) for times in seen]


def _refuse_merged(starts, ends, dtype):
    gaps, rounded = ends - starts, ends.astype(dtype).astype(float) - starts.astype(dtype).astype(float)
    merged = np.abs(rounded - gaps) > LARGEST_CHANGE * gaps
    if merged.any():
        at = ends[merged][0]
        raise ValueError(
            f"time {float(at)} is too close to the one before for {jnp.dtype(dtype).name}: this law depends on the "
            "time itself, so count times from the series' origin, as `Trajectories` does."
        )


def _concrete_times(*parts) -> Float[np.ndarray, " n"]:
    if any(isinstance(part, Tracer) for part in parts):
        raise ValueError(
            "`times` must be known when the steps are planned; close over it instead of tracing it."
        )
    parts = [np.asarray(part, np.float64) for part in parts]
    times = parts[0] if len(parts) == 1 else np.concatenate([np.atleast_1d(part) for part in parts])
    if times.ndim != 1 or times.size == 0:
        raise ValueError(f"`times` must have shape (n,) with n ≥ 1; got {times.shape}.")
    if not np.isfinite(times).all():
        raise ValueError(f"`times` must be finite; got {times[~np.isfinite(times)][0]}.")
    if (np.diff(times) < 0).any():
        row = int(np.flatnonzero(np.diff(times) < 0)[0])
        raise ValueError(f"`times` must not decrease; got {times[row]:g} before {times[row + 1]:g}.")
    return times


def _steps(gaps, max_gap):
    """How many equal steps each gap takes."""
    if max_gap is None:
        return np.ones(np.shape(gaps), int)
    if not max_gap > 0:
        raise ValueError(f"`max_gap` must be positive; got {max_gap}.")
    number = np.maximum(1, np.ceil(np.asarray(gaps, float) / max_gap - 1e-6))
    if number.sum() > MOST_STEPS:
        raise ValueError(
            f"`max_gap` of {max_gap:g} would take {number.sum():.3g} steps, and at most {MOST_STEPS:,} are taken; "
            "choose a longer one."
        )
    return number.astype(int)


def _plan(times: np.ndarray, max_gap: float | None) -> _Plan:
    number = _steps(np.diff(times), max_gap)
    parts = [np.linspace(a, b, n + 1) for a, b, n in zip(times[:-1], times[1:], number, strict=True)]
    starts = np.concatenate([part[:-1] for part in parts]) if parts else np.zeros(0)
    ends = np.concatenate([part[1:] for part in parts]) if parts else np.zeros(0)
    return _Plan(starts, ends, np.cumsum(number) - 1)
