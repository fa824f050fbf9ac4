"""Solve an SDE with a plain `lax.scan`: one example at a time, equal steps."""

import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, PRNGKeyArray, ScalarLike

from ..laws import time_gap
from .model import SDE
from .solvers import AbstractSolver, Increments, draw_increment, find_solver


def solve(
    sde: SDE,
    x0: Float[Array, " dim"],
    t0: ScalarLike,
    t1: ScalarLike,
    u: Float[Array, " cond"] | None = None,
    *,
    steps: int,
    solver: str | AbstractSolver = "euler_maruyama",
    key: PRNGKeyArray,
) -> Float[Array, " dim"]:
    """One draw of the state at `t1`, in `steps` equal steps from `x0` at `t0`; `u` is constant on the way.

    `solver` is one of "euler_maruyama", "milstein", "runge_kutta", "additive_runge_kutta" and "heun", or a
    solver object. The increments are drawn step by step, so a batch needs memory for its states only.
    """
    scheme = _checked(sde, x0, steps, solver)
    h = time_gap(t0, t1) / steps

    def step(x, item):
        k, key = item
        increment = draw_increment(h, sde.noise_dim, x0.dtype, key=key)
        return scheme.step(sde, x, t0 + k * h, h, u, increment).astype(x0.dtype), None

    return jax.lax.scan(step, x0, (jnp.arange(steps), jr.split(key, steps)))[0]


def solve_driven(
    sde: SDE,
    x0: Float[Array, " dim"],
    t0: ScalarLike,
    t1: ScalarLike,
    increments: Increments,
    u: Float[Array, " cond"] | None = None,
    *,
    solver: str | AbstractSolver = "euler_maruyama",
) -> Float[Array, " dim"]:
    """The state at `t1` when the Brownian path is the given one, in as many steps as it has increments.

    `brownian_increments` draws a path and `coarsen` gives it in half as many steps: two solvers, or one at
    two step sizes, can so be compared on the same path.
    """
    steps = increments.dw.shape[0]
    scheme = _checked(sde, x0, steps, solver)
    h = time_gap(t0, t1) / steps

    def step(x, item):
        k, increment = item
        return scheme.step(sde, x, t0 + k * h, h, u, increment).astype(x0.dtype), None

    return jax.lax.scan(step, x0, (jnp.arange(steps), increments))[0]


def solve_path(
    sde: SDE,
    x0: Float[Array, " dim"],
    times: Float[Array, " n"],
    u: Float[Array, " cond"] | None = None,
    *,
    substeps: int,
    solver: str | AbstractSolver = "euler_maruyama",
    key: PRNGKeyArray,
) -> Float[Array, "n dim"]:
    """One path at `times`, from `x0` at the first of them, in `substeps` equal steps per interval."""
    if times.size == 0:
        raise ValueError("`times` must have at least one entry; got none.")

    def interval(x, item):
        start, end, key = item
        x = solve(sde, x, start, end, u, steps=substeps, solver=solver, key=key)
        return x, x

    keys = jr.split(key, times.size - 1)
    _, path = jax.lax.scan(interval, x0, (times[:-1], times[1:], keys))
    return jnp.concatenate([x0[None], path])


def _checked(sde, x0, steps, solver):
    if steps < 1:
        raise ValueError(f"`steps` must be at least 1; got {steps}.")
    if x0.shape != (sde.dim,):
        raise ValueError(f"`x0` must have shape ({sde.dim},); got {x0.shape}.")
    scheme = find_solver(solver)
    scheme.check(sde)
    return scheme
