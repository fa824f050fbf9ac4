"""Draws as data frames: a row a draw, or columns of quantiles."""

import dataclasses
from collections.abc import Callable
from typing import Any

import narwhals as nw
import numpy as np

from ..metrics import quantiles_of_draws
from .backtest import BASELINES, GapScore, Tested
from .frames import Columns, Panel, write_frame
from .model import Table
from .times import TimeAxis, as_exact

DEFAULT_INTERVAL = 0.9
# Of what is filled in: endings of the columns, and the level in each.
ENDS, LEVELS = ("", "_lo90", "_hi90"), (0.5, 0.05, 0.95)
Draw = Callable[[int, np.ndarray], np.ndarray]


def _id_and_time(ids, at, repeats, columns, axis, like) -> dict[str, Any]:
    """The first columns of a frame with the times of each series `repeats` times over."""
    out: dict[str, Any] = {}
    number = at.shape[1]
    if columns.id is not None:
        kinds = np.array(ids) if isinstance(ids[0], int | float | np.number) else np.array(ids, object)
        out[columns.id] = _id_column(columns.id, list(np.repeat(kinds, number * repeats)), like)
    moments = np.tile(at[:, None, :], (1, repeats, 1)).reshape(-1)
    out[columns.time] = _time_column(columns.time, moments, axis, like, columns.time)
    return out


def _time_column(name: str, moments: np.ndarray, axis: TimeAxis, like: nw.DataFrame, time: str) -> nw.Series:
    """Moments of the type that times have in a frame, if it holds all of them exactly; as the axis has them if not, or
    if the frame has no such column (a model that was loaded)."""
    made = axis.column(name, moments, like.implementation)
    return (
        _cast(made, like[time]) if time in like.columns and _holds(like[time].dtype, made, moments) else made
    )


def _holds(kind: Any, made: nw.Series, moments: np.ndarray) -> bool:
    """Whether a column of this type can hold moments exactly."""
    of: Any = made.dtype
    if isinstance(kind, nw.Datetime | nw.Duration) and type(of) is type(kind):
        found = as_exact(moments, kind.time_unit)
        alike = getattr(of, "time_zone", None) == getattr(kind, "time_zone", None)
        return alike and np.datetime_data(found.dtype)[0] == kind.time_unit
    single = str(kind).lower()
    if not (kind.is_numeric() and of.is_numeric() and hasattr(np, single)):
        return False
    with np.errstate(invalid="ignore", over="ignore"):
        return np.array_equal(moments.astype(single).astype(moments.dtype), moments)


def _cast(made: nw.Series, like: nw.Series) -> nw.Series:
    """As the other column; one of pandas in its own dtype, which says more than narwhals does."""
    if like.implementation.is_pandas():
        return nw.from_native(made.to_native().astype(like.to_native().dtype), series_only=True)
    return made.cast(like.dtype)


def _id_column(name: str, ids: list[Any], like: nw.DataFrame) -> nw.Series:
    """Ids of the type that they have in a frame; as they are if it has no such column (a model that was loaded)."""
    made = nw.new_series(name, ids, backend=like.implementation)
    typed = name in like.columns and like[name].dtype not in (nw.Object, nw.Unknown, nw.Decimal)
    return _cast(made, like[name]) if typed else made


def sample_frame(draws, ids, at, names, columns, axis, like) -> Any:
    series, samples, times, _ = draws.shape
    out = _id_and_time(ids, at, samples, columns, axis, like)
    out["sample"] = np.tile(np.repeat(np.arange(samples), times), series)
    flat = draws.reshape(-1, draws.shape[-1]).astype(np.float64)
    return write_frame(out | {name: flat[:, i].copy() for i, name in enumerate(names)}, like)


def summary_frame(draws, ids, at, names, columns, axis, like, quantiles, interval) -> Any:
    levels = _levels(quantiles, interval)
    out = _id_and_time(ids, at, 1, columns, axis, like)
    for i, name in enumerate(names):
        found = quantiles_of_draws(draws[..., i].astype(np.float64), [*levels.values()], axis=1)
        for (ending, _), column in zip(levels.items(), found, strict=True):
            out[name + ending] = column.reshape(-1).copy()
    return write_frame(out, like)


def check_request(
    quantiles: Any, interval: Any, names: tuple[str, ...], columns: Columns, *, rows: bool
) -> None:
    """Before anything is drawn: the levels that are asked for, and that no two columns of the frame that comes of it
    have one name. `rows`: a row a draw."""
    levels = _levels(quantiles, interval)
    made = ["sample", *names] if rows else [name + ending for name in names for ending in levels]
    _require_apart([column for column in (columns.id, columns.time) if column is not None] + made)


