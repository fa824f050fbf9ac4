"""From series to a fitted model: which kind, in which units, and what it says of itself."""

import dataclasses
import os
import time as clock
from collections.abc import Callable, Mapping
from typing import Any

import jax.random as jr
import numpy as np

from ..io.errors import quote
from ..laws import Support
from ..metrics import inside_central
from .direct import DirectModel, DirectPlan, fit_direct
from .evaluate import draw_origins
from .frames import Panel
from .latent import fit_latent_model
from .learn import Check, LearnConfig
from .model import AbstractModel, Fitted, Table
from .origins import Origins, find_origins, truncated
from .units import check_support, make_support

KINDS = ("auto", "flow", "latent")
SCALINGS = ("auto", "global", "series")
# Above this share of rows with a channel missing, a law of complete rows would throw too much away.
INCOMPLETE = 0.2
NOTHING_HELD_OUT = (
    "too few rows to hold any out: forecasts are the last value with the noise of the moves there were"
)
# Series and draws that the card's consistency is found from, and rows that its calibration is if none were held out.
CARD_SERIES, CARD_DRAWS, CARD_ROWS = 16, 1000, 256
# Standard deviations of a normal law that its central 90 % are wide.
NORMAL_90 = 3.29


@dataclasses.dataclass(frozen=True)
class ForecasterConfig(LearnConfig):
    """Settings of a [`Forecaster`][stochflow.forecasting.Forecaster] that are plain numbers and words, as it documents
    them."""

    kind: str = "auto"
    scaling: str = "auto"

    def __post_init__(self):
        super().__post_init__()
        for name, known in (("kind", KINDS), ("scaling", SCALINGS)):
            self._require(name, getattr(self, name) in known, f"one of {', '.join(known)}")


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
    kind, why = _choose(table, config)
    longest = None if horizon is None else axis.length(horizon, "horizon")
    intervals = _intervals(support, names)
    key = jr.key(seed)
    checks: list[Check] = []
    at_once: dict[str, Any] = {}
    if kind == "flow":
        own = {"auto": None, "global": False, "series": True}[config.scaling]
        plan = DirectPlan(intervals, longest, own, config, axis.show_length, folder)
        model, checks = fit_direct(panel, names, plan, progress=progress, key=key)
        at_once = _at_once(model, names, table.columns.future)
    else:
        region = make_support(np.concatenate(panel.values), names, intervals)
        most = max(t[-1] - t[0] for t in panel.times)
        if longest is not None and longest > most * (1 + 1e-6):
            raise ValueError(
                f"`horizon` must be no longer than the longest series, {axis.show_length(most)}; got "
                f"{axis.show_length(longest)}: forecasts further ahead are chained."
            )
        model = fit_latent_model(
            panel, region, horizon=longest, steps=config.steps, folder=folder, progress=progress, key=key
        )
    gap = float(np.median(np.concatenate([axis.gaps(moments) for moments in panel.moments])))
    card = {"kind": kind, "why": why} | _card(
        table, model, checks, clock.monotonic() - begin, kind, config.folds
    )
    card |= {"at_once": at_once} if at_once else {}
    fitted = Fitted(table.columns, axis, names, model, gap, card, table.frame)
    if kind == "latent":  # nothing is held out: what it says of the rows of the fit is better than nothing
        card["in_sample"] = _in_sample(fitted, panel)
    return fitted


def _choose(table: Table, config: ForecasterConfig) -> tuple[str, str]:
    """Flow or latent, and why."""
    asked = config.kind
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
            "covariates are for `kind='flow'`, which reads complete rows only: choose it, or leave the covariates out."
        )
    if kind == "latent" and config.scaling == "series":
        raise ValueError("`scaling='series'` is for `kind='flow'`; a latent model measures all series alike.")
    return kind, why if asked == "auto" else f"chosen by hand; {why}"


def with_starts(table: Table, config: ForecasterConfig) -> Table:
    """The table without series that have no row which a model of the kind that is chosen could start from; as it is if
    none has."""
    panel, partial = table.panel, _choose(table, config)[0] == "latent"
    kept = [i for i in range(len(panel)) if panel.seen(i, partial=partial).any()]
    return table._replace(panel=panel.heads(kept, [len(panel.times[i]) for i in kept])) if kept else table


def require_support(table: Table, support: Any) -> None:
    """All values of a table must lie where `support`, as the user wrote it, says."""
    region = Support(_intervals(support, table.names))
    check_support(np.concatenate(table.panel.values), table.names, region)


def _intervals(support: Any, names: tuple[str, ...]) -> list[Any]:
    if support is not None and not isinstance(support, Mapping):
        raise ValueError(
            f"`support` must say what each column may be, such as {{{names[0]!r}: 'positive'}}; got {support!r}."
        )
    given = dict(support or {})
    if strangers := [name for name in given if name not in names]:
        raise ValueError(f"`support` names {strangers[0]!r}, which is no value; they are {', '.join(names)}.")
    for name, interval in given.items():
        try:
            Support([interval])
        except ValueError as error:
            raise ValueError(f"column {name!r}: {error}") from None
    return [given.get(name, "real") for name in names]


