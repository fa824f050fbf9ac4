"""F.2 of the paper: motion capture, set-up 2, by the weight, the direction and the inner steps of the flow loss."""

import dataclasses
import os
from typing import Any

import jax.random as jr
import numpy as np
from jaxtyping import PRNGKeyArray

from ..data import Trajectories
from ..data.mocap import load_mocap
from .mocap import SETUPS, MocapFit, MocapSetting, train_mocap
from .mocap_scores import mean_squared_errors, step_name
from .paper import MOCAP_BY_BRIDGE_STEPS, MOCAP_BY_DIRECTION, MOCAP_BY_WEIGHT

SETUP = 2
# Each frame in one step, and in steps of ten.
STEPS = (None, 10)


@dataclasses.dataclass(frozen=True)
class StudySetting:
    """The budget of a row of the study; all else is the recipe of the paper's architecture, at the sequences' own pace.

    - `steps`: updates; the paper takes 100,000.
    - `consistency_batch`: triplets of each.
    - `weights_warmup`: updates over which the weights of the losses rise from 0.
    - `samples`: draws behind each forecast.
    """

    steps: int = 1000
    consistency_batch: int = 256
    weights_warmup: int = 250
    samples: int = 200

    def __post_init__(self):
        for field in dataclasses.fields(self):
            least = 0 if field.name == "weights_warmup" else 1
            if getattr(self, field.name) < least:
                raise ValueError(f"`{field.name}` must be at least {least}; got {getattr(self, field.name)}.")

    def of(self, case: "Case") -> MocapSetting:
        """All settings of a row."""
        return MocapSetting(
            setup=SETUP,
            parts="paper",
            speeds=1,
            steps=self.steps,
            log_every=self.steps,
            weights_warmup=self.weights_warmup,
            consistency=case.weight,
            consistency_batch=self.consistency_batch,
            one_to_two=case.one_to_two,
            two_to_one=case.two_to_one,
            bridge_steps=case.bridge_steps,
            samples=self.samples,
        )


@dataclasses.dataclass(frozen=True)
class Case:
    """One row, with the paper's error, if it has the row."""

    name: str
    weight: float
    bridge_steps: int = 3
    one_to_two: float = 1.0
    two_to_one: float = 1.0
    paper: str = ""


def cases() -> dict[str, Case]:
    """Every row of the paper's three tables but for its bridge that is not trained at all; and no loss."""
    found = [Case("λ = 0", 0.0)]
    found += [Case(f"λ = {weight:g}", weight, paper=paper) for weight, paper in MOCAP_BY_WEIGHT.items()]
    found += [
        Case(
            f"λ = 1, {name}",
            1.0,
            one_to_two=float(name != "2→1 only"),
            two_to_one=float(name != "1→2 only"),
            paper=paper,
        )
        for name, paper in MOCAP_BY_DIRECTION.items()
    ]
    found += [
        Case(f"λ = 1, K = {k}", 1.0, bridge_steps=k, paper=paper)
        for k, paper in MOCAP_BY_BRIDGE_STEPS.items()
        if k != 3
    ]
    return {case.name: case for case in found}


def train_case(
    case: Case,
    setting: StudySetting,
    *,
    seed: int,
    data: dict[str, Trajectories] | None = None,
    folder: str | os.PathLike | None = None,
    progress: bool | None = None,
) -> MocapFit:
    """The model of one row."""
    return train_mocap(setting.of(case), seed=seed, data=data, folder=folder, progress=progress)


def score_case(
    fit: MocapFit,
    case: Case,
    setting: StudySetting,
    *,
    seed: int,
    data: dict[str, Trajectories] | None = None,
    key: PRNGKeyArray,
) -> dict[str, Any]:
    """Test errors of one row, as they are kept."""
    data = load_mocap() if data is None else data
    errors = {
        step_name(step): mean_squared_errors(
            fit.flow,
            data["test"],
            SETUPS[SETUP].given,
            step=step,
            samples=setting.samples,
            key=jr.fold_in(key, 0),
        ).tolist()
        for step in STEPS
    }
    return {
        "case": dataclasses.asdict(case),
        "setting": dataclasses.asdict(setting),
        "seed": seed,
        "seconds": fit.seconds,
        "mse": errors,
    }


def study_rows(scores: list[dict[str, Any]]) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """The rows that have been run, beside the paper's."""
    headers = ("", "paper (100,000 updates)", *(step_name(step) for step in STEPS), "seconds")
    return headers, [
        (
            score["case"]["name"],
            score["case"]["paper"],
            *(f"{np.mean(score['mse'][step_name(step)]):.2f}" for step in STEPS),
            f"{score['seconds']:.0f}",
        )
        for score in scores
    ]
