"""From a law to paths and forecasts: one step where one will do, chained steps where they are asked for."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Float, PRNGKeyArray

from ..laws import AbstractBridge, AbstractTransition, horizon_of, warn_beyond_horizon


class _Plan(NamedTuple):
    """Steps to take one after another, and which of them end at a time that was asked for."""

    starts: Float[np.ndarray, " steps"]
    ends: Float[np.ndarray, " steps"]
    wanted: np.ndarray


def rollout(
    law: AbstractTransition,
    x0: Float[Array, " dim"],
    times: Float[np.ndarray | Array, " n"],
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
    times = _concrete_times(times)
    plan = _plan(times, max_gap)
    warn_beyond_horizon(plan.starts, plan.ends, horizon_of(law))

    def step(x, now):
        s, t, i = now
        x = law.sample(x, s, t, u, key=jr.fold_in(key, i))
        return x, x

    x0 = jnp.asarray(x0)
    to_array = lambda value: jnp.asarray(value, x0.dtype)
    _, path = jax.lax.scan(step, x0, (to_array(plan.starts), to_array(plan.ends), jnp.arange(len(plan.ends))))
    return jnp.concatenate([x0[None], path[plan.wanted]])


def forecast(
    law: AbstractTransition,
    x0: Float[Array, " dim"],
    s: float,
    times: Float[np.ndarray | Array, " n"],
    *,
    max_gap: float | None = None,
    u: Float[Array, " cond"] | None = None,
    key: PRNGKeyArray,
) -> Float[Array, "n dim"]:
    """One draw from the law of the state at each of `times`, straight from `x0` at `s`: one step a time.

    The draws are independent of each other given `x0`; for a joint path use
    [`rollout`][stochflow.rollout]. With `max_gap`, a time further off is reached in as few equal steps as it
    allows; all times are drawn together, in as many turns as the furthest needs.
    """
    times = _concrete_times(np.concatenate([[s], np.atleast_1d(times)]))[1:]
    number = _steps(times - s, max_gap)
    warn_beyond_horizon(np.zeros(len(times)), (times - s) / number, horizon_of(law))
    x0 = jnp.asarray(x0)

    def draw(t, steps, key):
        # Times that need fewer steps than others stand still for the rest: a gap of zero moves nothing.
        edge = lambda i: (s + (t - s) * jnp.minimum(i, steps) / steps).astype(x0.dtype)
        step = lambda x, i: (law.sample(x, edge(i), edge(i + 1), u, key=jr.fold_in(key, i)), None)
        if number.max() == 1:
            return step(x0, 0)[0]
        return jax.lax.scan(step, x0, jnp.arange(number.max()))[0]

    keys = jax.vmap(lambda i: jr.fold_in(key, i))(jnp.arange(len(times)))
    return jax.vmap(draw)(jnp.asarray(times), jnp.asarray(number), keys)


def interpolate(
    bridge: AbstractBridge,
    x_s: Float[Array, " dim"],
    x_t: Float[Array, " dim"],
    s: float,
    t: float,
    times: Float[np.ndarray | Array, " n"],
    *,
    u: Float[Array, " cond"] | None = None,
    key: PRNGKeyArray,
) -> Float[Array, "n dim"]:
    """One path between two known states: the states at `times`, each given the one before and the far end."""
    times = _concrete_times(np.concatenate([[s], np.atleast_1d(times), [t]]))
    x_s, x_t = jnp.asarray(x_s), jnp.asarray(x_t)

    def step(x, now):
        before, r, i = now
        x = bridge.sample(x, x_t, before, r, jnp.asarray(t, x_s.dtype), u, key=jr.fold_in(key, i))
        return x, x

    grid = jnp.asarray(times, x_s.dtype)
    _, path = jax.lax.scan(step, x_s, (grid[:-2], grid[1:-1], jnp.arange(len(times) - 2)))
    return path


def _concrete_times(times) -> Float[np.ndarray, " n"]:
    if isinstance(times, Tracer):
        raise ValueError(
            "`times` must be known when the steps are planned; close over it instead of tracing it."
        )
    times = np.asarray(times, np.float64)
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
    return np.maximum(1, np.ceil(np.asarray(gaps) / max_gap - 1e-6)).astype(int)


def _plan(times: np.ndarray, max_gap: float | None) -> _Plan:
    number = _steps(np.diff(times), max_gap)
    parts = [np.linspace(a, b, n + 1) for a, b, n in zip(times[:-1], times[1:], number, strict=True)]
    starts = np.concatenate([part[:-1] for part in parts]) if parts else np.zeros(0)
    ends = np.concatenate([part[1:] for part in parts]) if parts else np.zeros(0)
    return _Plan(starts, ends, np.cumsum(number) - 1)
