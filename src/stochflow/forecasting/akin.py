"""How far series move together at equal times: what many of them say of the same weeks is said once."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float

# Series, below which each counts for itself: what is held out of a few is a stretch of each, which tells little of the
# others, and of three that were tried (`docs/notes/forecast.md`) less was learnt from stretches of time.
MANY_SERIES = 12
# Stretches of time in which several series have moved, below which nothing is said of how alike they moved.
FEWEST_STRETCHES = 20
# Standard errors beyond which series are taken to move together at all: those that do not are left as they are.
BEYOND_CHANCE = 4.0
# Stretches of time that are looked at, at the most.
MOST_STRETCHES = 100_000


class Series(NamedTuple):
    """When a series was seen, on a clock that all series share, and what."""

    times: Float[np.ndarray, " rows"]
    values: Float[np.ndarray, "rows dim"]


class Together(NamedTuple):
    """Of moves over a gap: the mean correlation between two series, of the channel in which it is largest (zero unless
    beyond chance), how many others move beside one, and whether there were enough stretches to say so."""

    correlation: float
    beside: float
    known: bool

    @property
    def worth(self) -> float:
        """For how many of its kind a series stands: one if all move by themselves, less if they move together. What is
        learnt of a law is how it scores and how wide it is, and sizes of normal moves have the square of their
        correlation in common."""
        return 1 / (1 + self.beside * self.correlation**2)


def move_together(series: list[Series], gap: float) -> Together:
    """From the moves of all series over the same stretches of time, each a gap long."""
    first, last = min(each.times[0] for each in series), max(each.times[-1] for each in series)
    gap = max(gap, (last - first) / MOST_STRETCHES)
    # Ends of stretches lie between rows of a regular grid and not on them.
    ends = first + gap * (np.arange(int((last - first) / gap) + 2) - 0.5)
    number, dim = len(ends) - 1, series[0].values.shape[1]
    sums, squares, count = np.zeros((number, dim)), np.zeros((number, dim)), np.zeros(number)
    for each in series:
        row = np.searchsorted(each.times, ends, side="right") - 1
        seen = (row >= 0) & (each.times[np.maximum(row, 0)] > ends - gap)
        moved = np.flatnonzero(seen[1:] & seen[:-1])
        z = each.values[row[moved + 1]] - each.values[row[moved]]
        spread = z.std(axis=0) if len(z) else np.zeros(dim)
        if len(z) < 2 or not (spread > 0).all():
            continue
        z = (z - z.mean(axis=0)) / spread
        sums[moved] += z
        squares[moved] += np.square(z)
        count[moved] += 1
    pairs = (count * (count - 1) / 2).sum()
    if (count > 1).sum() < FEWEST_STRETCHES:
        return Together(0.0, 0.0, False)
    products = ((np.square(sums) - squares) / 2).sum(axis=0).max()
    correlation = products / pairs if products > BEYOND_CHANCE * np.sqrt(pairs) else 0.0
    return Together(float(min(correlation, 1.0)), float(2 * pairs / count.sum()), True)


def worth_of(series: list[Series], gaps: Float[np.ndarray, " gaps"]) -> Float[np.ndarray, " gaps"]:
    """For how many of its kind a series stands, gap by gap; where a gap is too long to tell, as at the next shorter."""
    if len(series) < MANY_SERIES:
        return np.ones(len(gaps))
    found, last = [], 1.0
    for gap in gaps:
        together = move_together(series, float(gap))
        last = together.worth if together.known else last
        found.append(last)
    return np.array(found)
