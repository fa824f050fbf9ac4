"""What every metric hands back: a number and how well it is known."""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

AnyArray = jax.Array | np.ndarray


class Estimate(NamedTuple):
    """A Monte-Carlo mean and its standard error; the fields share one shape, that of the quantity."""

    mean: Float[Array, "*shape"]
    se: Float[Array, "*shape"]


def mean_and_se(values: Float[AnyArray, " n"]) -> Estimate:
    r"""Mean of independent values and its standard error $\hat\sigma/\sqrt n$; two values at least."""
    if values.shape[0] < 2:
        raise ValueError(f"`values` must hold at least two numbers; got {values.shape[0]}.")
    values = jnp.asarray(values)
    return Estimate(values.mean(), values.std(ddof=1) / jnp.sqrt(values.shape[0]))


def error_of_mean(values: Float[np.ndarray, " n"], group: Int[np.ndarray, " n"]) -> float:
    """The standard error of a mean of values that go together within a group and with those of the groups next to it,
    whose numbers are one lower and one higher (Liang and Zeger, 1986; Newey and West, 1987); NaN for fewer than two
    groups.

    For forecasts over a gap, grouped by stretches as long: those of one stretch alone hold two thirds of the variance,
    those of neighbours the rest. Chance may make that negative, so no less than half of the former is taken.
    """
    numbers, which = np.unique(group, return_inverse=True)
    sums = np.bincount(which, values - values.mean())
    count = len(sums)
    if count < 2:
        return math.nan
    within = np.square(sums).sum()
    between = 2 * (sums[1:] * sums[:-1])[np.diff(numbers) == 1].sum()
    variance = max(within + between, 0.5 * within)
    return float(np.sqrt(variance * count / (count - 1)) / len(values))


def ratio_of_means(
    above: Float[np.ndarray, " n"], below: Float[np.ndarray, " n"], group: Int[np.ndarray, " n"]
) -> tuple[float, float]:
    r"""$R = \bar a/\bar b$ of pairs $(a_i, b_i)$ that go together within a group, and its standard error: to first
    order that of the mean of $(a_i - R\,b_i)/\bar b$. What both have in common drops
    out."""
    ratio = float(above.mean() / below.mean())
    return ratio, error_of_mean((above - ratio * below) / below.mean(), group)
