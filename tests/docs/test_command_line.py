"""The commands of the page on the command line, in their order."""

import re
import shlex
from pathlib import Path

import pandas as pd
import pytest

from ..cli.test_cli import _run
from .test_fifteen_lines import write_levels

PAGE = Path(__file__).parent.parent.parent / "docs" / "how-to" / "command-line.md"
# What is learnt is not what is tested here.
QUICK = {"fit": ["--steps", "20", "--folds", "0"], "evaluate": ["--steps", "20", "--folds", "0"]}


@pytest.mark.docs
def test_they_run(tmp_path, monkeypatch, capsys):
    write_levels(tmp_path / "levels.csv")
    monkeypatch.chdir(tmp_path)
    block = re.search(r"```bash\n(.*?)```", PAGE.read_text(), re.S)
    assert block is not None
    lines = block[1].splitlines()
    assert len(lines) > 4
    for line in lines:
        _, command, *args = shlex.split(line)
        assert _run(monkeypatch, command, *args, *QUICK.get(command, [])) == 0, line
    capsys.readouterr()
    assert len(pd.read_csv("forecast.csv")) == 2 * 12
    assert pd.read_parquet("filled.parquet")["level"].notna().all()
