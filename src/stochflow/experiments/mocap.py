"""Motion capture: the paper's table of test errors, in both set-ups."""

import dataclasses
import math
import os
import warnings
from pathlib import Path
from typing import Any, NamedTuple

import jax.random as jr
import numpy as np
from jaxtyping import Float, PRNGKeyArray

from ..data import Trajectories, at_speeds, thinned
from ..data.mocap import FRAME, load_mocap
from ..flows import BridgeFlow, StochasticFlow
from ..inference import LatentDraws, forecast_latent
from ..latent import FilteringPosterior, GaussianEmission, LatentFlow, ObservedFlow, WindowPosterior
from ..latent.emissions import LEAST_STD
from ..laws import HorizonWarning
from ..training import (
    LatentConfig,
    fit_latent,
    principal_latent_flow,
    rhythmic_latent_flow,
    with_channel_noise,
)

CHANNELS = 50
STATE = 6
# Draws behind each forecast by which weights are chosen.
VALIDATION_SAMPLES = 100


@dataclasses.dataclass(frozen=True)
class Setup:
    """Which frames are trained on and how many are given at test time; and how many frames the posterior of our
    principal components reads at once."""

    train_frames: int
    given: int
    window: int


SETUPS = {1: Setup(train_frames=300, given=3, window=3), 2: Setup(train_frames=200, given=100, window=5)}

# What each kind of model is trained with, unless the setting says otherwise; where two values stand, one a set-up.
# How they were found is in docs/notes/mocap.md.
RECIPES: dict[str, dict[str, Any]] = {
    "rhythm": {
        "steps": (1000, 600),
        "learning_rate": 3e-3,
        "optimiser": "adamw",
        "taught_steps": 0,
        "slow": 0,
        # Set-up 1: with these, training sequences have the mean and the spread of the paces of all sequences that may
        # be looked at, those for validation too (`python -m benchmarks.mocap_baselines`).
        "slowest": (0.92, 0.93),
        "fastest": (1.05, 1.02),
        "every": 3,
        "beta_skip": 1.0,
        "forecast": (0.0, 20.0),
        "skip_starts": (256, 128),
        "transitions": None,
        "observation_std": 0.15,
        "channel_noise": True,
        "log_every": 100,
    },
    "principal": {
        "steps": 8000,
        "learning_rate": 1e-2,
        "optimiser": "muon",
        "taught_steps": 5000,
        "slow": (0, 2),
        "slowest": (0.9, 0.93),
        "fastest": 1.02,
        "every": 1,
        "beta_skip": 2.0,
        "forecast": 0.0,
        "skip_starts": 256,
        "transitions": 64,
        "observation_std": (0.1, 0.15),
        "channel_noise": False,
        "log_every": 1000,
    },
}
RECIPES["paper"] = RECIPES["principal"] | {
    "steps": 2500,
    "learning_rate": 2e-2,
    "taught_steps": 0,
    "slow": 0,
    "skip_starts": 512,
    "transitions": 256,
    "observation_std": 0.1,
    "log_every": 500,
}


