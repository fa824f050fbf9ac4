"""A distilled law beside its solver, in one figure."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes

from ..distillation import Comparison
from .style import MODEL, MUTED, ORANGE, TRUTH, figure, panels, styled


@styled
def flow_against_solver(comparison: Comparison, *, axes: Sequence[Axes] | None = None) -> list[Axes]:
    """Distance to the fine solver and nanoseconds a sample, at each gap.

    Left: energy distance of the flow, with two standard errors, and that of a second true sample. Right: the flow's
    time and that of the coarsest Euler–Maruyama that is no worse, with its number of steps.
    """
    axes = panels(axes, 2, lambda: figure(1, 2, size=(4.4, 3.2)))
    gaps = comparison.gaps
    places = np.arange(len(gaps))
    distance, cost = axes
    distance.axhline(0, color=MUTED, linewidth=0.9)
    for shift, name, colour, mean, se in (
        (-0.06, "flow", MODEL, [g.energy for g in gaps], [g.energy_se for g in gaps]),
        (0.06, "second true sample", TRUTH, [g.floor for g in gaps], [g.floor_se for g in gaps]),
    ):
        error = 2 * np.asarray(se)
        distance.errorbar(places + shift, mean, error, fmt="o", color=colour, elinewidth=1.1, label=name)
    distance.set(ylabel="energy distance")
    distance.ticklabel_format(axis="y", scilimits=(-2, 2))
    cost.plot(
        places, [1e9 * g.solver_seconds for g in gaps], "s", color=ORANGE, label="Euler–Maruyama, no worse"
    )
    cost.plot(places, [1e9 * g.flow_seconds for g in gaps], "o", color=MODEL, label="flow")
    for place, g in zip(places, gaps, strict=True):
        text = f"{g.steps_shown} steps" if g.solver_steps > 1 else "1 step"
        where = (place, 1e9 * g.solver_seconds)
        cost.annotate(text, where, textcoords="offset points", xytext=(6, 5), fontsize=8.5)
    cost.set(yscale="log", ylabel="nanoseconds a sample")
    cost.margins(y=0.25)
    for ax in axes:
        ax.set_xticks(places, [g.over for g in gaps])
        ax.set_xlabel("gap")
        ax.margins(x=0.2)
        ax.legend()
    return axes
