"""What may be in a frame, and what one sentence is said about what may not."""

import datetime
import decimal

import numpy as np
import pandas as pd
import polars as pl
import pytest

from stochflow import Forecaster
from stochflow.forecasting.frames import as_frame, find_columns, read_panel
from stochflow.forecasting.requests import read_table

from .worlds import quick_fit

FRAME = pd.DataFrame({"unique_id": ["b", "a", "a"], "ds": [1, 2, 1], "y": [3.0, np.nan, 5.0]})


def panel_of(df, **columns):
    frame = as_frame(df)
    return read_panel(frame, find_columns(frame, **columns))


@pytest.mark.parametrize(
    "frame", [FRAME, pl.from_pandas(FRAME), FRAME.convert_dtypes()], ids=["pandas", "polars", "NA"]
)
def test_series_come_in_the_order_of_ids_and_times(frame):
    panel, axis, names = panel_of(frame)
    assert (panel.ids, axis.kind, names) == (["a", "b"], "integer", ("y",))
    assert [t.tolist() for t in panel.times] == [[1, 2], [1]]
    assert [r.tolist() for r in panel.rows] == [[2, 1], [0]]
    assert np.array_equal(panel.values[0][:, 0], [5, np.nan], equal_nan=True)


def test_without_names_all_other_numbers_are_values():
    frame = pd.DataFrame({"t": [0.0, 1.0], "a": [1, 2], "word": ["u", "v"], "b": [1.0, 2.0], "c": [0.0, 1.0]})
    found = find_columns(as_frame(frame), time="t", past="c")
    assert (found.id, found.values, found.past) == (None, ("a", "b"), ("c",))
    assert panel_of(frame, time="t")[0].ids == ["all"]


def test_y_stands_alone_only_beside_ds():
    """Who names the time names columns: then y is one channel of those there are."""
    frame = pd.DataFrame({"t": [0.0, 1.0], "x": [1.0, 2.0], "y": [3.0, 4.0]})
    assert find_columns(as_frame(frame), time="t").values == ("x", "y")
    named = as_frame(frame.rename(columns={"t": "ds"}))
    assert find_columns(named).values == find_columns(named, time="ds").values == ("y",)


def test_rows_of_one_channel_each_are_the_same_panel():
    wide = pd.DataFrame({"id": [1, 1, 2], "t": [0, 1, 0], "u": [1.0, 2.0, 3.0], "v": [4.0, np.nan, 6.0]})
    long = wide.melt(["id", "t"], var_name="what").dropna().sample(frac=1, random_state=0)
    one, _, names = panel_of(wide, id="id", time="t", values=["u", "v"])
    two, _, same = panel_of(long, id="id", time="t", values="value", channel="what")
    assert names == same
    for a, b in zip(one.values, two.values, strict=True):
        assert np.array_equal(a, b, equal_nan=True)


@pytest.mark.parametrize(
    "ids",
    [
        [2, 1, 1],
        ["b", "a", "a"],
        [datetime.date(2024, 1, 2), *[datetime.date(2024, 1, 1)] * 2],
        [2.5, 1.5, 1.5],
    ],
)
def test_ids_may_be_of_any_kind_that_has_an_order(ids):
    assert panel_of(FRAME.assign(unique_id=ids))[0].ids == sorted(set(ids))


def test_covariates_go_with_their_rows():
    frame = FRAME.assign(y=[3.0, 4.0, 5.0], s=[7, 8, 8], p=[1, 2, 3], f=[4, 5, 6])
    panel, _, _ = panel_of(frame, static="s", past=["p"], future="f")
    assert panel.static.tolist() == [[8], [7]]
    assert panel.past[0].tolist() == [[3], [2]]
    assert panel.future[0].tolist() == [[6], [5]]


