"""What a user may get wrong ends in one sentence that names the thing and the way out, and never in a traceback."""

import importlib
import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from stochflow import Forecaster
from stochflow.cli import rows

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
    assert "no file or folder [/x]." in _error(capsys)


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
    monkeypatch.setattr("stochflow.cli.rows._library", lambda: pytest.importorskip(library))
    path = tmp_path / name
    path.write_bytes(content)
    assert _run(monkeypatch, "fit", path) == 1
    assert f"{path} {wrong}" in _error(capsys)


@pytest.mark.parametrize(
    "command",
    [
        ["demo"],
        ["reproduce", "lorenz"],
        ["reproduce", "lorenz-missing"],
        ["reproduce", "mocap"],
        ["distill", "sde.py:sde", "--low", "0", "--high", "1", "--horizon", "1"],
    ],
    ids=" ".join,
)
@pytest.mark.parametrize("below", [".", "run", "deep/run"])
def test_a_folder_that_cannot_be_made_is_said_at_once(command, below, tmp_path, monkeypatch, capsys):
    (tmp_path / "file").write_text("mine")
    out = tmp_path / "file" / below
    assert _run(monkeypatch, *command, "--out", out) == 1
    expected = f"the folder {out} cannot be made or written (Not a directory); choose another --out."
    assert expected in _error(capsys)
    assert (tmp_path / "file").read_text() == "mine"


@pytest.mark.parametrize("seed", ["-1", "4294967296", "1.5"])
@pytest.mark.parametrize("command", [["demo"], ["fit", "rows.csv"], ["distill", "sde.py:sde"]], ids=" ".join)
def test_a_seed_that_is_none_is_a_mistake_of_the_call(command, seed, monkeypatch, capsys):
    assert _run(monkeypatch, *command, "--seed", seed) == 2
    assert "--seed" in capsys.readouterr().err


@pytest.mark.parametrize("command", [["fit"], ["impute", "model"], ["evaluate", "--gaps", "1d"]])
def test_a_file_that_cannot_be_written_is_said_at_once(command, tmp_path, monkeypatch, capsys):
    (tmp_path / "file").write_text("mine")
    assert _run(monkeypatch, *command, "rows.csv", "--out", tmp_path / "file" / "out.csv") == 1
    expected = (
        f"the folder {tmp_path / 'file'} cannot be made or written (Not a directory); choose another --out."
    )
    assert expected in _error(capsys)
    assert _run(monkeypatch, *command, "rows.csv", "--out", tmp_path) == 1
    assert f"{tmp_path} is a folder; choose another --out" in _error(capsys)


@pytest.mark.parametrize(
    "command",
    [
        ["forecast", "no-model"],
        ["impute", "no-model", "no-rows.csv"],
        ["evaluate", "no-rows.csv", "--gaps", "1d"],
    ],
    ids=lambda command: command[0],
)
def test_an_ending_that_rows_are_not_written_by_is_said_at_once(command, tmp_path, monkeypatch, capsys):
    out = tmp_path / "out.txt"
    assert _run(monkeypatch, *command, "--out", out) == 1
    assert f"{out} must end in .csv, .parquet, .pq." in _error(capsys)  # and not that there is no such model


def test_another_flag_for_a_file_is_named(tmp_path, monkeypatch, capsys):
    ask = ["evaluate", "no-rows.csv", "--gaps", "1d", "--forecasts", tmp_path]
    assert _run(monkeypatch, *ask) == 1
    assert f"{tmp_path} is a folder; choose another --forecasts, with a file name." in _error(capsys)


def test_two_tables_are_not_written_to_one_file(tmp_path, monkeypatch, capsys):
    out = tmp_path / "both.csv"
    ask = ["evaluate", "no-rows.csv", "--gaps", "1d", "--forecasts", out, "--out", out]
    assert _run(monkeypatch, *ask) == 1
    assert f"--out and --forecasts must be different files; both are {out}." in _error(capsys)


def test_asking_whether_a_folder_can_be_made_makes_nothing(tmp_path, monkeypatch):
    assert _run(monkeypatch, "reproduce", "lorenz-missing", "--only", "x", "--out", tmp_path / "a" / "b") == 2
    assert not list(tmp_path.iterdir())


def test_an_error_of_the_system_names_the_file_without_its_number(tmp_path, monkeypatch, capsys):
    (tmp_path / "config.json").write_text('{"config": {}}')
    (tmp_path / "metrics.jsonl").mkdir()
    assert _run(monkeypatch, "info", tmp_path) == 1
    assert f"error: {tmp_path / 'metrics.jsonl'}: Is a directory." in _error(capsys)


def test_rows_are_written_into_a_folder_that_is_not_there_yet(tmp_path):
    frame = pytest.importorskip("polars").DataFrame({"a": [1]})
    rows.write_rows(frame, tmp_path / "new" / "rows.csv", as_json=False)
    assert (tmp_path / "new" / "rows.csv").read_text() == "a\n1\n"


