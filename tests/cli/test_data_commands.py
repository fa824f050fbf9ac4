"""From a CSV file to forecasts by commands, and one sentence when it cannot be."""

import errno
import json
import warnings

import narwhals as nw
import numpy as np
import pandas as pd
import polars as pl
import pytest

from stochflow import Forecaster, save_model
from stochflow.cli.data import print_card
from stochflow.cli.rows import write_rows
from stochflow.laws import OrnsteinUhlenbeck

from .test_cli import _run

SMALL = ["--steps", "20", "--batch-size", "16", "--folds", "0"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A CSV of two series with a gap in one, and a model that was fitted on it."""
    here = tmp_path_factory.mktemp("rows")
    rng = np.random.default_rng(0)
    times = pd.date_range("2024-01-01", periods=60, freq="6h")
    rows = [
        pd.DataFrame(
            {"station": name, "time": times, "level": 2 + np.exp(0.1 * rng.normal(size=60).cumsum())}
        )
        for name in "AB"
    ]
    frame = pd.concat(rows)
    frame.to_csv(here / "rows.csv", index=False)
    frame.loc[(frame["station"] == "A") & (frame["time"] == times[30]), "level"] = np.nan
    frame.to_csv(here / "holes.csv", index=False)
    Forecaster(steps=20, batch_size=16, folds=0, support={"level": "positive"}, progress=False).fit(
        pd.read_csv(here / "rows.csv", parse_dates=["time"]), id="station", time="time"
    ).save(here / "model.stochflow")
    return here


def test_fit_writes_the_model_that_the_library_would(folder, tmp_path, monkeypatch, capsys):
    out = tmp_path / "it.stochflow"
    columns = ["--id", "station", "--time", "time", "--values", "level", "--positive", "level"]
    assert _run(monkeypatch, "fit", folder / "rows.csv", "--out", out, *columns, *SMALL, "--json") == 0
    card = json.loads(capsys.readouterr().out)
    assert (card["series"], card["rows"], card["channels"]) == (2, 120, ["level"])
    assert list(tmp_path.iterdir()) == [out]  # no checkpoint is left behind
    by_command, by_hand = Forecaster.load(out), Forecaster.load(folder / "model.stochflow")
    ask = {"horizon": "1d", "every": "12h", "quantiles": [0.5]}
    np.testing.assert_allclose(
        by_command.predict(**ask)["level_q0.5"], by_hand.predict(**ask)["level_q0.5"], rtol=1e-6
    )


def test_a_half_line_between_bounds_is_written_and_read(folder, tmp_path, monkeypatch, capsys):
    out = tmp_path / "it.stochflow"
    columns = ["--id", "station", "--time", "time", "--between", "level:0:inf"]
    assert _run(monkeypatch, "fit", folder / "rows.csv", "--out", out, *columns, *SMALL, "--json") == 0
    assert Forecaster.load(out).support == {"level": (0.0, float("inf"))}
    assert _run(monkeypatch, "forecast", out, "--horizon", "1d", "--json") == 0


def test_a_warning_is_one_sentence_too(folder, tmp_path, monkeypatch, capsys):
    args = ["fit", folder / "rows.csv", "--time", "time", "--out", tmp_path / "it.stochflow"]
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        assert _run(monkeypatch, *args, *SMALL, "--json") == 1  # both stations have a row at each time
    said = capsys.readouterr().err.splitlines()
    assert said[0].startswith(
        "warning: column 'station' is not read, and all rows are taken for one series: if"
    )
    assert said[1].startswith("error: series 'all' has two rows at 2024-01-01")


def test_forecast_prints_and_writes(folder, tmp_path, monkeypatch, capsys):
    ask = ["forecast", folder / "model.stochflow", "--horizon", "1d", "--every", "12h"]
    assert _run(monkeypatch, *ask, "--json", "--seed", "5") == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["station"] for row in rows] == ["A", "A", "B", "B"]
    assert all(0 < row["level_lo90"] < row["level"] < row["level_hi90"] for row in rows)
    assert _run(monkeypatch, *ask, "--samples", "3", "--out", tmp_path / "draws.parquet") == 0
    assert len(pd.read_parquet(tmp_path / "draws.parquet")) == 2 * 2 * 3
    assert [path.name for path in tmp_path.iterdir()] == ["draws.parquet"]


def test_dates_in_the_order_of_a_country_need_a_format_in_every_command(
    folder, tmp_path, monkeypatch, capsys
):
    frame = pd.read_csv(folder / "holes.csv", parse_dates=["time"])
    frame = frame[frame["time"] < "2024-01-13"]  # so that each may be read either way
    path, how = tmp_path / "us.csv", "%m/%d/%Y %H:%M"
    frame.assign(time=frame["time"].dt.strftime(how)).to_csv(path, index=False)
    model, columns = folder / "model.stochflow", ["--id", "station", "--time", "time"]
    commands = {
        "fit": [path, *columns, *SMALL, "--out", tmp_path / "it.stochflow", "--json"],
        "forecast": [model, "--data", path, "--horizon", "6h", "--json"],
        "impute": [model, path, "--samples", "5", "--json"],
        "evaluate": [path, *columns, *SMALL, "--gaps", "6h", "--refits", "1", "--json"],
    }
    for name, rest in commands.items():
        assert _run(monkeypatch, name, *rest) == 1
        assert "may be a day before a month or a month before a day" in capsys.readouterr().err
        assert _run(monkeypatch, name, *rest, "--time-format", how) == 0
        printed = json.loads(capsys.readouterr().out)
        if name == "fit":
            assert (printed["from"], printed["to"]) == ("2024-01-01 00:00:00", "2024-01-12 18:00:00")
        if name == "forecast":
            assert printed[0]["time"] == "2024-01-13 00:00:00"
        if name == "impute":
            assert printed[5]["time"] == "2024-01-02 06:00:00"


def test_evaluate_writes_each_forecast_beside_the_table(folder, tmp_path, monkeypatch, capsys):
    out = tmp_path / "forecasts.csv"
    ask = ["evaluate", folder / "rows.csv", "--id", "station", "--time", "time", *SMALL, "--gaps", "6h"]
    assert _run(monkeypatch, *ask, "--refits", "1", "--forecasts", out, "--json") == 0
    (row,) = json.loads(capsys.readouterr().out)
    rows = pd.read_csv(out, parse_dates=["time", "origin"])
    assert len(rows) == row["forecasts"]
    assert rows["crps"].mean() == pytest.approx(row["crps"])
    assert (rows["time"] - rows["origin"] == pd.Timedelta("6h")).all()
    assert _run(monkeypatch, *ask, "--forecasts", tmp_path / "forecasts.txt") == 1
    assert "forecasts.txt must end in .csv, .parquet, .pq." in capsys.readouterr().err


def test_impute_fills_the_hole_and_nothing_else(folder, tmp_path, monkeypatch):
    out = tmp_path / "whole.csv"
    ask = ["impute", folder / "model.stochflow", folder / "holes.csv", "--samples", "20"]
    assert _run(monkeypatch, *ask, "--out", out) == 0
    before, after = pd.read_csv(folder / "holes.csv"), pd.read_csv(out)
    assert before["level"].isna().sum() == 1
    assert after["level"].notna().all()
    seen = before["level"].notna()
    np.testing.assert_array_equal(before["level"][seen], after["level"][seen])


def test_info_shows_the_card_of_a_model_file(folder, monkeypatch, capsys):
    assert _run(monkeypatch, "info", folder / "model.stochflow") == 0
    assert "Model card" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["fit", "nowhere.csv"], "there is no file nowhere.csv"),
        (["fit", "{here}/rows.txt"], "must end in .csv, .parquet, .pq"),
        (
            ["fit", "{here}/rows.csv", "--time", "when"],
            "there is no column 'when'; the columns are station, time, level",
        ),
        (["forecast", "{here}/rows.csv", "--horizon", "1d"], "it is no stochflow model"),
        (["forecast", "{here}/model.stochflow"], "pass either `horizon` (and `every`), or `times`"),
        (["forecast", "{here}/model.stochflow", "--horizon", "soon"], "`horizon` must be written like '6h'"),
        (
            ["forecast", "{here}/model.stochflow", "--horizon", "1d", "--quantiles", "a,b"],
            "`quantiles` must be numbers",
        ),
        (["forecast", "{here}/model.stochflow", "--horizon", "1d", "--out", "x.doc"], "x.doc must end in"),
        (
            ["evaluate", "{here}/rows.csv", "--gaps", "1d", "--time", "time", "--start", "2"],
            "`start` must lie between",
        ),
    ],
)
def test_wrong_input_is_one_sentence(args, message, folder, monkeypatch, capsys):
    args = [arg.format(here=folder) for arg in args]
    assert _run(monkeypatch, *args) == 1
    said = " ".join(capsys.readouterr().err.split())
    assert said.startswith("error: ")
    assert message in said


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--kind", "magic"], "`kind` must be one of auto, flow, latent"),
        (["--folds", "1"], "`folds` must be 0, or from 2 to 20"),
        (["--learning-rate", "-1"], "`learning_rate` must be positive"),
    ],
)
def test_a_setting_that_the_config_refuses_ends_with_its_sentence(
    flags, message, folder, monkeypatch, capsys
):
    assert _run(monkeypatch, "fit", str(folder / "rows.csv"), "--time", "time", *flags) == 2
    assert message in " ".join(capsys.readouterr().err.replace("│", " ").split())


@pytest.mark.parametrize(
    "odd", [{"held_out": [1]}, {"two_steps_for_one": None}, {"channels": [1]}, {"in_sample": 3}]
)
def test_an_odd_card_is_one_sentence(odd, capsys):
    with pytest.raises(ValueError, match="the model card in that file is not one: save the model again"):
        print_card({"channels": ["y"]} | odd)
    assert not capsys.readouterr().out


HOSTILE = "[/x] [bold]hi[/bold] \x1b]0;title\x07\x9b31m :skull: \u202e\ud800"
ROW = {"gap": HOSTILE, "pairs": 3, "coverage_of_90": {HOSTILE: 0.9}, "relative_crps": {HOSTILE: 1.0}}
CARDS = {
    "a key": {HOSTILE: 1},
    "a value": {"kind": HOSTILE},
    "values": {"channels": [HOSTILE]},
    "held out": {"held_out": [ROW]},
    "two steps": {"two_steps_for_one": {HOSTILE: {"moved": 0.1, "width": 1.0}}},
    "at once": {"at_once": {HOSTILE: {HOSTILE: 0.1}}},
    "in sample": {"in_sample": {"rows": 1, "coverage_of_90": {HOSTILE: 0.9}}},
}


@pytest.mark.parametrize("card", CARDS.values(), ids=CARDS.keys())
def test_what_a_card_says_is_shown_as_it_stands(card, capsys):
    print_card(card)
    said = capsys.readouterr().out
    for words in ("[/x]", "[bold]hi[/bold]", ":skull:"):
        assert words in said
    assert not any(letter in said for letter in "\x1b\x07\x9b\u202e\ud800")


def test_a_gap_that_is_a_number_is_shown(capsys):
    print_card({"held_out": [ROW | {"gap": 1.5}]})
    assert "1.5" in capsys.readouterr().out


def test_info_of_a_law_does_nothing_to_a_terminal(tmp_path, monkeypatch, capsys):
    save_model(tmp_path / "law", OrnsteinUhlenbeck([1.0], [0.0], [1.0]), about={"is": HOSTILE, "δ": 1})
    assert _run(monkeypatch, "info", tmp_path / "law") == 0
    said = capsys.readouterr().out
    assert "[/x]" in said
    assert "δ" in said
    assert not any(letter in said for letter in "\x1b\x07\x9b\u202e\ud800")


def test_info_of_a_model_in_a_folder_and_of_nothing(tmp_path, monkeypatch, capsys):
    save_model(tmp_path / "law", OrnsteinUhlenbeck([1.0], [0.0], [1.0]), folder=True)
    assert _run(monkeypatch, "info", tmp_path / "law") == 0
    assert "OrnsteinUhlenbeck" in capsys.readouterr().out
    assert _run(monkeypatch, "info", tmp_path / "none") == 1
    assert "there is no file or folder" in capsys.readouterr().err


def test_another_mark_between_columns_is_named(folder, tmp_path, monkeypatch, capsys):
    text = (folder / "rows.csv").read_text().replace(",", ";")
    (tmp_path / "rows.csv").write_text(text)
    assert _run(monkeypatch, "fit", tmp_path / "rows.csv") == 1
    assert "separate columns by commas, not by ';'" in " ".join(capsys.readouterr().err.split())


def test_a_full_disk_is_named_and_leaves_nothing(folder, tmp_path, monkeypatch, capsys):
    def fit(self, df, *, folder, **columns):
        folder.mkdir()
        (folder / "config.json").write_text("{")
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Forecaster, "fit", fit)
    out = tmp_path / "it.stochflow"
    assert _run(monkeypatch, "fit", folder / "rows.csv", "--time", "time", "--out", out) == 1
    said = " ".join(capsys.readouterr().err.split())
    assert "No space left on device, while a file was written: make room, or choose another --out" in said
    assert not list(tmp_path.iterdir())


def test_a_full_disk_is_named_where_polars_says_it_without_a_number(folder, tmp_path, monkeypatch, capsys):
    def full(self, part):
        part.write_text("half of it")
        raise OSError("No space left on device (os error 28)")

    frame = pl.DataFrame({"t": [1.0]})
    monkeypatch.setattr(nw.DataFrame, "write_csv", full)
    with pytest.raises(OSError, match="No space left") as caught:
        write_rows(frame, tmp_path / "f.csv", as_json=False)
    assert caught.value.errno == errno.ENOSPC
    assert caught.value.filename == str(tmp_path / "f.csv")
    assert not list(tmp_path.iterdir())


def test_an_out_that_is_no_file_is_refused_before_the_work(folder, monkeypatch, capsys):
    assert _run(monkeypatch, "fit", folder / "rows.csv", "--time", "time", "--out", "/dev/full") == 1
    said = " ".join(capsys.readouterr().err.split())
    assert "/dev/full is no file that can be replaced; choose another --out" in said


def test_a_card_is_read_in_one_order(capsys):
    card = {"channels": ["y"], "doubt": "some", "kind": "flow", "rows": 3, "why": "it is"}
    print_card(card)
    said = capsys.readouterr().out
    places = [said.index(word) for word in ("kind", "why", "rows", "channels", "doubt")]
    assert places == sorted(places)
