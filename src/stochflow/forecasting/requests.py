"""What is asked of a forecast: its times, and what is known ahead of them."""

import math
import warnings
from typing import Any

import numpy as np

from .arguments import count
from .frames import Panel, as_frame, find_columns, read_panel
from .model import Fitted, Past, Table
from .notices import warn_of_staying, warn_of_still, warn_of_unread_ids
from .times import moments_asked_for

# Times must not be so many that a slip of the pen fills the memory.
MOST_TIMES = 100_000
# Nor so late that a law is chained until nothing of what was learnt is left.
MOST_HORIZONS = 1000
# Of the usual gap: times as near as this are the same.
SAME_TIME = 1e-6
# Draws behind a quantile that was asked for without a number of samples: at least so many, and so many beyond the
# furthest level, as those of the central 90 % have.
DRAWS, BEYOND = 400, 20
# But no more than that, whatever the level; nor numbers of one series, at all of its times, that are drawn at once; nor
# of all series together, by rule and not by the user's will.
MOST_DRAWS, MOST_AT_ONCE, MOST_BY_RULE = 100_000, 2**20, 2**25
# Of one forecast: twenty-two bytes each, with what is made of them.
MOST_NUMBERS = 2**30


def forecast_times(
    fitted: Fitted, past: Past, panel: Panel | None, horizon: Any, every: Any, times: Any
) -> np.ndarray:
    """When to forecast each series, moments (series, times): at each `every` up to `horizon`, or at `times`."""
    axis, last = fitted.axis, past.last
    if (times is None) == (horizon is None):
        raise ValueError("pass either `horizon` (and `every`), or `times`.")
    if horizon is not None:
        span = axis.length(horizon, "horizon")
        step = min(fitted.gap, span) if every is None else axis.length(every, "every")
        number = int(np.floor(span / step + 1e-9))
        if not 1 <= number <= MOST_TIMES:
            raise ValueError(
                f"`every` must go between once and {MOST_TIMES} times into `horizon`; "
                f"{axis.show_length(step)} goes {number} times into {axis.show_length(span)}."
            )
        _require_near(fitted, span, "horizon")
        return axis.grid(_last_moments(fitted, past, panel), step, number)
    if every is not None:
        raise ValueError("`every` goes with `horizon`; with `times` leave it out.")
    moments = np.unique(moments_asked_for(times, axis))
    wanted = axis.numbers(moments)
    late = last > wanted[0]
    if late.any():
        i = int(late.argmax())
        raise ValueError(
            f"`times` must not lie before the last row of a series; series {past.ids[i]!r} ends at "
            f"{axis.show(last[i])} and the first is {axis.show(wanted[0])}: for times within a series use `impute`."
        )
    _require_near(fitted, wanted[-1] - last.min(), "times")
    return np.tile(moments, (len(last), 1))


def _last_moments(fitted: Fitted, past: Past, panel: Panel | None) -> np.ndarray:
    """Where forecasts start; of a model that was loaded, as exactly as its numbers are."""
    if panel is None:
        return fitted.axis.moments(past.last)
    seen = [panel.seen(i, partial=fitted.model.reads_partial) for i in range(len(panel))]
    return np.array([each[some][-1] for each, some in zip(panel.moments, seen, strict=True)])


def _require_near(fitted: Fitted, ahead: float, name: str) -> None:
    learnt = fitted.model.horizon
    if ahead > MOST_HORIZONS * learnt:
        raise ValueError(
            f"`{name}` must reach no further than {MOST_HORIZONS} times the {fitted.axis.show_length(learnt)} that the "
            f"model was fitted for; got {ahead / learnt:.3g} times: fit with a longer `horizon`."
        )


def read_table(df: Any, *, like: Fitted | Table | None = None, **columns: Any) -> Table:
    """The series of a frame; as those of a fit or of another frame were read, if there was one."""
    frame = as_frame(df)
    found = find_columns(frame, **columns)
    if like is None:
        warn_of_unread_ids(frame, found)
    axis = None if like is None else like.axis
    channels = like.names if like is not None and found.channel else None
    panel, axis, names = read_panel(frame, found, axis, channels=channels)
    if like is None:
        warn_of_still(panel, found)
        warn_of_staying(panel, names)
    return Table(panel, found, axis, names, str(frame.implementation))


def number_of_draws(samples: Any, furthest: float, at: np.ndarray, dim: int) -> int:
    """So many as were asked for, or as a level needs that lies so far from the nearer end: as many as fit in memory."""
    if samples is None:
        room = min(MOST_DRAWS, MOST_AT_ONCE // at.shape[1], MOST_BY_RULE // (at.size * dim))
        number = max(DRAWS, min(_enough(furthest), room))
    else:
        number = count(samples)
    if (numbers := number * at.size * dim) > MOST_NUMBERS:
        raise ValueError(
            f"{number} samples of {at.shape[0]} series at {at.shape[1]} times are {numbers:.2g} numbers, more than "
            f"{MOST_NUMBERS:.2g}: ask for fewer `samples`, times or series at once."
        )
    return number


def _enough(furthest: float) -> int:
    return math.ceil(round(BEYOND / max(furthest, 1e-12), 6))


def warn_of_cut(number: int, furthest: float) -> None:
    """Beyond the outermost of the draws nothing is known of a law: say so if a level lies there."""
    if furthest * (number + 1) < 1:
        warnings.warn(
            f"the quantile of level {furthest:.3g}, or the one as far from 1, lies beyond the outermost of {number} "
            f"draws and is cut off there: pass `samples={_enough(furthest)}`, for fewer times or series at once if "
            "they are too many.",
            stacklevel=3,
        )


def known_ahead(fitted: Fitted, future: Any, ids: list[Any], at: np.ndarray) -> np.ndarray:
    """The covariates that are known ahead at the times of the forecast, (series, times, covariates)."""
    names = fitted.columns.future
    if not names:
        if future is not None:
            raise ValueError("the model was fitted without covariates that are known ahead.")
        return np.zeros((*at.shape, 0))
    if future is None:
        raise ValueError(f"`future` must be a frame with {', '.join(names)} at the times of the forecast.")
    frame = as_frame(future)
    columns = find_columns(frame, id=fitted.columns.id, time=fitted.columns.time, values=names)
    panel, _, _ = read_panel(frame, columns, fitted.axis)
    known = dict(zip(panel.ids, range(len(panel)), strict=True))
    out = np.empty((*at.shape, len(names)))
    for i, name in enumerate(ids):
        if name not in known:
            raise ValueError(f"`future` has no rows of series {name!r}: add them.")
        t, x = panel.times[known[name]], panel.values[known[name]]
        # As near as times that were rounded, and no nearer than they can be told apart.
        slack = SAME_TIME * fitted.gap + 4 * np.spacing(np.abs(at[i]))
        place = np.clip(np.searchsorted(t, at[i] - slack), 0, len(t) - 1)
        off = (np.abs(t[place] - at[i]) > slack) | np.isnan(x[place]).any(1)
        if off.any():
            when = fitted.axis.show(at[i][off.argmax()])
            raise ValueError(
                f"`future` has no complete row of series {name!r} at {when}: add it, or ask for times that are there "
                "with `times=`."
            )
        out[i] = x[place]
    return out
