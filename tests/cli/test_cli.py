"""The command: it does its job on a small budget, and says one sentence when it cannot."""

import json
import sys

import pytest
from typer.testing import CliRunner

from stochflow.cli import app
from stochflow.cli.main import main

SMALL = [
    *("--steps", "1000", "--paths", "64", "--batch-size", "32", "--kl-samples", "1000"),
    *("--kl-repeats", "2"),
    *("--taught-steps", "1000", "--taught-paths", "64"),
    *("--reference-pairs", "2", "--calibration-pairs", "16", "--consistency-starts", "2"),
]


def _run(monkeypatch, *args):
    """Through `main`, as the shell does: the exit code."""
    monkeypatch.setattr("sys.argv", ["stochflow", *map(str, args)])
    with pytest.raises(SystemExit) as stop:
        main()
    return stop.value.code


@pytest.mark.slow
def test_reproduce_lorenz_writes_everything_and_goes_on_where_it_was(tmp_path):
    out = tmp_path / "run"
    first = CliRunner().invoke(app, ["reproduce", "lorenz", "--out", str(out), "--json", *SMALL])
    assert first.exit_code == 0, first.output
    scores = json.loads(first.output)
    assert set(scores["kl"]) == {"1", "0.5", "0.25"}
    assert set(scores["log_likelihood"]) == {"1", "4", "10", "20", "30", "40"}
    assert (out / "report.html").stat().st_size > 100_000
    assert len(list((out / "figures").glob("*.png"))) == 8
    again = CliRunner().invoke(app, ["reproduce", "lorenz", "--out", str(out), "--json", *SMALL])
    assert json.loads(again.output)["train_seconds"] == scores["train_seconds"]


def test_info_shows_a_run(tmp_path, monkeypatch, capsys):
    (tmp_path / "config.json").write_text(json.dumps({"config": {"steps": 7}}))
    (tmp_path / "metrics.jsonl").write_text(json.dumps({"step": 7, "seconds": 1.0, "loss": 1.5}) + "\n")
    assert _run(monkeypatch, "info", tmp_path) == 0
    assert "loss 1.5" in capsys.readouterr().out
    assert _run(monkeypatch, "info", tmp_path, "--json") == 0
    assert json.loads(capsys.readouterr().out)["last"]["loss"] == 1.5


def test_json_for_machines_has_no_nan(tmp_path, monkeypatch, capsys):
    (tmp_path / "config.json").write_text('{"config": {"steps": 8}}')
    rows = ['{"step": 7, "seconds": 1, "loss": null}\n', '{"step": 8, "seconds": 2, "loss": NaN}\n']
    (tmp_path / "metrics.jsonl").write_text("".join(rows))
    assert _run(monkeypatch, "info", tmp_path) == 0
    assert "loss nan" in capsys.readouterr().out
    assert _run(monkeypatch, "info", tmp_path, "--json") == 0
    assert '"last": {"step": 8, "seconds": 2, "loss": null}' in capsys.readouterr().out


@pytest.mark.parametrize(
    ("args", "code", "message"),
    [
        (["info", "{here}"], 1, "is not a run folder"),
        (["reproduce", "lorenz", "--out", "{here}"], 1, "is not empty and has no config.json"),
        (["reproduce", "lorenz", "--batch-size", "0"], 2, "`batch_size` must be"),
        (["reproduce", "lorenz", "--steps", "many"], 2, "--steps"),
        (["reproduce", "lorenz", "--seeds", "0"], 2, "--seeds"),
        (["reproduce", "mocap", "--setup", "3"], 2, "`setup` must be 1 or 2; got 3"),
        (["reproduce", "lorenz-missing", "--steps", "0"], 2, "`steps` must be at least 1; got 0"),
        (["reproduce", "weather"], 2, "No such command"),
    ],
)
def test_wrong_usage_ends_with_one_sentence(args, code, message, tmp_path, monkeypatch, capsys):
    (tmp_path / "notes.txt").write_text("mine")
    assert _run(monkeypatch, *[arg.replace("{here}", str(tmp_path)) for arg in args]) == code
    assert message in " ".join(capsys.readouterr().err.split())
    assert [path.name for path in tmp_path.iterdir() if path.is_file()] == ["notes.txt"]


def test_version(monkeypatch, capsys):
    assert _run(monkeypatch, "version") == 0
    assert capsys.readouterr().out.strip()


def test_quick_keeps_a_flag_that_was_given_even_with_the_default_value(monkeypatch):
    from stochflow.experiments.lorenz import LorenzSetting

    seen = []
    monkeypatch.setattr(
        sys.modules["stochflow.cli.main"], "_lorenz", lambda setting, *rest: seen.append(setting)
    )
    default = str(LorenzSetting().steps)
    for flags in ([], ["--steps", default], ["--batch-size", "64"]):
        assert CliRunner().invoke(app, ["reproduce", "lorenz", "--quick", *flags]).exit_code == 0
    plain, with_steps, with_batch = seen
    assert plain == LorenzSetting.quick()
    assert with_steps.steps == LorenzSetting().steps
    assert with_batch.batch_size == 64
    assert with_batch.steps == plain.steps
