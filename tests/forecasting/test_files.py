"""A forecaster that was saved and loaded is the same one; a file that is not one is refused."""

import datetime
import errno
import json
import os
import zipfile
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pytest

from stochflow import Forecaster
from stochflow.forecasting import NotFittedError
from stochflow.io import ModelFileError, load, peek, read_archive, save, write_archive

from ..io import models
from ..io.damage import DAMAGE, signed
from ..io.test_hostile import refuse
from .worlds import COLUMNS, ou_frame, quick_fit, two_channels

ASK = {"horizon": "12h", "every": "6h", "samples": 4}
SUPPORT = {"price": "positive"}


def renamed(frame, ids):
    return frame.assign(name=[ids[int(name[1:])] for name in frame["name"]])


FRAMES = {
    "pandas": two_channels(),
    "polars": pl.from_pandas(two_channels()),
    "int ids": renamed(two_channels(), [7, 5, 6]),
    "bool ids": renamed(two_channels(series=2), [False, True]),
    "date ids": renamed(two_channels(), [datetime.date(2024, 1, day) for day in (3, 1, 2)]),
    "datetime ids": renamed(two_channels(), [pd.Timestamp(2024, 1, day, 6) for day in (3, 1, 2)]),
}


@pytest.fixture(scope="module")
def fitted():
    return quick_fit(
        two_channels(), Forecaster(support=SUPPORT, horizon=datetime.timedelta(days=3)), **COLUMNS
    )


@pytest.fixture(scope="module")
def saved(fitted, tmp_path_factory):
    path = tmp_path_factory.mktemp("saved") / "it.stochflow"
    fitted.save(path)
    return path


@pytest.mark.parametrize("frame", FRAMES.values(), ids=FRAMES.keys())
def test_a_loaded_forecaster_says_the_same(frame, tmp_path):
    model = quick_fit(frame, Forecaster(support=SUPPORT, scaling="series", random_state=3), **COLUMNS)
    model.save(tmp_path / "it")
    again = Forecaster.load(tmp_path / "it")
    assert again.get_params() == model.get_params()
    assert (again.card_, again.columns_, again.horizon_) == (model.card_, model.columns_, model.horizon_)
    one, two = model.predict(**ASK), again.predict(**ASK)
    assert type(one) is type(two)
    assert one.equals(two)
    assert again.predict(frame, **ASK).equals(one)
    assert sorted(set(one["name"])) == sorted(set(frame["name"]))


HALF_LINES = [(0.0, np.inf), (-np.inf, 100.0), (-np.inf, np.inf), (np.float64(-1), np.inf)]


@pytest.mark.parametrize("interval", HALF_LINES, ids=str)
def test_a_support_with_a_side_that_is_infinite_comes_back(interval, tmp_path):
    model = quick_fit(two_channels(), Forecaster(support={"price": interval}), **COLUMNS)
    model.save(tmp_path / "it")
    again = Forecaster.load(tmp_path / "it")
    assert again.get_params() == model.get_params()
    assert again.model_.support.bounds == model.model_.support.bounds
    assert again.predict(**ASK).equals(model.predict(**ASK))


def at_two_gaps(model):
    """The log-densities of two states, one of each series, at two gaps of the correction."""
    gaps = model.model_.horizon * np.exp(np.asarray(model.model_.law.correction.log_gaps))[[2, 5]]
    there = np.array([[0.5, 0.1], [1.0, -0.5]])
    return model.model_.log_prob(model.past_, there, model.past_.last + gaps, np.zeros((2, 0)))


def test_a_forecaster_of_format_1_still_says_what_it_said():
    """Written in single precision, and never to be written again: see `tests/io/files/README.md`. (Twice these numbers
    changed: channels that go together had been taken too wide, and so had noise between two gaps of the correction.)"""
    path = Path(__file__).parent.parent / "io" / "files" / "format1-forecaster.stochflow"
    assert peek(path)["format_version"] == 1
    model = Forecaster.load(path)
    assert model.model_.history.roams == 0
    frame = ou_frame(16, series=2).assign(z=lambda rows: np.sin(rows["ds"]))
    assert model.score(frame, metric="log") == pytest.approx(-0.1476737, abs=1e-3)
    assert np.allclose(at_two_gaps(model), [-8.7266655, -6.0492673], rtol=1e-3)
    assert np.isfinite(model.predict(horizon=1.0, samples=3)[["y", "z"]]).all(axis=None)


