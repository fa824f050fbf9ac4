"""What a user may get wrong ends in one sentence that names the thing and the way out, and never in a traceback."""

import json
import sys

import pytest

from .test_cli import _run

ROW = {"step": 7, "seconds": 1.0, "loss": 1.5}


def _error(capsys) -> str:
    """The one line that was said."""
    said = capsys.readouterr().err
    assert said.startswith("error: ")
    assert said.count("\n") == 1
    return said


def test_brackets_in_a_message_are_no_markup(monkeypatch, capsys):
    assert _run(monkeypatch, "info", "[/x]") == 1
    assert "[/x] is not a run folder" in _error(capsys)


def test_the_way_out_without_a_library_of_frames_is_whole(tmp_path, monkeypatch, capsys):
    (tmp_path / "rows.csv").write_text("a,b\n1,2\n")
    monkeypatch.setitem(sys.modules, "polars", None)
    monkeypatch.setitem(sys.modules, "pandas", None)
    assert _run(monkeypatch, "fit", tmp_path / "rows.csv") == 1
    assert "`pip install stochflow[frames]`" in _error(capsys)


def test_brackets_in_settings_and_rows_are_shown(tmp_path, monkeypatch, capsys):
    folder = tmp_path / "[/run]"
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps({"config": {"note": "[/y]"}}))
    (folder / "metrics.jsonl").write_text(json.dumps(ROW) + "\n")
    assert _run(monkeypatch, "info", folder) == 0
    assert "[/y]" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("record", "metrics", "message"),
    [
        ({}, "", "config.json is not the record of a run"),
        ([], "", "config.json is not the record of a run"),
        ({"config": 5}, "", "config.json is not the record of a run"),
        ({"config": {}}, "5\n", "line 1 of"),
        ({"config": {}}, '{"step": 7, "seconds": 1, "loss": "low"}\n', "`loss` must be a number"),
    ],
)
def test_a_folder_of_another_program_is_refused(record, metrics, message, tmp_path, monkeypatch, capsys):
    (tmp_path / "config.json").write_text(json.dumps(record))
    (tmp_path / "metrics.jsonl").write_text(metrics)
    for flags in ([], ["--json"]):
        assert _run(monkeypatch, "info", tmp_path, *flags) == 1
        assert message in _error(capsys)


@pytest.mark.parametrize("library", ["polars", "pandas"])
@pytest.mark.parametrize(
    ("name", "content", "wrong"),
    [
        ("empty.csv", b"", "cannot be read as CSV: it is empty."),
        ("remarks.csv", b"# nothing\n", "cannot be read as CSV: it has no header."),
        ("ragged.csv", b"# a\na,b\n1,2\n1,2,3\n", "cannot be read as CSV: line 4 has 3 cells, the header 2."),
        ("latin.csv", b"a,b\n\xff\xfe,2\n", "cannot be read as CSV: "),
        ("empty.parquet", b"", "cannot be read as Parquet: it is empty."),
        ("text.parquet", b"a,b\n1,2\n" * 9, "cannot be read as Parquet: "),
    ],
)
def test_a_file_that_is_no_table_is_named(library, name, content, wrong, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("stochflow.cli.data._library", lambda: pytest.importorskip(library))
    path = tmp_path / name
    path.write_bytes(content)
    assert _run(monkeypatch, "fit", path) == 1
    assert f"{path} {wrong}" in _error(capsys)
