"""The commands that distil: what they load, and what they refuse."""

import json
import re
import sys

import jax.numpy as jnp
import pytest
from typer.testing import CliRunner

import stochflow
from stochflow.cli.distill import load_sde
from stochflow.cli.main import app
from stochflow.experiments.distill import _divisor

from .test_cli import _run

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
starts = jnp.zeros((4, 1))
"""
MAKERS = """
from stochflow import SDE

def of_rate(rate, *others, level, more=1, **rest): ...
def broken(): return {}["rate"]
def silent(): raise RuntimeError
def wrong(): return SDE.autonomous(lambda x: x, lambda x: x, "1")
def noisy(): return SDE.autonomous(lambda x: -x, lambda x: size * x, 1)
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
    law = stochflow.io.load(printed["law"])
    assert law.horizon == 1.0
    assert jnp.isfinite(law.log_prob(jnp.zeros(1), jnp.ones(1), 0.0, 1.0))


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("nowhere.py:sde", "there is no file 'nowhere.py'"),
        ("nowhere.py", "give a file and a name in it"),
        ("{model}:number", "must be an SDE"),
        ("{model}:nothing", "there is no 'nothing' in"),
        ("{broken}:sde", "cannot be run (SyntaxError: "),
    ],
)
def test_what_is_no_sde_is_refused(model, source, message, tmp_path):
    (tmp_path / "broken.py").write_text("sde = (")
    source = source.format(model=model, broken=tmp_path / "broken.py")
    result = run("distill", source, "--low", "-1", "--high", "1", "--horizon", "1")
    assert result.exit_code == 2
    assert message in " ".join(result.output.replace("│", " ").split())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ([], "say where paths start: --low and --high, or --starts"),
        (["--starts", "{model}:starts", "--low", "0"], "--starts takes the place of --low and --high"),
        (["--low", "-1", "--high", "1", "--positive", "7"], "there is no coordinate 7; they are 0 to 0"),
        (["--low", "-1", "--high", "1", "--between", "0:x"], "--between must be like '0:-2:2'"),
        (["--low", "1", "--high", "1"], "--low must be below --high, number by number; got '1' and '1'"),
        (["--horizon", "-1"], "--horizon must be positive and finite; got -1"),
        (["--horizon", "nan"], "--horizon must be positive and finite; got nan"),
    ],
)
def test_starts_and_bounds_that_cannot_be_are_refused(model, options, message, tmp_path):
    options = [option.format(model=model) for option in options]
    result = run("distill", f"{model}:sde", "--horizon", "1", *options)
    assert result.exit_code == 2
    assert message in " ".join(result.output.replace("│", " ").split())


@pytest.mark.parametrize(
    ("drift", "message"),
    [
        ("lambda t, x: -x", r"'sde' in .*a_drift.py: `drift` failed at a state of shape \(1,\): TypeError"),
        ("lambda t, x, u: np.sin(x)", "`drift` failed at .*Tracer.*; write it with `jax.numpy`"),
        (
            "lambda t, x, u: -rate * x",
            r"`drift` failed at .* \(1,\): NameError: name 'rate' is not defined.$",
        ),
        ("lambda t, x, u: {}['rate'] * x", "'sde' in .*a_drift.py: `drift` failed at .*: KeyError: 'rate'.$"),
        ("lambda t, x, u: [-x[0]]", "`drift` must return an array, as `jnp.stack` makes one; got list.$"),
    ],
)
def test_a_drift_that_cannot_be_called_says_so(drift, message, tmp_path):
    path = tmp_path / "a_drift.py"
    path.write_text(
        f"import numpy as np\nfrom stochflow import SDE\nsde = SDE({drift}, lambda t, x, u: 0 * x + 1, 1)"
    )
    box = ["--low", "-1", "--high", "1", "--horizon", "1", "--out", tmp_path / "run"]
    result = run("distill", f"{path}:sde", *box)
    assert isinstance(result.exception, ValueError)
    assert re.search(message, str(result.exception))
    assert "\n" not in str(result.exception)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (
            "of_rate",
            "must be an SDE, or a function without arguments that returns one; it needs rate, level.",
        ),
        ("broken", "failed when it was called: KeyError: 'rate'."),
        ("silent", "failed when it was called: RuntimeError."),
        ("wrong", "failed when it was called: ValueError: `dim` must be a positive integer; got '1'."),
        ("noisy", "`diffusion` failed at a state of shape (1,): NameError: name 'size' is not defined."),
    ],
)
def test_a_function_that_makes_no_sde_is_named_with_its_file(
    name, message, tmp_path, monkeypatch, capsys, as_users_have_it
):
    path = tmp_path / "makers.py"
    path.write_text(MAKERS)
    box = ["--low", "-1", "--high", "1", "--horizon", "1", "--out", tmp_path / "run"]
    assert _run(monkeypatch, "distill", f"{path}:{name}", *box) == 1
    said = capsys.readouterr().err
    assert said.startswith(f"error: {name!r} in {path}")
    assert said.endswith(f"{message}\n")
    assert said.count("\n") == 1


def test_a_file_may_import_what_is_beside_it_and_be_called_as_it_likes(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "beside_it.py").write_text("RATE = 2.0\n")
    path = tmp_path / "stochflow.py"
    path.write_text(
        "from beside_it import RATE\nfrom stochflow import SDE\n"
        "sde = SDE.autonomous(lambda x: -RATE * x, lambda x: 1 + 0 * x, 1)\n"
    )
    loaded = load_sde(f"{path}:sde")
    assert loaded.drift(0.0, jnp.ones(1), None) == -2.0
    assert sys.modules["stochflow"] is stochflow


@pytest.mark.parametrize(("steps", "most", "expected"), [(300, 250, 150), (41, 250, 41), (20_000, 250, 250)])
def test_fewer_steps_of_an_example_are_reported_in_equal_parts(steps, most, expected):
    assert _divisor(steps, most) == expected


def test_an_example_that_there_is_not_is_refused():
    result = run("reproduce", "distill", "--only", "weather")
    assert result.exit_code == 2
    assert "the examples are heston" in " ".join(result.output.replace("│", " ").split())