def test_a_forecaster_of_format_2_still_says_what_it_said():
    """Written in single precision, and never to be written again: see `tests/io/files/README.md`."""
    path = Path(__file__).parent.parent / "io" / "files" / "format2-forecaster.stochflow"
    assert peek(path)["format_version"] == 2
    model = Forecaster.load(path)
    assert (model.model_.law.correction.witness == 0).all()
    frame = ou_frame(16, series=2).assign(z=lambda rows: np.sin(rows["ds"]))
    assert model.score(frame, metric="log") == pytest.approx(-0.0440614, abs=5e-3)
    assert np.allclose(at_two_gaps(model), [-7.8614478, -5.2589088], rtol=1e-3)


def test_a_horizon_that_was_a_timedelta_is_one_that_can_be_fitted_again(fitted, saved):
    again = Forecaster.load(saved)
    assert (again.horizon, again.support) == ("3d", SUPPORT)
    assert fitted.fitted_.axis.length(again.horizon, "horizon") == fitted.model_.horizon


def test_the_same_model_is_the_same_file(fitted, saved, tmp_path):
    fitted.save(tmp_path / "it")
    assert (tmp_path / "it").read_bytes() == saved.read_bytes()


def test_a_folder_holds_the_same_as_a_file(fitted, saved, tmp_path, as_users_have_it):
    fitted.save(tmp_path / "model", folder=True)
    with zipfile.ZipFile(saved) as archive:
        held = {name: archive.read(name) for name in archive.namelist()}
    assert {path.name: path.read_bytes() for path in (tmp_path / "model").iterdir()} == held
    assert Forecaster.load(tmp_path / "model").predict(**ASK).equals(fitted.predict(**ASK))
    with pytest.raises(ModelFileError, match="is there already; give a new folder"):
        fitted.save(tmp_path / "model", folder=True)
    with pytest.raises(ValueError, match="`folder` must be True or False; got 'elsewhere'"):
        fitted.save(tmp_path / "it", folder="elsewhere")
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_times_that_are_numbers_may_be_as_large_as_they_like(tmp_path):
    """Microseconds since 1970 are beyond any second of a calendar."""
    frame = pd.DataFrame({"ds": 17 * 10**14 + 10**6 * np.arange(40), "y": ou_frame(40)["y"]})
    model = quick_fit(frame)
    model.save(tmp_path / "it")
    ask = {"horizon": 3 * 10**6, "every": 10**6, "samples": 3}
    assert Forecaster.load(tmp_path / "it").predict(**ask).equals(model.predict(**ask))


def test_ids_that_would_lose_their_nanoseconds_are_not_saved(tmp_path):
    early = pd.Timestamp("2020-01-01 00:00:00.000000001")
    model = quick_fit(renamed(two_channels(series=2), [early, early + pd.Timedelta("1ns")]), **COLUMNS)
    with pytest.raises(ValueError, match="ids must be whole microseconds to be saved; got Timestamp"):
        model.save(tmp_path / "it")


