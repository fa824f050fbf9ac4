"""Rolling-origin back-tests: what would have been said, against what came and what simpler laws would have said."""

import dataclasses
import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int, Shaped

from ..metrics import LEVEL, Place, central_interval, crps_of_draws, error_of_mean, ratio_of_means
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


class Tested(NamedTuple):
    """Forecasts over one gap, from several origins, and what came of them.

    `origin` and `at` are moments. `stretch` numbers the stretches of the gap that origins lie in, series by series:
    forecasts of one stretch overlap, and say nearly the same. `period` numbers those of the time that all series share.
    `scores` are the CRPS of the forecaster (`crps`) and that of each
    baseline, of each forecast and channel: NaN where a channel was not seen, or a baseline has never seen it before.
    """

    series: Int[np.ndarray, " n"]
    origin: Shaped[np.ndarray, " n"]
    at: Shaped[np.ndarray, " n"]
    stretch: Int[np.ndarray, " n"]
    period: Int[np.ndarray, " n"]
    truth: Float[np.ndarray, "n dim"]
    median: Float[np.ndarray, "n dim"]
    low: Float[np.ndarray, "n dim"]
    high: Float[np.ndarray, "n dim"]
    scores: dict[str, Float[np.ndarray, "n dim"]]

    @property
    def inside(self) -> Float[np.ndarray, "n dim"]:
        """One where what came lies within the central 90 %, zero where it does not, NaN where nothing came."""
        return np.where(np.isnan(self.truth), np.nan, (self.truth >= self.low) & (self.truth <= self.high))

    def scored(self, channel: int) -> Bool[np.ndarray, " n"]:
        """Forecasts of a channel that all laws can be held against each other by: what came was seen, and each baseline
        had seen it before. Those of the forecaster itself are finite, or the back-test would have stopped."""
        found = [self.truth, *self.scores.values()]
        return np.asarray(np.isfinite([each[:, channel] for each in found]).all(axis=0))


