"""What is told of a table that can be read, but may not be what was meant."""

import warnings

import narwhals as nw
import numpy as np

from .frames import Columns, Panel

# Rows that are what the row before was, beyond which a channel is told of; and how many there must be to say so.
MOST_STAYING, ENOUGH_MOVES = 0.3, 20


def warn_of_unread_ids(frame: nw.DataFrame, columns: Columns) -> None:
    """Rows of several series that are read as one would be nonsense: say so if a column that is not read may tell them
    apart, by its name or as text that repeats."""
    if columns.id is not None:
        return
    read = {columns.time, columns.channel, *columns.values, *columns.static, *columns.past, *columns.future}
    for name in frame.columns:
        if name in read:
            continue
        text = frame[name].dtype in (nw.String, nw.Categorical, nw.Enum, nw.Object)
        if (text or name.lower() == "id") and 1 < frame[name].n_unique() < len(frame):
            warnings.warn(
                f"column {name!r} is not read, and all rows are taken for one series: if it tells series apart, pass "
                f"`id={name!r}`, and drop it if not.",
                stacklevel=4,
            )


def warn_of_still(panel: Panel, columns: Columns) -> None:
    """Of a covariate that is the same in all rows nothing can be learnt: say that it counts for nothing."""
    parts = (
        (columns.static, panel.static),
        (columns.past, np.concatenate(panel.past)),
        (columns.future, np.concatenate(panel.future)),
    )
    for names, rows in parts:
        for name, column in zip(names, rows.T, strict=True):
            if np.ptp(column) == 0:
                warnings.warn(
                    f"column {name!r} is {column[0]:g} in all rows: what it does cannot be learnt, and it does not "
                    "count.",
                    stacklevel=4,
                )


def warn_of_staying(panel: Panel, names: tuple[str, ...]) -> None:
    """A density cannot hold a value that comes back exactly: say so of a channel that mostly stays where it was."""
    moves = np.concatenate([np.diff(x, axis=0) for x in panel.values])
    seen = ~np.isnan(moves)
    share = ((moves == 0) & seen).sum(axis=0) / np.maximum(seen.sum(axis=0), 1)
    for name, stays, number in zip(names, share, seen.sum(axis=0), strict=True):
        if stays > MOST_STAYING and number >= ENOUGH_MOVES:
            warnings.warn(
                f"column {name!r} is what it was the row before in {stays:.0%} of the rows: a density cannot hold a "
                "value that comes back exactly, and intervals may leave it out; back-test before you rely on them, or "
                "sum up over longer times.",
                stacklevel=4,
            )
