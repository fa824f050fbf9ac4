"""Motion capture: the paper's table of test errors, in both set-ups."""

import dataclasses
import json
import math
import os
import warnings
from collections.abc import Collection
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Float, PRNGKeyArray

from ..data import Trajectories, at_speeds
from ..data.mocap import FRAME, load_mocap
from ..flows import BridgeFlow, StochasticFlow
from ..inference import LatentDraws, forecast_latent
from ..latent import FilteringPosterior, GaussianEmission, LatentFlow, ObservedFlow, WindowPosterior
from ..laws import HorizonWarning
from ..metrics import crps, energy_score
from ..training import LatentConfig, fit_latent, principal_latent_flow
from ..training.checkpoint import json_text
from .paper import MOCAP_MSE

CHANNELS = 50
STATE = 6
# The longest step of a forecast, in frames; the first is the whole horizon at once.
STEPS = (None, 50, 10, 1)
LEVELS = (0.5, 0.8, 0.95)
QUARTERS = 4


@dataclasses.dataclass(frozen=True)
class Setup:
    """Which frames are trained on and how many are given at test time; and, for our configuration, how many frames the
    posterior reads at once, how many dimensions of the state it reads from all of them, the observation std, and the
    slowest pace that the training sequences are resampled at."""

    train_frames: int
    given: int
    window: int
    slow: int
    observation_std: float
    slowest: float


SETUPS = {
    1: Setup(train_frames=300, given=3, window=3, slow=0, observation_std=0.1, slowest=0.9),
    2: Setup(train_frames=200, given=100, window=5, slow=2, observation_std=0.15, slowest=0.93),
}


PARTS = ("principal", "paper")


@dataclasses.dataclass(frozen=True)
class MocapSetting:
    """The model, the budget and the weights of a run; what is not named here is handed to the fit.

    - `setup`: of the paper, 1 or 2.
    - `parts`: `"principal"`, a state that begins as principal components and their rates of change, read by a linear
        window, or `"paper"`, the paper's architecture. That asks for other weights (docs/notes/mocap.md).
    - `components`: how many principal components.
    - `slow`: further dimensions of the state, which a GRU reads; by default two in set-up 2, where there is a past to
        read, and none in set-up 1.
    - `gait`: the period of the walk, which the transition knows; 0 if it should not.
    - `width`: of the transition's networks.
    - `speeds`: at so many paces the training sequences are shown.
    - `slowest`, `fastest`: of those paces, in terms of the sequences' own.
    - `taught_steps`: after `steps` updates so many more, in which long gaps learn from the law itself.
    - `taught_rate`: the learning rate of those.
    - `taught_lag`: up to so many frames gaps then learn from the data.
    - `one_way`: from so many short steps of the law longer gaps then learn.
    - `observation_std`: of the emission to begin with; by default that of the set-up.
    - `samples`: draws behind each forecast.
    """

    setup: int = 2
    parts: str = "principal"
    components: int = 5
    slow: int | None = None
    gait: float = 13.5
    width: int = 64
    speeds: int = 5
    slowest: float | None = None
    fastest: float = 1.02
    steps: int = 8000
    learning_rate: float = 1e-2
    taught_steps: int = 5000
    taught_rate: float = 5e-3
    taught_lag: int = 60
    one_way: int = 20
    beta: float = 1.0
    beta_skip: float = 2.0
    consistency: float = 0.0
    consistency_batch: int = 256
    skip_lag: int | None = None
    skip_starts: int = 256
    skip_samples: int = 1
    skip_scheme: str = "lag"
    transitions: int = 64
    observation_std: float | None = None
    common_scale: bool = True
    input_noise: float = 0.0
    weights_warmup: int = 0
    samples: int = 200
    log_every: int = 1000

    def __post_init__(self):
        if self.setup not in SETUPS:
            raise ValueError(f"`setup` must be 1 or 2; got {self.setup}.")
        if self.parts not in PARTS:
            raise ValueError(f"`parts` must be one of {', '.join(PARTS)}; got {self.parts!r}.")
        for name in ("gait", "slow", "taught_steps"):
            if (value := getattr(self, name)) is not None and not value >= 0:
                raise ValueError(f"`{name}` must be at least 0; got {value}.")
        if not self.taught_rate > 0:
            raise ValueError(f"`taught_rate` must be positive; got {self.taught_rate}.")
        slowest = self.chosen("slowest")
        if self.speeds < 1 or not 0 < slowest <= self.fastest:
            raise ValueError(
                "`speeds` must be at least 1 and 0 < `slowest` ≤ `fastest`; got "
                f"{self.speeds}, {slowest} and {self.fastest}."
            )
        if self.taught_steps:
            self.taught_config()
        self.fit_config()  # which refuses what `fit_latent` would, before any data is read

    def chosen(self, name: str) -> Any:
        """A setting that depends on the set-up, unless it was given."""
        given = getattr(self, name)
        return getattr(SETUPS[self.setup], name) if given is None else given

    def fit_config(self) -> LatentConfig:
        return LatentConfig(
            steps=self.steps,
            log_every=self.log_every,
            batch_size=16,
            learning_rate=self.learning_rate,
            ema=0.99,
            beta=self.beta,
            beta_skip=self.beta_skip,
            consistency=self.consistency,
            consistency_batch=self.consistency_batch,
            skip_lag=self.skip_lag,
            skip_starts=self.skip_starts,
            skip_samples=self.skip_samples,
            skip_scheme=self.skip_scheme,
            transitions=self.transitions,
            weights_warmup=self.weights_warmup,
            common_scale=self.common_scale,
            input_noise=self.input_noise,
            time_unit=1.0,
        )

    def taught_config(self) -> LatentConfig:
        return dataclasses.replace(
            self.fit_config(),
            steps=self.taught_steps,
            log_every=math.gcd(self.taught_steps, self.log_every),
            learning_rate=self.taught_rate,
            consistency=1.0,
            one_way=self.one_way,
            skip_lag=self.taught_lag,
        )

    def model(self, train: Trajectories, *, key: PRNGKeyArray) -> LatentFlow:
        """The chosen parts, with the saturating clock."""
        std = self.chosen("observation_std")
        if self.parts == "paper":
            return paper_model(self.setup, observation_std=std, key=key)
        return principal_latent_flow(
            train,
            config=self.fit_config(),
            components=self.components,
            window=SETUPS[self.setup].window,
            slow=self.chosen("slow"),
            periods=[self.gait / k for k in (1, 2, 3)] if self.gait else (),
            width=self.width,
            initial_std=std,
            key=key,
        )