@dataclasses.dataclass(frozen=True)
class MocapSetting:
    """The model, the budget and the weights of a run; what is not named here is handed to the fit. Where the default is
    none, it depends on the set-up and the parts.

    - `setup`: of the paper, 1 or 2.
    - `parts`: `"rhythm"`, a phase, a pace and styles with a posterior that is computed; `"principal"`, a state that
        begins as principal components and their rates of change, read by a linear window, with a flow; or `"paper"`,
        the paper's architecture.
    - `styles`: how many styles a rhythm has.
    - `harmonics`: of the rhythm's closed curve.
    - `components`: how many principal components.
    - `slow`: further dimensions of a principal state, which a GRU reads.
    - `gait`: the period of the walk, which the transition of a principal state knows; 0 if it should not.
    - `width`: of the transition's networks.
    - `speeds`: at so many paces the training sequences are shown.
    - `slowest`, `fastest`: of those paces, in terms of the sequences' own.
    - `every`: of so many frames one is trained on; each of the first so many begins a series.
    - `taught_steps`: after `steps` updates so many more, in which long gaps learn from the law itself.
    - `taught_rate`: the learning rate of those.
    - `taught_lag`: up to so many frames gaps then learn from the data.
    - `one_way`: from so many short steps of the law longer gaps then learn.
    - `observation_std`: of the emission to begin with.
    - `channel_noise`: whether after training each channel is given the noise that the states leave of it; what is
        given is read as before.
    - `patience`: after so many reports in a row (one every `log_every` updates) without better forecasts of the three
        validation sequences, in one step, training stops, and the weights that did best are kept; by default none are
        chosen, and the last are kept. One of the three is unlike all others: what is compared is the mean of the
        logarithms of their errors.
    - `samples`: draws behind each forecast.
    """

    setup: int = 2
    parts: str = "rhythm"
    styles: int = 8
    harmonics: int = 6
    components: int = 5
    slow: int | None = None
    gait: float = 13.5
    width: int = 64
    speeds: int = 5
    slowest: float | None = None
    fastest: float | None = None
    every: int | None = None
    steps: int | None = None
    learning_rate: float | None = None
    optimiser: str | None = None
    taught_steps: int | None = None
    taught_rate: float = 5e-3
    taught_lag: int = 60
    one_way: int = 20
    beta: float = 1.0
    beta_skip: float | None = None
    forecast: float | None = None
    consistency: float = 0.0
    consistency_batch: int = 256
    one_to_two: float = 1.0
    two_to_one: float = 1.0
    bridge_steps: int = 0
    skip_lag: int | None = None
    skip_starts: int | None = None
    skip_samples: int = 1
    skip_scheme: str = "lag"
    transitions: int | None = None
    observation_std: float | None = None
    channel_noise: bool | None = None
    common_scale: bool = True
    input_noise: float = 0.0
    weights_warmup: int = 0
    patience: int | None = None
    samples: int = 200
    log_every: int | None = None

    def __post_init__(self):
        if self.setup not in SETUPS:
            raise ValueError(f"`setup` must be 1 or 2; got {self.setup}.")
        if self.parts not in RECIPES:
            raise ValueError(f"`parts` must be one of {', '.join(RECIPES)}; got {self.parts!r}.")
        for name, value in RECIPES[self.parts].items():
            if getattr(self, name) is None:
                object.__setattr__(self, name, value[self.setup - 1] if isinstance(value, tuple) else value)
        for name in ("gait", "slow", "taught_steps"):
            if not (value := getattr(self, name)) >= 0:
                raise ValueError(f"`{name}` must be at least 0; got {value}.")
        for name in ("every", "styles", "harmonics", "components", "width", "samples"):
            if getattr(self, name) < 1:
                raise ValueError(f"`{name}` must be at least 1; got {getattr(self, name)}.")
        for name in ("styles", "components"):
            if getattr(self, name) > CHANNELS:
                raise ValueError(
                    f"`{name}` must be at most {CHANNELS}, as there are channels; got {getattr(self, name)}."
                )
        if not (std := self.chosen("observation_std")) > LEAST_STD:
            raise ValueError(f"`observation_std` must be greater than {LEAST_STD:g}; got {std}.")
        if self.consistency > 0 and self.parts == "rhythm":
            raise ValueError(
                "`consistency` must be 0 for a rhythm, which is one law as it is; choose `parts` principal or paper."
            )
        if not self.taught_rate > 0:
            raise ValueError(f"`taught_rate` must be positive; got {self.taught_rate}.")
        slowest, fastest = self.chosen("slowest"), self.chosen("fastest")
        if self.speeds < 1 or not 0 < slowest <= fastest:
            raise ValueError(
                "`speeds` must be at least 1 and 0 < `slowest` ≤ `fastest`; got "
                f"{self.speeds}, {slowest} and {fastest}."
            )
        if self.taught_steps:
            self.taught_config()
        self.fit_config()  # which refuses what `fit_latent` would, before any data is read

    def chosen(self, name: str) -> Any:
        """A setting that the recipe has filled in, where it was not given."""
        return getattr(self, name)

    def fit_config(self) -> LatentConfig:
        return LatentConfig(
            steps=self.chosen("steps"),
            log_every=self.chosen("log_every"),
            batch_size=16,
            learning_rate=self.chosen("learning_rate"),
            optimiser=self.chosen("optimiser"),
            ema=0.99,
            beta=self.beta,
            beta_skip=self.chosen("beta_skip"),
            consistency=self.consistency,
            consistency_batch=self.consistency_batch,
            one_to_two=self.one_to_two,
            two_to_one=self.two_to_one,
            bridge_steps=self.bridge_steps,
            forecast=self.chosen("forecast"),
            skip_lag=self.skip_lag,
            skip_starts=self.chosen("skip_starts"),
            skip_samples=self.skip_samples,
            skip_scheme=self.skip_scheme,
            transitions=self.transitions,
            weights_warmup=self.weights_warmup,
            common_scale=self.common_scale,
            input_noise=self.input_noise,
            time_unit=1.0,
            patience=self.patience,
        )

    def taught_config(self) -> LatentConfig:
        return dataclasses.replace(
            self.fit_config(),
            steps=self.chosen("taught_steps"),
            log_every=math.gcd(self.chosen("taught_steps"), self.chosen("log_every")),
            learning_rate=self.taught_rate,
            consistency=1.0,
            one_way=self.one_way,
            skip_lag=self.taught_lag,
        )

    def model(self, train: Trajectories, *, key: PRNGKeyArray) -> LatentFlow:
        """The chosen parts; flows with the saturating clock."""
        std = self.chosen("observation_std")
        if self.parts == "paper":
            return paper_model(self.setup, observation_std=std, key=key)
        if self.parts == "rhythm":
            return rhythmic_latent_flow(
                train,
                config=self.fit_config(),
                styles=self.styles,
                harmonics=self.harmonics,
                initial_std=std,
                key=key,
            )
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


