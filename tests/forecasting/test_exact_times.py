"""Times of a frame are its own to the last digit and of its type, whatever it is counted in."""

import datetime
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from stochflow import Forecaster
from stochflow.forecasting import direct
from stochflow.forecasting.frames import as_frame, find_columns, read_panel
from stochflow.forecasting.origins import find_origins

from .worlds import ou_frame, quick_fit, unlearnt

START = np.datetime64("2024-03-01T12:00:00", "ns") + np.timedelta64(123_456_700, "ns")
ROWS = 40
VALUES = ou_frame(ROWS)["y"].to_numpy()


def grid(step, unit, number=ROWS, start=START):
    """Every so many of the unit; the start is cut off to it."""
    return start.astype(f"M8[{unit}]") + np.arange(number) * np.timedelta64(step, unit)


def frame_of(times, name="t"):
    return pd.DataFrame({name: times, "y": VALUES[: len(times)]})


GRIDS = {
    "100 ns": (100, "ns", "100ns"),
    "1 us in ns": (1000, "ns", "1us"),
    "100 ms in ns": (10**8, "ns", "100ms"),
    "1 us": (1, "us", "1us"),
    "100 ms in us": (10**5, "us", "100ms"),
    "100 ms": (100, "ms", "0.1s"),
    "s": (7, "s", "7s"),
    "a day in s": (86400, "s", "1d"),
}


# Of those that differ in their unit alone a few are enough for every day.
SELDOM = ("a day in s", "1 us in ns", "100 ms in ns", "1 us", "100 ms in us", "100 ms", "s")


@pytest.mark.parametrize(
    ("step", "unit", "every"),
    [
        pytest.param(*each, id=name, marks=[pytest.mark.slow] if name in SELDOM else [])
        for name, each in GRIDS.items()
    ],
)
def test_forecasts_lie_on_the_grid_of_the_rows_and_at_the_times_asked_for(step, unit, every, tmp_path):
    known, later = np.split(grid(step, unit, ROWS + 6), [ROWS])
    model = quick_fit(frame_of(known), time="t")
    model.save(tmp_path / "it")
    horizon = model.fitted_.axis.show_length(5 * model.fitted_.gap)
    for made in (model, Forecaster.load(tmp_path / "it")):
        for ask in ({"every": every}, {}):
            found = made.predict(horizon=horizon, **ask)
            assert np.array_equal(found["t"], later[:5])
        for times in (later, list(pd.Series(later)), pd.Series(later)):
            assert np.array_equal(made.predict(times=times)["t"], later)
    assert model.predict(times=later)["t"].dtype == known.dtype
    assert made.predict(times=later, samples=3)[["y"]].equals(model.predict(times=later, samples=3)[["y"]])


def test_rows_of_years_in_nanoseconds_are_forecast_on_their_grid():
    """Single seconds, years apart: double precision holds nanoseconds over a hundred days."""
    known, later = np.split(grid(86400 * 10**9 + 1, "ns", ROWS + 5), [ROWS])
    later = known[-1] + np.arange(1, 6) * np.timedelta64(10**8, "ns")
    early = frame_of(known).assign(name="a", y=lambda df: -df["y"])
    late = frame_of(known + np.timedelta64(1000, "D")).assign(name="b")
    model = quick_fit(pd.concat([early, late]), id="name", time="t")
    found = model.predict(horizon="500ms", every="100ms")
    assert np.array_equal(found["t"][:5], later)
    assert np.array_equal(found["t"][5:], later + np.timedelta64(1000, "D"))


def test_rows_too_near_for_double_precision_are_called_that():
    times = np.concatenate([[START, START + np.timedelta64(1, "ns")], grid(86400 * 10**9, "ns", 400)[1:]])
    frame = pd.DataFrame({"t": times, "y": np.sin(np.arange(len(times)))})
    with pytest.raises(
        ValueError, match=r"two rows at 2024-03-01 12:00:00 .* too near to each other for double"
    ):
        quick_fit(frame, time="t")
    with pytest.raises(ValueError, match=r"has two rows at .*: keep one, or average"):
        quick_fit(frame.assign(t=np.maximum(times, times[1])), time="t")


def test_what_is_filled_in_and_tested_is_at_exact_times_too(monkeypatch):
    times = grid(100, "ns")
    frame = frame_of(times)
    model = quick_fit(frame, time="t")
    wanted = times[3:6] + np.timedelta64(1, "ns")
    assert np.array_equal(model.impute(frame, times=wanted, samples=4)["t"], wanted)
    monkeypatch.setattr(direct, "learn", unlearnt)
    ask = {"gaps": ["200ns"], "folds": 1, "samples": 20, "time": "t", "return_forecasts": True}
    rows = Forecaster(folds=0, progress=False).backtest(frame, **ask)[1]
    assert set(rows["t"]) | set(rows["origin"]) <= set(frame["t"])
    assert (rows["t"] - rows["origin"] == np.timedelta64(200, "ns")).all()
    assert frame.set_index("t").loc[rows["t"], "y"].tolist() == rows["value"].tolist()


@pytest.mark.parametrize("unit", ["ms", "us", "ns"])
def test_a_gap_of_less_than_a_second_is_the_one_that_is_meant(unit):
    frame = as_frame(frame_of(grid(10**8, "ns").astype(f"M8[{unit}]")))
    panel = read_panel(frame, find_columns(frame, time="t"))[0]
    for rows in (1, 2, 3):
        origins = find_origins(panel, 0.1 * rows, 0.1, [0], [ROWS], ROWS)
        assert (origins.end - origins.start == rows).all()
        assert len(origins.start) == ROWS - rows


