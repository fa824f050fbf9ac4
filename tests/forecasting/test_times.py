"""Times go in and out as they were, whatever they are."""

import datetime

import narwhals as nw
import numpy as np
import pandas as pd
import polars as pl
import pytest

from stochflow.forecasting.times import TimeAxis, as_moments, moments_asked_for, read_times

NAIVE = pd.Series(pd.to_datetime(["2024-03-30 23:30", "2024-03-31 03:30", "2024-07-01 00:00"]))
BERLIN = NAIVE.dt.tz_localize("Europe/Berlin")
COLUMNS = {
    "pandas naive": NAIVE,
    "pandas nanoseconds": NAIVE.dt.as_unit("ns"),
    "pandas milliseconds": NAIVE.dt.as_unit("ms"),
    "pandas zone": BERLIN,
    "pandas utc": BERLIN.dt.tz_convert("UTC"),
    "pandas far": pd.Series(pd.to_datetime(["1500-01-01", "2500-01-01"]).as_unit("us")),
    "pandas durations": pd.Series(pd.to_timedelta([1, 36], "h")).dt.as_unit("us"),
    "pandas integers": pd.Series([3, 7]),
    "pandas floats": pd.Series([0.5, 7.25]),
    "polars naive": pl.Series(NAIVE),
    "polars zone": pl.Series(BERLIN),
    "polars dates": pl.Series([datetime.date(2024, 1, 1), datetime.date(1950, 6, 5)]),
    "polars durations": pl.Series([datetime.timedelta(hours=1), datetime.timedelta(microseconds=7)]),
    "polars integers": pl.Series([3, 7]),
}


def opened(column):
    series = nw.from_native(column, series_only=True)
    return series, TimeAxis.of(series, "t")


@pytest.mark.parametrize("column", COLUMNS.values(), ids=COLUMNS.keys())
def test_a_column_comes_back_as_it_was(column):
    series, axis = opened(column)
    back = axis.write("t", axis.read(series, "t"), series.implementation).to_native()
    assert back.dtype == column.dtype
    assert list(back) == list(column)


def test_seconds_are_counted_through_a_change_of_the_clock():
    series, axis = opened(BERLIN)
    times = axis.read(series, "t")
    assert times[1] - times[0] == 3 * 3600  # a clock that was put forward shows four hours
    assert times[0] == datetime.datetime(2024, 3, 30, 22, 30, tzinfo=datetime.UTC).timestamp()


def test_a_time_is_shown_in_its_zone():
    series, axis = opened(BERLIN)
    assert axis.show(axis.read(series, "t")[0]) == "2024-03-30 23:30:00"


SMALL = {
    "a tenth of a microsecond": (np.arange(40) * 100, "ns"),
    "over years": (np.concatenate([np.arange(40) * 10**15, 40 * 10**15 + np.arange(40) * 10**8 + 7]), "ns"),
    "microseconds, far": (2**53 * 3 + np.arange(40), "us"),
}


@pytest.mark.parametrize(("counts", "unit"), SMALL.values(), ids=SMALL.keys())
@pytest.mark.parametrize("library", [pd.Series, pl.Series])
def test_times_that_double_precision_would_merge_since_1970_do_not_and_come_back(counts, unit, library):
    moments = (counts + (1_700_000_000_123_456_789 if unit == "ns" else 0)).view(f"M8[{unit}]")
    column = library(moments)
    series, axis = opened(column)
    read = axis.read_moments(series, "t")
    near = axis.near(read)
    times = near.numbers(read)
    assert near.origin != 0
    assert (np.diff(times) > 0).all()
    assert np.allclose(np.diff(times), np.diff(counts) / {"ns": 1e9, "us": 1e6}[unit], rtol=1e-6, atol=5e-9)
    assert list(near.column("t", read, series.implementation).to_native()) == list(column)
    assert near.show(times[0]) == str(moments[0].astype("M8[s]")).replace("T", " ")


def test_the_same_moment_is_the_same_number_in_any_unit_and_counted_from_1970_where_that_is_exact():
    for unit in ("ms", "us", "ns"):
        series, axis = opened(NAIVE.dt.as_unit(unit) + pd.Timedelta("0.1s"))
        moments = axis.read_moments(series, "t")
        assert axis.near(moments) == axis or unit == "ns"
        assert axis.numbers(moments)[0] == pd.Timestamp("2024-03-30 23:30:00.1", tz="UTC").timestamp()


