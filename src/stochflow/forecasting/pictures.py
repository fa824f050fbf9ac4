"""A forecast as a picture: the last rows of a series and the fan of what may come."""

import dataclasses
from datetime import UTC
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np

from .frames import Panel

# Rows of the past that are shown, and samples that the fan is made of: so many that its outer edge is no saw.
SHOWN, DRAWS = 100, 4000


def plot_forecast(
    forecaster: Any,
    df: Any,
    *,
    horizon: Any,
    every: Any,
    series: Any,
    future: Any = None,
    paths: int = 0,
    axes: Any = None,
    random_state: Any = None,
) -> Any:
    """The fan chart of one series; `future` as for `predict`, and `paths` draws whole paths on top of it."""
    from ..plots import fan_after

    fitted = forecaster._fitted()
    panel: Panel = forecaster._own_panel() if df is None else forecaster._panel(df)
    if series is not None and series not in panel.ids:
        raise ValueError(f"there is no series {series!r}; the first of {len(panel)} are {panel.ids[:5]}.")
    i = 0 if series is None else panel.ids.index(series)
    one = panel.heads([i], [len(panel.times[i])])
    horizon = forecaster.horizon_ if horizon is None and fitted.axis.is_calendar else horizon
    horizon = fitted.model.horizon if horizon is None else horizon
    draw = lambda samples, joint: forecaster._forecast(
        one, horizon, every, None, future, samples, joint, random_state
    )
    draws, _, at = draw(DRAWS, False)
    walks = draw(paths, True)[0][0] if paths else None
    past_times, past_values = panel.moments[i][-SHOWN:], panel.values[i][-SHOWN:]
    axis = dataclasses.replace(fitted.axis, origin=0)
    as_dates = lambda moments: (
        _clock(moments, axis.zone) if axis.kind in ("datetime", "date") else axis.numbers(moments)
    )
    title = None if fitted.columns.id is None else f"{fitted.columns.id} {panel.ids[i]}"
    return fan_after(
        as_dates(past_times),
        past_values,
        as_dates(np.asarray(at[0])),
        draws[0],
        names=list(fitted.names),
        paths=walks,
        title=title,
        join=not fitted.model.reads_partial,  # a model of partial rows takes them for noisy readings
        axes=axes,
    )


def _clock(moments: np.ndarray, zone: str | None) -> np.ndarray:
    """What clocks show at these moments in the zone of the data."""
    found = moments.astype("datetime64[us]")
    if zone is None:
        return found
    shown = [m.replace(tzinfo=UTC).astimezone(ZoneInfo(zone)).replace(tzinfo=None) for m in found.tolist()]
    return np.array(shown, "datetime64[us]")
