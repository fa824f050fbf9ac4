"""Curves that say how good a law is: calibration, likelihood, consistency, training."""

from collections.abc import Mapping, Sequence

import numpy as np
from jaxtyping import Float, Real
from matplotlib.axes import Axes
from matplotlib.ticker import LogLocator

from ..metrics import ConsistencyBound, ConsistencyError
from ..metrics.estimates import AnyArray
from .style import (
    FAINT,
    GREY,
    MODEL,
    MUTED,
    PALETTE,
    TIME,
    TRUTH,
    figure,
    legend_outside,
    names_of,
    panels,
    styled,
)

SURE = 2.576  # standard errors: 99 %
COLUMNS = 4
HEADROOM = 1.25  # of the tallest bar: the legend stands above it
APART = 0.012  # of the range of the gaps, that marks at the same gap stand apart


@styled
def pit_histograms(
    pits_by_lag: Mapping[str, Float[AnyArray, "n dim"]],
    *,
    bins: int = 20,
    names: Sequence[str] | None = None,
    axes: Sequence[Axes] | None = None,
) -> list[Axes]:
    """A histogram a lag, a line a dimension. Flat is calibrated; the band holds 99 % of a right law's bars.

    A valley is a law that is too sure, a hill one that is not sure enough, a slope one that is off centre. NaN is of
    nothing that was seen, and is left out.
    """
    _require_some(pits_by_lag, "pits_by_lag")
    columns = min(COLUMNS, len(pits_by_lag))
    rows = -(-len(pits_by_lag) // columns)
    axes = panels(axes, len(pits_by_lag), lambda: _grid(rows, columns, len(pits_by_lag)))
    for ax, (lag, pits) in zip(axes, pits_by_lag.items()):
        pits = _checked_pits(lag, pits)
        words = names_of(names, [f"x{i + 1}" for i in range(pits.shape[1])])
        fewest = min(len(_seen("pits_by_lag", lag, values)) for values in pits.T)
        error = SURE * np.sqrt((bins - 1) / fewest)  # of a bar whose height is one
        ax.axhspan(1 - error, 1 + error, color=GREY, alpha=0.25, linewidth=0)
        ax.axhline(1, color=MUTED, linewidth=0.8)
        for values, colour, word in zip(pits.T, _cycle(pits.shape[1]), words):
            heights, edges = np.histogram(values, bins, (0, 1), density=True)
            ax.stairs(heights, edges, baseline=None, color=colour, linewidth=1.4, label=word)
        ax.set(title=str(lag), xlim=(0, 1), xticks=(0, 0.5, 1))
        ax.grid(axis="x", visible=False)
        ax.set_xlabel("PIT")
    highest = max(ax.dataLim.y1 for ax in axes)
    for ax in axes:  # one limit, as the panels share their axis
        ax.set_ylim(0, max(2.0, HEADROOM * highest))
    axes[0].set_ylabel("density")
    axes[0].legend(ncols=3, loc="upper center", handlelength=1.2, columnspacing=1)
    return axes


@styled
def reliability(levels_by_lag: Mapping[str, Float[AnyArray, " n"]], *, ax: Axes | None = None) -> Axes:
    """Observed against nominal coverage, a curve a lag; the band holds 99 % of a right law's points.

    NaN is of nothing that was seen, and is left out.
    """
    _require_some(levels_by_lag, "levels_by_lag")
    seen_by_lag = {lag: _seen("levels_by_lag", lag, levels) for lag, levels in levels_by_lag.items()}
    (ax,) = panels(None if ax is None else [ax], 1, lambda: figure(size=(4.8, 3.6)))
    nominal = np.linspace(0, 1, 101)
    fewest = min(map(len, seen_by_lag.values()))
    error = SURE * np.sqrt(nominal * (1 - nominal) / fewest)
    ax.fill_between(nominal, nominal - error, nominal + error, color=GREY, alpha=0.25, linewidth=0)
    ax.plot([0, 1], [0, 1], color=MUTED, linewidth=0.9)
    for (lag, levels), colour in zip(seen_by_lag.items(), _ramp(len(seen_by_lag))):
        observed = (levels[:, None] <= nominal).mean(axis=0)
        ax.plot(nominal, observed, color=colour, label=str(lag))
    ax.set(xlim=(0, 1), ylim=(0, 1), aspect="equal", xlabel="nominal coverage", ylabel="observed coverage")
    legend_outside(ax)
    return ax


@styled
def likelihood_per_lag(
    lags: Real[AnyArray, " lags"],
    flow: Float[AnyArray, " lags"],
    reference: Float[AnyArray, " lags"] | None = None,
    *,
    flow_se: Float[AnyArray, " lags"] | None = None,
    reference_name: str = "reference",
    ax: Axes | None = None,
) -> Axes:
    """Mean test log-likelihood against the gap, beside what the best possible law would have."""
    (ax,) = panels(None if ax is None else [ax], 1, lambda: figure(size=(5.2, 3.2)))
    if reference is not None:
        ax.plot(
            lags,
            reference,
            color=TRUTH,
            linestyle=(0, (4, 2)),
            marker="s",
            markersize=3.5,
            label=reference_name,
        )
    ax.plot(lags, flow, color=MODEL, marker="o", label="flow")
    if flow_se is not None:
        low, high = (np.asarray(flow) + sign * 2 * np.asarray(flow_se) for sign in (-1, 1))
        ax.fill_between(np.asarray(lags), low, high, color=MODEL, alpha=0.2, linewidth=0)
    ax.set(xlabel="gap", ylabel="log-likelihood (nats)")
    ax.legend()
    return ax


@styled
def consistency_against_gap(
    errors: Mapping[str, ConsistencyError | ConsistencyBound],
    *,
    unit: str = "energy distance",
    ax: Axes | None = None,
) -> Axes:
    """One step against several, as the gap grows, with two standard errors; a process lies on zero."""
    (ax,) = panels(None if ax is None else [ax], 1, lambda: figure(size=(5.2, 3.2)))
    ax.axhline(0, color=MUTED, linewidth=0.9)
    for i, ((name, error), colour) in enumerate(zip(errors.items(), _cycle(len(errors)))):
        gaps, mean, se = (np.asarray(values) for values in (error.gaps, error.mean, error.se))
        aside = APART * np.ptp(gaps) * (i - (len(errors) - 1) / 2)  # or bars at one gap would hide each other
        ax.errorbar(
            gaps + aside, mean, 2 * se, color=colour, marker="o", capsize=0, elinewidth=1.1, label=name
        )
    ax.set(xlabel="gap", ylabel=f"{unit} ± 2 s.e.")
    legend_outside(ax)
    return ax


@styled
def training_curve(
    history: Mapping[str, Real[AnyArray, " steps"] | Sequence[float | int]],
    *,
    step: str = "step",
    marks: Mapping[str, float | int] | None = None,
    axes: Sequence[Axes] | None = None,
) -> list[Axes]:
    """A panel for each series of the history against `history["step"]`: as logged, and its running median.

    `marks` are steps at which something begins, by the name of that; no line is drawn across them.
    The limits follow the middle 98 % of the values, so that one spike does not flatten the curve.
    """
    if step not in history:
        raise ValueError(f"`history` must hold the series {step!r}; got {', '.join(history)}.")
    names = [name for name in history if name != step]
    axes = panels(axes, len(names), lambda: figure(len(names), 1, size=(6.4, 1.8), sharex=True))
    steps, edges = np.asarray(history[step]), list((marks or {}).values())
    for ax, name, colour in zip(axes, names, _cycle(len(names))):
        values = np.asarray(history[name], np.float64)
        finite = np.isfinite(values)
        for part in np.split(np.arange(len(steps)), np.searchsorted(steps, sorted(edges), side="right")):
            ax.plot(steps[part], values[part], color=colour, linewidth=0.7, alpha=0.45)
            kept = part[finite[part]]
            ax.plot(steps[kept], _running_median(values[kept]), color=colour)
        for at in edges:
            ax.axvline(at, color=MUTED, linewidth=0.9, linestyle=(0, (4, 2)))
        low, high = np.percentile(values[finite], [1, 99]) if finite.any() else (0.0, 1.0)
        margin = 0.08 * (high - low) or 1.0
        ax.set_title(name, loc="left")
        ax.set_ylim(low - margin, high + margin)
        ax.margins(x=0.01)
    for label, at in (marks or {}).items():
        note = {"xycoords": axes[0].get_xaxis_transform(), "textcoords": "offset points", "va": "bottom"}
        axes[0].annotate(label, (at, 1.0), (0, 2), color=MUTED, fontsize="small", **note)
    axes[-1].set_xlabel("step")
    return axes


def _require_some(by_lag: Mapping[str, AnyArray], name: str) -> None:
    if not by_lag:
        raise ValueError(f"`{name}` must hold at least one lag; got none.")


def _checked_pits(lag: str, pits: AnyArray) -> np.ndarray:
    pits = np.asarray(pits)
    if pits.ndim != 2 or not len(pits):
        raise ValueError(
            f"`pits_by_lag` must hold arrays of shape (n, dim); got {pits.shape} at {str(lag)!r}."
        )
    return pits


def _seen(name: str, lag: str, numbers: AnyArray) -> np.ndarray:
    numbers = np.asarray(numbers)
    seen = numbers[~np.isnan(numbers)]
    if not len(seen):
        raise ValueError(
            f"`{name}` must hold numbers for each dimension; all are NaN, or none there, at {str(lag)!r}."
        )
    return seen


def _running_median(values: np.ndarray) -> np.ndarray:
    if not len(values):
        return values
    window = max(1, len(values) // 25)
    padded = np.pad(values, (window // 2, window - 1 - window // 2), mode="symmetric")
    return np.median(np.lib.stride_tricks.sliding_window_view(padded, window), axis=1)


def _grid(rows: int, columns: int, count: int) -> list[Axes]:
    axes = figure(rows, columns, size=(2.4, 2.2), sharey=True)
    for spare in axes[count:]:
        spare.remove()
    return axes[:count]


def _cycle(count: int) -> list[str]:
    return [PALETTE[i % len(PALETTE)] for i in range(count)]


def _ramp(count: int) -> list[tuple[float, float, float, float]]:
    """Colours in order, for curves that have one."""
    return [TIME(x) for x in np.linspace(0, 1, max(count, 2))[:count]]


@styled
def error_against_cost(
    milliseconds: Sequence[float],
    errors: Sequence[float],
    names: Sequence[str],
    *,
    ax: Axes | None = None,
) -> Axes:
    """One point a way to forecast: what it costs and how far it is from the truth; joined in the order given."""
    ax = figure(size=(5.2, 3.4))[0] if ax is None else ax
    ax.plot(milliseconds, errors, "-", color=FAINT, zorder=1)
    ax.plot(milliseconds, errors, "o", color=MODEL, markersize=6)
    # Above and below in turn, from the cheapest on: ways that cost and err alike must not cover each other's names.
    for number, i in enumerate(sorted(range(len(errors)), key=lambda i: milliseconds[i])):
        height, side = (-7, "top") if number % 2 else (7, "bottom")
        ax.annotate(
            names[i],
            (milliseconds[i], errors[i]),
            textcoords="offset points",
            xytext=(0, height),
            ha="center",
            va=side,
            fontsize=8.5,
        )
    ax.set(xscale="log", xlabel="milliseconds a forecast", ylabel="mean squared error")
    ax.xaxis.set_major_formatter("{x:g}")
    ax.xaxis.set_minor_locator(LogLocator(subs=(2, 5)))  # more of them would run into each other
    ax.xaxis.set_minor_formatter("{x:g}")
    ax.margins(x=0.25)
    ax.set_ylim(0, 1.2 * max(errors))
    return ax
