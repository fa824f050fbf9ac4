"""The rooms of the library stand in an order, and each may import only those that stand before it."""

import ast
from pathlib import Path
from typing import NamedTuple

import pytest

PACKAGE = "stochflow"
ROOT = Path(__file__).parent.parent / "src" / PACKAGE
ROOMS = (
    "laws",
    "sde",
    "flows",
    "latent",
    "objectives",
    "data",
    "training",
    "inference",
    "baselines",
    "metrics",
    "distillation",
    "io",
    "plots",
    "forecasting",
    "experiments",
    "cli",
)
SHORTEST_PARAGRAPH = 100  # characters: a title alone is not a paragraph


class Import(NamedTuple):
    """What a module imports from the package: a room, or "" for the package itself, and in which line."""

    room: str
    line: int


def imports(source: str, package: str) -> list[Import]:
    """Every import from our package in `source`, also those within functions, when it lies in `package`."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = _absolute(node, package)
            names = [f"{base}.{alias.name}" for alias in node.names] if base == PACKAGE else [base]
        else:
            continue
        found += [Import(_room(name), node.lineno) for name in names if name.split(".")[0] == PACKAGE]
    return found


def _absolute(node: ast.ImportFrom, package: str) -> str:
    """The dotted name of the module in `from … import`."""
    parents = package.split(".")
    kept = parents[: len(parents) - node.level + 1] if node.level else []
    return ".".join([*kept, *([node.module] if node.module else [])])


def _room(name: str) -> str:
    """The room of a dotted name of ours; "" if it is the package itself or one of its public names."""
    parts = name.split(".")
    return parts[1] if len(parts) > 1 and (parts[1] in ROOMS or (ROOT / parts[1]).is_dir()) else ""


def violations(source: str, package: str) -> list[str]:
    """A sentence for each import that `package` may not make."""
    own = package.split(".")[1]
    allowed = ROOMS[: ROOMS.index(own) + 1]
    sentences = []
    for room, line in imports(source, package):
        if room == "" and own != ROOMS[-1]:  # the command line is a user; for others the package is a circle
            sentences.append(f"line {line}: {own} imports the package itself instead of one of its rooms")
        elif room and room not in allowed:
            sentences.append(f"line {line}: {own} imports {room}, which does not stand before it")
    return sentences


def _modules() -> dict[str, Path]:
    return {str(path.relative_to(ROOT)): path for path in sorted(ROOT.glob("*/**/*.py"))}


def _rooms_there_are() -> list[str]:
    return sorted(path.name for path in ROOT.iterdir() if path.is_dir() and any(path.glob("**/*.py")))


@pytest.mark.parametrize("path", _modules().values(), ids=_modules().keys())
def test_a_module_imports_only_rooms_before_its_own(path):
    package = ".".join([PACKAGE, *path.relative_to(ROOT).parent.parts])
    assert violations(path.read_text(), package) == []


@pytest.mark.parametrize("room", _rooms_there_are())
def test_a_room_is_in_the_list_and_says_what_may_live_there(room):
    assert room in ROOMS, f"{room} has no place in the order of rooms"
    docstring = ast.get_docstring(ast.parse((ROOT / room / "__init__.py").read_text())) or ""
    paragraphs = [" ".join(paragraph.split()) for paragraph in docstring.split("\n\n")]
    longest = max(paragraphs, key=len)
    assert len(longest) >= SHORTEST_PARAGRAPH, f"{room}/__init__.py needs a paragraph; it has {longest!r}"


@pytest.mark.parametrize(
    ("source", "package"),
    [
        ("from ..training import fit", "stochflow.flows"),
        ("from .. import laws, training", "stochflow.flows"),
        ("from ...plots.style import figure", "stochflow.data.sets"),
        ("import stochflow.metrics as metrics", "stochflow.objectives"),
        ("from stochflow.data.pairs import Pairs", "stochflow.laws"),
        ("def late():\n    from ..cli import main", "stochflow.metrics"),
        ("if TYPE_CHECKING:\n    from ..data import Trajectories", "stochflow.sde"),
        ("import stochflow", "stochflow.inference"),
        ("from stochflow import fit", "stochflow.inference"),
        ("from .. import __version__", "stochflow.training"),
    ],
)
def test_a_made_up_violation_is_caught(source, package):
    assert len(violations(source, package)) == 1


@pytest.mark.parametrize(
    ("source", "package"),
    [
        ("import jax\nfrom collections import abc", "stochflow.laws"),
        ("from .base import AbstractTransition\nfrom . import gaps", "stochflow.laws"),
        ("from ..sde import lorenz\nfrom ..laws.base import AbstractBridge", "stochflow.data"),
        ("from ..objectives import one_to_two_gap", "stochflow.metrics"),
        ("from .. import __version__\nfrom stochflow import fit", "stochflow.cli"),
        ("from stochflow_extras import training", "stochflow.laws"),
    ],
)
def test_an_allowed_import_is_let_through(source, package):
    assert violations(source, package) == []
