"""Table 1 of the paper: the stochastic Lorenz system, learnt from 1,024 paths."""

import dataclasses
import math
import os
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from ..data import Trajectories
from ..data.lorenz import FRAME, SOLVER, lorenz_paths, lorenz_trajectories
from ..flows import StochasticFlow
from ..inference import forecast, simulate
from ..laws import AbstractTransition, Standardised
from ..metrics import (
    KLEstimate,
    consistency_error,
    coverage,
    flops_per_sample,
    hdr_levels,
    kde_kls,
    pit,
    pooled_kl,
    uniformity_test,
)
from ..sde import guided_log_prob, linear_noise_log_prob, lorenz, simulated_log_prob
from ..training import FitConfig, FitResult, fit
from ..training.checkpoint import RunFolder
from .paper import HORIZONS, TIMES

LAGS = (1, 4, 10, 20, 30, 40)
LEVELS = (0.5, 0.8, 0.95)
HORIZON = 1.0
# The steps that the law's own paths are made of, and how their starts are spread (wider than Silverman's rule, which
# gives 0.36 for 1,024 points in three dimensions: no start should be seen twice).
SHORT_STEPS, SMOOTHING = (0.05, 0.15), 0.56
# The simulated likelihood: up to which lag paths are guided, and beyond it how many are free and how long the
# normal last segment is.
LAST_GUIDED_LAG, FREE_PATHS, LAST_FRAMES = 10, 2048, 4
# Keys of the data, the same for every seed of the training: what differs between seeds is the training alone.
TRAIN_KEY, TEST_KEY, TRUTH_KEY, FLOOR_KEY = 1, 2, 3, 4


# Ten folds of a hundred: with fewer the density estimates mean nothing.
LEAST_KL_SAMPLES = 1000


def require_at_least(name: str, value: int, least: int) -> None:
    if value < least:
        raise ValueError(f"`{name}` must be at least {least}; got {value}.")


@dataclasses.dataclass(frozen=True)
class LorenzSetting:
    """What is trained and how much is measured. The defaults make the table; `quick` is what the demo runs.

    The first fit sees gaps up to `short_gaps` only: from 1,024 paths the longer ones are learnt by heart, and what has
    been learnt so is not unlearnt by the second.
    """

    steps: int = 20_000
    short_gaps: float = 0.5
    taught_steps: int = 28_000
    taught_paths: int = 16_384
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
    calibration_pairs: int = 2048
    consistency_starts: int = 64

    def __post_init__(self):
        for name in ("steps", "taught_steps", "taught_paths", "batch_size", "paths", "consistency_starts"):
            require_at_least(name, getattr(self, name), 1)
        require_at_least("reference_pairs", self.reference_pairs, 2)
        require_at_least("calibration_pairs", self.calibration_pairs, 2)
        require_at_least("kl_repeats", self.kl_repeats, 1)
        require_at_least("kl_samples", self.kl_samples, LEAST_KL_SAMPLES)
        for name in ("short_gaps", "taught_learning_rate"):
            if not (value := getattr(self, name)) > 0:  # so, and not `<= 0`, for the sake of nan
                raise ValueError(f"`{name}` must be positive; got {value}.")
        if not 0 <= self.taught_start_fraction <= 1:
            raise ValueError(f"`taught_start_fraction` must be in [0, 1]; got {self.taught_start_fraction}.")
        self.fit_config()  # which refuses what `fit` would, before any data is made

    @classmethod
    def quick(cls) -> "LorenzSetting":
        return cls(
            steps=10_000,
            taught_steps=16_000,
            kl_repeats=1,
            reference_pairs=32,
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

    def flow(self, *, key: PRNGKeyArray) -> StochasticFlow:
        """The paper's flow, and what the transient from t = 0 asks for beyond it: waves of the gap, splines for starts
        near the stable manifold of the origin, from which a path may take either wing, and tails for those that no
        training path came near."""
        return StochasticFlow(3, coupling="spline", octaves=3, tails=True, key=key)


def train_lorenz(
    setting: LorenzSetting,
    *,
    seed: int,
    folder: str | os.PathLike | None = None,
    progress: bool | None = None,
) -> FitResult:
    """Fit the flow to the paper's training set, and teach it its long gaps."""
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
        setting.flow(key=flow_key),
        data,
        (config, taught),
        sources=[Source(data, setting.taught_paths, SMOOTHING)],
        folder=folder,
        progress=progress,
        keys=keys,
    )


