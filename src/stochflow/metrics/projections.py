"""The energy distance of large samples, through projections on lines."""

import math
from concurrent.futures import ThreadPoolExecutor

import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Float, PRNGKeyArray

from .estimates import AnyArray, Estimate, mean_and_se


def projected_energy_distance(
    x: Float[AnyArray, "groups n dim"],
    y: Float[AnyArray, "groups m dim"],
    *,
    directions: int = 32,
    key: PRNGKeyArray,
) -> Estimate:
    r"""$2E\|X - Y\| - E\|X - X'\| - E\|Y - Y'\|$, a mean over groups, in $O(n \log n)$ where
    [`energy_distance`][stochflow.metrics.energy_distance] takes $O(n^2)$.

    A distance is proportional to the mean of its projections, $\|x\| = E_\theta|\theta^\top x| / \gamma_d$ with
    $\theta$ uniform on the sphere, and on a line all pairs are summed by sorting. A group is a start, say: each is
    estimated without bias, and the standard error is that over groups. Directions are random, in the plane evenly
    spread; they add no bias, and noise in proportion to the distance itself.
    """
    alike = len(x) == len(y) and x.shape[2] == y.shape[2]
    if not alike or len(x) < 2 or min(x.shape[1], y.shape[1]) < 2:
        raise ValueError(
            f"`x` and `y` must both hold at least two groups of two samples; got shapes {x.shape}, {y.shape}."
        )
    lines = _directions(x.shape[2], directions, key)
    x, y = np.asarray(x), np.asarray(y)
    lines = lines.astype(x.dtype)  # to sort in single precision is twice as fast; sums are in double
    one = lambda a, b: np.mean([_on_a_line(a @ line, b @ line) for line in lines])
    with ThreadPoolExecutor() as pool:  # sorting is all of the time, and sorts run side by side
        values = list(pool.map(one, x, y))
    return mean_and_se(jnp.asarray(np.array(values) / _mean_projection(x.shape[2]), float))


def _directions(dim: int, number: int, key: PRNGKeyArray) -> np.ndarray:
    if dim == 1:
        return np.ones((1, 1))
    if dim == 2:
        angles = np.pi * (np.arange(number) + float(jr.uniform(key))) / number
        return np.stack([np.cos(angles), np.sin(angles)], axis=1)
    normal = np.asarray(jr.normal(key, (number, dim)), np.float64)
    return normal / np.linalg.norm(normal, axis=1, keepdims=True)


def _mean_projection(dim: int) -> float:
    r"""$\gamma_d = E|\theta_1| = \Gamma(d/2) / (\sqrt\pi\,\Gamma((d+1)/2))$."""
    return math.exp(math.lgamma(dim / 2) - math.lgamma((dim + 1) / 2)) / math.sqrt(math.pi)


def _on_a_line(x: np.ndarray, y: np.ndarray) -> float:
    """The unbiased energy distance of two samples of numbers."""
    n, m = len(x), len(y)
    within_x, within_y = _sum_of_distances(x), _sum_of_distances(y)
    across = _sum_of_distances(np.concatenate([x, y])) - within_x - within_y
    return 2 * across / (n * m) - 2 * within_x / (n * (n - 1)) - 2 * within_y / (m * (m - 1))


def _sum_of_distances(x: np.ndarray) -> float:
    """Over all pairs: with the numbers in order, each counts as often as it is the larger, less the smaller, of two."""
    n = len(x)
    return float((2.0 * np.arange(1, n + 1) - n - 1) @ np.sort(x - x.mean()).astype(np.float64))
