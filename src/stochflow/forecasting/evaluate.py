"""Putting a fitted model to the test, row by row."""

from collections.abc import Callable, Sequence
from typing import Any

import jax.random as jr
import numpy as np

from ..metrics import FORECAST_SCORES
from .backtest import Tested, backtest, rows_among
from .draws import require_finite
from .frames import Panel
from .model import Fitted, Table
from .origins import Origins, find_origins, truncated

# Rows of each series that are scored at the most.
MOST_ORIGINS = 2000


def draw_origins(
    fitted: Fitted, known: Panel, panel: Panel, origins: Origins, *, samples: int, seed: int
) -> np.ndarray:
    """Draws (origins, samples, dim) of the end of each origin, from what was `known` at its start."""
    at, future = _ends(panel.times, origins), _ends(panel.future, origins)
    past = fitted.model.past(known)
    drawn = fitted.model.draw(
        past, at[:, None], future[:, None], samples=samples, joint=False, key=jr.key(seed)
    )
    return drawn[:, :, 0]


def _finite_draws(fitted: Fitted, known: Panel, panel: Panel, origins: Origins, **how: int) -> np.ndarray:
    """The same, all of them finite."""
    draws = draw_origins(fitted, known, panel, origins, **how)
    return require_finite(draws, _lost(fitted, panel, origins, "draws that are not finite"))


def _lost(fitted: Fitted, panel: Panel, origins: Origins, what: str) -> Callable[[np.ndarray], str]:
    """How many forecasts have what is no number, and from when the first of them is."""

    def say(lost):
        starts = zip(origins.series[lost], origins.start[lost], strict=True)
        first = fitted.axis.show(min(panel.times[i][s] for i, s in starts))
        return f"{lost.sum()} of {len(lost)} forecasts have {what}, the first of them from {first}"

    return say


def score_rows(
    fitted: Fitted, panel: Panel, metric: str, gap: float | None, *, samples: int, seed: int
) -> float:
    """The mean score of each row given those `gap` before it and earlier; given the row before by default."""
    if not isinstance(metric, str) or (metric != "log" and metric not in FORECAST_SCORES):
        raise ValueError(f"`metric` must be one of log, {', '.join(FORECAST_SCORES)}; got {metric!r}.")
    late = np.inf if gap is None else fitted.gap
    ends = [len(t) for t in panel.times]
    partial = fitted.model.reads_partial
    origins = find_origins(panel, gap or 0.0, late, [0] * len(panel), ends, MOST_ORIGINS, partial=partial)
    if not len(origins.series):
        raise ValueError("no row of `df` comes so long after another: there is nothing to score.")
    known = truncated(panel, origins)
    truth = _ends(panel.values, origins)
    if metric == "log":
        at, future = _ends(panel.times, origins), _ends(panel.future, origins)
        found = fitted.model.log_prob(fitted.model.past(known), truth, at, future)
        require_finite(
            np.where(found == -np.inf, 0.0, found), _lost(fitted, panel, origins, "no log-density")
        )
        return float(-found.mean())
    draws = _finite_draws(fitted, known, panel, origins, samples=samples, seed=seed)
    return float(FORECAST_SCORES[metric](draws, truth))


def backtest_table(
    table: Table,
    fit: Callable[[Panel], Fitted],
    *,
    gaps: Sequence[Any],
    folds: int,
    start: float,
    origins: int,
    samples: int,
    period: Any,
    among: Panel | None,
    seed: int,
) -> dict[float, Tested]:
    """The back-test of a table, with lengths of time as the user wrote them."""
    panel, _, axis, _, _ = table
    lengths = [axis.length(gap, "gaps") for gap in gaps]
    if len(set(lengths)) < len(lengths):
        raise ValueError(f"`gaps` must differ; got {list(gaps)!r}, of which two are as long.")
    return backtest(
        fit,
        lambda fitted, *given: _finite_draws(fitted, *given, samples=samples, seed=seed),
        panel,
        gaps=lengths,
        show=axis.show_length,
        folds=folds,
        start=start,
        most=origins,
        period=None if period is None else axis.length(period, "period"),
        among=None if among is None else rows_among(panel, among, axis.show),
        partial=lambda fitted: fitted.model.reads_partial,
    )


def _ends(arrays, origins: Origins) -> np.ndarray:
    return np.array([arrays[i][e] for i, e in zip(origins.series, origins.end, strict=True)])
