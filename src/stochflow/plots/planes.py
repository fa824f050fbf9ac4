"""What moves in a plane: forecasts, still and as an animation, and the field that drives it."""

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from jaxtyping import Float
from matplotlib.animation import FuncAnimation, PillowWriter
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.collections import LineCollection

from ..metrics.estimates import AnyArray
from .style import INK, MODEL, MUTED, PAPER, TIME, TRUTH, figure, figure_of, names_of, panels, styled

MARGIN = 0.08  # of the range, on each side
ARROW = 1.6  # spacings of the grid: the longest arrow of a field
TAIL = 12  # pictures that a path leaves behind it
PICTURES_A_SECOND = 15


@styled
def phase_portrait(
    truth: Float[AnyArray, "times 2"],
    samples: Float[AnyArray, "n times 2"],
    *,
    names: tuple[str, str] = ("first component", "second component"),
    ax: Axes | None = None,
) -> Axes:
    """Samples of every time, coloured by it, their mean and the truth, in one plane."""
    truth, samples = np.asarray(truth), np.asarray(samples)
    ax = figure(size=(5.2, 4.4))[0] if ax is None else ax
    when = np.broadcast_to(np.linspace(0, 1, samples.shape[1]), samples.shape[:2])
    ax.scatter(
        *samples.reshape(-1, 2).T, c=when.ravel(), cmap=TIME, s=2, alpha=0.25, linewidths=0, rasterized=True
    )
    ax.plot(*samples.mean(axis=0).T, color=MODEL, label="mean of the forecast")
    ax.plot(*truth.T, color=INK, linewidth=1.1, label="truth")
    bar = figure_of(ax).colorbar(
        ScalarMappable(cmap=TIME), ax=ax, shrink=0.6, aspect=28, pad=0.02, label="share of the horizon"
    )
    bar.outline.set_visible(False)
    _frame(ax, truth, samples, names)
    ax.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=2, borderaxespad=0.2)
    return ax


def animate_forecast(
    path: str | os.PathLike,
    truth: Float[AnyArray, "pictures 2"],
    samples: Float[AnyArray, "n pictures 2"],
    *,
    every: float,
    start: float = 0.0,
    names: tuple[str, str] = ("first component", "second component"),
) -> Path:
    """A GIF: the cloud of samples as it moves, and the truth among them; `every` is the time between two pictures, and
    `start` that of the first."""
    path, truth, samples = Path(path), np.asarray(truth), np.asarray(samples)
    ax = _stage(truth, samples, names)
    (cloud,), (tail, head), (words,) = ax.collections, ax.lines, ax.texts

    def picture(i):
        cloud.set_offsets(samples[:, i])
        tail.set_data(*truth[max(0, i - TAIL) : i + 1].T)
        head.set_data(*truth[i : i + 1].T)
        words.set_text(f"t = {start + i * every:.1f}")

    half, page = path.with_name(f".{path.stem}.part{path.suffix}"), figure_of(ax)
    FuncAnimation(page, picture, frames=len(truth)).save(
        half,
        writer=PillowWriter(PICTURES_A_SECOND),
        dpi=80,
        savefig_kwargs={"facecolor": page.get_facecolor()},
    )
    os.replace(half, path)
    return path


@styled
def _stage(truth, samples, names) -> Axes:
    """What an animation moves: the cloud of samples, the tail and the head of the truth, and the time in words."""
    (ax,) = figure(size=(4.6, 4.0))
    ax.scatter(*samples[:, 0].T, color=MODEL, s=9, alpha=0.45, linewidths=0, label="forecast")
    ax.plot([], [], color=INK, linewidth=1.2)
    ax.plot([], [], "o", color=INK, markersize=5, label="truth")
    _frame(ax, truth, samples, names)
    ax.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=2, borderaxespad=0.2)
    ax.text(1, 1.02, "", transform=ax.transAxes, ha="right")
    return ax


