"""Motion capture: the paper's table of test errors, in both set-ups."""

import dataclasses
import os

import jax.random as jr
import numpy as np
from jaxtyping import Float, PRNGKeyArray

from ..data import Trajectories
from ..data.mocap import FRAME, load_mocap
from ..flows import BridgeFlow, StochasticFlow
from ..inference import LatentDraws, forecast_latent
from ..latent import FilteringPosterior, GaussianEmission, LatentFlow, ObservedFlow, WindowPosterior
from ..training import LatentConfig, LatentFitResult, fit_latent

CHANNELS = 50
STATE = 6
# The longest step of a forecast, in frames; the first is the whole horizon at once.
STEPS = (None, 50, 10, 1)
LEVELS = (0.5, 0.8, 0.95)
QUARTERS = 4


@dataclasses.dataclass(frozen=True)
class Setup:
    """Which frames are trained on and how many are given at test time."""

    train_frames: int
    given: int


SETUPS = {1: Setup(train_frames=300, given=3), 2: Setup(train_frames=200, given=100)}


@dataclasses.dataclass(frozen=True)
class MocapSetting:
    """The budget and the weights of a run; the architecture is the paper's."""

    setup: int = 2
    steps: int = 6000
    learning_rate: float = 5e-3
    beta: float = 1.0
    beta_skip: float = 2.0
    consistency: float = 1.0
    consistency_batch: int = 256
    skip_starts: int = 1024
    skip_samples: int = 2
    skip_scheme: str = "uniform"
    transitions: int = 1024
    observation_std: float = 0.2
    input_noise: float = 0.0
    weights_warmup: int = 500
    samples: int = 100
    validate_every: int = 500

    def __post_init__(self):
        if self.setup not in SETUPS:
            raise ValueError(f"`setup` must be 1 or 2; got {self.setup}.")

    def fit_config(self) -> LatentConfig:
        return LatentConfig(
            steps=self.steps,
            log_every=self.validate_every,
            batch_size=16,
            learning_rate=self.learning_rate,
            beta=self.beta,
            beta_skip=self.beta_skip,
            consistency=self.consistency,
            consistency_batch=self.consistency_batch,
            skip_starts=self.skip_starts,
            skip_samples=self.skip_samples,
            skip_scheme=self.skip_scheme,
            transitions=self.transitions,
            weights_warmup=self.weights_warmup,
            input_noise=self.input_noise,
            time_unit=1.0,
        )

    def model(self, *, key: PRNGKeyArray) -> LatentFlow:
        """The paper's architecture for the set-up, with the saturating clock."""
        flow_key, bridge_key, emission_key, posterior_key = jr.split(key, 4)
        wide = self.setup == 2
        posterior = FilteringPosterior if wide else WindowPosterior
        return LatentFlow(
            StochasticFlow(STATE, width=64 if wide else 30, clock="saturating", key=flow_key),
            GaussianEmission(STATE, CHANNELS, initial_std=self.observation_std, key=emission_key),
            posterior(CHANNELS, STATE, key=posterior_key),
            BridgeFlow(STATE, width=32 if wide else 30, key=bridge_key),
        )


def train_mocap(
    setting: MocapSetting,
    *,
    seed: int,
    data: dict[str, Trajectories] | None = None,
    folder: str | os.PathLike | None = None,
    progress: bool | None = None,
) -> LatentFitResult:
    """Fit to the training sequences; the weights that do best on the three validation sequences are kept."""
    data = load_mocap() if data is None else data
    setup = SETUPS[setting.setup]
    model_key, fit_key = jr.split(jr.key(seed))
    train = data["train"].window(0.0, (setup.train_frames - 0.5) * FRAME)

    def validate(flow: ObservedFlow) -> dict[str, float]:
        one = mean_squared_errors(flow, data["validation"], setup.given, step=None, samples=32, key=jr.key(0))
        chained = mean_squared_errors(
            flow, data["validation"], setup.given, step=10, samples=32, key=jr.key(0)
        )
        return {"loss": float(one.mean() + chained.mean()), "one_step": float(one.mean())}

    return fit_latent(
        setting.model(key=model_key),
        train,
        config=setting.fit_config(),
        validation=validate,
        folder=folder,
        progress=progress,
        key=fit_key,
    )


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
    """Forecasts of all frames after the first `given`, in one step each or chained in steps of `step` frames."""
    return forecast_latent(
        flow,
        times[:given],
        values[:given],
        times[given:],
        samples=samples,
        joint=step is not None,
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
