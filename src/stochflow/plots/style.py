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
from matplotlib.collections import Collection
from matplotlib.colors import LinearSegmentedColormap, to_hex, to_rgba
from matplotlib.figure import Figure

INK, MUTED, FAINT, PAPER = "#1f2328", "#6a737d", "#d9dde2", "#ffffff"
BLUE, ORANGE, GREEN, PURPLE, PINK, GREY = "#2f7fd1", "#d9702b", "#1d9a6c", "#9467c9", "#d1548f", "#868d96"
PALETTE = (BLUE, ORANGE, GREEN, PURPLE, PINK, GREY)
TRUTH, MODEL = GREY, BLUE  # what happened is grey; what a model says has colour
TIME = LinearSegmentedColormap.from_list("stochflow_time", [BLUE, PURPLE, PINK, ORANGE])
RASTER_DPI = 220  # of the heavy parts of a vector figure

RC: Any = {
    "figure.facecolor": PAPER,
    "figure.edgecolor": PAPER,
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
    "lines.color": BLUE,
    "lines.linewidth": 1.6,
    "lines.markersize": 4.5,
    "legend.frameon": False,
    "legend.fontsize": 8.5,
    "font.size": 9.5,
}

# What the neutral colours become on a dark page.
DARK = {INK: "#e6e9ed", MUTED: "#a0a9b4", FAINT: "#3b424b", PAPER: "#14171b"}
# The properties of artists that hold a colour.
COLOURS = ("color", "facecolor", "edgecolor", "markeredgecolor", "markerfacecolor")

P = ParamSpec("P")
R = TypeVar("R")


def styled(draw: Callable[P, R]) -> Callable[P, R]:
    """Draws under this style and leaves the settings of the caller as they were.

    If those are for a dark page (as after `plt.style.use("dark_background")`), or the caller's own axes stand on one,
    the neutral colours are those of a dark page.
    """

    @functools.wraps(draw)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> R:
        dark = _is_dark(matplotlib.rcParams["figure.facecolor"])
        with matplotlib.rc_context(RC):
            drawn = draw(*args, **kwargs)
        axes = [ax for ax in (drawn if isinstance(drawn, list | tuple) else [drawn]) if isinstance(ax, Axes)]
        for page in dict.fromkeys(map(figure_of, axes)):
            if dark or _is_dark(page.get_facecolor()):
                _darken(page, [ax for ax in axes if figure_of(ax) is page])
        return drawn

    return wrapped


def _is_dark(colour: Any) -> bool:
    red, green, blue, alpha = to_rgba(colour)
    return alpha > 0 and 0.299 * red + 0.587 * green + 0.114 * blue < 0.4


def _darken(page: Figure, axes: Sequence[Axes]) -> None:
    """The neutral colours of all that these axes and their colour bars hold, and of the page that they stand on,
    exchanged. On a page that is dark already what is white is the caller's and stays so."""
    known = {
        light: dark for light, dark in DARK.items() if light != PAPER or not _is_dark(page.get_facecolor())
    }
    bars = [bar for ax in axes for bar in getattr(ax, "_colorbars", [])]
    every = list(dict.fromkeys([*axes, *bars]))
    for artist in [page.patch, *(found for ax in every for found in ax.findobj())]:
        _exchange(artist, known)
    for ax in every:
        for name in ("xaxis", "yaxis", "zaxis"):
            if (axis := getattr(ax, name, None)) is not None:
                _darken_axis(axis)


def _exchange(artist: Any, known: dict[str, str]) -> None:
    if isinstance(artist, Collection):
        artist.update_scalarmappable()  # one that maps values to colours has that of the settings until it is drawn
    for name in COLOURS:
        get, put = getattr(artist, f"get_{name}", None), getattr(artist, f"set_{name}", None)
        if get is not None and put is not None and (new := _exchanged(get(), known)) is not None:
            put(new)


def _darken_axis(axis: Any) -> None:
    """For ticks that are still to be made; an axis in space draws its grid in a colour of its own."""
    axis.set_tick_params(color=DARK[MUTED], labelcolor=DARK[MUTED], grid_color=DARK[FAINT])
    if (in_space := getattr(axis, "_axinfo", None)) is not None:
        in_space["grid"]["color"] = DARK[FAINT]


def _exchanged(colour: Any, known: dict[str, str]) -> str | None:
    """The colour of a dark page in place of a neutral one; `None` if it is another, or more than one."""
    try:
        single = colour if isinstance(colour, str | tuple) else np.atleast_2d(np.asarray(colour, float))
        if isinstance(single, np.ndarray):
            (single,) = map(tuple, np.unique(single, axis=0))
        red, green, blue, alpha = to_rgba(single)
    except (TypeError, ValueError):
        return None
    found = known.get(to_hex((red, green, blue))) if alpha else None
    return None if found is None else to_hex((*to_rgba(found)[:3], alpha), keep_alpha=True)


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
    if strangers := [each for each in axes if not isinstance(each, Axes)]:
        raise ValueError(f"`axes` must be of Matplotlib's `Axes`; got {strangers[0]!r}.")
    if len(axes) != count:
        raise ValueError(f"`axes` must hold {count} axes; got {len(axes)}.")
    return axes


def names_of(names: Sequence[str] | None, usual: Sequence[str]) -> list[str]:
    """The caller's names, checked for their number, or the usual ones."""
    names = usual if names is None else names
    if len(names) != len(usual):
        raise ValueError(f"`names` must hold one name a dimension, here {len(usual)}; got {len(names)}.")
    return list(names)


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