def test_datetimes_of_python_keep_the_zone_that_all_of_them_have():
    start = datetime.datetime(2024, 10, 26, 22, tzinfo=ZoneInfo("Europe/Berlin"))
    cells = [start + datetime.timedelta(hours=i) for i in range(ROWS)]
    model = quick_fit(frame_of(pd.Series(cells, dtype=object)), time="t")
    assert str(model.predict(horizon="2h")["t"].dtype) == "datetime64[us, Europe/Berlin]"


@pytest.mark.usefixtures("as_users_have_it")
def test_a_picture_shows_what_clocks_show():
    times = pd.Series(grid(100, "ns")).dt.tz_localize("UTC").dt.tz_convert("Asia/Tokyo")
    frame = frame_of(times)
    axes = quick_fit(frame, time="t").plot(frame, horizon="500ns")
    shown = np.asarray(axes[0].lines[0].get_xdata(), "M8[us]")
    assert shown[0] == np.datetime64("2024-03-01T21:00:00.123456")


DATES = pd.Series(grid(1, "D"))
NAIVE = pd.Series(grid(3600, "s"))
BERLIN = NAIVE.dt.tz_localize("UTC").dt.tz_convert("Europe/Berlin")
NUMBERS = np.arange(ROWS)
COLUMNS = {
    "seconds": NAIVE,
    "seconds with a zone": BERLIN,
    "milliseconds": NAIVE.dt.as_unit("ms"),
    "nanoseconds": NAIVE.dt.as_unit("ns"),
    "Arrow": NAIVE.astype(pd.ArrowDtype(pa.timestamp("us"))),
    "Arrow with a zone": BERLIN.astype(pd.ArrowDtype(pa.timestamp("ns", "Europe/Berlin"))),
    "Arrow dates": DATES.astype(pd.ArrowDtype(pa.timestamp("us"))).astype(pd.ArrowDtype(pa.date32())),
    "durations": NAIVE - NAIVE[0],
    "int32": pd.Series(NUMBERS, dtype="int32"),
    "Int64": pd.Series(NUMBERS, dtype="Int64"),
    "uint8": pd.Series(NUMBERS, dtype="uint8"),
    "float32": pd.Series(NUMBERS, dtype="float32"),
    "polars ms": pl.Series(NAIVE).cast(pl.Datetime("ms")),
    "polars ns": pl.Series(BERLIN).cast(pl.Datetime("ns", "Europe/Berlin")),
    "polars dates": pl.Series(DATES).cast(pl.Date),
    "polars Int32": pl.Series(NUMBERS, dtype=pl.Int32),
    "polars Float32": pl.Series(NUMBERS, dtype=pl.Float32),
}


@pytest.mark.parametrize("column", COLUMNS.values(), ids=COLUMNS.keys())
def test_times_come_back_as_the_type_they_had(column):
    make = pl.DataFrame if isinstance(column, pl.Series) else pd.DataFrame
    frame = make({"t": column, "y": VALUES})
    model = quick_fit(frame, time="t")
    usual = model.fitted_.axis.show_length(2 * model.fitted_.gap) if model.fitted_.axis.is_calendar else 2
    other = quick_fit(frame_of(NUMBERS), time="t") if column.dtype in ("int32", pl.Int32) else model
    found = [
        model.predict(horizon=usual),
        other.predict(frame, horizon=usual, samples=2),
        model.impute(frame, times=column[3:5], samples=4),
    ]
    assert all(each["t"].dtype == column.dtype for each in found)
    assert list(found[2]["t"]) == list(column[3:5])


@pytest.mark.parametrize(
    ("column", "ask", "kind"),
    [
        (NAIVE, {"horizon": "500ms", "every": "500ms"}, "datetime64[us]"),
        (NAIVE.dt.as_unit("us"), {"times": grid(1, "ns")[-1:] + np.timedelta64(2, "D")}, "datetime64[ns]"),
        pytest.param(pd.Series(NUMBERS, dtype="int8"), {"times": [1000]}, "int64", marks=pytest.mark.slow),
        (pd.Series(NUMBERS, dtype="int32"), {"times": [100.5]}, "float64"),
        (pd.Series(NUMBERS, dtype="float32"), {"times": [100 + 2**-30]}, "float64"),
    ],
)
def test_times_that_the_type_cannot_hold_come_back_finer(column, ask, kind):
    found = quick_fit(frame_of(column), Forecaster(horizon=None), time="t").predict(**ask)
    assert found["t"].dtype == kind
    if "times" in ask:
        assert found["t"].tolist() == pd.Series(ask["times"]).tolist()


@pytest.mark.parametrize(
    "kind",
    ["Int64", "int32", "float32", "string", "string[pyarrow]", "object", "datetime64[s]", "datetime64[ns]"],
)
def test_ids_of_pandas_own_types_come_back(kind):
    frame = pd.concat([frame_of(NUMBERS).assign(name=i) for i in (3, 7)]).astype({"name": kind})
    found = quick_fit(frame, id="name", time="t").predict(horizon=1)["name"]
    assert found.dtype == frame["name"].dtype or kind == "object"
    assert found.tolist() == frame["name"].unique().tolist()


def test_dates_of_python_come_back_as_moments():
    days = [datetime.date(2024, 1, 1) + datetime.timedelta(days=i) for i in range(ROWS)]
    found = quick_fit(frame_of(pd.Series(days)), time="t").predict(horizon="2d")
    assert found["t"].tolist() == [pd.Timestamp(days[-1]) + pd.Timedelta(days=i) for i in (1, 2)]