@dataclasses.dataclass(frozen=True)
class Source:
    """Series whose first rows the law's own paths start from: how many paths, and how far the starts are spread."""

    like: Trajectories
    paths: int
    smoothing: float


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
    likelihood, taught, run = None, None, None
    if folder is not None:
        stages = {"config": dataclasses.asdict(configs[0]), "taught": dataclasses.asdict(configs[1])}
        made_from = [[len(source.like), source.paths, source.smoothing] for source in sources]
        run = RunFolder.create(folder, stages | {"sources": made_from})
        likelihood, taught = run.path / "likelihood", run.path / "taught"
    first = fit(flow, data, config=configs[0], folder=likelihood, progress=progress, key=fit_key)
    begin = time.monotonic()
    settings = {"span": HORIZON, "steps": SHORT_STEPS, "residuals": True}
    made = [
        simulate(
            first.flow,
            source.like,
            source.paths,
            smoothing=source.smoothing,
            **settings,
            key=jr.fold_in(path_key, i) if i else path_key,
        )
        for i, source in enumerate(sources)
    ]
    both = Trajectories.joined(data, *made)
    before = first.history[-1] | {"seconds": first.history[-1]["seconds"] + time.monotonic() - begin}
    second = fit(first.flow, both, config=configs[1], folder=taught, progress=progress, key=taught_key)
    after = lambda row: row | {name: before[name] + row[name] for name in ("step", "seconds")}
    history = [*first.history, *map(after, second.history)]
    if run is not None:
        known = run.read_metrics()  # of a run that was done before: its seconds are the true ones
        history = known if known and known[-1]["step"] == history[-1]["step"] else history
        run.write_metrics(history)
    return dataclasses.replace(second, history=history)


@dataclasses.dataclass(frozen=True)
class LorenzScores:
    """Everything the table, the figures and the report need, as plain numbers and arrays."""

    kl: dict[float, list[KLEstimate]]
    floor: list[KLEstimate]
    kl_shared: dict[float, list[KLEstimate]]
    floor_shared: list[KLEstimate]
    kflops: float
    log_likelihood: dict[int, "LagScore"]
    coverage: dict[int, dict[float, tuple[float, float]]]
    pits: dict[int, Float[np.ndarray, "pairs dim"]]
    levels: dict[int, Float[np.ndarray, " pairs"]]
    consistency: dict[int, Any]


@dataclasses.dataclass(frozen=True)
class LagScore:
    """Test log-likelihood at one lag, in standardised units; `reference` on the first `n_reference` pairs."""

    every_start: float
    every_start_se: float
    from_zero: float
    from_zero_se: float
    worst: float
    median_from_zero: float
    flow_on_reference: float
    reference: float
    reference_se: float
    linear_noise: float


