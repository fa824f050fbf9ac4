"""Motion capture: forecasts, their errors and scores, and the tables of both set-ups."""

import dataclasses
import json
from collections.abc import Collection
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import PRNGKeyArray

from ..data import Trajectories
from ..data.mocap import load_mocap
from ..latent import ObservedFlow
from ..metrics import crps, energy_score
from ..training.checkpoint import json_text
from .mocap import SETUPS, MocapSetting, draws, mean_squared_errors
from .paper import MOCAP_MSE

# The longest step of a forecast, in frames; the first is the whole horizon at once.
STEPS = (None, 50, 10, 1)
LEVELS = (0.5, 0.8, 0.95)
QUARTERS = 4


@dataclasses.dataclass(frozen=True)
class MocapScores:
    """What the table and the figures need of one trained model, on the four test sequences.

    `mse` has one row a longest step, in the order of `STEPS`; scores and coverage are of one-step forecasts with the
    noise of the emission, by quarters of the horizon.
    """

    mse: dict[str, list[float]]
    validation_mse: list[float]
    crps: list[float]
    energy: list[float]
    coverage: dict[str, list[float]]


def read_other_rows(path: Path, setting: MocapSetting, seeds: Collection[int]) -> list[dict[str, Any]]:
    """The rows of a file of scores that have another seed or another setting; none if there is no file."""
    if not path.exists():
        return []
    same = json.loads(json_text(dataclasses.asdict(setting)))
    try:
        rows = json.loads(path.read_bytes())
        if isinstance(rows, list):
            again = [(row["setting"] == same) & (row["seed"] in seeds) for row in rows]
            return [row for row, drop in zip(rows, again, strict=True) if not drop]
    except (ValueError, TypeError, KeyError):
        pass
    raise ValueError(
        f"{path} holds no scores of this table, and is not overwritten: move it away, or choose another folder."
    )


def step_name(step: int | None) -> str:
    return "one step" if step is None else f"steps of {step}"


def score_mocap(
    flow: ObservedFlow,
    setting: MocapSetting,
    *,
    data: dict[str, Trajectories] | None = None,
    key: PRNGKeyArray,
) -> MocapScores:
    """Errors for every longest step, and proper scores and coverage of the one-step forecast."""
    data = load_mocap() if data is None else data
    given, samples = SETUPS[setting.setup].given, setting.samples
    errors = {
        step_name(step): mean_squared_errors(
            flow, data["test"], given, step=step, samples=samples, key=key
        ).tolist()
        for step in STEPS
    }
    validation = mean_squared_errors(
        flow, data["validation"], given, step=None, samples=samples, key=key
    ).tolist()
    truth, drawn = [], []
    for i in range(len(data["test"])):
        times, values = data["test"].times[i].astype(np.float64), data["test"].values[i]
        found = draws(flow, times, values, given, step=None, samples=samples, key=jr.fold_in(key, 100 + i))
        truth.append(values[given:])
        drawn.append(np.asarray(found.values))
    return MocapScores(errors, validation, *_probabilistic(np.stack(truth), np.stack(drawn, axis=1)))


def _probabilistic(truth, drawn):
    """CRPS, energy score and coverage by quarters; `truth` is (series, frames, channels), `drawn` has samples first."""
    each_crps = jax.jit(jax.vmap(crps, in_axes=(1, 0)))(
        drawn.reshape(len(drawn), -1), truth.reshape(-1)
    ).reshape(truth.shape)
    samples, channels = len(drawn), truth.shape[2]
    forecasts = np.moveaxis(drawn, 0, 2).reshape(-1, samples, channels)
    pairs = jnp.asarray(forecasts), jnp.asarray(truth.reshape(-1, channels))
    each_energy = jax.lax.map(lambda pair: energy_score(*pair), pairs).reshape(truth.shape[:2])
    quarter = lambda values: [
        float(part.mean()) for part in np.array_split(np.asarray(values), QUARTERS, axis=1)
    ]
    inside = {}
    for level in LEVELS:
        low, high = np.quantile(drawn, [(1 - level) / 2, (1 + level) / 2], axis=0)
        # Channels that never move are left out: any interval holds them or none does.
        moving = truth.std(axis=(0, 1)) > 0
        inside[f"{level:g}"] = quarter(((truth >= low) & (truth <= high))[:, :, moving])
    return quarter(each_crps), quarter(each_energy), inside


def t_interval(values: list[float]) -> float:
    """Half the width of the 95 % interval of a mean, by Student's t; nan for a single value."""
    from scipy.stats import t

    if len(values) < 2:
        return float("nan")
    return float(t.ppf(0.975, len(values) - 1) * np.std(values, ddof=1) / np.sqrt(len(values)))


def mocap_rows(scores: list[MocapScores], setup: int) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """The paper's table for one set-up, and ours below it, one row a longest step."""
    rows = [(f"paper: {name}", cell) for name, cell in MOCAP_MSE[setup].items()]
    for step in STEPS:
        means = [float(np.mean(score.mse[step_name(step)])) for score in scores]
        spread = "" if len(means) < 2 else f" ± {t_interval(means):.2f}"
        rows.append((f"stochflow: {step_name(step)} ({len(means)} seeds)", f"{np.mean(means):.2f}{spread}"))
    return ("", f"test MSE, set-up {setup}"), rows


def quality_rows(scores: list[MocapScores]) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Scores and coverage by quarters of the horizon, mean over seeds."""
    mean = lambda pick: np.mean([pick(score) for score in scores], axis=0)
    cells = lambda values, form: [form.format(value) for value in values]
    rows = [
        ("CRPS", *cells(mean(lambda s: s.crps), "{:.3f}")),
        ("energy score", *cells(mean(lambda s: s.energy), "{:.2f}")),
    ]
    for level in LEVELS:
        held = mean(lambda s, level=level: s.coverage[f"{level:g}"])
        rows.append((f"inside {level:.0%} intervals", *cells(held, "{:.1%}")))
    return ("one-step forecasts", *[f"quarter {i + 1}" for i in range(QUARTERS)]), rows