def _require_apart(made: list[str]) -> None:
    if twice := [name for name in made if made.count(name) > 1]:
        raise ValueError(
            f"two columns of the result would be named {twice[0]!r}: rename that column of the data, and fit again."
        )


def _levels(quantiles, interval) -> dict[str, float]:
    """Column endings and the quantile in each."""
    if quantiles is not None and interval is not None:
        raise ValueError("pass `quantiles` or `interval`, not both.")
    if quantiles is not None:
        levels = _probabilities(quantiles)
        short = [f"_q{q:g}" for q in levels]
        return dict(zip(short if len(set(short)) == len(short) else map("_q{!r}".format, levels), levels))
    inside = DEFAULT_INTERVAL if interval is None else interval
    if isinstance(inside, bool) or not isinstance(inside, int | float | np.number) or not 0 < inside < 1:
        raise ValueError(f"`interval` must be a probability between 0 and 1; got {interval!r}.")
    inside = float(str(inside))  # 0.9 of single precision is meant to be 0.9
    return {"": 0.5, f"_lo{100 * inside:g}": (1 - inside) / 2, f"_hi{100 * inside:g}": (1 + inside) / 2}


def furthest_level(quantiles: Any, interval: Any) -> float:
    """How far the outermost level that is asked for is from 0 or 1."""
    return min(min(level, 1 - level) for level in _levels(quantiles, interval).values())


def _probabilities(quantiles) -> list[float]:
    try:
        levels = np.atleast_1d(np.asarray(quantiles, float))
    except (TypeError, ValueError):
        levels = np.zeros(0)
    found = [float(q) for q in levels] if levels.ndim == 1 else []
    if not found or not all(0 < q < 1 for q in found) or len(set(found)) < len(found):
        raise ValueError(
            f"`quantiles` must be numbers between 0 and 1 that differ, such as [0.05, 0.5, 0.95]; got {quantiles!r}."
        )
    return found


def filled_frame(
    frame: nw.DataFrame, panel: Panel, names: tuple[str, ...], columns: Columns, draw: Draw, *, partial: bool
) -> Any:
    """The frame with what was missing between complete rows (rows with a value, if `partial`) filled in, and the ends
    of intervals beside."""
    values = names if columns.channel is None else columns.values
    _require_apart([*frame.columns, *(name + ending for name in values for ending in ENDS[1:])])
    numbers = [frame[name].cast(nw.Float64).to_numpy().astype(np.float64) for name in values]
    cells = np.tile(np.stack(numbers, axis=1), (3, 1, 1))
    channel = _channels(frame, names, columns)
    empty = np.append(np.isnan(cells[0]).any(axis=1), False)  # the last for rows that are not there
    for i in range(len(panel)):
        x, places = panel.values[i], panel.rows[i].reshape(len(panel.values[i]), -1)
        ends_at = np.flatnonzero(panel.seen(i, partial=partial))
        if len(ends_at) < 2:
            continue
        inside = (np.arange(len(x)) >= ends_at[0]) & (np.arange(len(x)) <= ends_at[-1])
        rows = np.flatnonzero(empty[places].any(axis=1) & inside)
        if not len(rows):
            continue
        drawn = quantiles_of_draws(draw(i, panel.times[i][rows]), LEVELS, axis=0)
        found = np.where(np.isnan(x[rows]), drawn, x[rows])
        row, which = np.nonzero(places[rows] >= 0)
        place = places[rows][row, which]
        cells[:, place] = found[:, row[:, None], channel[place]]
    made = {name: frame[name] for name in frame.columns}
    for c, name in enumerate(values):
        made |= {name + ending: of[:, c].copy() for ending, of in zip(ENDS, cells, strict=True)}
    return write_frame(made, frame)


def _channels(frame: nw.DataFrame, names: tuple[str, ...], columns: Columns) -> np.ndarray:
    """Of each row of a frame, the channel of each of its values."""
    if columns.channel is None:
        return np.tile(np.arange(len(names)), (len(frame), 1))
    place = {name: c for c, name in enumerate(names)}
    return np.array([[place[str(name)]] for name in frame[columns.channel].to_list()])