def test_an_id_that_cannot_be_written_says_so(tmp_path):
    frame = renamed(two_channels(), [datetime.timedelta(days=day) for day in range(3)])
    model = quick_fit(frame, **COLUMNS)
    with pytest.raises(ValueError, match="ids must be text, numbers or dates to be saved"):
        model.save(tmp_path / "it")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_a_full_disk_leaves_the_old_file_and_nothing_else(step, fitted, saved, tmp_path, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    path = tmp_path / "it"
    path.write_bytes(b"old")
    monkeypatch.setattr(os, step, full)
    with pytest.raises(OSError, match="No space left"):
        fitted.save(path)
    assert list(tmp_path.iterdir()) == [path]
    assert path.read_bytes() == b"old"


def test_a_folder_that_is_not_there_is_named(fitted, tmp_path):
    with pytest.raises(
        FileNotFoundError, match=r"no such folder to write to; nothing was written.*it.stochflow"
    ):
        fitted.save(tmp_path / "nowhere" / "it.stochflow")


def test_a_generator_is_not_kept(fitted, tmp_path):
    fitted.random_state, before = np.random.default_rng(0), fitted.random_state
    try:
        fitted.save(tmp_path / "it")
    finally:
        fitted.random_state = before
    assert Forecaster.load(tmp_path / "it").random_state is None


def test_what_was_not_fitted_is_not_saved(tmp_path):
    with pytest.raises(NotFittedError, match="there is nothing to save"):
        Forecaster().save(tmp_path / "it")


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    """The manifest and the weights of a good file."""
    folder = tmp_path_factory.mktemp("good")
    quick_fit(two_channels(), Forecaster(depth=2, progress=False), **COLUMNS).save(folder / "it")
    Forecaster.load(folder / "it")  # whatever is done once a process is not counted
    with zipfile.ZipFile(folder / "it") as archive:
        return peek(folder / "it"), archive.read("weights.safetensors")


def test_the_corpus_starts_from_a_good_file(good, tmp_path):
    (tmp_path / "it").write_bytes(signed(*good))
    Forecaster.load(tmp_path / "it")


@pytest.mark.parametrize("name", DAMAGE)
def test_a_hostile_file_is_refused(name, good, tmp_path):
    path = tmp_path / "it"
    path.write_bytes(DAMAGE[name](*good))
    refuse(path, Forecaster.load)


def test_a_channel_that_is_never_scored_keeps_no_card_from_being_saved(tmp_path):
    frame = ou_frame(8, series=2)
    first = frame.groupby("unique_id").cumcount() == 0
    frame["z"] = np.where(first, frame["y"], np.nan)  # before the first row there is nothing to forecast from
    model = Forecaster(kind="latent", steps=1, progress=False).fit(frame, values=["y", "z"])
    assert list(model.card_["in_sample"]["coverage_of_90"]) == ["y"]
    model.save(tmp_path / "it")
    again = Forecaster.load(tmp_path / "it")
    assert again.card_ == model.card_
    assert again.predict(horizon=1.0, samples=3).equals(model.predict(horizon=1.0, samples=3))


def test_each_loader_says_what_the_other_reads(saved, tmp_path):
    with pytest.raises(ModelFileError, match="it holds 'forecaster'"):
        load(saved)
    save(tmp_path / "law", models.LAWS["1 dim"])
    with pytest.raises(
        ModelFileError, match=r"holds no forecaster but .*: read it with `stochflow\.io\.load`"
    ):
        Forecaster.load(tmp_path / "law")
    with pytest.raises(ModelFileError, match="there is no 'none'"):
        Forecaster.load(tmp_path / "none")


def as_ids(text):
    return np.frombuffer(text.encode(), np.uint8).astype(np.int32)


def named(**columns):
    return lambda m, t: m["columns"].update(columns)


def with_param(**params):
    return lambda m, t: m["params"].update(params)


DAMAGED = {
    "a covariate ahead of which the model knows none": named(future=["a"]),
    "a covariate of which the model knows none": named(past=["a"]),
    "a static covariate of which the model knows none": named(static=["a"]),
    "several series without a column of ids": named(id=None),
    "a column of values twice": lambda m, t: (named(values=["x", "x"])(m, t), m.update(names=["x", "x"])),
    "a time that is a value": named(time="x"),
    "a channel twice": lambda m, t: (
        named(values=["v"], channel="c")(m, t),
        m.update(names=["x", "x"]),
    ),
    "a channel that is a number": lambda m, t: m.update(names=["price", 3]),
    "no series": lambda m, t: t.update({"past.ids": as_ids("[]")}),
    "a card of another kind": lambda m, t: m["card"].update(kind="latent"),
    "a gap next to nothing": lambda m, t: m.update(gap=1e-300),
    "a usual gap next to nothing": lambda m, t: m.update(usual_gap=1e-300),
    "a horizon without end": lambda m, t: m.update(horizon=1e300),
    "a spread that single precision does not know": lambda m, t: t.update(
        {"past.spread": 0 * t["past.spread"] + 1e-300}
    ),
    "a state that single precision does not know": lambda m, t: t.update(
        {"past.known": t["past.known"], "past.memory.x": t["past.memory.x"] + np.float64(1e300)}
    ),
    "a support that is a fruit": with_param(support={"price": "banana"}),
    "a support that is a number": with_param(support=3),
    "a support with three ends": with_param(support={"price": [0, 1, 2]}),
    "a longest gap that is a list": with_param(horizon=[1]),
    "a longest gap in no unit": with_param(horizon="3 moons"),
    "half a step": with_param(steps=0.5),
    "more steps than can be counted": with_param(steps=10**15),
    "a network of another size than any": with_param(width=10**9),
    "an array too many": lambda m, t: t.update({"past.secret": np.zeros(3)}),
    "a name too many": lambda m, t: m.update(secret=3),
    "no columns": lambda m, t: m.pop("columns"),
    "a column too many": lambda m, t: m["names"].append("z"),
    "a stranger among the parameters": lambda m, t: m["params"].update(colour="red"),
    "a parameter that a terminal obeys": lambda m, t: m["params"].update({"\x1b]0;title\x07\ud800": 1}),
    "a kind that is none": lambda m, t: m["params"].update(kind="psychic"),
    "times of no kind": lambda m, t: m["axis"].update(kind="moon"),
    "frames of no kind": lambda m, t: m.update(frame="os"),
    "a horizon of nothing": lambda m, t: m.update(horizon=0.0),
    "a horizon in words": lambda m, t: m.update(horizon="1d"),
    "a gap of nothing": lambda m, t: m.update(gap=0.0),
    "a gap in words": lambda m, t: m.update(gap="1"),
    "a zone on another planet": lambda m, t: m["axis"].update(zone="Mars/Olympus"),
    "a zone that is a number": lambda m, t: m["axis"].update(zone=3),
    "a column that is a number": lambda m, t: m["columns"].update(time=3),
    "a seed below zero": lambda m, t: m["params"].update(random_state=-1),
    "a last time beyond all calendars": lambda m, t: t.update({"past.last": 0 * t["past.last"] + 1e300}),
    "a size below zero": lambda m, t: t.update({"past.memory.size": -abs(t["past.memory.size"]) - 1}),
    "variances below zero": lambda m, t: t.update(
        {"past.memory.variances": -abs(t["past.memory.variances"]) - 1}
    ),
    "a usual gap below zero": lambda m, t: m.update(usual_gap=-1.0),
    "covariates that are not there": lambda m, t: m.update(ahead=3),
    "half a covariate": lambda m, t: m.update(ahead=0.5),
    "a law of another size": lambda m, t: t.update({"history.centre": t["history.centre"][:-1]}),
    "a scale of zero": lambda m, t: t.update({"units.scale": 0 * t["units.scale"]}),
    "a last time that is none": lambda m, t: t.update({"past.last": t["past.last"][:-1]}),
    "a memory of another shape": lambda m, t: t.update({"past.memory.means": t["past.memory.x"]}),
    "widths at another number of gaps": lambda m, t: t.update({"past.wider": np.ones((3, 9, 1))}),
    "a memory that is missing": lambda m, t: t.pop("past.memory.size"),
    "ids that are no JSON": lambda m, t: t.update({"past.ids": as_ids("[1, ")}),
    "ids in a deep nest": lambda m, t: t.update({"past.ids": as_ids("[" * 50_000)}),
    "ids that are lists": lambda m, t: t.update({"past.ids": as_ids(json.dumps([[1]] * 3))}),
    "an id too few": lambda m, t: t.update({"past.ids": as_ids('["a", "b"]')}),
    "an id of 4,000 digits": lambda m, t: t.update({"past.ids": as_ids(f"[1, 2, {'9' * 4000}]")}),
    "an id that is no number": lambda m, t: t.update({"past.ids": as_ids("[1.0, 2.0, NaN]")}),
    "an id that cannot be written": lambda m, t: t.update({"past.ids": as_ids(r'["a", "b", "\ud800"]')}),
    "an id of a strange kind": lambda m, t: t.update({"past.ids": as_ids(json.dumps([{"eval": "1"}] * 3))}),
}


def unsigned(path):
    """What is in a file, to be changed and signed anew."""
    manifest, tensors = read_archive(path)
    for name in ("format", "format_version", "stochflow", "weights"):
        manifest.pop(name, None)
    return manifest, dict(tensors)


@pytest.mark.parametrize("damage", DAMAGED.values(), ids=DAMAGED.keys())
def test_a_file_that_is_signed_but_wrong_is_refused(damage, saved, tmp_path):
    manifest, tensors = unsigned(saved)
    damage(manifest, tensors)
    write_archive(tmp_path / "it", manifest, tensors)
    with pytest.raises(
        ModelFileError, match=r"does not hold a whole forecaster .*; save the model anew"
    ) as caught:
        Forecaster.load(tmp_path / "it")
    assert len(str(caught.value)) < 800
    assert str(caught.value).isprintable()


def test_a_series_that_stood_still_for_ever_comes_back(saved, tmp_path):
    manifest, tensors = unsigned(saved)
    tensors["past.memory.size"] = 0 * tensors["past.memory.size"]  # where a memory that fades ends
    write_archive(tmp_path / "it", manifest, tensors)
    assert np.isfinite(Forecaster.load(tmp_path / "it").predict(**ASK)[["price", "x"]]).all(axis=None)


@pytest.mark.parametrize(
    "params", [{"support": {"x": "banana"}}, {"horizon": [1]}, {"steps": 0}, {"width": 10**9}], ids=str
)
def test_parameters_that_could_not_be_read_are_not_written(params, fitted, tmp_path):
    before = fitted.get_params()
    try:
        with pytest.raises(ValueError, match=f"`{next(iter(params))}` must be"):
            fitted.set_params(**params).save(tmp_path / "it")
    finally:
        fitted.set_params(**before)
    assert not list(tmp_path.iterdir())


def with_number(name, number):
    return lambda t, of: t.update(
        {of + name: np.where(t[of + name] == t[of + name].max(), number, t[of + name])}
    )


SENSELESS = {
    "trust without end": with_number("trust", 3e38),
    "a pull without end": with_number("pull", -3e38),
    "a witness without end": with_number("witness", 3e38),
    "a gap without end": with_number("log_gaps", 3e38),
    "a level without end": with_number("level", -3e38),
    "noise without end": with_number("noise", 3e38),
    "a spread without end": with_number("spread", 3e38),
    "gaps that do not rise": lambda t, of: t.update({of + "log_gaps": t[of + "log_gaps"][::-1].copy()}),
    "a spread below zero": lambda t, of: t.update({of + "spread": -t[of + "spread"]}),
    "one spread of zero": lambda t, of: t.update({of + "spread": t[of + "spread"] * (np.arange(2) > 0)}),
    "no share": lambda t, of: t.update({of + "share": 0 * t[of + "share"]}),
    "a share above one": lambda t, of: t.update({of + "share": 1 + t[of + "share"]}),
    "a rate below zero": lambda t, of: t.update({of + "rate": t[of + "rate"] - 5}),
    "noise below zero": lambda t, of: t.update({of + "noise": -t[of + "noise"]}),
}


@pytest.mark.parametrize("damage", SENSELESS.values(), ids=SENSELESS.keys())
def test_a_correction_that_means_nothing_is_refused(damage, tmp_path):
    path = Path(__file__).parent.parent / "io" / "files" / "format2-forecaster.stochflow"
    manifest, tensors = unsigned(path)
    write_archive(tmp_path / "whole", manifest, tensors)
    Forecaster.load(tmp_path / "whole")
    damage(tensors, "model.law.correction.")
    write_archive(tmp_path / "it", manifest, tensors)
    with pytest.raises(ModelFileError, match=r"must lie between|must rise") as caught:
        Forecaster.load(tmp_path / "it")
    assert repr(str(tmp_path / "it")) in str(caught.value)
