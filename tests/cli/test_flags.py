"""Flags say what the docstrings of the configs say."""

import dataclasses

import pytest
from typer.testing import CliRunner

from stochflow import DistillConfig, Forecaster
from stochflow.cli import app
from stochflow.cli.flags import explanations
from stochflow.experiments.lorenz import LorenzSetting
from stochflow.experiments.missing import MissingSetting
from stochflow.experiments.mocap import MocapSetting
from stochflow.forecasting import ForecasterConfig
from stochflow.training.config import FitConfig, LatentConfig, RunConfig


class Example:
    """An example.

    - `one`, `two`: how many, as in [`fit`][stochflow.fit], in [0, 1] and
        on two lines. More of it.
    - `three`: another.

    And `four`: no entry.
    """


def test_an_entry_is_its_first_sentence_without_links():
    found = explanations([Example])
    assert found == {
        "one": "How many, as in `fit`, in [0, 1] and on two lines.",
        "two": "How many, as in `fit`, in [0, 1] and on two lines.",
        "three": "Another.",
    }


@pytest.mark.parametrize(
    "classes",
    [
        (LorenzSetting, FitConfig, RunConfig),
        (MissingSetting, FitConfig, RunConfig),
        (MocapSetting, LatentConfig, RunConfig),
        (ForecasterConfig, Forecaster),
        (DistillConfig,),
    ],
    ids=lambda classes: classes[0].__name__,
)
def test_every_setting_is_explained(classes):
    names = {field.name for field in dataclasses.fields(classes[0])}
    assert not names - set(explanations(classes))


def test_help_shows_the_words():
    said = CliRunner().invoke(app, ["distill", "--help"], env={"COLUMNS": "200"}).output
    assert "The share of pairs that start where the paths do." in " ".join(said.split())
