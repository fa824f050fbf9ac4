"""Rows of a file as they were meant: names are names, comments come before the header, fractions may come late, and no
day is taken for a month."""

import datetime
import importlib

import narwhals as nw
import pytest

from stochflow.cli import rows


@pytest.fixture(params=["polars", "pandas"])
def read(request, tmp_path, monkeypatch):
    library = importlib.import_module(request.param)
    monkeypatch.setattr(rows, "_library", lambda: library)

    def read(text, time=None, time_format=None, **options):
        (tmp_path / "rows.csv").write_text(text)
        frame = rows.read_rows(tmp_path / "rows.csv", time, time_format, **{"names": ("id",)} | options)
        return nw.from_native(frame, eager_only=True)

    return read


def test_ids_that_look_like_numbers_are_told_apart(read):
    found = read("id,t,v\n01,1,2.5\n1,1,3.5\n")
    assert found["id"].to_list() == ["01", "1"]
    assert found["v"].to_list() == [2.5, 3.5]


def test_the_column_that_need_not_be_named_is_of_names_too(read):
    assert read("unique_id,ds,y\n007,1,2\n", names=(None, None))["unique_id"].to_list() == ["007"]


def test_an_id_may_begin_as_comments_do(read):
    found = read("# where it is from\n# and when\nid,t,v\n#1,1,2\n2,1,3\n")
    assert found["id"].to_list() == ["#1", "2"]
    assert found.columns == ["id", "t", "v"]


def test_fractions_may_come_late(read):
    found = read("t,v\n" + "".join(f"{i},1\n" for i in range(11_000)) + "11000,0.5\n")
    assert found["v"][-1] == 0.5


MOMENT = datetime.datetime(2024, 3, 1, 12, 30, 5)
HALF_PAST = datetime.datetime(2024, 3, 1, 12, 30)


@pytest.mark.parametrize(
    ("text", "time_format", "moment"),
    [
        ("03/01/2024", "%m/%d/%Y", datetime.datetime(2024, 3, 1)),
        ("01/03/2024", "%d/%m/%Y", datetime.datetime(2024, 3, 1)),
        ("2024-03-01 12:30:05", "%Y-%m-%d %H:%M:%S", MOMENT),
        ("20240301", "%Y%m%d", datetime.datetime(2024, 3, 1)),
        ("2024-03-01T12:30:05+0200", "%Y-%m-%dT%H:%M:%S%z", datetime.datetime(2024, 3, 1, 10, 30, 5)),
    ],
)
def test_a_format_says_what_a_time_is(read, text, time_format, moment):
    found = read(f"ds,y\n{text},1\n{text},2\n", time_format=time_format)["ds"][0]
    assert found.replace(tzinfo=None) == moment


@pytest.mark.parametrize(
    "text", ["03/01/2024", "3/1/2024", "13/01/2024", "03-01-2024", "03.01.2024", "03/01/2024 12:00:00"]
)
def test_no_day_is_taken_for_a_month_in_silence(read, text):
    with pytest.raises(ValueError, match=r"time column 't', row 0: .* may be a day before a month"):
        read(f"t,v\n{text},1\n{text},2\n", time="t")


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("2024-03-01 12:30:05", MOMENT),
        ("2024-03-01T12:30:05.000", MOMENT),
        (" 2024-03-01 12:30", HALF_PAST),
        ("2024/03/01 12:30", HALF_PAST),
        ("2024-03-01T14:30:05+02:00", MOMENT.replace(tzinfo=datetime.UTC)),
        ("2024-03-01T12:30:05Z", MOMENT.replace(tzinfo=datetime.UTC)),
    ],
)
def test_times_in_the_order_of_iso_need_no_format(read, text, moment):
    assert read(f"ds,y\n{text},1\n{text},2\n")["ds"].to_list() == [moment, moment]


@pytest.mark.parametrize("text", ["2024-03-01", "2024/03/01", " 2024-03-01"])
def test_dates_stay_dates_where_there_are_such(read, text):
    found = read(f"ds,y\n{text},1\n,2\n")["ds"]
    assert found.dtype == (nw.Date if found.implementation.is_polars() else nw.Datetime)
    assert str(found[0])[:10] == "2024-03-01"
    assert found.is_null().to_list() == [False, True]


@pytest.mark.parametrize(("text", "dtype"), [("7", nw.Int64), ("20240301", nw.Int64), ("7.5", nw.Float64)])
def test_times_that_are_numbers_stay_numbers(read, text, dtype):
    found = read(f"ds,y\n{text},1\n{text},2\n")["ds"]
    assert found.dtype == dtype
    assert found[0] == float(text)


def test_dates_beside_the_times_are_let_be(read):
    found = read("ds,y,seen,paid\n1,2.5,03/01/2024,2024-03-01\n2,3.5,01/03/2024,2024-03-02\n")
    assert found["ds"].to_list() == [1, 2]
    assert found["y"].to_list() == [2.5, 3.5]
    if found.implementation.is_polars():
        assert found["paid"].dtype == nw.Date


def test_a_file_without_rows_has_a_column_of_times_all_the_same(read):
    assert read("ds,y\n").columns == ["ds", "y"]
