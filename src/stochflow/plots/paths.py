"""Paths and clouds of points: what was sampled."""

from collections.abc import Sequence
from typing import Any

import jax.random as jr
import numpy as np
from jaxtyping import Float, Real
from matplotlib.axes import Axes
from matplotlib.dates import ConciseDateFormatter
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator
from mpl_toolkits.mplot3d.art3d import Line3DCollection
from scipy.spatial import KDTree

from ..metrics import cv_bandwidth, kde_log_density, quantiles_of_draws
from ..metrics.estimates import AnyArray
from .style import INK, MODEL, MUTED, TIME, TRUTH, figure, names_of, panels, styled

SHOWN = 64  # paths a panel, as in the paper's figure
ABOVE_LEGEND = 22  # points: room for one line of it below a title
QUANTILES = (0.5, 0.8, 0.95)
BAR = 9.0  # points: the width of the bands at a single time
BAND = 0.22  # opacity of one band; they lie on top of one another
OUTERMOST = 0.005  # share of the points that may lie outside a slice, on each side
OUTLINED = (0.9, 0.5)  # probability inside the outlines
NEIGHBOURS = 64  # of a point, by which its surroundings are measured
PIXELS = 140  # of the grid on which an outline is traced, each way


@styled
def trajectories_side_by_side(
    truth: Float[AnyArray, "n times 3"],
    model: Float[AnyArray, "m times 3"],
    points: Float[AnyArray, "k times 3"] | None = None,
    *,
    times: Real[AnyArray, " times"] | None = None,
    titles: Sequence[str] = ("Ground truth", "Flow", "Flow, one step a point"),
    view: tuple[float, float] = (18.0, -58.0),
    axes: Sequence[Axes] | None = None,
) -> list[Axes]:
    """Up to 64 paths in space, coloured by time; all panels have the same limits and the same view.

    `points`, if given, have a third panel and no lines between them: draws that do not follow one another.
    """
    sets = [np.asarray(paths)[:SHOWN] for paths in (truth, model, points) if paths is not None]
    axes = panels(axes, len(sets), lambda: figure(1, len(sets), size=(4.4, 3.8), projection="3d"))
    times = np.arange(sets[0].shape[1]) if times is None else np.asarray(times)
    low, high = (edge(sets[0], axis=(0, 1)) for edge in (np.min, np.max))
    lines = [_space_lines(paths, times) for paths in sets[:2]]
    dots = {"depthshade": False, "linewidths": 0, "rasterized": True}
    for i, (ax, paths, title) in enumerate(zip(list[Any](axes), sets, titles)):
        if i < len(lines):
            ax.add_collection3d(lines[i], autolim=False)
        else:
            colours = TIME(np.tile((times - times[0]) / np.ptp(times), len(paths)))
            ax.scatter(*paths.reshape(-1, 3).T, s=3, c=colours, alpha=0.75, **dots)
        ax.scatter(*paths[:, 0].T, s=4, color=TIME(0.0), **dots)
        ax.set(xlim=(low[0], high[0]), ylim=(low[1], high[1]), zlim=(low[2], high[2]))
        ax.set_title(title, y=0.98, pad=0)
        _clean_space(ax, view)
    bar = axes[0].figure.colorbar(lines[0], ax=axes, shrink=0.55, aspect=28, pad=0.02, label="time")
    bar.outline.set_visible(False)
    return axes


@styled
def density_slices(
    truth: Float[AnyArray, "slices n dim"],
    model: Float[AnyArray, "slices m dim"],
    *,
    times: Real[AnyArray, " slices"] | Sequence[float | int],
    dims: tuple[int, int] = (0, 2),
    names: Sequence[str] = ("x", "y", "z"),
    axes: Sequence[Axes] | None = None,
) -> list[Axes]:
    """Clouds in the plane of two dimensions, a column a time: the truth above, the model below.

    Both rows show the outlines of the *truth*, the regions that hold half and nine tenths of it: a model that
    spreads too far or not far enough is seen at once. The limits leave out the outermost points.
    """
    truth, model = (np.asarray(cloud)[..., list(dims)] for cloud in (truth, model))
    columns = len(times)
    axes = panels(axes, 2 * columns, lambda: figure(2, columns, size=(2.3, 2.2), sharex="col", sharey="col"))
    for k, time in enumerate(times):
        top, bottom = axes[k], axes[columns + k]
        _cloud(top, truth[k], TRUTH)
        _cloud(bottom, model[k], MODEL)
        low, high = np.quantile(truth[k], [OUTERMOST, 1 - OUTERMOST], axis=0)
        (left, down), (right, up) = low - 0.15 * (high - low), high + 0.15 * (high - low)
        for ax in (top, bottom):
            _outline(ax, truth[k], (left, right), (down, up))
            ax.set(xlim=(left, right), ylim=(down, up))
        bottom.set_xlabel(names[dims[0]])
        top.set_title(f"t = {time:g}")
    axes[0].set_ylabel(f"truth\n{names[dims[1]]}")
    axes[columns].set_ylabel(f"model\n{names[dims[1]]}")
    return axes