def score_lorenz(law: Standardised, setting: LorenzSetting, *, seed: int = 0) -> LorenzScores:
    """All metrics of one fitted law, on test paths that no training saw."""
    kl_key, level_key, pit_key, gap_key, reference_key = jr.split(jr.fold_in(jr.key(seed), 1), 5)
    test = lorenz_trajectories(1024, key=jr.key(TEST_KEY))
    own, shared = kl_tables(law, setting.kl_samples, repeats=setting.kl_repeats, key=kl_key)
    levels, pits = {}, {}
    for lag in LAGS:
        x_s, x_t = lag_pairs(test, lag, setting.calibration_pairs)
        gap = lag * FRAME
        levels[lag] = np.asarray(hdr_levels(law, x_t, x_s, 0.0, gap, key=jr.fold_in(level_key, lag)))
        pits[lag] = np.asarray(pit(law, x_t, x_s, 0.0, gap, key=jr.fold_in(pit_key, lag)))
    starts = test.values[: setting.consistency_starts, 0]  # only from t = 0 does the data reach every gap
    gaps = np.asarray(TIMES, np.float32)
    return LorenzScores(
        kl=own.kl,
        floor=own.floor,
        kl_shared=shared.kl,
        floor_shared=shared.floor,
        kflops=float(flops_per_sample(law.law).transform) / 1e3,
        log_likelihood={
            lag: lag_score(law, test, lag, setting.reference_pairs, key=jr.fold_in(reference_key, lag))
            for lag in LAGS
        },
        coverage={lag: {q: coverage_and_se(levels[lag], q) for q in LEVELS} for lag in LAGS},
        pits=pits,
        levels=levels,
        consistency={
            steps: consistency_error(law, starts, 0.0, gaps, steps=steps, key=jr.fold_in(gap_key, steps))
            for steps in (2, 4)
        },
    )


def coverage_and_se(levels: Float[np.ndarray, " pairs"], q: float) -> tuple[float, float]:
    found = coverage(levels, q)
    return float(found.mean), float(found.se)


class KLTable(NamedTuple):
    """KL at each time of the paper, one row per H_pred, and the floor: truth against independent truth."""

    kl: dict[float, list[KLEstimate]]
    floor: list[KLEstimate]


def kl_tables(
    law: AbstractTransition, samples: int, *, repeats: int = 1, key: PRNGKeyArray
) -> tuple[KLTable, KLTable]:
    """The table with a bandwidth of its own for every density, and with that of the truth.

    Ten folds say little of a mean that a few far points sway, and that of the floor is as uncertain as any. So the
    protocol is run `repeats` times, on other samples each time.
    """
    runs = [_readings(law, samples, i, key=jr.fold_in(key, i)) for i in range(repeats)]
    names = ("floor", *HORIZONS)

    def table(reading: str) -> KLTable:
        cell = lambda i, j: pooled_kl([getattr(run[i][j], reading) for run in runs])
        rows = {name: [cell(i, j) for i in range(len(TIMES))] for j, name in enumerate(names)}
        return KLTable({max_gap: rows[max_gap] for max_gap in HORIZONS}, rows["floor"])

    return table("own"), table("shared")


def _readings(law, samples, repeat, *, key):
    """Of one run of the protocol, for each time: the floor, and one a row of the table."""
    data_key = lambda seed: jr.fold_in(jr.key(seed), repeat) if repeat else jr.key(seed)
    truth = paths_at_times(lorenz_paths(samples, key=data_key(TRUTH_KEY)))
    again = paths_at_times(lorenz_paths(samples, key=data_key(FLOOR_KEY)))
    drawn = [
        sample_from_zero(law, samples, max_gap, key=jr.fold_in(key, 100 + row))
        for row, max_gap in enumerate(HORIZONS)
    ]
    return [
        kde_kls(truth[i], [again[i], *(model[i] for model in drawn)], key=jr.fold_in(key, i))
        for i in range(len(TIMES))
    ]


def paths_at_times(paths: Float[Array, "n frames 3"]) -> Float[Array, "times n 3"]:
    return jnp.stack([paths[:, round(t / FRAME)] for t in TIMES])


def sample_from_zero(
    law: AbstractTransition, number: int, max_gap: float, *, key: PRNGKeyArray
) -> Float[Array, "times n 3"]:
    """Model samples at the paper's times, from fresh starts, in steps of at most `max_gap`."""
    start_key, noise_key = jr.split(key)
    starts = jr.normal(start_key, (number, 3))

    @eqx.filter_jit
    def draw(law, x0, keys):
        one = lambda x, k: forecast(law, x, 0.0, np.asarray(TIMES), max_gap=max_gap, key=k)
        return jax.vmap(one, out_axes=1)(x0, keys)

    return draw(law, starts, jr.split(noise_key, number))


