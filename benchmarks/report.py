"""What a benchmark returns, and how it is shown and stored."""

import json
import os
import platform
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax
import numpy as np
from rich.console import Console
from rich.table import Table

from stochflow.metrics import Timing


class Effort(NamedTuple):
    """How long to measure: `repeats` turns of at least `min_time` seconds a callable, and the batch sizes."""

    repeats: int
    min_time: float
    batches: tuple[int, ...]
    many: int
    solver_batches: tuple[int, ...]


FULL = Effort(40, 0.02, (1, 100, 10_000), 1_000_000, (100, 10_000))
QUICK = Effort(3, 0.002, (1, 100), 5_000, (20,))


class Section(NamedTuple):
    """A table: a dictionary of columns for each row's name, and the numbers that the summary needs."""

    title: str
    rows: dict[str, dict[str, Any]]
    key_figures: dict[str, float]


class Target(NamedTuple):
    """A number to reach. `key` is that of a section's key figure; `at_least` says which side is good."""

    key: str
    what: str
    limit: float
    at_least: bool = False

    def met(self, value: float) -> bool:
        return value >= self.limit if self.at_least else value <= self.limit


def times(timings: Mapping[str, Timing], per: float = 1.0) -> dict[str, dict[str, Any]]:
    """Rows of minimum and median, in milliseconds, divided by `per`."""
    return {
        name: {"min ms": 1e3 * timing.min / per, "median ms": 1e3 * timing.median / per}
        for name, timing in timings.items()
    }


def machine() -> dict[str, Any]:
    """What the numbers were measured on, and how busy it was."""
    return {
        "cores": os.cpu_count(),
        "processor": platform.machine(),
        "python": platform.python_version(),
        "jax": jax.__version__,
        "equinox": eqx.__version__,
        "numpy": np.__version__,
        "backend": jax.default_backend(),
        "load_average": [round(load, 2) for load in os.getloadavg()],
    }


def summarise(targets: list[Target], sections: list[Section]) -> list[dict[str, Any]]:
    """Each target beside what was reached."""
    figures = {key: value for section in sections for key, value in section.key_figures.items()}
    return [
        {
            "figure": target.what,
            "target": f"{'≥' if target.at_least else '≤'} {target.limit:g}",
            "reached": figures[target.key],
            "met": target.met(figures[target.key]),
        }
        for target in targets
        if target.key in figures
    ]


def show(console: Console, title: str, rows: dict[str, dict[str, Any]]) -> None:
    columns = list(dict.fromkeys(column for row in rows.values() for column in row))
    table = Table(title=title, title_justify="left")
    table.add_column("", no_wrap=True)
    for column in columns:
        table.add_column(column, justify="right")
    for name, row in rows.items():
        table.add_row(name, *[_text(row.get(column)) for column in columns])
    console.print(table)


def write(path: Path, sections: list[Section], summary: list[dict[str, Any]], about: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    content = {
        "machine": about,
        "sections": {section.title: section.rows for section in sections},
        "summary": summary,
    }
    path.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n")


def _text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:,.4g}" if isinstance(value, float) else str(value)