@pytest.mark.parametrize("origin", [0.5, "0", True, 2**63])
def test_an_origin_is_a_whole_number_of_seconds(origin, as_users_have_it):
    with pytest.raises(ValueError, match="`origin` must be an integer up to"):
        TimeAxis("datetime", origin=origin)


@pytest.mark.parametrize("step", ["100ms", "3ns", "1000.1s", "7us", "24h"])
def test_a_grid_is_exact(step):
    start = np.array(["2024-01-02T03:04:05.123456789"], "M8[ns]")
    axis = TimeAxis("datetime", "ns")
    found = axis.grid(start, axis.length(step, "every"), 1000)[0]
    assert (np.diff(found) == pd.Timedelta(step).to_timedelta64()).all()
    with pytest.raises(ValueError, match="292 years from 1970, further than ns can be counted in 64 bits"):
        axis.grid(start, axis.length("365d", "every"), 300)


def test_nanoseconds_of_timestamps_in_a_list_are_read():
    asked = pd.date_range("2024-01-01", periods=3, freq="7ns", unit="ns")
    for times in (asked, list(asked), [str(time) for time in asked]):
        found = moments_asked_for(times, TimeAxis("datetime", "ns"))
        assert list(found) == list(asked.to_numpy())


def test_times_between_dates_and_integers_come_back_finer():
    assert TimeAxis("integer").write("t", np.array([1.0, 1.5]), "polars").to_list() == [1.0, 1.5]
    found = TimeAxis("date").write("t", np.array([0.0, 43200.0]), "polars").to_list()
    assert found == [datetime.datetime(1970, 1, 1), datetime.datetime(1970, 1, 1, 12)]


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("7d", 7 * 86400.0),
        ("6h", 6 * 3600.0),
        ("1.5 h", 5400.0),
        ("90m", 5400.0),
        ("90min", 5400.0),
        ("w", 604800.0),
        (".5s", 0.5),
        (datetime.timedelta(days=2), 172800.0),
        (np.timedelta64(3, "m"), 180.0),
        (pd.Timedelta("2h"), 7200.0),
        (pd.offsets.Hour(2), 7200.0),
        (pd.offsets.Day(1), 86400.0),
        ("1 day", 86400.0),
        ("3 weeks", 3 * 604800.0),
        ("90 mins", 5400.0),
        ("2h30min", 9000.0),
        ("1 day 12 hours", 129600.0),
    ],
)
def test_lengths_of_time(value, seconds):
    assert TimeAxis("datetime").length(value, "horizon") == pytest.approx(seconds)


@pytest.mark.parametrize("length", [3e-9, 5e-7, 0.012, 59.0, 7e4, 3e6, 1e10])
def test_what_is_shown_of_a_length_is_read_back(length):
    axis = TimeAxis("datetime")
    assert axis.length(axis.show_length(length), "gap") == pytest.approx(length, rel=5e-3)


@pytest.mark.parametrize(
    ("kind", "value", "words"),
    [
        ("datetime", "-7d", "must be a positive length of time; got '-7d'"),
        ("datetime", "7 parsecs", "must be written like '6h' or '7d'.*'7 parsecs'"),
        (
            "datetime",
            7,
            "must be a length of time such as '24h' or a timedelta, or 7 times the usual gap, .*; got 7",
        ),
        ("datetime", "1M", "must be written like '6h' or '7d'.*'1M'"),
        ("datetime", "1 month", "must be written like '6h' or '7d'.*'1 month'"),
        ("datetime", "2h 30", "must be written like '6h' or '7d'.*'2h 30'"),
        ("datetime", "30min min", "must be written like '6h' or '7d'.*'30min min'"),
        ("datetime", "2h2h", "must be written like '6h' or '7d'.*'2h2h'"),
        (
            "datetime",
            pd.offsets.MonthEnd(1),
            "must be a length of time such as '24h' or a timedelta; got <Month",
        ),
        ("integer", pd.offsets.Hour(2), "must be a number, as the times are; got <2 \\* Hours>"),
        ("datetime", "0h", "must be a positive length of time"),
        ("datetime", datetime.timedelta(days=-1), "must be a positive length of time"),
        ("integer", "7d", "must be a number, as the times are; got '7d'"),
        ("float", -1.0, "must be a positive length of time; got -1"),
        ("float", float("nan"), "must be a positive length of time; got nan"),
        ("float", True, "must be a number"),
    ],
)
def test_a_length_that_cannot_be_says_so(kind, value, words):
    with pytest.raises(ValueError, match=f"`horizon` {words}"):
        TimeAxis(kind).length(value, "horizon")


