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

DEFAULT_INTERVAL = 0.9
CENTRAL = (0.05, 0.95)
Draw = Callable[[int, np.ndarray], np.ndarray]


def _id_and_time(ids, at, repeats, columns, axis, like) -> dict[str, Any]:
    """The first columns of a frame with the times of each series `repeats` times over."""
    out: dict[str, Any] = {}
    number = at.shape[1]
    if columns.id is not None:
        kinds = np.array(ids) if isinstance(ids[0], int | float | np.number) else np.array(ids, object)
        out[columns.id] = _id_column(columns.id, list(np.repeat(kinds, number * repeats)), like)
    times = np.tile(at[:, None, :], (1, repeats, 1)).reshape(-1)
    out[columns.time] = axis.write(columns.time, times, like.implementation)
    return out


def _id_column(name: str, ids: list[Any], like: nw.DataFrame) -> nw.Series:
    """Ids of the type that they have in a frame; as they are if it has no such column (a model that was loaded)."""
    made = nw.new_series(name, ids, backend=like.implementation)
    kind = like[name].dtype if name in like.columns else made.dtype
    return made.cast(kind) if kind.is_integer() or isinstance(kind, nw.Categorical | nw.Enum) else made


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
    frame: nw.DataFrame, panel: Panel, names: tuple[str, ...], draw: Draw, *, partial: bool
) -> Any:
    """The frame with what was missing between complete rows (rows with a value, if `partial`) filled in, and the ends
    of intervals beside."""
    _require_apart([*frame.columns, *(name + ending for name in names for ending in ("_lo90", "_hi90"))])
    ends = {name: frame[name].cast(nw.Float64).to_numpy().astype(np.float64).copy() for name in names}
    low, high = ({name: ends[name].copy() for name in names} for _ in range(2))
    for i in range(len(panel)):
        x = panel.values[i]
        ends_at = np.flatnonzero(panel.seen(i, partial=partial))
        if len(ends_at) < 2:
            continue
        inside = (np.arange(len(x)) >= ends_at[0]) & (np.arange(len(x)) <= ends_at[-1])
        rows = np.flatnonzero(np.isnan(x).any(axis=1) & inside)
        if not len(rows):
            continue
        drawn = draw(i, panel.times[i][rows])
        for c, name in enumerate(names):
            empty = np.isnan(x[rows, c])
            places = panel.rows[i][rows[empty]]
            found = quantiles_of_draws(drawn[:, empty, c], [0.5, *CENTRAL], axis=0)
            ends[name][places], low[name][places], high[name][places] = found
    made = {name: frame[name] for name in frame.columns}
    for name in names:
        made |= {name: ends[name], f"{name}_lo90": low[name], f"{name}_hi90": high[name]}
    return write_frame(made, frame)


def between_frame(
    wanted, panel: Panel, names, columns, axis, frame: nw.DataFrame, draw: Draw, *, partial: bool
) -> Any:
    """Medians and intervals at times within each series."""
    made = [name + ending for name in names for ending in ("", "_lo90", "_hi90")]
    _require_apart([column for column in (columns.id, columns.time) if column is not None] + made)
    ids, times, rows = [], [], []
    for i in range(len(panel)):
        whole = panel.times[i][panel.seen(i, partial=partial)]
        at = wanted[(wanted >= whole[0]) & (wanted <= whole[-1])] if len(whole) > 1 else wanted[:0]
        if len(at):
            drawn = draw(i, at)
            ids += [panel.ids[i]] * len(at)
            times.append(at)
            rows.append(quantiles_of_draws(drawn, [0.5, *CENTRAL], axis=0))
    if not ids:
        raise ValueError(
            "`times` must lie between the first and the last complete row of a series; none does."
        )
    found = np.concatenate(rows, axis=1)
    out: dict[str, Any] = {} if columns.id is None else {columns.id: _id_column(columns.id, ids, frame)}
    out[columns.time] = axis.write(columns.time, np.concatenate(times), frame.implementation)
    for c, name in enumerate(names):
        for ending, column in zip(("", "_lo90", "_hi90"), found[..., c], strict=True):
            out[name + ending] = column.astype(np.float64)
    return write_frame(out, frame)


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
FORECAST = ("channel", "gap", "origin", "stretch", "value", "median", "lo90", "hi90", "crps")


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
    out[columns.time] = axis.write(columns.time, at, like.implementation)
    out |= {of: joined[of] for of in ("channel", "gap")}
    out["origin"] = axis.write("origin", joined["origin"], like.implementation)
    return write_frame(out | {of: each for of, each in joined.items() if of not in out}, like)
