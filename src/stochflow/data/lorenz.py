"""The stochastic Lorenz system of the paper's Table 1."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from ..sde import lorenz, solve_path
from .trajectories import Trajectories

FRAMES = 41
FRAME = 0.025
# Strong order 1.5 for additive noise; at this many steps a frame its error is far below the noise of one frame.
SUBSTEPS = 20
SOLVER = "additive_runge_kutta"
CHUNK = 1024


def lorenz_times() -> Float[np.ndarray, " frames"]:
    """0, 0.025, …, 1."""
    return np.arange(FRAMES) * FRAME


def lorenz_paths(number: int, *, key: PRNGKeyArray) -> Float[Array, "number frames 3"]:
    r"""Paths of the system with $\sigma = 10$, $\rho = 28$, $\beta = 8/3$ and additive noise $0.15\,dW$, from
    $x_0 \sim \mathcal N(0, I)$, at 41 times on $[0, 1]$."""
    start_key, path_key = jr.split(key)
    return lorenz_paths_from(jr.normal(start_key, (number, 3)), lorenz_times(), key=path_key)


def lorenz_paths_from(
    x0: Float[Array, "number 3"], times: Float[np.ndarray, " n"], *, key: PRNGKeyArray
) -> Float[Array, "number n 3"]:
    """Paths from given starts, at times that are multiples of the frame or finer."""
    keys, at = jr.split(key, len(x0)), jnp.asarray(times, x0.dtype)
    parts = [slice(i, i + CHUNK) for i in range(0, len(x0), CHUNK)]
    return jnp.concatenate([_solve(x0[part], at, keys[part]) for part in parts])


@jax.jit
def _solve(x0, times, keys):
    path = lambda x, k: solve_path(lorenz(), x, times, substeps=SUBSTEPS, solver=SOLVER, key=k)
    return jax.vmap(path)(x0, keys)


def lorenz_trajectories(number: int = 1024, *, key: PRNGKeyArray) -> Trajectories:
    """The paper's training (or test) set: 1,024 paths."""
    return Trajectories.from_arrays(lorenz_times(), np.asarray(lorenz_paths(number, key=key)))


def random_segments(data: Trajectories, rows: int, *, seed: int) -> Trajectories:
    """A random run of `rows` consecutive rows of each series: the paper's missing-data study (F.1)."""
    if not 2 <= rows <= data.times.shape[1]:
        raise ValueError(f"`rows` must lie between 2 and {data.times.shape[1]}; got {rows}.")
    lengths = data.present.sum(1)
    starts = np.random.default_rng(seed).integers(0, np.maximum(lengths - rows, 0) + 1)
    pick = [slice(a, min(a + rows, n)) for a, n in zip(starts, lengths, strict=True)]
    masked = np.where(data.mask, data.values, np.nan)
    return Trajectories.from_series(
        [data.origins[i] + data.times[i, rows].astype(np.float64) for i, rows in enumerate(pick)],
        [masked[i, rows] for i, rows in enumerate(pick)],
        u=None if data.u is None else [data.u[i, rows] for i, rows in enumerate(pick)],
        names=data.names,
    )