@pytest.mark.parametrize(
    ("command", "flag", "value", "message"),
    [
        ("lorenz", "--taught-learning-rate", "-1", "`taught_learning_rate` must be positive; got -1.0"),
        ("lorenz", "--taught-start-fraction", "2", "`taught_start_fraction` must be in [0, 1]; got 2.0"),
        ("lorenz", "--contested", "1.5", "`contested` must be in [0, 1]; got 1.5"),
        ("mocap", "--taught-rate", "-1", "`taught_rate` must be positive; got -1.0"),
        ("lorenz", "--short-gaps", "-1", "`short_gaps` must be positive; got -1.0"),
        ("lorenz", "--short-gaps", "0.01", "`short_gaps` must be at least a frame, 0.025; got 0.01"),
        ("lorenz", "--short-gaps", "nan", "`short_gaps` must be positive; got nan"),
        ("lorenz-missing", "--learning-rate", "0", "`learning_rate` must be positive; got 0.0"),
        ("lorenz-missing", "--data-steps", "0", "`data_steps` must be at least 1; got 0"),
        ("lorenz-missing", "--consistency-jitter", "-1", "`consistency_jitter` must be at least 0; got -1.0"),
        ("lorenz-missing", "--taught-start-fraction", "2", "`taught_start_fraction` must be in [0, 1]"),
        ("lorenz-missing", "--taught-paths", "1", "`taught_paths` must be at least 2; got 1"),
    ],
)
def test_a_setting_is_refused_by_its_own_name(command, flag, value, message, tmp_path, monkeypatch, capsys):
    assert _run(monkeypatch, "reproduce", command, flag, value, "--out", tmp_path / "run") == 2
    assert message in " ".join(capsys.readouterr().err.replace("│", " ").split())


def _score(name, **more):
    return {"case": {"name": name, "paper": None}, **more}


@pytest.fixture
def untrained(monkeypatch):
    """The study of missing data without its training."""
    from stochflow.experiments import missing

    monkeypatch.setattr(missing, "train_missing", lambda *args, **named: None)
    monkeypatch.setattr(missing, "score_missing", lambda result, case, *args, **named: _score(case.name))


def test_rows_that_are_not_run_again_are_kept_in_the_order_of_the_study(
    untrained, tmp_path, monkeypatch, capsys
):
    path = tmp_path / "scores-seed0.json"
    path.write_text(json.dumps([_score("of another version"), _score("λ = 0.4", old=True)]))
    for name in ("λ = 0.8", "λ = 0", "λ = 0.4"):
        command = ["reproduce", "lorenz-missing", "--only", name, "--out", tmp_path, "--json"]
        assert _run(monkeypatch, *command) == 0
        assert [row["case"]["name"] for row in json.loads(capsys.readouterr().out)] == [name]
    kept = json.loads(path.read_text())
    assert [row["case"]["name"] for row in kept] == ["λ = 0", "λ = 0.4", "λ = 0.8", "of another version"]
    assert "old" not in kept[1]


@pytest.mark.parametrize("content", ["", "5", "{", "{}", "[5]", '[{"case": {"name": []}}]'])
def test_scores_of_something_else_are_not_overwritten(content, untrained, tmp_path, monkeypatch, capsys):
    path = tmp_path / "scores-seed0.json"
    path.write_text(content)
    assert _run(monkeypatch, "reproduce", "lorenz-missing", "--out", tmp_path, "--json") == 1
    assert f"{path} holds no rows of this study" in _error(capsys)
    assert path.read_text() == content


def test_an_interrupt_is_said_and_has_its_exit_code(monkeypatch, capsys):
    """As typer hands it on: as an exit, not as an exception of its own."""
    entry = importlib.import_module("stochflow.cli.main")
    monkeypatch.setattr(entry, "app", lambda: sys.exit(130))
    monkeypatch.setattr(os, "_exit", sys.exit)  # that of the command leaves without a word
    with pytest.raises(SystemExit) as caught:
        entry.main()
    assert caught.value.code == 130
    assert "interrupted; run the same command again" in capsys.readouterr().err


def test_a_command_that_is_interrupted_at_work_leaves_with_its_exit_code(tmp_path):
    """Whatever XLA was doing: it crashed now and then while Python was taken apart."""
    path = tmp_path / "rows.csv"
    walk = np.random.default_rng(0).normal(size=200).cumsum()
    path.write_text("ds,y\n" + "\n".join(f"{i},{y}" for i, y in enumerate(walk)))
    parts = ["fit", str(path), "--out", str(tmp_path / "one"), "--steps", "20000", "--folds", "0"]
    stopped = subprocess.Popen(
        [sys.executable, "-m", "stochflow", *parts],
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
    )
    deadline = time.monotonic() + 120
    while not list(tmp_path.glob("one.run/metrics*")) and time.monotonic() < deadline:
        time.sleep(0.05)
    stopped.send_signal(signal.SIGINT)
    _, said = stopped.communicate(timeout=120)
    assert stopped.returncode == 130
    assert "interrupted; run the same command again" in said


@pytest.mark.slow
def test_a_fit_that_is_interrupted_goes_on_and_ends_as_if_it_never_was(tmp_path):
    path = tmp_path / "rows.csv"
    walk = np.random.default_rng(0).normal(size=200).cumsum()
    path.write_text("ds,y\n" + "\n".join(f"{i},{y}" for i, y in enumerate(walk)))

    def command(out):
        parts = ["-m", "stochflow", "fit", str(path), "--out", str(tmp_path / out)]
        return [sys.executable, *parts, "--steps", "2000", "--folds", "0", "--json"]

    stopped = subprocess.Popen(command("one"), stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 120
    while not (tmp_path / "one.run").exists() and time.monotonic() < deadline:
        time.sleep(0.2)
    time.sleep(2)
    stopped.send_signal(signal.SIGINT)
    _, said = stopped.communicate(timeout=120)
    assert stopped.returncode == 130
    assert "interrupted; run the same command again" in said
    assert not (tmp_path / "one").exists()
    for out in ("one", "two"):
        subprocess.run(command(out), check=True, capture_output=True)
    ask = {"times": [210.0], "samples": 20}
    one, two = (Forecaster.load(tmp_path / out).predict(**ask)["y"] for out in ("one", "two"))
    assert (one == two).all()