MOMENT = datetime.datetime(2024, 1, 2)
ASKED = {
    "text": "2024-01-02",
    "texts": ["2024-01-02", "2024-01-02 00:00:00"],
    "pandas index": pd.DatetimeIndex(["2024-01-02"]),
    "timestamp": pd.Timestamp(MOMENT),
    "timestamps": [pd.Timestamp(MOMENT)],
    "datetime": [MOMENT],
    "date": [MOMENT.date()],
    "datetime64": np.datetime64("2024-01-02"),
    "datetime64 array": np.array(["2024-01-02"], "datetime64[D]"),
    "pandas series": pd.Series([MOMENT]),
    "polars series": pl.Series([MOMENT]),
}


@pytest.mark.parametrize("times", ASKED.values(), ids=ASKED.keys())
def test_times_may_be_given_in_many_ways(times):
    seconds = MOMENT.replace(tzinfo=datetime.UTC).timestamp()
    assert set(read_times(times, TimeAxis("datetime"))) == {seconds}


def test_times_with_a_zone_are_moments():
    berlin = TimeAxis("datetime", zone="Europe/Berlin")
    asked = (
        ["2024-01-02T00:00:00+01:00"],
        [pd.Timestamp("2024-01-02", tz="Europe/Berlin")],
        pd.Series(pd.to_datetime(["2024-01-01 23:00"]).tz_localize("UTC")),
    )
    for times in asked:
        assert (
            read_times(times, berlin)[0] == datetime.datetime(2024, 1, 1, 23, tzinfo=datetime.UTC).timestamp()
        )


@pytest.mark.parametrize(
    "times", [3, [3], range(3, 4), np.array([3.0]), pd.Index([3]), (3.0,), pl.Series([3])]
)
def test_numbers_may_be_given_in_many_ways(times):
    assert np.array_equal(read_times(times, TimeAxis("integer")), [3.0])


@pytest.mark.parametrize(
    ("times", "axis", "words"),
    [
        ([], TimeAxis("integer"), "at least one time"),
        (
            np.zeros((2, 1)),
            TimeAxis("float"),
            r"a list of times, or one column; got ndarray of shape \(2, 1\)",
        ),
        (pd.DataFrame({"ds": [3.0]}), TimeAxis("float"), r"got DataFrame of shape \(1, 1\)"),
        ([3], TimeAxis("datetime"), "must be datetimes, as the model was fitted on; got integers"),
        (["2024-01-02"], TimeAxis("float"), "must be floats.*got datetimes"),
        (["soon"], TimeAxis("datetime"), "row 0: 'soon' is no datetime"),
        ([3.0, None], TimeAxis("float"), "`times` must not be missing; got None"),
        ([3.0, np.inf], TimeAxis("float"), "row 1: inf is no time"),
        (["2024-01-02"], TimeAxis("datetime", zone="UTC"), "must have a time zone, such as UTC"),
        ([pd.Timestamp("2024-01-02", tz="UTC")], TimeAxis("datetime"), "must be without a time zone"),
    ],
)
def test_times_that_cannot_be_say_so(times, axis, words):
    with pytest.raises(ValueError, match=words):
        read_times(times, axis)


@pytest.mark.parametrize("library", [pd, pl])
@pytest.mark.parametrize("text", ["03/04/2024", "3.4.2024 12:00", "03-04-24"])
def test_text_that_may_be_a_day_or_a_month_first_is_refused(library, text):
    column = nw.from_native(library.Series([text, text]), series_only=True)
    with pytest.raises(ValueError, match=r"row 0: .* may be a day before a month .* write it as 2024-03-01"):
        as_moments(column, "time column 't'")


@pytest.mark.parametrize("text", ["2024-03-04", "2024-03-04 12:00", "2024-03-04T12:00:00"])
def test_iso_text_is_read_alike_by_both_libraries(text):
    columns = (nw.from_native(library.Series([text]), series_only=True) for library in (pd, pl))
    one, other = (as_moments(column, "t").dt.timestamp("us").to_list() for column in columns)
    assert one == other


@pytest.mark.parametrize("held", [lambda p: p, lambda p: p.astype(object)], ids=["periods", "objects"])
def test_periods_are_told_how_to_become_datetimes(held):
    months = held(pd.Series(pd.period_range("2024-01", periods=3, freq="M")))
    with pytest.raises(ValueError, match=r"it holds periods: convert it with `dt.to_timestamp\(\)` first"):
        TimeAxis.of(nw.from_native(months, series_only=True, allow_series=True), "ds")
