"""From series to a fitted model: which kind, in which units, and what it says of itself."""

import dataclasses
import os
import time as clock
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax.random as jr
import numpy as np

from .direct import DirectPlan, fit_direct
from .frames import Columns, Panel
from .latent import fit_latent_model
from .learn import Check, LearnConfig
from .model import AbstractModel, Fitted
from .times import TimeAxis
from .units import make_support

KINDS = ("auto", "flow", "latent")
SCALINGS = ("auto", "global", "series")
# Above this share of rows with a channel missing, a law of complete rows would throw too much away.
INCOMPLETE = 0.2
# Series and draws that the card's consistency is found from.
CARD_SERIES, CARD_DRAWS = 16, 1000
# Standard deviations of a normal law that its central 90 % are wide.
NORMAL_90 = 3.29


@dataclasses.dataclass(frozen=True)
class ForecasterConfig(LearnConfig):
    """Settings of a [`Forecaster`][stochflow.Forecaster] that are plain numbers and words, as it documents them."""

    kind: str = "auto"
    scaling: str = "auto"

    def __post_init__(self):
        super().__post_init__()
        for name, known in (("kind", KINDS), ("scaling", SCALINGS)):
            self._require(name, getattr(self, name) in known, f"one of {', '.join(known)}")


class Table(NamedTuple):
    """The series of a data frame, and how to get back to one."""

    panel: Panel
    columns: Columns
    axis: TimeAxis
    names: tuple[str, ...]
    frame: str


def fit_table(
    table: Table,
    config: ForecasterConfig,
    *,
    horizon: Any,
    support: Mapping[str, Any] | None,
    seed: int,
    progress: bool | None,
    folder: str | os.PathLike | None = None,
) -> Fitted:
    """Choose a kind of model and fit it; `horizon` and `support` as the user wrote them."""
    begin = clock.monotonic()
    panel, _, axis, names, _ = table
    kind, why = _choose(table, config.kind)
    longest = None if horizon is None else axis.length(horizon, "horizon")
    intervals = _intervals(dict(support or {}), names)
    key = jr.key(seed)
    checks: list[Check] = []
    if kind == "flow":
        own = {"auto": None, "global": False, "series": True}[config.scaling]
        plan = DirectPlan(intervals, longest, own, config, folder)
        model, checks = fit_direct(panel, names, plan, progress=progress, key=key)
    else:
        region = make_support(np.concatenate(panel.values), names, intervals)
        model = fit_latent_model(
            panel, region, horizon=longest, steps=config.steps, folder=folder, progress=progress, key=key
        )
    gap = float(np.median(np.concatenate([np.diff(t) for t in panel.times])))
    card = {"kind": kind, "why": why} | _card(table, model, checks, clock.monotonic() - begin)
    return Fitted(table.columns, axis, names, model, gap, card, table.frame)


def _choose(table: Table, asked: str) -> tuple[str, str]:
    """Flow or latent, and why."""
    whole, there = (
        np.concatenate([~found(np.isnan(x), axis=1) for x in table.panel.values])
        for found in (np.any, np.all)
    )
    lack = 1 - whole.sum() / max(1, there.sum())
    kind = asked if asked != "auto" else "latent" if lack > INCOMPLETE else "flow"
    why = f"{lack:.0%} of the rows lack a channel"
    columns = table.columns
    if kind == "latent" and (columns.static or columns.past or columns.future):
        raise ValueError(
            "covariates are for `kind='flow'`; leave them out, or the rows with missing channels."
        )
    return kind, why if asked == "auto" else f"chosen by hand; {why}"


def _intervals(support: dict[str, Any], names: tuple[str, ...]) -> list[Any]:
    if strangers := sorted(set(support) - set(names)):
        raise ValueError(f"`support` names {strangers[0]!r}, which is no value; they are {', '.join(names)}.")
    return [support.get(name, "real") for name in names]


def _card(table: Table, model: AbstractModel, checks: list[Check], seconds: float) -> dict[str, Any]:
    """What the model was made from and how it did, as plain numbers and words."""
    panel, _, axis, names, _ = table
    named = lambda numbers: dict(zip(names, (round(number, 3) for number in numbers), strict=True))
    return {
        "series": len(panel),
        "rows": sum(map(len, panel.times)),
        "channels": list(names),
        "from": axis.show(min(t[0] for t in panel.times)),
        "to": axis.show(max(t[-1] for t in panel.times)),
        "longest_series": axis.show_length(max(t[-1] - t[0] for t in panel.times)),
        "horizon": axis.show_length(model.horizon),
        "scaling": "series" if model.own_scale else "global",
        "training_seconds": round(seconds, 1),
        "two_steps_for_one": _consistency(table, model),
        "held_out": [
            {
                "gap": axis.show_length(check.gap),
                "pairs": check.pairs,
                "coverage_of_90": named(check.coverage),
                "relative_crps": named(check.relative_crps),
            }
            for check in checks
        ],
    }


def _consistency(table: Table, model: AbstractModel) -> dict[str, Any]:
    """Two steps of half the horizon against one: how far the median moves, in standard deviations, and how wide the
    central 90 % become; means over series. Of one law whatever the step: 0 and 1, up to the noise of the draws."""
    panel = table.panel
    some = np.unique(np.linspace(0, len(panel) - 1, CARD_SERIES).astype(int))
    past = model.past(panel.heads(some, [len(panel.times[i]) for i in some]))
    at = past.last[:, None] + model.horizon * np.array([[0.5, 1.0]])
    future = np.stack([np.tile(panel.future[i][-1], (2, 1)) for i in some])
    draw = lambda joint, seed: model.draw(
        past, at, future, samples=CARD_DRAWS, joint=joint, key=jr.key(seed)
    )[:, :, 1]
    levels = [0.05, 0.5, 0.95]
    one, two = (np.quantile(draw(joint, seed), levels, axis=1) for seed, joint in enumerate((False, True)))
    spread = np.maximum(one[2] - one[0], 1e-12)
    moved = (np.abs(two[1] - one[1]) / spread * NORMAL_90).mean(axis=0)
    wider = ((two[2] - two[0]) / spread).mean(axis=0)
    each = zip(table.names, moved, wider, strict=True)
    return {name: {"moved": round(float(m), 3), "width": round(float(w), 3)} for name, m, w in each}
