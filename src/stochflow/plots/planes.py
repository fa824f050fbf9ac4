"""Forecasts of what moves in a plane: still, and as an animation."""

import os
from pathlib import Path

import numpy as np
from jaxtyping import Float
from matplotlib.animation import FuncAnimation, PillowWriter
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable

from ..metrics.estimates import AnyArray
from .style import INK, MODEL, TIME, figure, figure_of, styled

MARGIN = 0.08  # of the range, on each side
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


@styled
def animate_forecast(
    path: str | os.PathLike,
    truth: Float[AnyArray, "pictures 2"],
    samples: Float[AnyArray, "n pictures 2"],
    *,
    every: float,
    names: tuple[str, str] = ("first component", "second component"),
) -> Path:
    """A GIF: the cloud of samples as it moves, and the truth among them; `every` is the time between two pictures."""
    path, truth, samples = Path(path), np.asarray(truth), np.asarray(samples)
    (ax,) = figure(size=(4.6, 4.0))
    cloud = ax.scatter(*samples[:, 0].T, color=MODEL, s=9, alpha=0.45, linewidths=0, label="forecast")
    (tail,) = ax.plot([], [], color=INK, linewidth=1.2)
    (head,) = ax.plot([], [], "o", color=INK, markersize=5, label="truth")
    _frame(ax, truth, samples, names)
    ax.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=2, borderaxespad=0.2)
    words = ax.text(1, 1.02, "", transform=ax.transAxes, ha="right")

    def picture(i):
        cloud.set_offsets(samples[:, i])
        tail.set_data(*truth[max(0, i - TAIL) : i + 1].T)
        head.set_data(*truth[i : i + 1].T)
        words.set_text(f"t = {i * every:.1f}")

    half = path.with_name(f".{path.stem}.part{path.suffix}")
    FuncAnimation(figure_of(ax), picture, frames=len(truth)).save(
        half, writer=PillowWriter(PICTURES_A_SECOND), dpi=80
    )
    os.replace(half, path)
    return path


def _frame(ax, truth, samples, names):
    """Limits that hold the truth and all but the outermost samples."""
    points = np.concatenate([truth, samples.reshape(-1, 2)])
    low, high = np.quantile(points, [0.001, 0.999], axis=0)
    low, high = np.minimum(low, truth.min(axis=0)), np.maximum(high, truth.max(axis=0))
    pad = MARGIN * (high - low)
    ax.set(xlim=(low[0] - pad[0], high[0] + pad[0]), ylim=(low[1] - pad[1], high[1] + pad[1]))
    ax.set(xlabel=names[0], ylabel=names[1])
