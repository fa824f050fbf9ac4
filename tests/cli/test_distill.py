"""The commands that distil: what they load, and what they refuse."""

import json
import sys

import pytest
from typer.testing import CliRunner

from stochflow.cli.main import app

TINY = [
    "--steps", "20", "--log-every", "10", "--batch-size", "32", "--paths", "64", "--rows", "8", "--dt", "0.0625",
    "--width", "4", "--layers", "0", "--coupling", "affine",
]  # fmt: skip
MODEL = """
import jax.numpy as jnp
from stochflow import SDE

sde = SDE.autonomous(lambda x: -x, lambda x: 0.5 + 0 * x, 1, additive=True)
make = lambda: sde
number = 3
"""


@pytest.fixture
def model(tmp_path):
    path = tmp_path / "a_model.py"
    path.write_text(MODEL)
    yield path
    sys.modules.pop("a_model", None)


def run(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.mark.slow
def test_an_sde_of_a_file_is_distilled_and_compared(model, tmp_path):
    box = ["--low", "-1", "--high", "1", "--horizon", "1"]
    result = run("distill", f"{model}:make", *box, "--out", tmp_path / "run", "--json", *TINY)
    assert result.exit_code == 0, result.output
    printed = json.loads(result.stdout)
    assert printed["gaps"][-1]["gap"] == 1.0
    assert json.loads((tmp_path / "run" / "comparison.json").read_text())["samples"] == printed["samples"]


@pytest.mark.parametrize(
    ("source", "message"),
    [("nowhere.py:sde", "give a file and a name in it"), ("{model}:number", "must be an SDE")],
)
def test_what_is_no_sde_is_refused(model, source, message):
    source = source.format(model=model)
    result = run("distill", source, "--low", "-1", "--high", "1", "--horizon", "1")
    assert result.exit_code == 2
    assert message in " ".join(result.output.replace("│", " ").split())


def test_an_example_that_there_is_not_is_refused():
    result = run("reproduce", "distill", "--only", "weather")
    assert result.exit_code == 2
    assert "the examples are heston" in " ".join(result.output.replace("│", " ").split())