def draws(
    flow: ObservedFlow,
    times: np.ndarray,
    values: np.ndarray,
    given: int,
    *,
    step: int | None,
    samples: int,
    joint: bool = False,
    key: PRNGKeyArray,
) -> LatentDraws:
    """Forecasts of all frames after the first `given`, each in one step or in as few as are not longer than `step`
    frames; if `joint`, and in steps of one frame, they are one path."""
    with warnings.catch_warnings():
        # Set-up 2 asks for one frame more than the longest gap of its training frames.
        warnings.simplefilter("ignore", HorizonWarning)
        return forecast_latent(
            flow,
            times[:given],
            values[:given],
            times[given:],
            samples=samples,
            joint=joint or step == 1,
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


def validation_loss(flow: ObservedFlow, data: Trajectories, given: int) -> dict[str, float]:
    """What weights are chosen by, if they are: the mean of the logarithms of the errors, in one step."""
    errors = mean_squared_errors(flow, data, given, step=None, samples=VALIDATION_SAMPLES, key=jr.key(0))
    return {"loss": float(np.log(errors).mean())} | {f"mse_{i}": float(e) for i, e in enumerate(errors)}


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
    """Fit to the training sequences, then let the law teach itself its long gaps."""
    data = load_mocap() if data is None else data
    setup = SETUPS[setting.setup]
    model_key, fit_key, teach_key = jr.split(jr.key(seed), 3)
    noise_key = jr.fold_in(jr.key(seed), 3)
    train = data["train"].window(0.0, (setup.train_frames - 0.5) * FRAME)
    if setting.speeds > 1:
        speeds = np.linspace(setting.chosen("slowest"), setting.chosen("fastest"), setting.speeds)
        train = at_speeds(train, speeds.tolist())
    train = thinned(train, setting.chosen("every"))

    validation = None
    if setting.patience is not None:
        validation = lambda flow: validation_loss(flow, data["validation"], setup.given)
    stages = (None, None) if folder is None else (Path(folder) / "all", Path(folder) / "taught")
    first = fit_latent(
        setting.model(train, key=model_key),
        train,
        config=setting.fit_config(),
        validation=validation,
        folder=stages[0],
        progress=progress,
        key=fit_key,
    )
    flow, seconds = first.flow, first.history[-1]["seconds"]
    if setting.taught_steps:
        second = fit_latent(
            flow.model,
            train,
            config=setting.taught_config(),
            validation=validation,
            folder=stages[1],
            progress=progress,
            key=teach_key,
        )
        flow, seconds = second.flow, seconds + second.history[-1]["seconds"]
    if setting.channel_noise:
        flow = with_channel_noise(flow, train, std=setting.observation_std, key=noise_key)
    return MocapFit(flow, seconds)
