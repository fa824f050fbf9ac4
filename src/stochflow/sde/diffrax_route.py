"""The same SDE through Diffrax, which is an optional dependency."""

from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from .model import SDE


def solve_path_diffrax(
    sde: SDE,
    x0: Float[Array, " dim"],
    times: Float[Array, " n"],
    u: Float[Array, " cond"] | None = None,
    *,
    step: float,
    solver: Any = None,
    key: PRNGKeyArray,
) -> Float[Array, "n dim"]:
    """One path at `times` (increasing), from `x0` at the first of them, by Diffrax with a fixed `step`.

    `solver` is a Diffrax solver; if it is `None`, `Euler` for an Itô SDE and `Heun` for a Stratonovich one.
    The drift is handed over as it is written, so the solver has to converge to the SDE's own interpretation.
    States between steps are interpolated linearly by Diffrax: let `step` divide the gaps.
    """
    diffrax, lineax = _import_diffrax()
    if solver is None:
        solver = diffrax.Euler() if sde.interpretation == "ito" else diffrax.Heun()

    def diffusion(t, x, u):
        value = sde.diffusion(t, x, u)
        return lineax.DiagonalLinearOperator(value) if sde.noise == "diagonal" else value

    brownian = diffrax.VirtualBrownianTree(times[0], times[-1], tol=step / 2, shape=(sde.noise_dim,), key=key)
    terms = diffrax.MultiTerm(diffrax.ODETerm(sde.drift), diffrax.ControlTerm(diffusion, brownian))
    solution = diffrax.diffeqsolve(
        terms,
        solver,
        times[0],
        times[-1],
        dt0=jnp.asarray(step, times.dtype),
        y0=x0,
        args=u,
        saveat=diffrax.SaveAt(ts=times),
        max_steps=None,
        adjoint=diffrax.ForwardMode(),
    )
    return solution.ys


def _import_diffrax():
    try:
        import diffrax
        import lineax
    except ImportError as error:
        raise ImportError(
            "`solve_path_diffrax` needs Diffrax, which is not installed: `pip install stochflow[diffrax]`."
        ) from error
    return diffrax, lineax
