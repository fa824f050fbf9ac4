"""The simple laws that a back-test holds a forecaster against."""

import dataclasses
from typing import Any

import numpy as np
from jaxtyping import Float

from ..baselines import SeasonalNaive, fit_ornstein_uhlenbeck, fit_persistence, log_likelihood
from ..laws import BrownianMotion, OrnsteinUhlenbeck
from ..metrics import crps_of_normal
from .frames import Panel
from .origins import LATEST, Origins, at_least

# They are fitted to each series by itself up to so many of them, if each has so many complete rows.
MOST_APART, FEWEST_ROWS = 64, 30
# Moves over a gap that say how far one goes.
FEWEST_MOVES = 20


@dataclasses.dataclass(frozen=True)
class References:
    """The baselines, fitted on what the forecaster was: for each series by itself, if that is what the likelihood, with
    a price for each parameter, speaks for, and else for all together. `series` holds those of each id.

    Persistence is the last value with the noise that the moves of `known` have over the gap in question or, where those
    are too few, that of a random walk, which grows as the root of the gap from one row to the next. The latter alone
    would be an easy prey where rows come in bursts, each with an error of its own.
    """

    persistence: BrownianMotion
    returning: OrnsteinUhlenbeck
    seasonal: SeasonalNaive | None
    series: dict[Any, tuple[BrownianMotion, OrnsteinUhlenbeck]]
    known: Panel

    @classmethod
    def fit(cls, panel: Panel, period: float | None) -> "References":
        seasonal = None if period is None else SeasonalNaive.fit(panel.times, panel.values, period)
        together = _both(panel.times, panel.values)
        return cls(*together, seasonal, _apart(panel, together), panel)

    def crps(self, panel: Panel, origins: Origins, gap: float) -> dict[str, Float[np.ndarray, "n dim"]]:
        """The CRPS of each at each origin, about this gap ahead, and channel."""
        pick = lambda arrays, rows: np.array(
            [arrays[i][r] for i, r in zip(origins.series, rows, strict=True)]
        )
        series = list(dict.fromkeys(origins.series))
        seen = {i: _last_seen(panel.times[i], panel.values[i]) for i in series}
        start, since = (pick({i: seen[i][k] for i in series}, origins.start) for k in range(2))
        truth = pick(panel.values, origins.end)
        gaps = pick(panel.times, origins.end)[:, None] - since
        both = self.persistence, self.returning
        each = {i: _numbers(*self.series.get(panel.ids[i], both)) for i in series}
        sizes, rate, mean, std = (np.array([each[i][k] for i in origins.series]) for k in range(4))
        faded = np.exp(-rate * gaps)
        noise = std * np.sqrt(-np.expm1(-2 * rate * gaps) / (2 * rate))
        of_gap = self._sizes(gap, [panel.ids[i] for i in series])
        moves = np.array([of_gap[panel.ids[i]] for i in origins.series])
        moves = np.where(np.isnan(moves), sizes, moves)
        out = {
            "persistence": crps_of_normal(start, moves * np.sqrt(gaps), truth),
            "random_walk": crps_of_normal(start, sizes * np.sqrt(gaps), truth),
            "ornstein_uhlenbeck": crps_of_normal(mean + faded * (start - mean), noise, truth),
        }
        if self.seasonal is not None:
            said = [
                self.seasonal.predict(
                    panel.times[i][: s + 1], panel.values[i][: s + 1], panel.times[i][e : e + 1]
                )
                for i, s, e in zip(*origins, strict=True)
            ]
            means, stds = (np.concatenate(each) for each in zip(*said, strict=True))
            out["seasonal"] = crps_of_normal(means, stds, truth)
        return out

    def _sizes(self, gap: float, ids: list[Any]) -> dict[Any, Float[np.ndarray, " dim"]]:
        """Of each series: the noise of persistence over the root of the gap, NaN where too few moves are about as
        long."""
        moves = dict(zip(self.known.ids, _moves(self.known, gap), strict=True))
        size = lambda some: np.sqrt(
            np.where((~np.isnan(some)).sum(axis=0) < FEWEST_MOVES, np.nan, np.nansum(some**2, axis=0))
            / np.maximum((~np.isnan(some)).sum(axis=0), 1)
        )
        together = size(np.concatenate(list(moves.values())))
        own = {name: size(moves[name]) for name in ids if name in self.series}
        return {name: np.where(np.isnan(found := own.get(name, together)), together, found) for name in ids}


def _moves(panel: Panel, gap: float) -> list[Float[np.ndarray, "moves dim"]]:
    """Of each series, how far it moves from each row to the first that comes about this gap later, over the root of the
    gap between them; NaN for channels that were not seen at both."""
    found = []
    for t, x in zip(panel.times, panel.values, strict=True):
        end = np.searchsorted(t, at_least(t, gap))
        start = np.flatnonzero(end < len(t))
        end = end[start]
        near = t[end] - t[start] <= LATEST * gap + 1e-9 * gap
        start, end = start[near], end[near]
        found.append((x[end] - x[start]) / np.sqrt(t[end] - t[start])[:, None])
    return found


def _numbers(persistence: BrownianMotion, returning: OrnsteinUhlenbeck) -> list[np.ndarray]:
    """The size of a walk's steps, and rate, mean and standard deviation of a process, a number a channel each."""
    size = np.diagonal(np.asarray(persistence.scale_tril, np.float64))
    return [size, *(np.asarray(a, np.float64) for a in (returning.rate, returning.mean, returning.std))]


def _apart(panel: Panel, together: tuple[BrownianMotion, OrnsteinUhlenbeck]) -> dict[Any, Any]:
    """Both laws of each series, if their likelihoods outweigh three numbers a channel and series (Schwarz, 1978)."""
    whole = [int(panel.seen(i, partial=False).sum()) for i in range(len(panel))]
    if not 1 < len(panel) <= MOST_APART or min(whole) < FEWEST_ROWS:
        return {}
    found = {}
    gained = np.zeros(panel.values[0].shape[1])
    for name, t, x in zip(panel.ids, panel.times, panel.values, strict=True):
        found[name] = _both([t], [x])
        gained += log_likelihood(found[name][1], [t], [x]) - log_likelihood(together[1], [t], [x])
    price = 1.5 * (len(panel) - 1) * np.log(sum(whole))
    return found if gained.sum() > price * len(gained) else {}


def _both(times, values) -> tuple[BrownianMotion, OrnsteinUhlenbeck]:
    """Both laws, channel by channel, each from the rows that it was seen in."""
    channels = [[x[:, c : c + 1] for x in values] for c in range(values[0].shape[1])]
    found = [_numbers(fit_persistence(times, c), fit_ornstein_uhlenbeck(times, c)) for c in channels]
    size, rate, mean, std = (np.concatenate(each) for each in zip(*found, strict=True))
    return BrownianMotion(np.zeros(len(size)), size), OrnsteinUhlenbeck(rate, mean, std)


def _last_seen(times: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The last value of each channel up to each row, and its time; NaN where there is none yet."""
    row = np.where(np.isnan(values), -1, np.arange(len(values))[:, None])
    row = np.maximum.accumulate(row, axis=0)
    at, none = np.maximum(row, 0), row < 0
    value = np.where(none, np.nan, np.take_along_axis(values, at, axis=0))
    return value, np.where(none, np.nan, times[at])
