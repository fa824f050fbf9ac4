"""Rolling-origin back-tests: what would have been said, against what came and what simpler laws would have said."""

import dataclasses
import itertools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from ..baselines import SeasonalNaive, fit_ornstein_uhlenbeck, fit_persistence
from ..laws import BrownianMotion, OrnsteinUhlenbeck
from ..metrics import crps_of_draws, crps_of_normal, inside_central
from .frames import Panel

# A row stands for a gap if it comes no later after its start than this many times the gap, and the usual gap.
LATEST = 1.1


class Origins(NamedTuple):
    """Forecasts that can be checked: of which series, from which row, of which later row."""

    series: np.ndarray
    start: np.ndarray
    end: np.ndarray


@dataclasses.dataclass(frozen=True)
class GapScore:
    """What a back-test says of one channel at one gap. `relative` is the CRPS over that of the better baseline."""

    channel: str
    gap: str
    forecasts: int
    crps: float
    coverage: float
    persistence: float
    ornstein_uhlenbeck: float
    seasonal: float | None

    @property
    def relative(self) -> float:
        return self.crps / min(self.persistence, self.ornstein_uhlenbeck)


def find_origins(
    panel: Panel,
    gap: float,
    usual: float,
    first: Sequence[int],
    last: Sequence[int],
    most: int,
    among: Sequence[np.ndarray] | None = None,
) -> Origins:
    """For each series at most `most` complete rows, evenly from row `first` to `last`, with the first complete row at
    least `gap` later, if it comes in time; both of them among some rows, where a series of truth values says which."""
    found = []
    for i in range(len(panel)):
        eligible = ~np.isnan(panel.values[i]).any(axis=1)
        whole = np.flatnonzero(eligible if among is None else eligible & among[i])
        t = panel.times[i][whole]
        inside = np.flatnonzero((whole >= first[i]) & (whole < last[i]))
        if not len(inside):
            continue
        starts = np.unique(inside[np.linspace(0, len(inside) - 1, min(most, len(inside))).astype(int)])
        ends = np.maximum(np.searchsorted(t, t[starts] + gap * (1 - 1e-9)), starts + 1)
        there = ends < len(t)
        starts, ends = starts[there], ends[there]
        near = t[ends] - t[starts] <= LATEST * gap + 2 * usual
        found.append((np.full(near.sum(), i), whole[starts[near]], whole[ends[near]]))
    if not found:
        return Origins(*[np.zeros(0, int)] * 3)
    return Origins(*(np.concatenate(each) for each in zip(*found, strict=True)))


def truncated(panel: Panel, origins: Origins) -> Panel:
    """A series for each origin: what was known of it then. Their ids say which."""
    names = [f"{panel.ids[i]}@{row}" for i, row in zip(origins.series, origins.start, strict=True)]
    return dataclasses.replace(panel.heads(origins.series, origins.start + 1), ids=names)


@dataclasses.dataclass(frozen=True)
class References:
    """The baselines, fitted on what the forecaster was."""

    persistence: BrownianMotion
    returning: OrnsteinUhlenbeck
    seasonal: SeasonalNaive | None

    @classmethod
    def fit(cls, panel: Panel, period: float | None) -> "References":
        seasonal = None if period is None else SeasonalNaive.fit(panel.times, panel.values, period)
        return cls(
            fit_persistence(panel.times, panel.values),
            fit_ornstein_uhlenbeck(panel.times, panel.values),
            seasonal,
        )

    def crps(self, panel: Panel, origins: Origins) -> dict[str, Float[np.ndarray, "n dim"]]:
        """The CRPS of each at each origin and channel."""
        pick = lambda arrays, rows: np.array(
            [arrays[i][r] for i, r in zip(origins.series, rows, strict=True)]
        )
        start, truth = pick(panel.values, origins.start), pick(panel.values, origins.end)
        gaps = (pick(panel.times, origins.end) - pick(panel.times, origins.start))[:, None]
        sizes = np.diagonal(np.asarray(self.persistence.scale_tril, np.float64))
        rate, mean, std = (
            np.asarray(a, np.float64) for a in (self.returning.rate, self.returning.mean, self.returning.std)
        )
        faded = np.exp(-rate * gaps)
        noise = std * np.sqrt(-np.expm1(-2 * rate * gaps) / (2 * rate))
        out = {
            "persistence": crps_of_normal(start, sizes * np.sqrt(gaps), truth),
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


def backtest(
    fit: Callable[[Panel], Any],
    draw: Callable[[Any, Panel, Panel, Origins], Float[np.ndarray, "n draws dim"]],
    panel: Panel,
    *,
    gaps: Sequence[float],
    show: Callable[[float], str],
    names: Sequence[str],
    folds: int,
    start: float,
    most: int,
    period: float | None,
    among: Sequence[np.ndarray] | None = None,
) -> list[GapScore]:
    """Fit on what lies before, forecast what comes after, `folds` times further on each time.

    The first fit sees the share `start` of the rows of each series; the rest is cut into `folds` stretches of rows, and
    before each of them forecaster and baselines are fitted anew. Origins lie in the stretch, at most `most` of each
    series; what they are checked against may lie beyond it. Both are rows that `among` marks, if it is given.
    """
    rows_of = panel.times if among is None else [t[some] for t, some in zip(panel.times, among, strict=True)]
    usual = float(np.median(np.concatenate([np.diff(t) for t in rows_of])))
    edges = np.linspace(start, 1.0, folds + 1)
    found: dict[float, list[dict[str, np.ndarray]]] = {gap: [] for gap in gaps}
    for low, high in itertools.pairwise(edges):
        rows = lambda share: [int(share * len(t)) for t in panel.times]
        first, last = rows(low), rows(high)
        known = _head(panel, first)
        model, references = fit(known), References.fit(known, period)
        for gap in gaps:
            origins = find_origins(panel, gap, usual, [row - 1 for row in first], last, most, among)
            if not len(origins.series):
                continue
            draws = draw(model, truncated(panel, origins), panel, origins)
            truth = np.array([panel.values[i][e] for i, e in zip(origins.series, origins.end, strict=True)])
            ours = {"crps": crps_of_draws(draws, truth), "coverage": inside_central(draws, truth)}
            found[gap].append(ours | references.crps(panel, origins))
    return [
        _score(name, c, show(gap), parts)
        for gap, parts in found.items()
        if parts
        for c, name in enumerate(names)
    ]


def _head(panel: Panel, rows: Sequence[int]) -> Panel:
    kept = [i for i, n in enumerate(rows) if n > 1]
    if not kept:
        raise ValueError("no series has two rows before the first origin: start later, or pass more rows.")
    return panel.heads(kept, [rows[i] for i in kept])


def _score(name, channel, gap, parts) -> GapScore:
    mean = lambda what: float(np.concatenate([part[what][:, channel] for part in parts]).mean())
    return GapScore(
        channel=name,
        gap=gap,
        forecasts=sum(len(part["crps"]) for part in parts),
        crps=mean("crps"),
        coverage=mean("coverage"),
        persistence=mean("persistence"),
        ornstein_uhlenbeck=mean("ornstein_uhlenbeck"),
        seasonal=mean("seasonal") if "seasonal" in parts[0] else None,
    )
