"""What every metric hands back: a number and how well it is known."""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

AnyArray = jax.Array | np.ndarray
# Standard errors beyond which series are taken to go together.
BEYOND_CHANCE = 2.0


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


class Place(NamedTuple):
    """Of which series a value is, and of which stretch of the time that all series share."""

    series: Int[np.ndarray, " n"]
    period: Int[np.ndarray, " n"]


def error_of_mean(
    values: Float[np.ndarray, " n"], group: Int[np.ndarray, " n"], place: Place | None = None
) -> float:
    """The standard error of a mean of values that go together within a group and with those of the groups next to it,
    whose numbers are one lower and one higher (Liang and Zeger, 1986; Newey and West, 1987); NaN for fewer than two
    groups.

    For forecasts over a gap, grouped by stretches as long: those of one stretch alone hold two thirds of the variance,
    those of neighbours the rest. Chance may make that negative, so no less than half of the former is taken. With a
    `place`, values of other series at the same time count as well, if they go together beyond what chance would do.
    """
    numbers, which = np.unique(group, return_inverse=True)
    away = values - values.mean()
    sums = np.bincount(which, away)
    count = len(sums)
    if count < 2:
        return math.nan
    within = np.square(sums).sum()
    between = 2 * (sums[1:] * sums[:-1])[np.diff(numbers) == 1].sum()
    own = max(within + between, 0.5 * within)
    variance = own * count / (count - 1)
    if place is not None:
        # The same stretches of a series, and as much of what those beside them share with it.
        variance += _across(away, place) * own / within if within > 0 else 0.0
    return float(np.sqrt(variance) / len(values))


def _across(away, place: Place) -> float:
    """What sums of several series over the same stretch of time have in common, of all pairs of them; zero if no more
    than chance may bring."""
    cells, which = np.unique(np.stack([place.period, place.series]), axis=1, return_inverse=True)
    sums, period = np.bincount(which.ravel(), away), np.unique(cells[0], return_inverse=True)[1]
    over = lambda numbers: np.bincount(period.ravel(), numbers)
    products = np.square(over(sums)) - over(np.square(sums))  # twice those of pairs
    chance = 2 * (np.square(over(np.square(sums))) - over(sums**4)).sum()
    found = float(products.sum())
    return found if found > BEYOND_CHANCE * math.sqrt(max(chance, 0.0)) else 0.0


def ratio_of_means(
    above: Float[np.ndarray, " n"],
    below: Float[np.ndarray, " n"],
    group: Int[np.ndarray, " n"],
    place: Place | None = None,
) -> tuple[float, float]:
    r"""$R = \bar a/\bar b$ of pairs $(a_i, b_i)$ that go together within a group, and its standard error: to first
    order that of the mean of $(a_i - R\,b_i)/\bar b$. What both have in common drops
    out."""
    ratio = float(above.mean() / below.mean())
    return ratio, error_of_mean((above - ratio * below) / below.mean(), group, place)
