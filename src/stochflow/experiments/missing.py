"""F.1 of the paper: Lorenz paths of which only 20 frames in a row are seen, and gaps that no pair spans."""

import dataclasses
import math
import os
import warnings
from typing import Any

import jax.random as jr
import numpy as np
from jaxtyping import PRNGKeyArray

from ..data.lorenz import FRAME, lorenz_trajectories, random_segments
from ..flows import BridgeFlow, StochasticFlow
from ..inference import series_starts
from ..laws import HorizonWarning
from ..training import FitConfig, FitResult, fit
from .common import one_history, open_stages, require_at_least
from .lorenz import (
    FLOW,
    HORIZON,
    LEAST_KL_SAMPLES,
    TRAIN_KEY,
    Source,
    fit_and_teach,
)
from .lorenz_scores import kl_tables
from .paper import MISSING_BY_BRIDGE_STEPS, MISSING_BY_DIRECTION, MISSING_BY_WEIGHT

SEEN = 20
SEGMENT_SEED = 0
AT = (1, 3)  # of the table's times: t = 0.5 and t = 1
# How far the starts of the law's own paths are spread: Silverman's rule for the 46 segments that begin at t = 0, and
# little for all the others, which lie on the attractor.
SMOOTHING_AT_ZERO, SMOOTHING = 0.56, 0.05
# Starts to draw from where the loss is given some.
STARTS = 16_384
# Into how many short ones the loss that goes one way cuts a gap: at most .125 each.
ONE_WAY_STEPS = 8
# What the rows of the paper are trained with; those that reach the floor in one step need all of `FLOW`.
SMALL_FLOW = {"coupling": "spline", "octaves": 3, "tails": True}