@styled
def fan_chart(
    times: Any,
    samples: Float[AnyArray, "n times dim"],
    truth: Float[AnyArray, "times dim"] | None = None,
    *,
    names: Sequence[str] | None = None,
    axes: Sequence[Axes] | None = None,
) -> list[Axes]:
    """The median and the central 50, 80 and 95 % of the law that the samples are from against time, one panel a
    dimension.

    A band ends at [quantiles][stochflow.metrics.quantiles_of_draws] of the draws, as those of a forecast are: at the
    outermost draw where there are too few. Times are numbers or dates. At a single one there are a dot and bars.
    """
    times, samples = np.asarray(times), _checked_draws("samples", samples, times)
    dim = samples.shape[2]
    truth = None if truth is None else _checked_rows("truth", truth, (len(times), dim))
    words = names_of(names, [f"x{i + 1}" for i in range(dim)])
    axes = panels(axes, dim, lambda: figure(dim, 1, size=(6.4, 1.7), sharex=True))
    for i, (ax, word) in enumerate(zip(axes, words)):
        for q in reversed(QUANTILES):
            _band(ax, times, *quantiles_of_draws(samples[:, :, i], [0.5 - q / 2, 0.5 + q / 2], axis=0))
        ax.plot(times, np.median(samples[:, :, i], axis=0), color=MODEL, label="median", **_mark(times))
        if truth is not None:
            ax.plot(times, truth[:, i], color=INK, linewidth=1.1, label="truth", **_mark(times))
        ax.set_ylabel(word)
        ax.margins(x=0)
    axes[-1].set_xlabel("time")
    shades = [1 - (1 - BAND) ** (len(QUANTILES) - i) for i in range(len(QUANTILES))]
    bands = [Patch(color=MODEL, alpha=shade, lw=0, label=f"{q:.0%}") for q, shade in zip(QUANTILES, shades)]
    handles = [*bands, *axes[0].get_legend_handles_labels()[0]]
    axes[0].legend(handles=handles, ncols=5, loc="lower left", bbox_to_anchor=(0, 1), borderaxespad=0.2)
    return axes


@styled
def fan_after(
    past_times: Any,
    past_values: Float[AnyArray, "rows dim"],
    times: Any,
    samples: Float[AnyArray, "n times dim"],
    *,
    names: Sequence[str] | None = None,
    paths: Float[AnyArray, "m times dim"] | None = None,
    title: str | None = None,
    join: bool = True,
    axes: Sequence[Axes] | None = None,
) -> list[Axes]:
    """The last rows of a series and the fan of its forecast, one panel a channel; `paths` lie on top.

    The fan opens from the last complete row before it, and so do the paths; not if `join` is false, as for a model
    that takes rows for noisy readings.
    """
    samples = _checked_draws("samples", samples, times)
    past_values = _checked_rows("past_values", past_values, (len(past_times), samples.shape[2]))
    past_times, times = np.asarray(past_times), np.asarray(times)
    draws = [samples] if paths is None else [samples, _checked_draws("paths", paths, times)]
    if join:
        times, draws = _joined(past_times, past_values, times, draws)
    dim = samples.shape[2]
    axes = panels(axes, dim, lambda: figure(dim, 1, size=(6.4, 1.9), sharex=True))
    observed: Any = dict(color=INK, linewidth=1.1, marker=".", markersize=2.5, label="observed")
    for i, ax in enumerate(axes):  # before the fan, whose legend names what is there
        ax.plot(past_times, past_values[:, i], **observed)
    fan_chart(times, draws[0], names=names, axes=axes)
    for i, ax in enumerate(axes):
        for path in draws[1] if len(draws) > 1 else []:
            ax.plot(times, path[:, i], color=MODEL, linewidth=0.6, alpha=0.7, **_mark(times, 2.5))
        ax.axvline(past_times[-1], color=MUTED, linewidth=0.6)
        ax.margins(x=0.01)
    if title is not None:
        axes[0].set_title(title, loc="left", pad=ABOVE_LEGEND)
    if np.issubdtype(times.dtype, np.datetime64):
        axes[-1].set_xlabel("")
        axes[-1].xaxis.set_major_formatter(ConciseDateFormatter(axes[-1].xaxis.get_major_locator()))
    return list(axes)