MIXED = [
    pd.Timestamp("2024-01-01", tz="UTC"),
    pd.Timestamp("2024-01-02", tz="Europe/Berlin"),
    pd.Timestamp("2024-01-03", tz="UTC"),
]
BAD = {
    "ids that are tuples": (
        FRAME.assign(unique_id=[("a", 1)] * 3),
        {},
        r"id column 'unique_id' holds tuples, such as \('a', 1\): make them strings",
    ),
    "no columns": (pd.DataFrame(index=range(3)), {"time": "t"}, "the data frame is empty: it has no columns"),
    "nothing at all": (pd.DataFrame(), {}, "the data frame is empty: it has no columns"),
    "times in the index": (
        FRAME.drop(columns="ds").set_index(pd.date_range("2024", periods=3)),
        {},
        r"Of the index nothing is read: call `reset_index\(\)` first",
    ),
    "a lazy frame": (pl.LazyFrame({"ds": [0.0], "y": [1.0]}), {}, r"call `.collect\(\)` on it first"),
    "a list": ([1, 2], {}, "must be a pandas or polars data frame; got builtins.list"),
    "empty": (FRAME[:0], {}, "the data frame is empty: it has no rows"),
    "no such column": (FRAME, {"values": "z"}, "no column 'z'; the columns are unique_id, ds, y"),
    "no time": (
        FRAME.rename(columns={"ds": "when"}),
        {},
        "`time` must name the column of times, one of unique_id, when, y",
    ),
    "columns without names": (pd.DataFrame({0: [1.0]}), {}, "columns must have names that are text; got 0"),
    "twice": (FRAME, {"past": "y", "values": "y"}, "column 'y' is named twice"),
    "no values": (FRAME[["unique_id", "ds"]], {}, "`values` must name at least one column of numbers"),
    "duplicate of a number": (
        FRAME.assign(ds=1, unique_id=1),
        {},
        "series 1 has two rows at 1 .*: keep one, .*; or fit on text, if 'unique_id' was read as numbers",
    ),
    "duplicate": (FRAME.assign(ds=1), {}, "series 'a' has two rows at 1 .the second is row 2.: keep one"),
    "text value": (
        FRAME.assign(y=["1", "two", "3"]),
        {"values": "y"},
        "column 'y', row 1: 'two' is no number",
    ),
    "infinite": (
        FRAME.assign(y=[1.0, np.inf, 2.0]),
        {},
        "column 'y', row 1: inf is not allowed; leave it empty",
    ),
    "no time in a row": (
        FRAME.assign(ds=pd.to_datetime(["2024-01-01", None, "2024-01-02"])),
        {},
        "time column 'ds', row 1: the time is missing",
    ),
    "no id in a row": (
        FRAME.assign(unique_id=["a", None, "b"]),
        {},
        "id column 'unique_id', row 1: the id is missing",
    ),
    "mixed ids": (
        FRAME.assign(unique_id=pd.Series([1, "a", "a"], dtype=object)),
        {},
        "mixes types .int, str.: make all of them strings",
    ),
    "mixed zones": (
        FRAME.assign(ds=pd.Series(MIXED, dtype=object)),
        {},
        "mixes time zones: convert it to one, such as UTC",
    ),
    "text times": (
        FRAME.assign(ds=["soon", "later", "never"]),
        {},
        "'ds', row 0: 'soon' is no datetime",
    ),
    "a bad time among good ones": (
        FRAME.assign(ds=["2024-01-01", "2024-01-02", "junk"]),
        {},
        "time column 'ds', row 2: 'junk' is no datetime",
    ),
    "times with and without a zone": (
        FRAME.assign(ds=["2024-01-01T00:00+01:00", "2024-01-02T00:00", "2024-01-03T00:00+01:00"]),
        {},
        "mixes time zones: some have one and others, such as '2024-01-02T00:00', do not",
    ),
    "two columns of one name": (
        pd.concat([FRAME, FRAME[["y"]]], axis=1),
        {},
        "two columns are named 'y': rename one of them",
    ),
    "time in the index": (
        FRAME.set_index("ds"),
        {"time": "ds"},
        "'ds' is in the index: call `reset_index..` first",
    ),
    "numbers as text": (FRAME.assign(y=["1", "2", "3"]), {}, "'y' holds numbers as text: convert it"),
    "an object among numbers": (
        FRAME.assign(y=pd.Series([1.0, "two", 3.0], dtype=object)),
        {},
        "column 'y', row 1: 'two' is no number",
    ),
    "an empty column": (
        FRAME.assign(y=pd.Series([None] * 3, dtype=object)),
        {},
        "column 'y' is empty: drop it",
    ),
    "an id that is NaN": (
        pl.DataFrame({"unique_id": [1.0, float("nan"), 2.0], "ds": [1, 2, 3], "y": [1.0, 2.0, 3.0]}),
        {},
        "id column 'unique_id', row 1: the id is missing",
    ),
    "a channel that is missing": (
        FRAME.assign(what=["p", None, "q"]),
        {"channel": "what", "values": "y"},
        "channel column 'what', row 1: the channel is missing",
    ),
    "truths as times": (
        FRAME.assign(ds=[True, False, True]),
        {},
        "must hold datetimes, dates, durations or numbers; got Boolean",
    ),
    "missing covariate": (
        FRAME.assign(p=[1.0, np.nan, 2.0]),
        {"past": "p"},
        "column 'p', row 1: a covariate must not be missing",
    ),
    "not static": (
        FRAME.assign(s=[1, 2, 3]),
        {"static": "s"},
        "column 's' is not static: it changes within series 'a'",
    ),
}


@pytest.mark.parametrize(("frame", "columns", "words"), BAD.values(), ids=BAD.keys())
def test_one_sentence_says_what_is_wrong(frame, columns, words):
    with pytest.raises((ValueError, TypeError), match=words) as caught:
        Forecaster().fit(frame, **columns)
    assert "\n" not in str(caught.value)
    assert str(caught.value).endswith(".")