def lag_pairs(
    test: Trajectories, lag: int, number: int
) -> tuple[Float[np.ndarray, "n 3"], Float[np.ndarray, "n 3"]]:
    """`number` test pairs at one lag, spread evenly over paths and start times."""
    x_s, x_t = test.values[:, :-lag].reshape(-1, 3), test.values[:, lag:].reshape(-1, 3)
    chosen = np.random.default_rng(lag).permutation(len(x_s))[:number]
    return x_s[chosen], x_t[chosen]


@eqx.filter_jit
def log_probs(law, x_t, x_s, gap):
    """Of a whole batch of pairs with one gap, from time 0."""
    return jax.vmap(lambda a, b: law.log_prob(a, b, jnp.zeros_like(gap), gap))(x_t, x_s)


def lag_score(
    law: Standardised, test: Trajectories, lag: int, reference_pairs: int, *, key: PRNGKeyArray
) -> LagScore:
    """Log-likelihood at one lag beside the reference: guided simulation, and the linear-noise law."""
    gap, to_standard = jnp.float32(lag * FRAME), float(jnp.log(law.scale).sum())
    every = test.values[:, lag:].reshape(-1, 3), test.values[:, :-lag].reshape(-1, 3)
    whole = np.asarray(log_probs(law, *every, gap), np.float64) + to_standard
    zero = np.asarray(log_probs(law, test.values[:, lag], test.values[:, 0], gap), np.float64) + to_standard
    x_s, x_t = test.values[:reference_pairs, 0], test.values[:reference_pairs, lag]
    reference, linear = reference_log_probs(x_t, x_s, lag, key=key)
    se = lambda values: float(values.std() / np.sqrt(len(values)))
    return LagScore(
        every_start=float(whole.mean()),
        every_start_se=se(whole),
        from_zero=float(zero.mean()),
        from_zero_se=se(zero),
        worst=float(whole.min()),
        median_from_zero=float(np.median(zero)),
        flow_on_reference=float(zero[:reference_pairs].mean()),
        reference=float(reference.mean()) + to_standard,
        reference_se=se(reference),
        linear_noise=float(linear.mean()) + to_standard,
    )


def reference_log_probs(x_t, x_s, lag: int, *, key: PRNGKeyArray):
    """Log-density of each transition under the true SDE, by simulation and by linear noise.

    Over short gaps the law is nearly normal and paths guided to the end are all but exact; over long ones it is
    bent and split, and free paths with a short normal last segment are what stays honest.
    """
    gap, steps = jnp.float32(lag * FRAME), max(8, 4 * lag)

    def simulated(a, b, k):
        if lag <= LAST_GUIDED_LAG:
            return guided_log_prob(lorenz(), a, b, 0.0, gap, steps=steps, samples=32, key=k).log_prob
        settings = {"steps": steps, "samples": FREE_PATHS, "last": LAST_FRAMES / lag, "solver": SOLVER}
        return simulated_log_prob(lorenz(), a, b, 0.0, gap, **settings, key=k).log_prob

    batch = 64 if lag <= LAST_GUIDED_LAG else 2
    rows = jnp.asarray(x_t), jnp.asarray(x_s), jr.split(key, len(x_s))
    reference = jax.jit(lambda rows: jax.lax.map(lambda row: simulated(*row), rows, batch_size=batch))(rows)
    linear = jax.jit(jax.vmap(lambda a, b: linear_noise_log_prob(lorenz(), a, b, 0.0, gap, steps=steps)))(
        *rows[:2]
    )
    return np.asarray(reference, np.float64), np.asarray(linear, np.float64)


def calibration_p_values(scores: LorenzScores) -> dict[int, float]:
    """Kolmogorov–Smirnov p-value of the levels at each lag."""
    return {lag: float(uniformity_test(levels).p_value) for lag, levels in scores.levels.items()}
