"""A file whose card or numbers no fit can have written is refused before it forecasts NaN."""

import numpy as np
import pytest

from stochflow import Forecaster
from stochflow.io import ModelFileError, write_archive

from .test_files import as_ids, unsigned
from .worlds import ou_frame, quick_fit

ASK = {"horizon": 1.0, "samples": 3}


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A forecaster of a positive channel, with a covariate."""
    frame = ou_frame(60, series=2).assign(w=lambda rows: np.cos(rows["ds"]))
    frame["y"] = np.exp(frame["y"])
    path = tmp_path_factory.mktemp("saved") / "it"
    quick_fit(frame, Forecaster(support={"y": "positive"}, progress=False), past=["w"]).save(path)
    return path


def loaded(manifest, tensors, folder):
    write_archive(folder / "it", manifest, tensors)
    return Forecaster.load(folder / "it")


def refused(manifest, tensors, folder, words):
    with pytest.raises(ModelFileError, match=words) as caught:
        loaded(manifest, tensors, folder)
    said = str(caught.value)
    assert repr(str(folder / "it")) in said
    assert said.isprintable()
    assert len(said) < 800


ROW = {"gap": "1d", "pairs": 3, "coverage_of_90": {"y": 0.9}, "relative_crps": {"y": 1.0}}
CARDS = {
    "of one word": lambda card: {"held_out": 1},
    "of one list": lambda card: {"channels": [1]},
    "a list": lambda card: [card],
    "none": lambda card: None,
    "of other channels": lambda card: {**card, "channels": ["z"]},
    "without rows": lambda card: {name: value for name, value in card.items() if name != "rows"},
    "rows below none": lambda card: {**card, "rows": -1},
    "rows that are true": lambda card: {**card, "rows": True},
    "a reason that is a number": lambda card: {**card, "why": 3},
    "seconds in words": lambda card: {**card, "training_seconds": "9"},
    "steps of no channel": lambda card: {**card, "two_steps_for_one": {}},
    "steps half told": lambda card: {**card, "two_steps_for_one": {"y": {"moved": 0.1}}},
    "a row that is a word": lambda card: {**card, "held_out": ["gap"]},
    "a row half told": lambda card: {**card, "held_out": [{"gap": "1d", "pairs": 3}]},
    "a row of another channel": lambda card: {**card, "held_out": [{**ROW, "coverage_of_90": {"z": 0.9}}]},
    "a row of half a pair": lambda card: {**card, "held_out": [{**ROW, "pairs": 0.5}]},
    "effects in words": lambda card: {**card, "at_once": {"y": {"w": "much"}}},
    "a sample that is a list": lambda card: {**card, "in_sample": [1]},
    "a sample of another channel": lambda card: {
        **card,
        "in_sample": {"rows": 1, "coverage_of_90": {"z": 1.0}},
    },
    "a strange entry that is no word": lambda card: {**card, "note": {"a": 1}},
}


@pytest.mark.parametrize("change", CARDS.values(), ids=CARDS.keys())
def test_a_card_that_is_none_is_refused(change, saved, tmp_path):
    manifest, tensors = unsigned(saved)
    manifest["card"] = change(manifest["card"])
    refused(manifest, tensors, tmp_path, r"its card (is not what a fit writes|must be a dict); got")


def test_a_card_that_says_all_that_it_can_is_read(saved, tmp_path):
    manifest, tensors = unsigned(saved)
    more = {"held_out": [ROW, ROW], "at_once": {"y": {"w": 2}}, "doubt": "some", "note": "mine", "best": True}
    more |= {"in_sample": {"rows": 0, "coverage_of_90": {}}}
    manifest["card"] |= more
    assert loaded(manifest, tensors, tmp_path).card_ == manifest["card"]


def test_what_could_not_be_read_is_not_written(saved, tmp_path):
    model = Forecaster.load(saved)
    model.fitted_.card["held_out"] = 1
    with pytest.raises(ValueError, match="'held_out' of its card is not what a fit writes; got 1"):
        model.save(tmp_path / "it")
    model = Forecaster.load(saved)
    model.past_ = model.past_._replace(known=np.full_like(model.past_.known, 1e15))
    with pytest.raises(
        ValueError, match=r"within 1e\+06 standard deviations of the mean; got one 1e\+15 away"
    ):
        model.save(tmp_path / "it")
    assert not list(tmp_path.iterdir())


RATE, SCALE = "model.law.law.clock.raw_rate", "model.support.scale"
NUMBERS = {
    "a covariate without end": ("past.known", 1e15, "'known' must be of covariates within"),
    "a covariate without end below": ("past.known", -1e15, "'known' must be of covariates within"),
    "a rate without end": (RATE, 3e38, f"'{RATE[6:]}' must lie between"),
    "a rate of nothing": (RATE, -1e15, f"'{RATE[6:]}' must lie between"),
    "a rate that is lost in rounding": (RATE, -100.0, f"'{RATE[6:]}' must lie between"),
    "a half-line of no scale": (SCALE, 1e-45, f"'{SCALE[6:]}' must be positive, at least 1e-30"),
    "a law of no usual size": ("model.law.usual", 1e-45, "'law.usual' must be positive, at least 1e-30"),
    "units of no scale": ("units.scale", 1e-45, "'scale' must be positive, from"),
}


@pytest.mark.parametrize(("name", "number", "words"), NUMBERS.values(), ids=NUMBERS.keys())
def test_a_number_that_no_model_has_is_refused(name, number, words, saved, tmp_path):
    manifest, tensors = unsigned(saved)
    tensors[name] = np.full_like(tensors[name], number)
    refused(manifest, tensors, tmp_path, words)


@pytest.mark.parametrize(("name", "number"), [(RATE, -34.0), (RATE, 9e14), (SCALE, 1e-30)])
def test_the_last_numbers_that_are_read_forecast_some(name, number, saved, tmp_path):
    manifest, tensors = unsigned(saved)
    tensors[name] = np.full_like(tensors[name], number)
    assert np.isfinite(loaded(manifest, tensors, tmp_path).predict(**ASK)["y"]).all()


@pytest.mark.parametrize("ids", ["[1e999, 2.0]", "[-1e999, 2.0]", "[Infinity, 2.0]"])
def test_an_id_without_end_is_refused(ids, saved, tmp_path):
    manifest, tensors = unsigned(saved)
    refused(
        manifest, {**tensors, "past.ids": as_ids(ids)}, tmp_path, "an id must be text, a number or a date"
    )


def test_an_id_without_end_is_not_written(tmp_path):
    frame = ou_frame(20, series=2)
    frame["unique_id"] = np.where(frame["unique_id"] == "s0", np.inf, 2.0)
    with pytest.raises(ValueError, match="ids must be text, numbers or dates to be saved; got inf"):
        quick_fit(frame).save(tmp_path / "it")
