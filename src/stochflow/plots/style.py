"""One look for all figures: colours for light and dark pages, and figures without global state.

The neutral colours (`INK`, `MUTED`, `FAINT`, `PAPER`) are the only ones that a page may swap for its own; the
data colours have a contrast of three or more on white and on near-black and stay apart for the colour-blind.
"""

import functools
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import matplotlib
import numpy as np
from cycler import cycler
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure

INK, MUTED, FAINT, PAPER = "#1f2328", "#6a737d", "#d9dde2", "#ffffff"
BLUE, ORANGE, GREEN, PURPLE, PINK, GREY = "#2f7fd1", "#d9702b", "#1d9a6c", "#9467c9", "#d1548f", "#868d96"
PALETTE = (BLUE, ORANGE, GREEN, PURPLE, PINK, GREY)
TRUTH, MODEL = GREY, BLUE  # what happened is grey; what a model says has colour
TIME = LinearSegmentedColormap.from_list("stochflow_time", [BLUE, PURPLE, PINK, ORANGE])
RASTER_DPI = 220  # of the heavy parts of a vector figure

RC: Any = {
    "figure.facecolor": PAPER,
    "figure.dpi": 110,
    "savefig.facecolor": PAPER,
    "axes.facecolor": "none",
    "axes.edgecolor": MUTED,
    "axes.labelcolor": INK,
    "axes.titlecolor": INK,
    "axes.titlesize": 10.5,
    "axes.titlepad": 8,
    "axes.labelsize": 9.5,
    "axes.linewidth": 0.8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.prop_cycle": cycler(color=PALETTE),
    "grid.color": FAINT,
    "grid.linewidth": 0.6,
    "text.color": INK,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "xtick.labelsize": 8.5,
    "ytick.labelsize": 8.5,
    "xtick.major.size": 3,
    "ytick.major.size": 3,
    "lines.linewidth": 1.6,
    "lines.markersize": 4.5,
    "legend.frameon": False,
    "legend.fontsize": 8.5,
    "font.size": 9.5,
}

P = ParamSpec("P")
R = TypeVar("R")


def styled(draw: Callable[P, R]) -> Callable[P, R]:
    """Draws under this style and leaves the settings of the caller as they were."""

    @functools.wraps(draw)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> R:
        with matplotlib.rc_context(RC):
            return draw(*args, **kwargs)

    return wrapped


@styled
def figure(
    rows: int = 1,
    columns: int = 1,
    *,
    size: tuple[float, float] = (4.2, 3.0),
    projection: str | None = None,
    **kwargs,
) -> list[Axes]:
    """New axes, row by row, on a figure that pyplot does not know of; `axes[0].figure` is the figure.

    `size` is that of one panel, in inches; further arguments are those of `Figure.subplots`.
    """
    canvas = Figure(figsize=(columns * size[0], rows * size[1]), layout="constrained")
    axes = canvas.subplots(rows, columns, squeeze=False, subplot_kw={"projection": projection}, **kwargs)
    return list(axes.ravel())


def panels(
    axes: Sequence[Axes] | np.ndarray | None, count: int, make: Callable[[], list[Axes]]
) -> list[Axes]:
    """The caller's axes, checked for their number, or new ones."""
    axes = make() if axes is None else list(np.ravel(np.asarray(axes, dtype=object)))
    if len(axes) != count:
        raise ValueError(f"`axes` must hold {count} axes; got {len(axes)}.")
    return axes


def legend_outside(ax: Axes, title: str | None = None) -> None:
    """A legend on the right of the axes, where it covers nothing."""
    ax.legend(loc="upper left", bbox_to_anchor=(1.01, 1.0), borderaxespad=0, title=title, alignment="left")


def figure_of(axes: Axes | Sequence[Axes]) -> Figure:
    """The figure that some axes stand on."""
    first = axes if isinstance(axes, Axes) else axes[0]
    found = first.get_figure(root=True)
    assert found is not None
    return found


def save(canvas: Figure, path: str | os.PathLike, *, dpi: int = 150) -> None:
    """Write a figure as a picture, whole or not at all."""
    path = Path(path)
    half = path.with_name(f".{path.stem}.part{path.suffix}")
    canvas.savefig(half, dpi=dpi)
    os.replace(half, path)
