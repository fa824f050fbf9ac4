"""The README's promise: a CSV to a forecast plot in fifteen lines, which are the same wherever they are shown."""

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parent.parent.parent
LINES = 15
BLOCK = re.compile(
    r"<!-- --8<-- \[start:forecast\] -->\n```python[^\n]*\n(.*?)```\n<!-- --8<-- \[end:forecast\] -->", re.S
)
# Seconds: far more than it needs, so that a busy machine does not fail the test.
PATIENCE = 600


def fifteen_lines() -> str:
    found = BLOCK.search((ROOT / "README.md").read_text())
    assert found is not None, "the README has lost its fifteen lines"
    return found[1]


def write_levels(path: Path) -> None:
    rng = np.random.default_rng(0)
    rows = ["station,time,level"]
    for station in "AB":
        minutes = rng.integers(60, 660, 120).cumsum()
        levels = np.exp(0.1 * rng.normal(size=120).cumsum())
        moments = np.datetime64("2025-01-01T00:00") + minutes
        rows += [f"{station},{moment},{level:.4f}" for moment, level in zip(moments, levels)]
    path.write_text("\n".join(rows) + "\n")


def test_they_are_fifteen():
    assert sum(bool(line.strip()) for line in fifteen_lines().splitlines()) == LINES


def test_the_page_has_the_same_lines_and_the_home_page_includes_them():
    assert fifteen_lines() in (ROOT / "docs" / "forecast.md").read_text()
    assert '--8<-- "README.md:forecast"' in (ROOT / "docs" / "index.md").read_text()


@pytest.mark.docs
def test_they_run_from_a_csv_to_a_picture(tmp_path):
    write_levels(tmp_path / "levels.csv")
    (tmp_path / "fifteen.py").write_text(fifteen_lines())
    ran = subprocess.run(
        [sys.executable, "-W", "error::UserWarning:__main__", "fifteen.py"],
        check=False,
        cwd=tmp_path,
        env=os.environ | {"JAX_PLATFORMS": "cpu", "MPLBACKEND": "agg"},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert ran.returncode == 0, ran.stderr[-3000:]
    assert (tmp_path / "forecast.png").stat().st_size > 0
    assert (tmp_path / "levels.stochflow").stat().st_size > 0
