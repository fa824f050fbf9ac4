"""Time columns as numbers and back: datetimes with or without a zone, dates, durations, integers, floats."""

import dataclasses
import datetime
import re
import warnings
import zoneinfo
from typing import Any

import narwhals as nw
import numpy as np
from jaxtyping import Float, Shaped

from .lengths import UNITS, nanos_of, seconds_in

# Two numbers before a year, or before another two digits.
DAY_OR_MONTH = re.compile(r"\s*\d{1,2}[/.\- ]\d{1,2}[/.\- ]\d{2}")
OFFSET = re.compile(r"(UTC)?[+-]\d{2}:?\d{2}")
KINDS = ("datetime", "date", "duration", "integer", "float")
# Counts of a second in each unit that narwhals counts in.
PER_SECOND = {"ns": 10**9, "us": 10**6, "ms": 10**3}
# A length is shown as a whole number of some unit below this, and with three digits of the largest unit else.
MOST_WHOLE = 10_000
# Of itself: a length is a whole number of units if it is one up to what double precision does to it.
SAME_LENGTH = 1e-15


# Integers up to here are exact in double precision.
LARGEST_INTEGER = 2**53
# Seconds in microseconds, up to here, are exact in 64 bits.
MOST_SECONDS = 2**63 // 10**6