@dataclasses.dataclass(frozen=True)
class GapScore:
    """What a back-test says of one channel at one gap.

    `relative` is the CRPS over that of the best of three baselines: the last value with the noise of earlier moves over
    that gap (`persistence`) or with that of a random walk, and an Ornstein–Uhlenbeck process. `coverage_error` and
    `relative_error` are standard errors: forecasts that overlap say the same thing again, so those of one stretch of
    the gap count as one, and neighbouring stretches as akin, as are those of other series at the same time if they go
    together. Where all forecasts held what came, or none
    did, the error of their share is not known: NaN.
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
    relative: float
    relative_error: float


BASELINES = ("persistence", "random_walk", "ornstein_uhlenbeck")


def backtest(
    fit: Callable[[Panel], Any],
    draw: Callable[[Any, Panel, Panel, Origins], Float[np.ndarray, "n draws dim"]],
    panel: Panel,
    *,
    gaps: Sequence[float],
    show: Callable[[float], str],
    folds: int,
    start: float,
    most: int,
    period: float | None,
    among: "Among | None" = None,
    partial: Callable[[Any], bool] = lambda model: False,
) -> dict[float, Tested]:
    """Fit on what lies before, forecast what comes after, `folds` times further on each time; by gap.

    The first fit sees the share `start` of the rows of each series; the rest is cut into `folds` stretches of rows, and
    before each of them forecaster and baselines are fitted anew. Origins lie in the stretch, at most `most` of each
    series; what they are checked against may lie beyond it. Both are complete unless the model reads other rows, as
    `partial` says. With `among`, a part of the panel, stretches are cut, and origins and what they are checked against
    chosen, as if there were nothing else: so a table and a part of it are held against each other on the same
    forecasts, from fits as early.
    """
    shown, marked = (panel, [np.ones(len(t), bool) for t in panel.times]) if among is None else among
    rows_of = [t[some] for t, some in zip(panel.times, marked, strict=True)]
    between = np.concatenate([np.diff(t) for t in rows_of])
    if not len(between):
        raise ValueError("no series has two rows: there is nothing to test.")
    usual = float(np.median(between))
    for gap in gaps:
        starts, ends = _cut(marked, start, back=1), [len(t) for t in panel.times]
        if not len(find_origins(shown, gap, usual, starts, ends, most, marked, partial=True).series):
            raise ValueError(
                f"no row after the first {start:.0%} comes {show(gap)} after another: leave that gap out, or start "
                "earlier."
            )
    found: dict[float, list[Tested]] = {gap: [] for gap in gaps}
    for low, high in itertools.pairwise(np.linspace(start, 1.0, folds + 1)):
        known = _head(panel, _cut(marked, low))
        model, references = fit(known), References.fit(known, period)
        starts, ends = (
            _cut(marked, low, back=1),
            _cut(marked, high, back=1),
        )  # from the last row that is known on
        for gap in gaps:
            origins = find_origins(shown, gap, usual, starts, ends, most, marked, partial=partial(model))
            if len(origins.series):
                draws = draw(model, truncated(panel, origins), panel, origins)
                found[gap].append(_tested(panel, shown, origins, gap, draws, references))
    return {gap: _joined(parts) for gap, parts in found.items() if parts}


def _cut(marked: Sequence[np.ndarray], share: float, *, back: int = 0) -> list[int]:
    """The row of each series that this share of its marked rows lie before, or the marked row `back` before it; their
    number if all do. A series without any is cut by all of its rows."""
    found = []
    for some in marked:
        rows = np.append(np.flatnonzero(some if some.any() else np.ones_like(some)), len(some))
        found.append(int(rows[max(int(share * (len(rows) - 1)) - back, 0)]))
    return found


def _tested(
    panel: Panel, shown: Panel, origins: Origins, gap: float, draws, references: References
) -> Tested:
    pick = lambda arrays, rows: np.array([arrays[i][r] for i, r in zip(origins.series, rows, strict=True)])
    truth = pick(shown.values, origins.end)
    low, high = central_interval(draws, LEVEL)
    return Tested(
        series=origins.series,
        origin=pick(panel.moments, origins.start),
        at=pick(panel.moments, origins.end),
        stretch=_stretches(panel, origins, gap),
        period=_periods(panel, origins, gap),
        truth=truth,
        median=np.median(draws, axis=1),
        low=low,
        high=high,
        scores={"crps": crps_of_draws(draws, truth)} | references.crps(panel, origins, gap),
    )


def _joined(parts: list[Tested]) -> Tested:
    """One after the other."""
    join = lambda of: np.concatenate([of(part) for part in parts])
    scores = {name: join(lambda part, name=name: part.scores[name]) for name in parts[0].scores}
    arrays = [join(lambda part, i=i: part[i]) for i in range(len(Tested._fields) - 1)]
    return Tested(*arrays, scores=scores)


def _head(panel: Panel, rows: Sequence[int]) -> Panel:
    """So many first rows of each series that has two rows with a value among them."""
    kept = [i for i, n in enumerate(rows) if panel.seen(i, partial=True)[:n].sum() > 1]
    if not kept:
        raise ValueError("no series has two rows before the first origin: start later, or pass more rows.")
    return panel.heads(kept, [rows[i] for i in kept])


def _stretches(panel: Panel, origins: Origins, gap: float) -> np.ndarray:
    """Which stretch of the gap, of which series, each forecast starts in: neighbours have numbers next to each other,
    stretches of different series have not."""
    number = [int((t[-1] - t[0]) // gap) + 2 if len(t) else 0 for t in panel.times]
    first = np.cumsum([0, *number])
    since = [
        panel.times[i][s] - panel.times[i][0] for i, s in zip(origins.series, origins.start, strict=True)
    ]
    return first[origins.series] + np.floor(np.array(since) / gap).astype(int)


def _periods(panel: Panel, origins: Origins, gap: float) -> np.ndarray:
    """Which stretch of the gap each forecast starts in, on the clock that all series share."""
    first = min(t[0] for t in panel.times if len(t))
    starts = np.array([panel.times[i][s] for i, s in zip(origins.series, origins.start, strict=True)])
    return np.floor((starts - first) / gap).astype(int)


def summarise(
    tested: dict[float, Tested], names: Sequence[str], show: Callable[[float], str]
) -> list[GapScore]:
    """The scores of each gap and channel."""
    return [
        _score(name, c, show(gap), forecasts)
        for gap, forecasts in tested.items()
        for c, name in enumerate(names)
    ]


def _score(name: str, channel: int, gap: str, tested: Tested) -> GapScore:
    some = tested.scored(channel)
    scores = {of: each[some, channel] for of, each in tested.scores.items()}
    inside, stretch = tested.inside[some, channel], tested.stretch[some]
    mean = lambda numbers: float(numbers.mean()) if len(numbers) else math.nan
    best = scores[min(BASELINES, key=lambda of: mean(scores[of]))]
    place = Place(tested.series[some], tested.period[some])
    relative = ratio_of_means(scores["crps"], best, stretch, place) if some.any() else (math.nan, math.nan)
    return GapScore(
        channel=name,
        gap=gap,
        forecasts=int(some.sum()),
        crps=mean(scores["crps"]),
        coverage=mean(inside),
        coverage_error=error_of_mean(inside, stretch, place) if 0 < mean(inside) < 1 else math.nan,
        persistence=mean(scores["persistence"]),
        random_walk=mean(scores["random_walk"]),
        ornstein_uhlenbeck=mean(scores["ornstein_uhlenbeck"]),
        seasonal=mean(scores["seasonal"]) if "seasonal" in scores else None,
        relative=relative[0],
        relative_error=relative[1],
    )


class Among(NamedTuple):
    """A part of a panel: all of its rows, with the values that the part has and NaN elsewhere, and which rows of each
    series are in the part."""

    shown: Panel
    marked: list[np.ndarray]


def rows_among(panel: Panel, some: Panel, show: Callable[[float], str]) -> Among:
    """The rows of a panel that are in another one, which must hold nothing else."""
    place = {name: i for i, name in enumerate(panel.ids)}
    values = [np.full_like(x, np.nan) for x in panel.values]
    marked = [np.zeros(len(t), bool) for t in panel.times]
    for name, times, own in zip(some.ids, some.times, some.values, strict=True):
        if name not in place:
            raise ValueError(f"`among` must hold rows of `df`; it has series {name!r}, which `df` has not.")
        i = place[name]
        row = np.minimum(np.searchsorted(panel.times[i], times), len(panel.times[i]) - 1)
        of_series = f"of series {name!r} " if len(panel) > 1 else ""
        if (strange := panel.times[i][row] != times).any():
            at = show(float(times[strange.argmax()]))
            raise ValueError(f"`among` must hold rows of `df`; its row {of_series}at {at} is not there.")
        if (other := (~np.isnan(own) & (own != panel.values[i][row])).any(axis=1)).any():
            at = show(float(times[other.argmax()]))
            raise ValueError(f"`among` must hold rows of `df`; its row {of_series}at {at} has other values.")
        values[i][row], marked[i][row] = own, True
    return Among(dataclasses.replace(panel, values=values), marked)