@styled
def drift_field(
    points: Float[AnyArray, "*grid axes"],
    drift: Float[AnyArray, "*grid axes"],
    covariance_rate: Float[AnyArray, "*grid axes axes"],
    *,
    truth: tuple[Float[AnyArray, "*grid axes"], Float[AnyArray, "*grid axes axes"]] | None = None,
    names: Sequence[str] | None = None,
    axes: Sequence[Axes] | None = None,
) -> list[Axes]:
    """Drift and diffusion on a grid over one or two coordinates, side by side.

    Over one they are curves, the diffusion as a standard deviation a root of time; over two, arrows, and the standard
    deviation over both as colour with the main axes of the noise as crosses. The arguments are the parts of a
    [`Field`][stochflow.inference.Field]; `truth` is the drift and the covariance rate of what is known, on the same
    grid, in grey.
    """
    points, drift, rate = (np.asarray(part, float) for part in (points, drift, covariance_rate))
    if points.ndim not in (2, 3) or points.shape[-1] != points.ndim - 1 or drift.shape != points.shape:
        raise ValueError(
            "`points` and `drift` must have shape (n, 1) or (n, m, 2), those of a grid over one or two coordinates; "
            f"got {points.shape} and {drift.shape}."
        )
    names = names_of(names, [f"coordinate {i}" for i in range(points.ndim - 1)])
    left, right = panels(axes, 2, lambda: figure(columns=2, size=(4.6, 3.9)))
    known = None if truth is None else tuple(np.asarray(part, float) for part in truth)
    (_draw_curves if points.ndim == 2 else _draw_plane)(left, right, points, drift, rate, known)
    for ax, what in ((left, "drift"), (right, "diffusion")):
        ax.set_title(what)
        ax.set_xlabel(names[0])
        if len(names) > 1:
            ax.set_ylabel(names[1])
    return [left, right]


def _draw_curves(left, right, points, drift, rate, known):
    x = points[:, 0]
    if known is not None:
        left.plot(x, known[0][:, 0], color=TRUTH, linewidth=3, label="truth")
        right.plot(x, np.sqrt(known[1][:, 0, 0]), color=TRUTH, linewidth=3, label="truth")
    left.axhline(0, color=MUTED, linewidth=0.8)
    left.plot(x, drift[:, 0], color=MODEL, label="law")
    right.plot(x, np.sqrt(rate[:, 0, 0]), color=MODEL, label="law")
    highest = max(right.dataLim.y1, 1e-12)
    right.set_ylim(0, 1.15 * highest)
    if known is not None:
        left.legend(loc="best")


def _draw_plane(left, right, points, drift, rate, known):
    x, y = points[..., 0], points[..., 1]
    spacing = min(np.ptp(x) / (x.shape[0] - 1), np.ptp(y) / (y.shape[1] - 1))
    fields = [drift] if known is None else [drift, known[0]]
    longest = max(np.hypot(field[..., 0], field[..., 1]).max() for field in fields)
    unit = max(longest, 1e-12) / (ARROW * spacing)  # the drift whose arrow is as long as one unit of the axes
    scale = {"angles": "xy", "scale_units": "xy", "scale": unit}
    if known is not None:
        left.quiver(x, y, *np.moveaxis(known[0], -1, 0), color=TRUTH, width=0.009, **scale, label="truth")
    left.quiver(x, y, *np.moveaxis(drift, -1, 0), color=MODEL, width=0.004, **scale, label="law")
    if known is not None:
        left.legend(loc="lower left", bbox_to_anchor=(0, 1.06), ncols=2, borderaxespad=0.2)
    size = np.sqrt(np.trace(rate, axis1=-2, axis2=-1))
    shade = right.pcolormesh(
        x, y, size, cmap=TIME, vmin=0, vmax=1.05 * max(size.max(), 1e-12), shading="nearest", rasterized=True
    )
    bar = figure_of(right).colorbar(shade, ax=right, shrink=0.7, pad=0.02)
    bar.set_label("std a root of time")
    bar.outline.set_visible(False)
    lengths, directions = np.linalg.eigh(rate)
    arms = directions * np.sqrt(np.maximum(lengths, 0))[..., None, :]  # a column an axis
    arms = arms * (0.45 * spacing / max(size.max(), 1e-12))
    for axis in range(2):
        ends = points[..., None, :] + np.array([-1, 1])[:, None] * arms[..., None, :, axis]
        right.add_collection(LineCollection(ends.reshape(-1, 2, 2), colors=PAPER, linewidths=1.0))
    reached = np.concatenate([points, *(points + field / unit for field in fields)]).reshape(-1, 2)
    low, high = reached.min(axis=0) - spacing, reached.max(axis=0) + spacing  # room for the heads too
    for ax in (left, right):
        ax.set(xlim=(low[0], high[0]), ylim=(low[1], high[1]))


def _frame(ax, truth, samples, names):
    """Limits that hold the truth and all but the outermost samples."""
    points = np.concatenate([truth, samples.reshape(-1, 2)])
    low, high = np.quantile(points, [0.001, 0.999], axis=0)
    low, high = np.minimum(low, truth.min(axis=0)), np.maximum(high, truth.max(axis=0))
    pad = MARGIN * (high - low)
    ax.set(xlim=(low[0] - pad[0], high[0] + pad[0]), ylim=(low[1] - pad[1], high[1] + pad[1]))
    ax.set(xlabel=names[0], ylabel=names[1])