@dataclasses.dataclass(frozen=True)
class TimeAxis:
    """How a time column is read: `kind` is datetime, date, duration, integer or float.

    A time is a *moment*, exact, or a *number*, which laws reckon with. Moments are datetime64 (in UTC) or timedelta64,
    in ns if the column is and in us else; numbers are seconds after `origin`, itself in seconds since 1970. Of columns
    of numbers, moments and numbers are what is there.
    """

    kind: str
    resolution: str = "us"
    zone: str | None = None
    origin: int = 0

    def __post_init__(self):
        if type(self.origin) is not int or abs(self.origin) > MOST_SECONDS:
            raise ValueError(f"`origin` must be an integer up to {MOST_SECONDS:g}; got {self.origin!r}.")
        if self.kind not in KINDS or self.resolution not in ("s", *PER_SECOND):
            raise ValueError(
                f"`kind` must be one of {', '.join(KINDS)} and `resolution` s, ms, us or ns; got {self.kind!r} and "
                f"{self.resolution!r}."
            )

    @classmethod
    def of(cls, series: nw.Series, name: str) -> "TimeAxis":
        dtype: Any = series.dtype
        if dtype == nw.Date:
            return cls("date")
        if isinstance(dtype, nw.Datetime):
            return cls("datetime", dtype.time_unit, dtype.time_zone)
        if isinstance(dtype, nw.Duration):
            return cls("duration", dtype.time_unit)
        if dtype.is_integer():
            return cls("integer")
        if dtype.is_float():
            return cls("float")
        raise ValueError(
            f"time column {name!r} must hold datetimes, dates, durations or numbers; {_why(series)}"
        )

    @property
    def is_calendar(self) -> bool:
        return self.kind in ("datetime", "date", "duration")

    def near(self, moments: Shaped[np.ndarray, " rows"]) -> "TimeAxis":
        """The same axis; if double precision does not hold all of these moments in seconds since 1970, with the last of
        them, to the second, for its origin."""
        if not self.is_calendar or np.array_equal(self.moments(self.numbers(moments)), moments):
            return self
        last = moments.astype(np.int64).max() // _per_second(moments)
        return dataclasses.replace(self, origin=int(last))

    def read_moments(self, series: nw.Series, name: str) -> Shaped[np.ndarray, " rows"]:
        """The column as it is; an error names the first row that is empty or not finite."""
        missing = series.is_null().to_numpy()
        if missing.any():
            raise ValueError(
                f"time column {name!r}, row {int(missing.argmax())}: the time is missing; fill it in, or drop the row."
            )
        if self.kind == "date":
            series = series.cast(nw.Datetime("us"))
        # Nanoseconds since 1970 end in 2262: only a column that is in them is counted in them.
        nano = self.resolution == "ns"
        if self.kind in ("date", "datetime"):
            counts = series.dt.timestamp("ns" if nano else "us")
            return counts.to_numpy().astype(np.int64).view(f"M8[{self._unit}]")
        if self.kind == "duration":
            counts = series.dt.total_nanoseconds() if nano else series.dt.total_microseconds()
            return counts.to_numpy().astype(np.int64).view(f"m8[{self._unit}]")
        values = series.to_numpy().astype(np.float64)
        if self.kind == "integer" and len(values) and np.abs(values).max() > LARGEST_INTEGER:
            raise ValueError(
                f"time column {name!r} has integers beyond 2**53, which double precision cannot tell apart: subtract "
                "the first time."
            )
        bad = ~np.isfinite(values)
        if bad.any():
            raise ValueError(
                f"time column {name!r}, row {int(bad.argmax())}: {values[bad.argmax()]} is no time."
            )
        return values

    def read(self, series: nw.Series, name: str) -> Float[np.ndarray, " rows"]:
        """The column as numbers."""
        return self.numbers(self.read_moments(series, name))

    @property
    def _unit(self) -> str:
        return "ns" if self.resolution == "ns" else "us"

    def numbers(self, moments: Shaped[np.ndarray, "*rows"]) -> Float[np.ndarray, "*rows"]:
        """Moments of any unit as numbers: the same of the same moment."""
        if not self.is_calendar:
            return moments
        whole, rest = np.divmod(moments.astype(np.int64), _per_second(moments))
        return (whole - self.origin) + rest / _per_second(moments)

    def moments(self, numbers: Float[np.ndarray, "*rows"]) -> Shaped[np.ndarray, "*rows"]:
        """The moments that are nearest to numbers."""
        if not self.is_calendar:
            return numbers
        per = PER_SECOND[self._unit]
        self._require_holdable(numbers, per)
        whole = np.floor(numbers)
        counts = (whole.astype(np.int64) + self.origin) * per + np.round((numbers - whole) * per).astype(
            np.int64
        )
        return counts.view(f"{self._letter}8[{self._unit}]")

    @property
    def _letter(self) -> str:
        return "m" if self.kind == "duration" else "M"

    def _require_holdable(self, numbers: np.ndarray, per: int) -> None:
        if (np.abs(numbers + self.origin) * per >= 2.0**63).any():
            raise ValueError(
                f"a time lies {2**63 // per / UNITS['d'] / 365.2425:.0f} years from 1970, further than {self._unit} "
                "can be counted in 64 bits: ask for nearer times, or convert the column to a coarser resolution."
            )

    def grid(
        self, start: Shaped[np.ndarray, " series"], step: float, number: int
    ) -> Shaped[np.ndarray, "series n"]:
        """So many moments after each start, a step apart: all on the grid of the start if the step is on its unit's."""
        each = np.arange(1, number + 1)
        if not self.is_calendar:
            return start[:, None] + step * each
        per = _per_second(start)
        self._require_holdable(self.numbers(start) + step * number, per)
        exact = step * per
        whole = abs(exact - round(exact)) <= SAME_LENGTH * exact
        counts = round(exact) * each if whole else np.round(exact * each).astype(np.int64)
        return start[:, None] + counts.view(f"m8[{np.datetime_data(start.dtype)[0]}]")

    def gaps(self, moments: Shaped[np.ndarray, " rows"]) -> Float[np.ndarray, " gaps"]:
        """From each moment to the next, as numbers."""
        between = np.diff(moments)
        return between.astype(np.int64) / _per_second(moments) if self.is_calendar else between

    def column(self, name: str, moments: Shaped[np.ndarray, " rows"], backend: Any) -> nw.Series:
        """Moments as a column of the kind they were read from. Those between whole dates, integers or what the column
        was counted in come back finer."""
        if not self.is_calendar:
            whole = self.kind == "integer" and np.array_equal(moments, np.round(moments))
            return nw.new_series(name, moments.astype(np.int64) if whole else moments, backend=backend)
        moments = as_exact(moments, self.resolution if self.resolution in PER_SECOND else "us")
        unit: Any = np.datetime_data(moments.dtype)[0]
        series = nw.new_series(name, moments.astype(np.int64), nw.Int64, backend=backend)
        if self.kind == "duration":
            return series.cast(nw.Duration(unit))
        column = series.cast(nw.Datetime(unit))
        if self.zone is not None:
            column = column.dt.replace_time_zone("UTC").dt.convert_time_zone(self.zone)
        days = self.kind == "date" and as_exact(moments, "D").dtype == "M8[D]"
        return column.cast(nw.Date) if days else column

    def write(self, name: str, times: Float[np.ndarray, " rows"], backend: Any) -> nw.Series:
        """Numbers as a column."""
        return self.column(name, self.moments(times), backend)

    def length(self, value: Any, name: str) -> float:
        """A length of time as a number: "6h", a timedelta, or a number for columns of numbers."""
        found = self._length(value, name)
        if not (np.isfinite(found) and found > 0):
            raise ValueError(f"`{name}` must be a positive length of time; got {value!r}.")
        return found

    def _length(self, value: Any, name: str) -> float:
        if isinstance(value, datetime.timedelta):
            self._require_calendar(value, name)
            return value.total_seconds()
        if isinstance(value, np.timedelta64):
            self._require_calendar(value, name)
            return float(value / np.timedelta64(1, "s"))
        if (nanos := nanos_of(value)) is not None:
            self._require_calendar(value, name)
            return nanos / PER_SECOND["ns"]
        if isinstance(value, str):
            self._require_calendar(value, name)
            if value.strip().startswith("-"):
                raise ValueError(f"`{name}` must be a positive length of time; got {value!r}.")
            if (found := seconds_in(value)) is None:
                raise ValueError(
                    f"`{name}` must be written like '6h' or '7d', in {', '.join(UNITS)}; got {value!r}."
                )
            return found
        is_number = isinstance(value, int | float | np.number) and not isinstance(value, bool)
        if self.is_calendar:
            hint = f", or {value:g} times the usual gap, as it is no number of rows" if is_number else ""
            raise ValueError(
                f"`{name}` must be a length of time such as '24h' or a timedelta{hint}; got {value!r}."
            )
        if not is_number:
            raise ValueError(f"`{name}` must be a number, as the times are; got {value!r}.")
        return float(value)

    def _require_calendar(self, value, name):
        if not self.is_calendar:
            raise ValueError(f"`{name}` must be a number, as the times are; got {value!r}.")

    def show(self, time: float) -> str:
        """A time, as a number, in a message."""
        time = time + self.origin
        if self.kind in ("datetime", "date"):
            moment = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC) + datetime.timedelta(seconds=time)
            moment = moment if self.zone is None else _in_zone(moment, self.zone)
            return moment.strftime("%Y-%m-%d" if self.kind == "date" else "%Y-%m-%d %H:%M:%S")
        return self.show_length(time) if self.kind == "duration" else f"{time:.12g}"

    def show_length(self, length: float, like: float | None = None) -> str:
        """A length of time in words that `length` reads back; in the unit of another one, for a column of them."""
        if not self.is_calendar:
            return f"{length:g}"
        if like is not None:
            unit = self.show_length(like).lstrip("0123456789.")
            return np.format_float_positional(float(f"{length / UNITS[unit]:.3g}"), trim="-") + unit
        # Whole numbers if there are any, so that 30 days stay "30d"; a day that has lost its last digits is one.
        counts = {unit: length / UNITS[unit] for unit in ("w", "d", "h", "min", "s", "ms", "us", "ns")}
        whole = [u for u, n in counts.items() if 1 <= round(n) < MOST_WHOLE and abs(n - round(n)) < 1e-6 * n]
        if whole:
            return f"{round(counts[whole[0]])}{whole[0]}"
        unit = next((u for u, n in counts.items() if n >= 1), "ns")
        return np.format_float_positional(float(f"{counts[unit]:.3g}"), trim="-") + unit


