"""Figures and reports, in one style; needs the extra `plots`.

Functions of plain arrays (and of the tuples that `metrics` returns) that draw on axes you give or on new
ones, and hand the axes back; and a report that puts figures and tables into one HTML file. Only this package
imports matplotlib. It computes nothing that a metric should, does without pyplot and sees no model.
"""

try:
    import matplotlib as matplotlib
except ModuleNotFoundError:
    raise ImportError("stochflow.plots draws with matplotlib: run `pip install stochflow[plots]`.") from None

from .diagnostics import (
    consistency_against_gap as consistency_against_gap,
    error_against_cost as error_against_cost,
    likelihood_per_lag as likelihood_per_lag,
    pit_histograms as pit_histograms,
    reliability as reliability,
    training_curve as training_curve,
)
from .distillation import flow_against_solver as flow_against_solver
from .paths import (
    density_slices as density_slices,
    fan_after as fan_after,
    fan_chart as fan_chart,
    trajectories_side_by_side as trajectories_side_by_side,
)
from .planes import (
    animate_forecast as animate_forecast,
    drift_field as drift_field,
    phase_portrait as phase_portrait,
)
from .report import Picture as Picture, Table as Table, Text as Text, write_report as write_report
from .style import (
    PALETTE as PALETTE,
    figure as figure,
    figure_of as figure_of,
    save as save,
    styled as styled,
)