def paper_model(setup: int, *, observation_std: float = 0.2, key: PRNGKeyArray) -> LatentFlow:
    """The paper's architecture for a set-up, with the saturating clock."""
    flow_key, bridge_key, emission_key, posterior_key = jr.split(key, 4)
    wide = setup == 2
    posterior = FilteringPosterior if wide else WindowPosterior
    return LatentFlow(
        StochasticFlow(STATE, width=64 if wide else 30, clock="saturating", key=flow_key),
        GaussianEmission(STATE, CHANNELS, initial_std=observation_std, key=emission_key),
        posterior(CHANNELS, STATE, key=posterior_key),
        BridgeFlow(STATE, width=32 if wide else 30, key=bridge_key),
    )


class MocapFit(NamedTuple):
    """A trained flow and the seconds that it took."""

    flow: ObservedFlow
    seconds: float


def train_mocap(
    setting: MocapSetting,
    *,
    seed: int,
    data: dict[str, Trajectories] | None = None,
    folder: str | os.PathLike | None = None,
    progress: bool | None = None,
) -> MocapFit:
    """Fit to the training sequences, then let the law teach itself its long gaps; the last weights are kept."""
    data = load_mocap() if data is None else data
    setup = SETUPS[setting.setup]
    model_key, fit_key, teach_key = jr.split(jr.key(seed), 3)
    train = data["train"].window(0.0, (setup.train_frames - 0.5) * FRAME)
    if setting.speeds > 1:
        speeds = np.linspace(setting.chosen("slowest"), setting.fastest, setting.speeds)
        train = at_speeds(train, speeds.tolist())

    stages = (None, None) if folder is None else (Path(folder) / "all", Path(folder) / "taught")
    first = fit_latent(
        setting.model(train, key=model_key),
        train,
        config=setting.fit_config(),
        folder=stages[0],
        progress=progress,
        key=fit_key,
    )
    seconds = first.history[-1]["seconds"]
    if not setting.taught_steps:
        return MocapFit(first.flow, seconds)
    second = fit_latent(
        first.flow.model,
        train,
        config=setting.taught_config(),
        folder=stages[1],
        progress=progress,
        key=teach_key,
    )
    return MocapFit(second.flow, seconds + second.history[-1]["seconds"])


def draws(
    flow: ObservedFlow,
    times: np.ndarray,
    values: np.ndarray,
    given: int,
    *,
    step: int | None,
    samples: int,
    key: PRNGKeyArray,
) -> LatentDraws:
    """Forecasts of all frames after the first `given`, each in one step or in as few as are not longer than `step`
    frames; steps of one frame are one path."""
    with warnings.catch_warnings():
        # Set-up 2 asks for one frame more than the longest gap of its training frames.
        warnings.simplefilter("ignore", HorizonWarning)
        return forecast_latent(
            flow,
            times[:given],
            values[:given],
            times[given:],
            samples=samples,
            joint=step == 1,
            max_gap=None if step is None else step * FRAME,
            key=key,
        )


def mean_squared_errors(
    flow: ObservedFlow,
    data: Trajectories,
    given: int,
    *,
    step: int | None,
    samples: int,
    key: PRNGKeyArray,
) -> Float[np.ndarray, " series"]:
    """Of the predicted mean, over all later frames and channels, sequence by sequence."""
    found = []
    for i in range(len(data)):
        times, values = data.times[i].astype(np.float64), data.values[i]
        predicted = draws(flow, times, values, given, step=step, samples=samples, key=jr.fold_in(key, i))
        found.append(np.square(np.asarray(predicted.means.mean(axis=0)) - values[given:]).mean())
    return np.asarray(found, np.float64)


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