def _per_second(moments: np.ndarray) -> int:
    return PER_SECOND[np.datetime_data(moments.dtype)[0]]


def as_exact(moments: np.ndarray, unit: str) -> np.ndarray:
    """Moments in another unit, if they are the same in it."""
    found = moments.astype(f"{moments.dtype.kind}8[{unit}]")
    return found if np.array_equal(found.astype(moments.dtype), moments) else moments


def is_zone(name: str) -> bool:
    """Whether it is a time zone that this machine knows, or an offset from UTC."""
    try:
        return bool(OFFSET.fullmatch(name)) or zoneinfo.ZoneInfo(name) is not None
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        return False


def _in_zone(moment: datetime.datetime, zone: str) -> datetime.datetime:
    """In this zone; a moment in a zone that this machine does not know stays as it is."""
    try:
        return moment.astimezone(zoneinfo.ZoneInfo(zone))
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OverflowError):
        return moment


def _why(series: nw.Series) -> str:
    if series.dtype == nw.Object:
        zones = {getattr(value, "tzinfo", None) for value in series.to_list() if value is not None}
        if len(zones) > 1:
            return "it mixes time zones: convert it to one, such as UTC, first."
    periods = series.dtype == nw.Object and any(
        type(value).__name__ == "Period" for value in series.to_list()
    )
    if periods or "period" in str(series.to_native().dtype).lower():
        return "it holds periods: convert it with `dt.to_timestamp()` first."
    return f"got {series.dtype}: convert it first."