@pytest.mark.parametrize("what", ["id", "time", "channel"])
def test_a_column_is_named_by_its_name(what, as_users_have_it):
    with pytest.raises(ValueError, match=rf"`{what}` must be the name of one column; got \['ds'\]"):
        Forecaster().fit(FRAME, **{what: ["ds"]})  # type: ignore[arg-type]


def test_two_values_of_one_channel():
    frame = pd.DataFrame({"t": [0, 0], "what": ["u", "u"], "value": [1.0, 2.0]})
    with pytest.raises(ValueError, match=r"two values of one channel at 0; the second is row 1"):
        panel_of(frame, time="t", values="value", channel="what")


@pytest.mark.parametrize(
    ("frame", "words"),
    [
        (FRAME[:1], "no series has two complete rows"),
        (FRAME.assign(y=np.nan), "no series has two complete rows"),
        (
            FRAME.assign(unique_id="a", ds=[0, 1, 2], y=2.0),
            r"column 'y' is constant \(2\): it has no law to learn; drop it",
        ),
    ],
)
def test_a_frame_from_which_nothing_can_be_learnt(frame, words):
    with pytest.raises(ValueError, match=words):
        Forecaster(kind="flow").fit(frame)


def test_numbers_may_be_pythons_own_objects():
    boxes = pd.Series([decimal.Decimal("1.5"), None, 3], dtype=object)
    panel, _, _ = panel_of(FRAME.assign(y=boxes))
    assert np.array_equal(np.concatenate(panel.values)[:, 0], [3, np.nan, 1.5], equal_nan=True)


@pytest.mark.parametrize("library", [pd.DataFrame, pl.DataFrame])
def test_offsets_that_change_in_summer_are_one_time_axis(library):
    ds = ["2024-03-31T00:00+01:00", "2024-03-31T12:00+02:00", "2024-04-01T00:00+02:00"]
    panel, axis, _ = panel_of(library({"ds": ds, "y": [1.0, 2.0, 3.0]}))
    assert axis.zone == "UTC"
    assert np.diff(panel.times[0]).tolist() == [11 * 3600, 12 * 3600]


def test_dates_of_pythons_own_are_dates():
    days = [datetime.date(2024, 1, day) for day in (1, 2, 4)]
    panel, _, _ = panel_of(pd.DataFrame({"ds": days, "y": [1.0, 2.0, 3.0]}))
    assert np.diff(panel.times[0]).tolist() == [86400, 2 * 86400]


def test_dates_and_datetimes_are_one_calendar():
    """A model of days reads a frame of midnights, and the other way round."""
    days = pd.DataFrame({"ds": [datetime.date(2024, 1, day) for day in (1, 2, 4)], "y": [1.0, 2.0, 3.0]})
    nights = days.assign(ds=pd.to_datetime(days["ds"]))
    for one, other in ((days, nights), (nights, days)):
        panel, axis, _ = panel_of(one)
        again, _, _ = read_panel(as_frame(other), find_columns(as_frame(other)), axis)
        assert np.array_equal(again.times[0], panel.times[0])


TWO = pd.DataFrame({"series": ["a", "b"] * 3, "ds": np.arange(6.0), "y": np.arange(6.0) ** 2})


@pytest.mark.parametrize(
    "frame",
    [TWO, pl.from_pandas(TWO), TWO.assign(series=[1, 2] * 3).rename(columns={"series": "Id"})],
    ids=["pandas", "polars", "numbers"],
)
def test_a_column_that_may_tell_series_apart_and_is_not_read_is_named(frame):
    name = frame.columns[0]
    with pytest.warns(
        UserWarning, match=f"column '{name}' is not read, and all rows are taken for one series"
    ):
        read_table(frame)
    assert len(read_table(frame, id=name).panel) == 2


@pytest.mark.parametrize("text", [["a"] * 6, list("abcdef")], ids=["one name", "a remark a row"])
def test_other_text_is_passed_over(text):
    assert len(read_table(TWO.assign(series=text)).panel) == 1


@pytest.mark.parametrize(("share", "told"), [(0.9, True), (0.4, True), (0.15, False)])
def test_a_channel_that_mostly_stays_where_it_was_is_told_of(share, told):
    rng = np.random.default_rng(0)
    y = np.cumsum(np.where(rng.uniform(size=400) < share, 0.0, rng.normal(size=400)))
    frame = pd.DataFrame({"ds": np.arange(400), "y": y})
    if told:
        with pytest.warns(
            UserWarning, match=r"column 'y' is what it was the row before in \d\d% of the rows"
        ):
            quick_fit(frame)
    else:
        quick_fit(frame)