def _card(
    table: Table, model: AbstractModel, checks: list[Check], seconds: float, kind: str, folds: int
) -> dict[str, Any]:
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
        **({} if checks or kind == "latent" or not folds else {"doubt": NOTHING_HELD_OUT}),
        "held_out": [
            {
                "gap": axis.show_length(check.gap, like=model.horizon),
                "pairs": check.pairs,
                "coverage_of_90": named(check.coverage),
                "relative_crps": named(check.relative_crps),
            }
            for check in checks
        ],
    }


def check_card(card: Any, names: tuple[str, ...]) -> None:
    """Whether this is a card of a model of these channels, as `fit_table` writes it; what else a user has put on it is
    words and numbers."""
    if not isinstance(card, dict):
        raise ValueError(f"its card must be a dict; got {quote(card)}")
    share = lambda found: _maps(found, _is_number, names)
    moved = lambda found: _maps(found, _is_number, ("moved", "width"))
    row = {"gap": _is_text, "pairs": _is_count, "coverage_of_90": share, "relative_crps": share}
    sample = {
        "rows": _is_count,
        "coverage_of_90": lambda found: _maps(found, _is_number) and {*found} <= {*names},
    }
    always = {
        **dict.fromkeys(("kind", "why", "from", "to", "longest_series", "horizon", "scaling"), _is_text),
        **dict.fromkeys(("series", "rows"), _is_count),
        "channels": lambda found: found == list(names),
        "training_seconds": _is_number,
        "two_steps_for_one": lambda found: _maps(found, moved, names),
        "held_out": lambda found: isinstance(found, list) and all(_fits(each, row) for each in found),
    }
    at_times = {
        "doubt": _is_text,
        "at_once": lambda found: _maps(found, lambda effects: _maps(effects, _is_number), names),
        "in_sample": lambda found: _fits(found, sample),
    }
    plain = lambda found: _is_text(found) or isinstance(found, bool) or _is_number(found)
    for name in (*always, *card):
        right = (always | at_times).get(name, plain)
        if name not in card or not right(card[name]):
            raise ValueError(
                f"{quote(name)} of its card is not what a fit writes; got {quote(card.get(name))}"
            )


def _fits(found: Any, parts: Mapping[str, Callable[[Any], bool]]) -> bool:
    """Whether this is a dict of these names, and each is right."""
    return _maps(found, lambda _: True, tuple(parts)) and all(right(found[n]) for n, right in parts.items())


def _maps(found: Any, right: Callable[[Any], bool], names: tuple[str, ...] | None = None) -> bool:
    """Whether this is a dict of what is right; of these names, if any are given."""
    return isinstance(found, dict) and {*found} == {*(names or found)} and all(map(right, found.values()))


def _is_text(found: Any) -> bool:
    return isinstance(found, str)


def _is_number(found: Any) -> bool:
    return isinstance(found, int | float) and not isinstance(found, bool)


def _is_count(found: Any) -> bool:
    return type(found) is int and found >= 0


def _at_once(model: DirectModel, names: tuple[str, ...], future: tuple[str, ...]) -> dict[str, Any]:
    """What covariates that are known ahead do at once to each channel; nothing without any."""
    found = model.at_once()
    each = lambda channel: {name: float(f"{found[i, channel]:.4g}") for i, name in enumerate(future)}
    return {name: each(channel) for channel, name in enumerate(names)} if future else {}


def _in_sample(fitted: Fitted, panel: Panel) -> dict[str, Any]:
    """The share of the rows of the fit within the central 90 % of what the rows before made of them."""
    ends = [len(t) for t in panel.times]
    most, partial = max(1, CARD_ROWS // len(panel)), fitted.model.reads_partial
    origins = find_origins(panel, 0.0, np.inf, [0] * len(panel), ends, most, partial=partial)
    origins = Origins(*(each[:CARD_ROWS] for each in origins))
    if not len(origins.series):
        return {"rows": 0, "coverage_of_90": {}}
    draws = draw_origins(fitted, truncated(panel, origins), panel, origins, samples=CARD_DRAWS, seed=0)
    truth = np.array([panel.values[i][e] for i, e in zip(origins.series, origins.end, strict=True)])
    inside = inside_central(draws, truth)
    # A channel that is seen in none of these rows has no share.
    seen = {name: each[~np.isnan(each)] for name, each in zip(fitted.names, inside.T, strict=True)}
    named = {name: round(float(each.mean()), 3) for name, each in seen.items() if len(each)}
    return {"rows": len(truth), "coverage_of_90": named}


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