@dataclasses.dataclass(frozen=True)
class MissingSetting:
    """The budget of one run of the study.

    - `data_steps`: updates on the data alone, so that the law is at rest when a loss begins.
    - `steps`: then so many updates with the paper's loss; on the data alone too, where its weight is 0.
    - `batch_size`: how many pairs an update.
    - `growing`: the share of those over which the longest gap that is compared grows from that of the data to the
        horizon; 0 compares all gaps from the first of them on.
    - `bridge`: the couplings of the bridge, "spline" or "affine".
    - `one_way_data_steps`: where the loss goes one way, so many updates on the data alone.
    - `one_way_steps`: then so many with the loss, at the whole rate.
    - `one_way_batch`: of so many triplets each.
    - `contested`: the share of the starts that these are given at t = 0 which lies where paths part.
    - `taught_steps`: where the law teaches itself, so many updates on the data alone, and as many on both.
    - `taught_paths`: series that the law then makes, half of them from starts at t = 0.
    - `taught_start_fraction`: the share of pairs that start at the first row of a series, when the law teaches itself.
    - `kl_samples`: how many behind each KL.
    - `kl_repeats`: how often each KL is estimated anew.
    """

    data_steps: int = 20_000
    steps: int = 26_000
    batch_size: int = 256
    learning_rate: float = 1e-2
    consistency_batch: int = 256
    consistency_jitter: float = 0.05
    growing: float = 0.55
    bridge: str = "spline"
    one_way_data_steps: int = 12_000
    one_way_steps: int = 24_000
    one_way_batch: int = 256
    contested: float = 0.5
    taught_steps: int = 24_000
    taught_paths: int = 16_384
    taught_start_fraction: float = 0.4
    kl_samples: int = 10_240
    kl_repeats: int = 3

    def __post_init__(self):
        for field in dataclasses.fields(self):
            if field.type is int and field.name != "kl_samples":
                require_at_least(field.name, getattr(self, field.name), 1)
        require_at_least("kl_samples", self.kl_samples, LEAST_KL_SAMPLES)
        require_at_least("taught_paths", self.taught_paths, 2)  # half of them from each kind of start
        if not self.learning_rate > 0:  # so, and not `<= 0`, for the sake of nan
            raise ValueError(f"`learning_rate` must be positive; got {self.learning_rate}.")
        if not self.consistency_jitter >= 0:
            raise ValueError(f"`consistency_jitter` must be at least 0; got {self.consistency_jitter}.")
        for name in ("taught_start_fraction", "growing", "contested"):
            if not 0 <= (value := getattr(self, name)) <= 1:
                raise ValueError(f"`{name}` must be in [0, 1]; got {value}.")
        if self.bridge not in ("spline", "affine"):
            raise ValueError(f"`bridge` must be spline or affine; got {self.bridge!r}.")

    def data_config(self, steps: int) -> FitConfig:
        """Updates on the data alone."""
        return FitConfig(
            steps=steps,
            batch_size=self.batch_size,
            learning_rate=self.learning_rate,
            pairs="root",
            consistency_horizon=HORIZON,
            log_every=math.gcd(1000, steps),
        )

    def fit_configs(self, case: "Case") -> tuple[FitConfig, FitConfig]:
        """The data alone, and then the loss of a case.

        With the paper's loss the gaps that are compared grow from those of the data to the horizon for somewhat more
        than half of the steps: begun at once, a third and more of the updates are not finite, and the law is spoilt.
        """
        if case.one_way:
            first, steps = self.data_config(self.one_way_data_steps), self.one_way_steps
            loss: dict[str, Any] = {
                "consistency_batch": self.one_way_batch,
                "consistency_warmup": min(500, steps // 8),
            }
        else:
            first, steps = self.data_config(self.data_steps), self.steps
            loss = {"consistency_batch": self.consistency_batch, "consistency_warmup": min(2000, steps // 8)}
            loss |= {"consistency_growth": round(self.growing * steps), "decay": "linear"}
            loss |= {"learning_rate": self.learning_rate / 2}
        second = dataclasses.replace(
            first,
            steps=steps,
            consistency=case.weight,
            one_to_two=float(case.one_to_two),
            two_to_one=float(case.two_to_one),
            bridge_steps=case.bridge_steps,
            one_way=case.one_way,
            consistency_jitter=self.consistency_jitter,
            log_every=math.gcd(1000, steps),
            **loss,
        )
        return first, second


@dataclasses.dataclass(frozen=True)
class Case:
    """One row of the study, with the paper's numbers at t = .5 and 1, if it has the row.

    `taught` replaces the loss: half of the steps are taken on the data alone and half on the data and on series that
    the law has simulated in short steps, half of them from starts at t = 0. `one_way` keeps the loss, but long gaps
    learn from so many short ones and not the other way round, and half of the triplets begin where the segments that
    start at t = 0 do, which is one row in 450 of the data. There paths part, and that takes all of `FLOW`.
    """

    name: str
    weight: float
    paper: tuple[tuple[float, float], tuple[float, float]] | None
    taught: bool = False
    one_way: int = 0
    bridge_steps: int = 0
    one_to_two: bool = True
    two_to_one: bool = True


def cases() -> dict[str, Case]:
    """Every row of the paper's three tables, and two of ours.

    The paper varies weight and direction at K = 5, we with a bridge that is trained along with the flow: our "λ = 0.4"
    is also its K = 0.
    """
    found = [Case(f"λ = {w:g}", w, paper) for w, paper in MISSING_BY_WEIGHT.items()]
    found += [
        Case(f"λ = 0.4, K = {k}", 0.4, paper, bridge_steps=k)
        for k, paper in MISSING_BY_BRIDGE_STEPS.items()
        if k
    ]
    found += [
        Case(
            f"λ = 0.4, {name}",
            0.4,
            paper,
            one_to_two=name != "2→1 only",
            two_to_one=name != "1→2 only",
        )
        for name, paper in MISSING_BY_DIRECTION.items()
        if name != "both"
    ]
    found.append(Case("λ = 1, one way", 1.0, None, one_way=ONE_WAY_STEPS))
    found.append(Case("λ = 0, taught by its own series", 0.0, None, taught=True))
    return {case.name: case for case in found}


def train_missing(
    case: Case,
    setting: MissingSetting,
    *,
    seed: int,
    folder: str | os.PathLike | None = None,
    progress: bool | None = None,
) -> FitResult:
    """Fit to segments; beyond their length only the consistency loss teaches."""
    flow_key, bridge_key, fit_key = jr.split(jr.key(seed), 3)
    data = random_segments(lorenz_trajectories(1024, key=jr.key(TRAIN_KEY)), SEEN, seed=SEGMENT_SEED)
    flow = StochasticFlow(3, **(FLOW if case.one_way else SMALL_FLOW), key=flow_key)
    from_zero = data.select(np.flatnonzero(data.origins == 0))
    if case.taught:
        half = setting.data_config(setting.taught_steps)
        second = dataclasses.replace(
            half, learning_rate=setting.learning_rate / 2, start_fraction=setting.taught_start_fraction
        )
        each = setting.taught_paths // 2
        return fit_and_teach(
            flow,
            data,
            (half, second),
            sources=[Source(from_zero, each, SMOOTHING_AT_ZERO), Source(data, each, SMOOTHING)],
            folder=folder,
            progress=progress,
            keys=list(jr.split(fit_key, 3)),
        )
    if case.weight == 0:
        config = setting.data_config(setting.data_steps + setting.steps)
        return fit(flow, data, config=config, folder=folder, progress=progress, key=fit_key)

    def extra(law):
        if not case.one_way:
            return {"bridge": BridgeFlow(3, coupling=setting.bridge, key=bridge_key)}
        where = {"span": HORIZON, "step": HORIZON / case.one_way, "contested": setting.contested}
        spread = {"smoothing": SMOOTHING_AT_ZERO, "key": jr.fold_in(fit_key, 1)}
        return {"starts": series_starts(law, from_zero, STARTS, **where, **spread)}

    return _data_then_loss(flow, data, setting.fit_configs(case), extra, folder, progress, fit_key)


def _data_then_loss(flow, data, configs, extra, folder, progress, key) -> FitResult:
    """The short gaps first, until they are at rest; then the long ones learn from them, with what `extra` makes of the
    law."""
    first_key, second_key = jr.fold_in(key, 2), jr.fold_in(key, 3)
    stages = {"config": dataclasses.asdict(configs[1]), "data": dataclasses.asdict(configs[0])}
    run, (first_folder, second_folder) = open_stages(folder, ("data", "loss"), stages, [key])
    first = fit(flow, data, config=configs[0], folder=first_folder, progress=progress, key=first_key)
    loss = {"config": configs[1], "folder": second_folder, "progress": progress, "key": second_key}
    second = fit(first.flow, data, **loss, **extra(first.flow))
    history = one_history(first, second)
    if run is not None:
        run.write_metrics(history)
    return dataclasses.replace(second, history=history)


def score_missing(
    result: FitResult, case: Case, setting: MissingSetting, *, key: PRNGKeyArray
) -> dict[str, Any]:
    """One-step and chained KL at all four times, as plain numbers, with the paper's two."""
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore", HorizonWarning
        )  # to go beyond what was seen is the point of the study
        own, shared = kl_tables(result.flow, setting.kl_samples, repeats=setting.kl_repeats, key=key)
    plain = lambda row: [{"mean": float(e.mean), "std": float(e.std)} for e in row]
    table = lambda kl: {f"{h:g}": plain(row) for h, row in kl.items()}
    return {
        "case": dataclasses.asdict(case),
        "setting": dataclasses.asdict(setting),
        "seconds": result.history[-1]["seconds"],
        "longest_seen_gap": (SEEN - 1) * FRAME,
        "kl": table(own.kl),
        "floor": plain(own.floor),
        "kl_shared_bandwidth": table(shared.kl),
        "floor_shared_bandwidth": plain(shared.floor),
    }


def missing_rows(
    scores: list[dict[str, Any]], *, reading: str = ""
) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """The study as a table: the paper's columns beside ours, one step and in steps of .25, and the floor below.

    `reading` is `"_shared_bandwidth"` for the other reading of the protocol, which a few far draws sway less.
    """
    headers = (
        "",
        "paper, t = .5",
        "t = 1",
        "one step, t = .5",
        "t = 1",
        "steps of .25, t = .5",
        "t = 1",
        "seconds",
    )
    cells = lambda row: [f"{row[i]['mean']:.2f} ± {row[i]['std']:.2f}" for i in AT]
    rows = []
    for score in scores:
        paper = [f"{m:g} ± {s:g}" for m, s in score["case"]["paper"] or []] or ["–", "–"]
        one, chained = (cells(score[f"kl{reading}"][max_gap]) for max_gap in ("1", "0.25"))
        rows.append((score["case"]["name"], *paper, *one, *chained, f"{score['seconds']:.0f}"))
    floor = cells(scores[0][f"floor{reading}"])
    return headers, [*rows, ("floor: two true samples", "", "", *floor, *floor, "")]
