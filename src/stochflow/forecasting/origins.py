"""Where forecasts that can be checked start, and where they end."""

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from .frames import Panel

# A row stands for a gap if it comes no later after its start than this many times the gap, and the usual gap.
LATEST = 1.1


class Origins(NamedTuple):
    """Forecasts that can be checked: of which series, from which row, of which later row."""

    series: np.ndarray
    start: np.ndarray
    end: np.ndarray


def find_origins(
    panel: Panel,
    gap: float,
    usual: float,
    first: Sequence[int],
    last: Sequence[int],
    most: int,
    among: Sequence[np.ndarray] | None = None,
    *,
    partial: bool = False,
) -> Origins:
    """For each series at most `most` complete rows (rows with a value, if `partial`), evenly from `first` to `last`,
    with the first such row at least `gap` later, if it comes in time; both of them among some rows, where a series of
    truth values says which."""
    found = []
    for i in range(len(panel)):
        eligible = panel.seen(i, partial=partial)
        whole = np.flatnonzero(eligible if among is None else eligible & among[i])
        t = panel.times[i][whole]
        inside = np.flatnonzero((whole >= first[i]) & (whole < last[i]))
        if not len(inside):
            continue
        starts = np.unique(inside[np.linspace(0, len(inside) - 1, min(most, len(inside))).astype(int)])
        ends = np.maximum(np.searchsorted(t, at_least(t[starts], gap)), starts + 1)
        there = ends < len(t)
        starts, ends = starts[there], ends[there]
        near = t[ends] - t[starts] <= LATEST * gap + 2 * usual
        found.append((np.full(near.sum(), i), whole[starts[near]], whole[ends[near]]))
    if not found:
        return Origins(*[np.zeros(0, int)] * 3)
    return Origins(*(np.concatenate(each) for each in zip(*found, strict=True)))


def at_least(times: np.ndarray, gap: float) -> np.ndarray:
    """When a gap has passed since each time, or as near to it as rounding may bring a time that is meant to be then."""
    return times + gap * (1 - 1e-9) - 4 * np.spacing(np.abs(times))


def truncated(panel: Panel, origins: Origins) -> Panel:
    """A series for each origin: what was known of it then. Their ids say which."""
    names = [f"{panel.ids[i]}@{row}" for i, row in zip(origins.series, origins.start, strict=True)]
    return dataclasses.replace(panel.heads(origins.series, origins.start + 1), ids=names)