def _checked_draws(name: str, draws: AnyArray, times: Any) -> np.ndarray:
    draws = np.asarray(draws)
    if draws.ndim != 3 or draws.shape[1] != len(times):
        raise ValueError(
            f"`{name}` must have shape (n, times, dim), here with {len(times)} times; got {draws.shape}: a single "
            f"dimension has an axis too, as in `{name}[..., None]`."
        )
    return draws


def _checked_rows(name: str, rows: AnyArray, shape: tuple[int, int]) -> np.ndarray:
    rows = np.asarray(rows)
    if rows.shape != shape:
        raise ValueError(f"`{name}` must have shape (times, dim), here {shape}; got {rows.shape}.")
    return rows


def _joined(
    past_times: np.ndarray, past_values: np.ndarray, times: np.ndarray, draws: list[np.ndarray]
) -> tuple[np.ndarray, list[np.ndarray]]:
    """Times and draws that begin at the last complete row, if it lies before them."""
    complete = np.flatnonzero(~np.isnan(past_values).any(axis=1) & (past_times <= times[0]))
    if not len(complete) or past_times[complete[-1]] == times[0]:
        return times, draws
    row = complete[-1:]
    start = lambda some: np.broadcast_to(past_values[row], (len(some), 1, past_values.shape[1]))
    return np.concatenate([past_times[row], times]), [
        np.concatenate([start(some), some], axis=1) for some in draws
    ]


def _band(ax: Axes, times: np.ndarray, low: np.ndarray, high: np.ndarray) -> None:
    if len(times) > 1:
        ax.fill_between(times, low, high, color=MODEL, alpha=BAND, linewidth=0)
    else:  # of no width, had it no line
        ax.vlines(times, low, high, color=MODEL, alpha=BAND, linewidth=BAR)


def _mark(times: np.ndarray, size: float | None = None) -> dict[str, Any]:
    """A dot, where there is a single time and so no line."""
    return {} if len(times) > 1 else {"marker": "o", "markersize": size}


def _space_lines(paths: np.ndarray, times: np.ndarray) -> Line3DCollection:
    segments = np.stack([paths[:, :-1], paths[:, 1:]], axis=2).reshape(-1, 2, 3)
    lines = Line3DCollection(
        segments, cmap=TIME, linewidths=0.7, alpha=0.75, capstyle="round", rasterized=True
    )
    lines.set_array(np.tile((times[:-1] + times[1:]) / 2, len(paths)))
    lines.set_clim(times[0], times[-1])
    return lines


def _clean_space(ax: Any, view: tuple[float, float]) -> None:
    """No grey walls: thin lines, few ticks, the same distance from the eye."""
    ax.view_init(*view)
    ax.set_box_aspect((1, 1, 1), zoom=1)
    for axis, name in zip((ax.xaxis, ax.yaxis, ax.zaxis), "xyz"):
        axis.set_pane_color((1, 1, 1, 0))
        axis.line.set_color(MUTED)
        axis.set_label_text(name)
        axis.set_major_locator(MaxNLocator(4))
        axis.set_tick_params(pad=-1, labelsize=7.5)
        axis.labelpad = -2


def _cloud(ax: Axes, points: np.ndarray, colour: str) -> None:
    size = np.clip(3000 / len(points), 0.6, 9)
    ax.scatter(*points.T, s=size, color=colour, alpha=0.45, linewidths=0, rasterized=True)


def _local_scale(points: np.ndarray) -> np.ndarray:
    """How far near points are apart in each dimension: of two thin wings the width of one, not the way between them."""
    scale = points.std(axis=0)
    for _ in range(2):
        scaled = points / scale
        near = KDTree(scaled).query(scaled, k=min(NEIGHBOURS, len(points)))[1]
        apart = np.sqrt(np.square(points[near] - points[:, None]).mean(axis=(0, 1)))
        scale = np.where(apart > 0, apart, scale)
    return scale


def _outline(
    ax: Axes, points: np.ndarray, x_range: tuple[float, float], y_range: tuple[float, float]
) -> None:
    """Highest-density regions by a kernel density estimate; each dimension in units of its spread among neighbours."""
    scale = _local_scale(points)
    bandwidth = cv_bandwidth(points / scale, key=jr.key(0))  # the key does no more than shuffle
    log_density = lambda places: np.asarray(kde_log_density(places / scale, points / scale, bandwidth))
    x, y = np.linspace(*x_range, PIXELS), np.linspace(*y_range, PIXELS)
    places = np.stack(np.meshgrid(x, y), axis=-1)
    heights = np.quantile(log_density(points), [1 - q for q in OUTLINED])
    on_grid = log_density(places.reshape(-1, 2)).reshape(PIXELS, PIXELS)
    ax.contour(x, y, on_grid, levels=np.unique(heights), colors=INK, linewidths=0.6, linestyles="solid")
