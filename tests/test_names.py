"""The public names: there when they are asked for, and what type checkers are told is what there is."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import stochflow

ROOT = Path(stochflow.__file__).parent


def told() -> dict[str, tuple[str, str]]:
    """What type checkers are told: each name, with the module it is from and its name there."""
    tree = ast.parse((ROOT / "__init__.py").read_text())
    block = next(node for node in tree.body if isinstance(node, ast.If))
    return {
        alias.asname or alias.name: (node.module or "", alias.name)
        for node in ast.walk(block)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }


@pytest.mark.parametrize(("name", "home"), told().items())
def test_a_name_is_what_type_checkers_are_told(name, home):
    room, there = home
    module = __import__(f"stochflow.{room or there}", fromlist=["_"])
    assert getattr(stochflow, name) is (getattr(module, there) if room else module)


def test_all_names_are_listed():
    names = told()
    assert set(stochflow.__all__) == {name for name, (room, _) in names.items() if room}
    rooms = {path.parent.name for path in ROOT.glob("*/__init__.py")}
    assert {name for name, (room, _) in names.items() if not room} == rooms - {"cli"}
    assert set(names) <= set(dir(stochflow))


def test_a_name_that_is_not_there():
    name = "nowhere"
    with pytest.raises(AttributeError, match="no attribute 'nowhere'"):
        getattr(stochflow, name)


def test_nothing_is_imported_before_it_is_asked_for():
    code = (
        "import stochflow, sys; assert 'jax' not in sys.modules; stochflow.laws; assert 'jax' in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