def as_moments(series: nw.Series, what: str) -> nw.Series:
    """A column of text, or of dates as pandas holds them, as datetimes; any other as it is."""
    if series.dtype == nw.String:
        return parsed(series, what)
    if series.dtype == nw.Object:
        cells = series.to_list()
        if cells and all(isinstance(cell, datetime.date) and cell == cell for cell in cells):
            zones = {getattr(cell, "tzinfo", None) for cell in cells}
            if len(zones) == 1:
                return _moments(cells, series.implementation)
    return series


def parsed(series: nw.Series, what: str) -> nw.Series:
    """Text as datetimes; `what` is its name in errors. If offsets from UTC differ, as they do in summer, in UTC."""
    _require_order(series, what)
    try:
        return series.str.to_datetime()
    except Exception as error:
        moments = _iso(series)
        if moments is None:
            row = _first_that_fails(series)
            raise ValueError(
                f"{what}, row {row}: {series[row]!r} is no datetime, or is not written as the rows before it are: "
                "convert it first."
            ) from error
        zoned = [moment is None or moment.tzinfo is not None for moment in moments]
        if not all(zoned):
            raise ValueError(
                f"{what} mixes time zones: some have one and others, such as {series[zoned.index(False)]!r}, do not; "
                "give all of them one, such as UTC, first."
            ) from error
        naive = [None if m is None else m.astimezone(datetime.UTC).replace(tzinfo=None) for m in moments]
        made = nw.new_series(series.name, naive, nw.Datetime("us"), backend=series.implementation)
        return made.dt.replace_time_zone("UTC")


def _require_order(series: nw.Series, what: str) -> None:
    """No text of which nobody knows whether the day comes first or the month: libraries guess, and not alike."""
    for row, text in enumerate(series.to_list()):
        if isinstance(text, str) and DAY_OR_MONTH.match(text):
            raise ValueError(
                f"{what}, row {row}: {text!r} may be a day before a month or a month before a day; write it as "
                "2024-03-01, or say how it is written (`pandas.to_datetime(…, format=…)`, or `--time-format` of a "
                "command)."
            )


def _iso(series: nw.Series) -> list[datetime.datetime | None] | None:
    """Each cell read by itself as ISO 8601; `None` if one of them is something else."""
    try:
        return [None if text is None else datetime.datetime.fromisoformat(text) for text in series.to_list()]
    except (TypeError, ValueError):
        return None


