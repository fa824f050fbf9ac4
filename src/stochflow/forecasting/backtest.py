"""Rolling-origin back-tests: what would have been said, against what came and what simpler laws would have said."""

import dataclasses
import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from ..metrics import crps_of_draws, inside_central
from .frames import Panel
from .origins import Origins, find_origins, truncated
from .references import References


def check_backtest(gaps: Any, folds: Any, start: Any, origins: Any) -> None:
    """Before anything is fitted."""
    if isinstance(gaps, str) or not isinstance(gaps, Iterable) or not len(list(gaps)):
        raise ValueError(f"`gaps` must be a list of lengths of time, such as ['1d', '7d']; got {gaps!r}.")
    for name, value in (("folds", folds), ("origins", origins)):
        if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
            raise ValueError(f"`{name}` must be a positive integer; got {value!r}.")
    if not isinstance(start, int | float | np.number) or not 0 < start < 1:
        raise ValueError(f"`start` must lie between 0 and 1; got {start!r}.")


@dataclasses.dataclass(frozen=True)
class GapScore:
    """What a back-test says of one channel at one gap.

    `relative` is the CRPS over that of the best of three baselines: the last value with the noise of earlier moves over
    that gap (`persistence`) or with that of a random walk, and an Ornstein–Uhlenbeck process. `coverage_error` is the
    standard error of `coverage`: forecasts that overlap say the same thing again, so those of one stretch of the gap
    count as one.
    """

    channel: str
    gap: str
    forecasts: int
    crps: float
    coverage: float
    coverage_error: float
    persistence: float
    random_walk: float
    ornstein_uhlenbeck: float
    seasonal: float | None

    @property
    def relative(self) -> float:
        return self.crps / min(self.persistence, self.random_walk, self.ornstein_uhlenbeck)


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
    partial: Callable[[Any], bool] = lambda model: False,
) -> list[GapScore]:
    """Fit on what lies before, forecast what comes after, `folds` times further on each time.

    The first fit sees the share `start` of the rows of each series; the rest is cut into `folds` stretches of rows, and
    before each of them forecaster and baselines are fitted anew. Origins lie in the stretch, at most `most` of each
    series; what they are checked against may lie beyond it. Both are rows that `among` marks, if it is given, and are
    complete unless the model reads others, as `partial` says.
    """
    rows_of = panel.times if among is None else [t[some] for t, some in zip(panel.times, among, strict=True)]
    between = np.concatenate([np.diff(t) for t in rows_of])
    if not len(between):
        raise ValueError("no series has two rows: there is nothing to test.")
    usual = float(np.median(between))
    edges = np.linspace(start, 1.0, folds + 1)
    first_rows, ends = [int(start * len(t)) - 1 for t in panel.times], [len(t) for t in panel.times]
    for gap in gaps:
        if not len(find_origins(panel, gap, usual, first_rows, ends, most, among, partial=True).series):
            raise ValueError(
                f"no row after the first {start:.0%} comes {show(gap)} after another: leave that gap out, or start "
                "earlier."
            )
    found: dict[float, list[dict[str, np.ndarray]]] = {gap: [] for gap in gaps}
    for low, high in itertools.pairwise(edges):
        rows = lambda share: [int(share * len(t)) for t in panel.times]
        first, last = rows(low), rows(high)
        known = _head(panel, first)
        model, references = fit(known), References.fit(known, period)
        for gap in gaps:
            starts = [row - 1 for row in first]
            origins = find_origins(panel, gap, usual, starts, last, most, among, partial=partial(model))
            if not len(origins.series):
                continue
            draws = draw(model, truncated(panel, origins), panel, origins)
            truth = np.array([panel.values[i][e] for i, e in zip(origins.series, origins.end, strict=True)])
            ours = {"crps": crps_of_draws(draws, truth), "coverage": inside_central(draws, truth)}
            apart = _stretches(panel, origins, gap) + sum(len(part["stretch"]) for part in found[gap])
            ours["stretch"] = np.repeat(apart[:, None], truth.shape[1], axis=1)
            found[gap].append(ours | references.crps(panel, origins, gap))
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


def _stretches(panel: Panel, origins: Origins, gap: float) -> np.ndarray:
    """Which stretch of the gap, of which series, each forecast starts in: a number below that of the forecasts."""
    starts = np.array([panel.times[i][s] for i, s in zip(origins.series, origins.start, strict=True)])
    both = np.stack([origins.series, np.floor((starts - starts.min()) / gap)], axis=1)
    return np.unique(both, axis=0, return_inverse=True)[1].ravel()


def _error_of_mean(values: np.ndarray, stretch: np.ndarray) -> float:
    """The standard error of a mean of values that go together within a stretch (Liang and Zeger, 1986)."""
    _, which = np.unique(stretch, return_inverse=True)
    sums = np.bincount(which, values - values.mean())
    number = len(sums)
    return (
        math.nan
        if number < 2
        else float(np.sqrt(np.square(sums).sum() * number / (number - 1)) / len(values))
    )


def _score(name, channel, gap, parts) -> GapScore:
    joined = {what: np.concatenate([part[what][:, channel] for part in parts]) for what in parts[0]}
    # Not where the channel was not seen, or never before.
    scored = ~np.isnan(np.stack(list(joined.values()))).any(axis=0)
    mean = lambda what: float(joined[what][scored].mean()) if scored.any() else math.nan
    return GapScore(
        channel=name,
        gap=gap,
        forecasts=int(scored.sum()),
        crps=mean("crps"),
        coverage=mean("coverage"),
        coverage_error=_error_of_mean(joined["coverage"][scored], joined["stretch"][scored])
        if scored.any()
        else math.nan,
        persistence=mean("persistence"),
        random_walk=mean("random_walk"),
        ornstein_uhlenbeck=mean("ornstein_uhlenbeck"),
        seasonal=mean("seasonal") if "seasonal" in parts[0] else None,
    )


def rows_among(panel: Panel, some: Panel) -> list[np.ndarray]:
    """Which rows of each series are in another table too."""
    times = dict(zip(some.ids, some.times, strict=True))
    return [np.isin(t, times.get(name, [])) for name, t in zip(panel.ids, panel.times, strict=True)]
