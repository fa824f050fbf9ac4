"""Table 1 of the paper: the stochastic Lorenz system, learnt from 1,024 paths."""

import dataclasses
import math
import os
import time
from collections.abc import Mapping, Sequence
from typing import Any

import jax.random as jr
from jaxtyping import PRNGKeyArray

from ..data import Trajectories
from ..data.lorenz import FRAME, lorenz_trajectories
from ..flows import StochasticFlow
from ..inference import simulate
from ..training import FitConfig, FitResult, fit
from .common import one_history, open_stages, require_at_least

HORIZON = 1.0
# The steps that the law's own paths are made of, and how their starts are spread (wider than Silverman's rule, which
# gives 0.36 for 1,024 points in three dimensions: no start should be seen twice).
SHORT_STEPS, SMOOTHING = (0.05, 0.15), 0.56
# Of the training paths, the same for every seed: what differs between seeds is the training alone.
TRAIN_KEY = 1
# Ten folds of a hundred: with fewer the density estimates mean nothing.
LEAST_KL_SAMPLES = 1000


# The paper's flow, and what the transient from t = 0 asks for beyond it: waves of the gap, two more couplings to bend
# the law along both wings, splines and lenses for starts near the stable manifold of the origin, from which a path may
# take either, and tails for those that no training path came near.
FLOW = {"layers": 6, "coupling": "spline", "spline_layers": 4, "octaves": 3, "lenses": 8, "tails": True}


@dataclasses.dataclass(frozen=True)
class LorenzSetting:
    """What is trained and how much is measured. The defaults make the table; `quick` is what the demo runs.

    The first fit sees gaps up to `short_gaps` only: from 1,024 paths the longer ones are learnt by heart, and what has
    been learnt so is not unlearnt by the second.

    - `short_gaps`: the longest gap of the first fit.
    - `taught_steps`, `taught_learning_rate`, `taught_start_fraction`: of the second fit.
    - `taught_paths`: how many paths of the law's own making the second fit learns from beside the data.
    - `contested`: the share of those that start where paths part, near the stable manifold of the origin.
    - `paths`: how many training paths are simulated.
    - `kl_samples`: how many true and model draws a KL estimate is made of.
    - `kl_repeats`: how many times the KL protocol is run, on other draws each time.
    - `reference_pairs`: of how many transitions from t = 0 the true likelihood is simulated.
    - `reference_paths`: with how many paths each, at the longer lags.
    - `calibration_pairs`: how many test pairs a lag PIT and coverage are taken of.
    - `consistency_starts`: how many test starts one step is compared with several from.
    """

    steps: int = 12_000
    short_gaps: float = 0.5
    taught_steps: int = 23_000
    taught_paths: int = 16_384
    contested: float = 0.5
    taught_learning_rate: float = 1e-2
    batch_size: int = 256
    learning_rate: float = 1e-2
    pairs: str = "root"
    start_fraction: float = 0.3
    taught_start_fraction: float = 0.4
    paths: int = 1024
    kl_samples: int = 10_240
    kl_repeats: int = 5
    reference_pairs: int = 128
    reference_paths: int = 8192
    calibration_pairs: int = 2048
    consistency_starts: int = 64

    def __post_init__(self):
        for name in ("steps", "taught_steps", "taught_paths", "batch_size", "paths", "consistency_starts"):
            require_at_least(name, getattr(self, name), 1)
        require_at_least("reference_pairs", self.reference_pairs, 2)
        require_at_least("reference_paths", self.reference_paths, 2)
        require_at_least("calibration_pairs", self.calibration_pairs, 2)
        require_at_least("kl_repeats", self.kl_repeats, 1)
        require_at_least("kl_samples", self.kl_samples, LEAST_KL_SAMPLES)
        for name in ("short_gaps", "taught_learning_rate"):
            if not (value := getattr(self, name)) > 0:  # so, and not `<= 0`, for the sake of nan
                raise ValueError(f"`{name}` must be positive; got {value}.")
        if self.short_gaps < FRAME:
            raise ValueError(f"`short_gaps` must be at least a frame, {FRAME:g}; got {self.short_gaps:g}.")
        for name in ("contested", "taught_start_fraction"):
            if not 0 <= (value := getattr(self, name)) <= 1:
                raise ValueError(f"`{name}` must be in [0, 1]; got {value}.")
        self.fit_config()  # which refuses what `fit` would, before any data is made

    @classmethod
    def quick(cls) -> "LorenzSetting":
        return cls(
            steps=8_000,
            taught_steps=12_000,
            taught_paths=8_192,
            kl_repeats=1,
            reference_pairs=32,
            reference_paths=2048,
            calibration_pairs=1024,
            consistency_starts=32,
        )

    def fit_config(self) -> FitConfig:
        return FitConfig(
            steps=self.steps,
            batch_size=self.batch_size,
            learning_rate=self.learning_rate,
            pairs=self.pairs,
            start_fraction=self.start_fraction,
            horizon=self.short_gaps,
            consistency_horizon=HORIZON,  # the unit of time, for both fits
            log_every=math.gcd(1000, self.steps),
        )