def _first_that_fails(series: nw.Series) -> int:
    """The row up to which a column of text holds datetimes: if some rows do not, neither do more."""
    good, bad = 0, len(series)
    while bad - good > 1:
        middle = (good + bad) // 2
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of formats that are guessed
                series[:middle].str.to_datetime()
            good = middle
        except Exception:
            bad = middle
    return bad - 1


def read_times(times: Any, axis: TimeAxis) -> np.ndarray:
    """Times that were asked for, as numbers."""
    return axis.numbers(moments_asked_for(times, axis))


def moments_asked_for(times: Any, axis: TimeAxis) -> np.ndarray:
    """Times that were asked for: a column of a frame, or a list of what the axis holds."""
    try:
        series = nw.from_native(times, series_only=True)
    except TypeError:
        series = _as_series(times)
    if len(series) == 0:
        raise ValueError("`times` must hold at least one time; got none.")
    series = as_moments(series, "`times`")
    found = TimeAxis.of(series, "times")
    numbers = ("integer", "float")
    if found.kind != axis.kind and not (found.kind in numbers and axis.kind in numbers):
        calendar = ("date", "datetime")
        if not (found.kind in calendar and axis.kind in calendar):
            raise ValueError(f"`times` must be {axis.kind}s, as the model was fitted on; got {found.kind}s.")
    if found.kind == "datetime" and (found.zone is None) != (axis.zone is None):
        wanted = "be without a time zone" if axis.zone is None else f"have a time zone, such as {axis.zone}"
        raise ValueError(f"`times` must {wanted}, as the model's data; got {found.zone or 'none'}.")
    return found.read_moments(series, "times")


def _as_series(times: Any) -> nw.Series:
    array = np.atleast_1d(np.asarray(times))
    if array.ndim > 1:
        raise ValueError(
            f"`times` must be a list of times, or one column; got {type(times).__name__} of shape {array.shape}."
        )
    backend = _a_backend()
    # What is not equal to itself is NaN or pandas' NaT; NumPy's own is a datetime64.
    missing = [moment is None or bool(moment != moment) for moment in array.ravel()]
    if any(missing):
        raise ValueError(f"`times` must not be missing; got {array.ravel()[missing.index(True)]!r}.")
    if array.dtype.kind in "US":
        # One by one: "2024-01-02" and "2024-01-02 12:00" are both datetimes, and may stand in one list.
        each = [parsed(nw.new_series("times", [str(text)], backend=backend), "`times`") for text in array]
        array = np.array([moment for series in each for moment in series.to_list()], object)
    if array.dtype == object:
        if all(isinstance(moment, datetime.date) for moment in array):
            return _moments(list(array), backend)
        return nw.new_series("times", list(array), backend=backend)
    return nw.new_series("times", array, backend=backend)


def _moments(moments: list[Any], backend: Any) -> nw.Series:
    """Dates or datetimes of Python, all with a time zone or all without."""
    zones = {getattr(moment, "tzinfo", None) for moment in moments}
    if None in zones and len(zones) > 1:
        raise ValueError("`times` must all have a time zone, or none of them.")
    if None not in zones:
        moments = [m.astimezone(datetime.UTC).replace(tzinfo=None) for m in moments]
    counted = np.array(moments, "datetime64[us]")
    finer = [getattr(moment, "nanosecond", 0) for moment in moments]  # of pandas' own
    counted = counted + np.array(finer, "m8[ns]") if any(finer) else counted
    series = nw.new_series("times", counted, backend=backend)
    if None in zones:
        return series
    zoned = series.dt.replace_time_zone("UTC")
    named = {getattr(zone, "key", None) or getattr(zone, "zone", None) for zone in zones}
    only = named.pop() if len(named) == 1 else None
    return zoned if only is None else zoned.dt.convert_time_zone(only)


def _a_backend() -> Any:
    for name in ("pandas", "polars", "pyarrow"):
        try:
            __import__(name)
        except ModuleNotFoundError:
            continue
        return name
    raise ImportError("times in a list need pandas or polars: install one of them.")