def between_frame(
    wanted, panel: Panel, names, columns, axis, frame: nw.DataFrame, draw: Draw, *, partial: bool
) -> Any:
    """Medians and intervals at times within each series, and what was seen there; of a frame of rows of one channel
    each, such rows."""
    values = names if columns.channel is None else columns.values
    named = [name for name in (columns.id, columns.time, columns.channel) if name is not None]
    _require_apart([*named, *(name + ending for name in values for ending in ENDS)])
    ids, moments, rows = [], [], []
    asked = axis.numbers(wanted)
    for i in range(len(panel)):
        whole = panel.times[i][panel.seen(i, partial=partial)]
        inside = (asked >= whole[0]) & (asked <= whole[-1]) if len(whole) > 1 else np.zeros(len(asked), bool)
        if inside.any():
            drawn = quantiles_of_draws(draw(i, asked[inside]), LEVELS, axis=0)
            ids += [panel.ids[i]] * inside.sum()
            moments.append(wanted[inside])
            seen = _observed(panel, i, asked[inside])
            rows.append(np.where(np.isnan(seen), drawn, seen))
    if not ids:
        raise ValueError(
            "`times` must lie between the first and the last complete row of a series; none does."
        )
    found, each = np.concatenate(rows, axis=1), 1 if columns.channel is None else len(names)
    ids = [name for name in ids for _ in range(each)]
    out: dict[str, Any] = {} if columns.id is None else {columns.id: _id_column(columns.id, ids, frame)}
    repeated = np.repeat(np.concatenate(moments), each)
    out[columns.time] = _time_column(columns.time, repeated, axis, frame, columns.time)
    if columns.channel is not None:
        out[columns.channel] = _channel_column(columns.channel, names, found.shape[1], frame)
        found = found.reshape(len(LEVELS), -1, 1)
    for c, name in enumerate(values):
        for ending, column in zip(ENDS, found[..., c], strict=True):
            out[name + ending] = column.astype(np.float64)
    return write_frame(out, frame)


def _observed(panel: Panel, i: int, at: np.ndarray) -> np.ndarray:
    """What was seen of one series at some times within it, NaN where nothing was."""
    row = np.searchsorted(panel.times[i], at)
    return np.where((panel.times[i][row] == at)[:, None], panel.values[i][row], np.nan)


def _channel_column(name: str, names: tuple[str, ...], times: int, like: nw.DataFrame) -> nw.Series:
    """The channels, as they are written in a frame, for each of so many times."""
    written = {str(value): value for value in like[name].unique().to_list()}
    if not written.keys() >= set(names):  # a channel of the fit that the frame has no row of
        return nw.new_series(name, list(names) * times, backend=like.implementation)
    return _id_column(name, [written[of] for of in names] * times, like)


def score_frame(scores: list[GapScore], like: nw.DataFrame) -> Any:
    """A row a channel and gap."""
    if not scores:
        raise ValueError("no row comes so long after another: there is nothing to test.")
    names = [field.name for field in dataclasses.fields(GapScore)]
    columns = {name: [getattr(score, name) for score in scores] for name in names}
    if scores[0].seasonal is None:
        del columns["seasonal"]
    return write_frame(columns, like)


# Of each forecast of a back-test, beside the columns of its series and time.
FORECAST = ("channel", "gap", "origin", "stretch", "period", "value", "median", "lo90", "hi90", "crps")


def check_forecasts(columns: Columns, *, seasonal: bool) -> None:
    """Before anything is fitted: no two columns of the frame below have one name."""
    named = [column for column in (columns.id, columns.time) if column is not None]
    _require_apart([*named, *FORECAST, *BASELINES, *(["seasonal"] if seasonal else [])])


def forecast_frame(tested: dict[float, Tested], table: Table, like: nw.DataFrame) -> Any:
    """A row a forecast and channel that was seen: what was said, what came, and the scores."""
    panel, columns, axis, names, _ = table
    parts: dict[str, list[Any]] = {}
    for gap, some in tested.items():
        for c, name in enumerate(names):
            seen = np.flatnonzero(~np.isnan(some.truth[:, c]))
            of_channel = {"value": some.truth, "median": some.median, "lo90": some.low, "hi90": some.high}
            found = {
                "series": some.series[seen],
                "at": some.at[seen],
                "channel": np.full(len(seen), name, object),
                "gap": np.full(len(seen), axis.show_length(gap), object),
                "origin": some.origin[seen],
                "stretch": some.stretch[seen],
                "period": some.period[seen],
            } | {
                of: numbers[seen, c].astype(np.float64) for of, numbers in (of_channel | some.scores).items()
            }
            for of, column in found.items():
                parts.setdefault(of, []).append(column)
    joined = {of: np.concatenate(each) for of, each in parts.items()}
    series, at = joined.pop("series"), joined.pop("at")
    out: dict[str, Any] = {}
    if columns.id is not None:
        out[columns.id] = _id_column(columns.id, [panel.ids[i] for i in series], like)
    out[columns.time] = _time_column(columns.time, at, axis, like, columns.time)
    out |= {of: joined[of] for of in ("channel", "gap")}
    out["origin"] = _time_column("origin", joined["origin"], axis, like, columns.time)
    return write_frame(out | {of: each for of, each in joined.items() if of not in out}, like)