def train_lorenz(
    setting: LorenzSetting,
    *,
    seed: int,
    options: Mapping[str, Any] = FLOW,
    folder: str | os.PathLike | None = None,
    progress: bool | None = None,
) -> FitResult:
    """Fit the flow to the paper's training set, and teach it its long gaps. `options` are arguments of the flow."""
    flow_key, *keys = jr.split(jr.key(seed), 4)
    data = lorenz_trajectories(setting.paths, key=jr.key(TRAIN_KEY))
    config = setting.fit_config()
    taught = dataclasses.replace(
        config,
        steps=setting.taught_steps,
        log_every=math.gcd(1000, setting.taught_steps),
        learning_rate=setting.taught_learning_rate,
        start_fraction=setting.taught_start_fraction,
        horizon=None,
    )
    return fit_and_teach(
        StochasticFlow(3, **options, key=flow_key),
        data,
        (config, taught),
        sources=[Source(data, setting.taught_paths, SMOOTHING, setting.contested)],
        folder=folder,
        progress=progress,
        keys=keys,
    )


@dataclasses.dataclass(frozen=True)
class Source:
    """Series whose first rows the law's own paths start from: how many paths, how far the starts are spread, and the
    share of them that is chosen where paths part."""

    like: Trajectories
    paths: int
    smoothing: float
    contested: float = 0.0


def fit_and_teach(
    flow: StochasticFlow,
    data: Trajectories,
    configs: tuple[FitConfig, FitConfig],
    *,
    sources: Sequence[Source],
    folder: str | os.PathLike | None = None,
    progress: bool | None = None,
    keys: Sequence[PRNGKeyArray],
) -> FitResult:
    """Two fits: to the data, then to the data and to paths of the law's own making.

    The law of the first fit is all but exact over short gaps, where every path gives many pairs; of the long ones it
    gives few or none, and they would be learnt by heart. So the law is chained in short steps to make many more paths,
    and the second fit learns the long gaps from those and the data. In `folder` each fit has a run folder of its own.
    """
    fit_key, path_key, taught_key = keys
    made_from = [[len(source.like), source.paths, source.smoothing, source.contested] for source in sources]
    stages = {"config": dataclasses.asdict(configs[0]), "taught": dataclasses.asdict(configs[1])}
    run, (likelihood, taught) = open_stages(
        folder, ("likelihood", "taught"), stages | {"sources": made_from}, keys
    )
    first = fit(flow, data, config=configs[0], folder=likelihood, progress=progress, key=fit_key)
    begin = time.monotonic()
    settings = {"span": HORIZON, "steps": SHORT_STEPS, "residuals": True}
    made = [
        simulate(
            first.flow,
            source.like,
            source.paths,
            smoothing=source.smoothing,
            contested=source.contested,
            **settings,
            key=jr.fold_in(path_key, i) if i else path_key,
        )
        for i, source in enumerate(sources)
    ]
    both = Trajectories.joined(data, *made)
    between = time.monotonic() - begin
    second = fit(first.flow, both, config=configs[1], folder=taught, progress=progress, key=taught_key)
    history = one_history(first, second, between=between)
    if run is not None:
        known = run.read_metrics()  # of a run that was done before: its seconds are the true ones
        history = known if known and known[-1]["step"] == history[-1]["step"] else history
        run.write_metrics(history)
    return dataclasses.replace(second, history=history)
