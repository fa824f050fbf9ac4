"""Long data frames, of pandas or polars alike, as series; and series as data frames of the same kind."""

import dataclasses
import decimal
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import narwhals as nw
import numpy as np
from jaxtyping import Float, Shaped

from .times import TimeAxis, as_moments

# What Nixtla's libraries call them: frames with these names need no more said.
NIXTLA = {"id": "unique_id", "time": "ds", "value": "y"}


@dataclasses.dataclass(frozen=True)
class Columns:
    """Which column is what. `channel`, if any, names the channel of each row's only value."""

    time: str
    values: tuple[str, ...]
    id: str | None = None
    channel: str | None = None
    static: tuple[str, ...] = ()
    past: tuple[str, ...] = ()
    future: tuple[str, ...] = ()


class Partial(NamedTuple):
    """Rows of which some values are NaN."""

    times: Float[np.ndarray, " _rows"]
    values: Float[np.ndarray, "_rows dim"]


@dataclasses.dataclass(frozen=True, eq=False)
class Panel:
    """Series in the order of their ids, each with its rows in the order of time: as the numbers that a law reads, in
    `times`, and exactly, in `moments`.

    Covariates are one array a series: `past` and `future` with a row a row, `static` with one row for all. `rows` says
    where in the frame each row was (of a frame with a channel column, all those of one time, side by side, and -1 where
    a time has fewer than another).
    """

    ids: list[Any]
    times: list[Float[np.ndarray, " _rows"]]
    moments: list[Shaped[np.ndarray, " _rows"]]
    values: list[Float[np.ndarray, "_rows dim"]]
    past: list[Float[np.ndarray, "_rows past"]]
    future: list[Float[np.ndarray, "_rows future"]]
    static: Float[np.ndarray, "series static"]
    rows: list[np.ndarray]

    def __len__(self) -> int:
        return len(self.ids)

    def complete(self, i: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Times, values and covariates (static, past, ahead) of the complete rows of series number `i`."""
        whole = ~np.isnan(self.values[i]).any(axis=1)
        static = np.broadcast_to(self.static[i], (int(whole.sum()), self.static.shape[1]))
        u = np.concatenate([static, self.past[i][whole], self.future[i][whole]], axis=1)
        return self.times[i][whole], self.values[i][whole], u

    def seen(self, i: int, *, partial: bool) -> np.ndarray:
        """Which rows of series number `i` have all values or, if `partial`, at least one."""
        missing = np.isnan(self.values[i])
        return ~np.asarray(missing.all(axis=1) if partial else missing.any(axis=1))

    def require_starts(self, *, partial: bool) -> None:
        """Each series must have a row to start from: a complete one or, if `partial`, one with a value."""
        for i, name in enumerate(self.ids):
            if not self.seen(i, partial=partial).any():
                hint = (
                    "value to start from: leave it out."
                    if partial
                    else ("complete row to start from: leave it out, or fill in one row.")
                )
                raise ValueError(f"series {name!r} has no {hint}")

    def partial(self, i: int) -> "Partial":
        """The rows of series number `i` of which some channels were seen and others not."""
        x = self.values[i]
        some = np.isnan(x).any(axis=1) & ~np.isnan(x).all(axis=1)
        return Partial(self.times[i][some], x[some])

    def heads(self, series: Sequence[int] | np.ndarray, rows: Sequence[int] | np.ndarray) -> "Panel":
        """So many first rows of each of these series, which may be named more than once."""
        cut = lambda arrays: [arrays[i][:n] for i, n in zip(series, rows, strict=True)]
        return Panel(
            ids=[self.ids[i] for i in series],
            times=cut(self.times),
            moments=cut(self.moments),
            values=cut(self.values),
            past=cut(self.past),
            future=cut(self.future),
            static=self.static[np.asarray(series, int)],
            rows=cut(self.rows),
        )


def as_frame(data: Any) -> nw.DataFrame:
    """A pandas or polars data frame through narwhals, or one sentence about what it is instead."""
    try:
        frame = nw.from_native(data, eager_only=True)
    except TypeError:
        kind = f"{type(data).__module__}.{type(data).__name__}"
        lazy = ": call `.collect()` on it first" if hasattr(data, "collect") else ""
        raise TypeError(f"the data must be a pandas or polars data frame; got {kind}{lazy}.") from None
    except nw.exceptions.DuplicateError:
        names = [str(name) for name in data.columns]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"two columns are named {twice!r}: rename one of them.") from None
    if strange := [name for name in frame.columns if not isinstance(name, str)]:
        raise ValueError(
            f"columns must have names that are text; got {strange[0]!r}: rename them, as `df.rename(columns=str)` does."
        )
    return frame


def find_columns(
    frame: nw.DataFrame,
    *,
    id: str | None = None,
    time: str | None = None,
    values: Sequence[str] | str | None = None,
    channel: str | None = None,
    static: Sequence[str] | None = (),
    past: Sequence[str] | None = (),
    future: Sequence[str] | None = (),
) -> Columns:
    """Fill in what was not said: `unique_id`, `ds` and `y`; without `ds` and `y`, every other column of numbers is a
    value."""
    there = frame.columns
    index = getattr(getattr(frame.to_native(), "index", None), "dtype", None)
    plain = index is None or index.kind == "i"
    hint = "" if plain else " Of the index nothing is read: call `reset_index()` first."
    if not there:
        raise ValueError(f"the data frame is empty: it has no columns.{hint}")
    shown = ", ".join(map(str, there))
    for what, name in (("id", id), ("time", time), ("channel", channel)):
        if name is not None and not isinstance(name, str):
            raise ValueError(f"`{what}` must be the name of one column; got {name!r}.")
    single = lambda names: isinstance(names, str) or not isinstance(names, Iterable)
    listed = lambda names: () if names is None else (names,) if single(names) else tuple(names)
    static, past, future = listed(static), listed(past), listed(future)
    id = NIXTLA["id"] if id is None and NIXTLA["id"] in there else id
    time = NIXTLA["time"] if time is None and NIXTLA["time"] in there else time
    if time is None:
        raise ValueError(f"`time` must name the column of times, one of {shown}.{hint}")
    if values is None:
        taken = {id, time, channel, *static, *past, *future}
        numeric = [name for name in there if name not in taken and frame[name].dtype.is_numeric()]
        named = time == NIXTLA["time"] and NIXTLA["value"] in there and NIXTLA["value"] not in taken
        values = [NIXTLA["value"]] if named else numeric
    found = Columns(time, listed(values), id, channel, static, past, future)
    named = [found.time, *found.values, *static, *past, *future, *[c for c in (id, channel) if c is not None]]
    for name in named:
        if name not in there:
            indexed = name is not None and name in getattr(
                getattr(frame.to_native(), "index", None), "names", ()
            )
            hint = f" {name!r} is in the index: call `reset_index()` first." if indexed else ""
            raise ValueError(f"there is no column {name!r}; the columns are {shown}.{hint}")
        if named.count(name) > 1:
            raise ValueError(f"column {name!r} is named twice.")
    if not found.values:
        raise ValueError("`values` must name at least one column of numbers; there is none left.")
    if channel is not None and len(found.values) != 1:
        raise ValueError(f"with `channel` there is one column of values; got {', '.join(found.values)}.")
    return found


def read_panel(
    frame: nw.DataFrame,
    columns: Columns,
    axis: TimeAxis | None = None,
    *,
    channels: Sequence[str] | None = None,
) -> tuple[Panel, TimeAxis, tuple[str, ...]]:
    """The series of a frame, how its times are read, and the names of its channels.

    Rows may come in any order. `channels` says which there are, of a frame with a channel column; by default all.
    """
    if len(frame) == 0:
        raise ValueError("the data frame is empty: it has no rows.")
    column = frame[columns.time]
    column = as_moments(column, f"time column {columns.time!r}")
    known = TimeAxis.of(column, columns.time)
    calendar = ("date", "datetime")  # days are read as their midnights
    if (
        axis is not None
        and axis.kind != known.kind
        and not (axis.kind in calendar and known.kind in calendar)
    ):
        raise ValueError(
            f"time column {columns.time!r} holds {known.kind}s where the model was fitted on {axis.kind}s."
        )
    if axis is not None and (axis.zone is None) != (known.zone is None):
        raise ValueError(
            f"time column {columns.time!r} is {'without' if known.zone is None else 'in'} a time zone, unlike the data "
            f"that the model was fitted on ({axis.zone or 'without'}): bring it there, as `dt.tz_localize` of pandas "
            "or `dt.replace_time_zone` of polars does."
        )
    moments = known.read_moments(column, columns.time)
    axis = axis or known.near(moments)
    ids, codes = _ids(frame, columns.id)
    number = {name: _numbers(frame[name], name) for name in (*columns.past, *columns.future, *columns.static)}
    if columns.channel is None:
        values = np.stack([_numbers(frame[name], name) for name in columns.values], axis=1)
        names = columns.values
    else:
        names, values = _by_channel(frame, columns, channels)
    return _grouped(columns, ids, codes, moments, values, number, axis), axis, names


def _if_numbers(name: Any, columns: Columns) -> str:
    """Two names in a file may be one number."""
    read = columns.id is not None and not isinstance(name, str)
    return (
        f"; or fit on text, if {columns.id!r} was read as numbers and 01 and 1 are two series" if read else ""
    )


def _grouped(columns, ids, codes, moments, values, number, axis) -> Panel:
    order, times = np.lexsort((moments, codes)), axis.numbers(moments)
    repeats = lambda array: array[order][1:] == array[order][:-1]
    same = np.flatnonzero(repeats(codes) & repeats(moments))
    if len(same) and columns.channel is None:
        row = order[same[0] + 1]
        raise ValueError(
            f"series {(name := ids[codes[row]])!r} has two rows at {axis.show(times[row])} (the second is row {row}): "
            f"keep one, or average them first{_if_numbers(name, columns)}."
        )
    near = np.flatnonzero(repeats(codes) & repeats(times) & ~repeats(moments))
    if len(near):
        row = order[near[0] + 1]
        raise ValueError(
            f"series {ids[codes[row]]!r} has two rows at {axis.show(times[row])} (the second is row {row}) that are "
            "too near to each other for double precision to tell them apart over so long a time: keep one, or average "
            "them first."
        )
    first = np.concatenate([[True], ~(repeats(codes) & repeats(moments))])
    group = np.cumsum(first) - 1
    kept = order[first]
    if columns.channel is not None:
        values = _merge(values[order], group, len(kept), order, ids, codes, times, axis)
        rows = _side_by_side(order, group, first)
    else:
        values, rows = values[kept], kept
    pick = lambda names: np.stack([number[n][kept] for n in names], 1) if names else np.zeros((len(kept), 0))
    past, future, static = pick(columns.past), pick(columns.future), pick(columns.static)
    edges = np.flatnonzero(np.diff(codes[kept])) + 1
    split = lambda array: np.split(array, edges)
    for name, what in ((columns.past, past), (columns.future, future), (columns.static, static)):
        if np.isnan(what).any():
            row, which = np.argwhere(np.isnan(what))[0]
            raise ValueError(
                f"column {name[which]!r}, row {kept[row]}: a covariate must not be missing: fill it in, and add a "
                "flag of where, or leave the rows out."
            )
    statics = split(static)
    for i, each in enumerate(statics):
        if (each != each[:1]).any():
            name = columns.static[int((each != each[:1]).any(0).argmax())]
            raise ValueError(
                f"column {name!r} is not static: it changes within series {ids[codes[split(kept)[i][0]]]!r}."
            )
    return Panel(
        ids=[ids[codes[part[0]]] for part in split(kept)],
        times=split(times[kept]),
        moments=split(moments[kept]),
        values=split(values),
        past=split(past),
        future=split(future),
        static=np.stack([each[0] for each in statics]),
        rows=split(rows),
    )


def _merge(values, group, number, order, ids, codes, times, axis):
    """Rows of one channel each into rows of all: at most one value a channel, time and series."""
    merged = np.full((number, values.shape[1]), np.nan)
    row, channel = np.nonzero(~np.isnan(values))
    place = group[row] * values.shape[1] + channel
    repeated = np.flatnonzero(np.bincount(place, minlength=1) > 1)
    if len(repeated):
        at = order[row[place == repeated[0]][1]]
        raise ValueError(
            f"series {ids[codes[at]]!r} has two values of one channel at {axis.show(times[at])}; the second is "
            f"row {at}."
        )
    merged[group[row], channel] = values[row, channel]
    return merged


def _side_by_side(order, group, first):
    """The rows of the frame in each group, the first of which are marked, and -1 where a group has fewer."""
    number = np.arange(len(order)) - np.flatnonzero(first)[group]
    rows = np.full((first.sum(), number.max() + 1), -1)
    rows[group, number] = order
    return rows


def _by_channel(frame, columns, channels):
    missing = frame[columns.channel].is_null().to_numpy()
    if missing.any():
        raise ValueError(
            f"channel column {columns.channel!r}, row {int(missing.argmax())}: the channel is missing."
        )
    found = [str(name) for name in frame[columns.channel].to_list()]
    names = tuple(sorted(set(found))) if channels is None else tuple(channels)
    if strangers := sorted(set(found) - set(names)):
        raise ValueError(
            f"channel {strangers[0]!r} was not there when the model was fitted; known are {', '.join(names)}."
        )
    value = _numbers(frame[columns.values[0]], columns.values[0])
    values = np.full((len(found), len(names)), np.nan)
    values[np.arange(len(found)), [names.index(name) for name in found]] = value
    return names, values


def _ids(frame, column):
    """The ids in order and which of them each row has."""
    if column is None:
        return ["all"], np.zeros(len(frame), int)
    missing = frame[column].is_null().to_numpy()
    if missing.any():
        raise ValueError(f"id column {column!r}, row {int(missing.argmax())}: the id is missing.")
    found = frame[column].to_list()
    if nan := [row for row, value in enumerate(found) if value != value]:
        raise ValueError(f"id column {column!r}, row {nan[0]}: the id is missing.")
    kinds = {type(value).__name__ for value in found}
    if len(kinds) > 1:
        raise ValueError(
            f"id column {column!r} mixes types ({', '.join(sorted(kinds))}): make all of them strings."
        )
    if found and isinstance(found[0], tuple | list | dict | set):
        raise ValueError(
            f"id column {column!r} holds {type(found[0]).__name__}s, such as {found[0]!r}: make them strings."
        )
    ids = sorted(set(found))
    place = {value: i for i, value in enumerate(ids)}
    return ids, np.array([place[value] for value in found])


def _numbers(series: nw.Series, name: str) -> Float[np.ndarray, " rows"]:
    """A column of numbers, NaN where it is null; an error names the first that is none."""
    if not (series.dtype.is_numeric() or series.dtype == nw.Boolean):
        return _numbers(_unboxed(series, name), name)
    values = series.cast(nw.Float64).to_numpy().astype(np.float64)
    if np.isinf(values).any():
        row = int(np.isinf(values).argmax())
        raise ValueError(
            f"column {name!r}, row {row}: {values[row]} is not allowed; leave it empty if it is missing."
        )
    return values


def _unboxed(series: nw.Series, name: str) -> nw.Series:
    """A column of Python's own objects, if all that are there are numbers."""
    cells, missing = series.to_list(), series.is_null().to_list()
    if series.dtype == nw.String and not all(missing):
        worst = next(
            (row for row, cell in enumerate(cells) if cell is not None and not _is_number(cell)), None
        )
        if worst is None:
            raise ValueError(f"column {name!r} holds numbers as text: convert it to numbers first.")
        raise ValueError(
            f"column {name!r}, row {worst}: {cells[worst]!r} is no number; leave it empty if it is missing."
        )
    for row, (cell, none) in enumerate(zip(cells, missing, strict=True)):
        if not none and not isinstance(cell, int | float | np.number | decimal.Decimal):
            raise ValueError(
                f"column {name!r}, row {row}: {cell!r} is no number; it must hold numbers, and nothing where one is "
                "missing."
            )
    if all(missing):
        raise ValueError(f"column {name!r} is empty: drop it.")
    numbers = [np.nan if none else float(cell) for cell, none in zip(cells, missing, strict=True)]
    return nw.new_series(name, numbers, nw.Float64, backend=series.implementation)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def write_frame(columns: dict[str, Any], like: nw.DataFrame) -> Any:
    """Columns as a native data frame of the same library as `like`."""
    backend = like.implementation
    first, *rest = (
        column if isinstance(column, nw.Series) else nw.new_series(name, column, backend=backend)
        for name, column in columns.items()
    )
    return first.to_frame().with_columns(*rest).to_native()  # `from_dict` would lose time zones
