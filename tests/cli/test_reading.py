"""Rows of a file as they were meant: names are names, comments come before the header, fractions may come late."""

import importlib

import narwhals as nw
import pytest

from stochflow.cli import data


@pytest.fixture(params=["polars", "pandas"])
def read(request, tmp_path, monkeypatch):
    library = importlib.import_module(request.param)
    monkeypatch.setattr(data, "_library", lambda: library)

    def read(text, **options):
        (tmp_path / "rows.csv").write_text(text)
        frame = data.read_rows(tmp_path / "rows.csv", None, None, **{"names": ("id",)} | options)
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
