"""The commands of the page on the command line, in their order."""

import re
import shlex
import sys
from pathlib import Path

import pandas as pd
import pytest

import stochflow

from ..cli.test_cli import _run
from .test_fifteen_lines import write_levels

HOW_TO = Path(__file__).parent.parent.parent / "docs" / "how-to"
# What is learnt is not what is tested here.
QUICK = {
    "fit": ["--steps", "20", "--folds", "0"],
    "evaluate": ["--steps", "20", "--folds", "0"],
    "distill": [
        "--steps", "20", "--log-every", "10", "--batch-size", "32", "--paths", "256", "--rows", "8", "--dt", "0.0625",
        "--width", "4", "--layers", "0", "--coupling", "affine",
    ],
}  # fmt: skip


def run_page(name, monkeypatch):
    """Every line of the page's block of commands, in turn."""
    block = re.search(r"```bash\n(.*?)```", (HOW_TO / name).read_text(), re.S)
    assert block is not None
    lines = block[1].splitlines()
    for line in lines:
        _, command, *args = shlex.split(line)
        assert _run(monkeypatch, command, *args, *QUICK.get(command, [])) == 0, line
    return len(lines)


@pytest.mark.docs
def test_an_sde_is_distilled_by_the_commands_of_its_page(tmp_path, monkeypatch, capsys):
    (tmp_path / "model.py").write_text("import stochflow\n\nsde = stochflow.sde.heston()\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    assert run_page("distill.md", monkeypatch) == 2
    assert "break-even" in capsys.readouterr().out
    assert stochflow.load_model("runs/heston/law.stochflow").dim == 2


@pytest.mark.docs
def test_they_run(tmp_path, monkeypatch, capsys):
    write_levels(tmp_path / "levels.csv")
    monkeypatch.chdir(tmp_path)
    assert run_page("command-line.md", monkeypatch) > 4
    capsys.readouterr()
    assert len(pd.read_csv("forecast.csv")) == 2 * 12
    assert pd.read_parquet("filled.parquet")["level"].notna().all()
