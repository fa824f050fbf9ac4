"""Putting a fitted model to the test, row by row, and filling in what lies between rows."""

from typing import Any, NamedTuple

import jax.random as jr
import numpy as np
from jaxtyping import PRNGKeyArray

from .backtest import Origins, find_origins, truncated
from .direct import DirectModel
from .frames import Columns, Panel
from .impute import impute_direct
from .latent import LatentModel
from .scores import METRICS
from .times import TimeAxis

# Rows of each series that are scored at the most.
MOST_ORIGINS = 2000


class Fitted(NamedTuple):
    """All that a fitted forecaster knows."""

    columns: Columns
    axis: TimeAxis
    names: tuple[str, ...]
    model: DirectModel | LatentModel
    gap: float
    card: dict[str, Any]
    frame: str


def impute_series(
    fitted: Fitted, panel: Panel, i: int, at: np.ndarray, *, samples: int, key: PRNGKeyArray
) -> np.ndarray:
    """Draws (samples, times, dim) at times within series number `i`."""
    if isinstance(fitted.model, DirectModel):
        return impute_direct(fitted.model, panel, i, at, samples=samples, key=key)
    present = ~np.isnan(panel.values[i]).all(1)
    times, values = panel.times[i][present], panel.values[i][present]
    return fitted.model.impute(times, values, at, panel.ids[i], samples=samples, key=key)


def draw_origins(
    fitted: Fitted, known: Panel, panel: Panel, origins: Origins, *, samples: int, seed: int
) -> np.ndarray:
    """Draws (origins, samples, dim) of the end of each origin, from what was `known` at its start."""
    model, key = fitted.model, jr.key(seed)
    at = _ends(panel.times, origins)[:, None]
    if isinstance(model, DirectModel):
        future = _ends(panel.future, origins).reshape(len(at), 1, -1)
        return model.draw(model.past(known), at, future, samples=samples, joint=False, key=key)[:, :, 0]
    series = zip(known.times, known.values, at, known.ids, strict=True)
    drawn = [model.draw(t, x, a, n, samples=samples, joint=False, key=key)[:, 0] for t, x, a, n in series]
    return np.stack(drawn)


def score_rows(
    fitted: Fitted, panel: Panel, metric: str, gap: float | None, *, samples: int, seed: int
) -> float:
    """The mean score of each row given those `gap` before it and earlier; given the row before by default."""
    if metric != "log" and metric not in METRICS:
        raise ValueError(f"`metric` must be one of log, {', '.join(METRICS)}; got {metric!r}.")
    late = np.inf if gap is None else fitted.gap
    ends = [len(t) for t in panel.times]
    origins = find_origins(panel, gap or 0.0, late, [0] * len(panel), ends, MOST_ORIGINS)
    if not len(origins.series):
        raise ValueError("no row of `df` comes so long after another: there is nothing to score.")
    if metric == "log":
        return _log_score(fitted, panel, origins)
    draws = draw_origins(fitted, truncated(panel, origins), panel, origins, samples=samples, seed=seed)
    return float(METRICS[metric](draws, _ends(panel.values, origins)))


def _log_score(fitted: Fitted, panel: Panel, origins: Origins) -> float:
    model = fitted.model
    if not isinstance(model, DirectModel):
        raise ValueError("the log-density of a latent model is not known: choose another `metric`.")
    past = model.past(truncated(panel, origins))
    future = _ends(panel.future, origins).reshape(len(origins.series), -1)
    return float(
        -model.log_prob(past, _ends(panel.values, origins), _ends(panel.times, origins), future).mean()
    )


def _ends(arrays, origins: Origins) -> np.ndarray:
    return np.array([arrays[i][e] for i, e in zip(origins.series, origins.end, strict=True)])
