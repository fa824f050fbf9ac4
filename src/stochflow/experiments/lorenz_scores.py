"""What the Lorenz table measures: KL, likelihood beside a reference, calibration and consistency."""

import dataclasses
import functools
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from ..data import Trajectories
from ..data.lorenz import FRAME, SOLVER, lorenz_paths, lorenz_trajectories
from ..inference import forecast
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
from .common import log_probs
from .lorenz import LorenzSetting
from .paper import HORIZONS, TIMES

LAGS = (1, 4, 10, 20, 30, 40)
LEVELS = (0.5, 0.8, 0.95)
# The simulated likelihood: up to which lag paths are guided, and beyond it how long the normal last segment is.
LAST_GUIDED_LAG, LAST_FRAMES = 10, 4
# Keys of the data, the same for every seed of the training. Key 1 has the training paths, key 5 the validation paths
# of `benchmarks.recipes`.
TEST_KEY, TRUTH_KEY, FLOOR_KEY, REFERENCE_KEY = 2, 3, 4, 6


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
    """Test log-likelihood at one lag, in standardised units; `reference` on the first few pairs.

    `reference_se` is the spread over those pairs, `reference_error` that of the simulation. Being the logarithm of a
    mean of few paths, a reference whose error is not small is too low.
    """

    every_start: float
    every_start_se: float
    from_zero: float
    from_zero_se: float
    worst: float
    median_from_zero: float
    flow_on_reference: float
    reference: float
    reference_se: float
    reference_error: float
    linear_noise: float


def score_lorenz(law: Standardised, setting: LorenzSetting, *, seed: int = 0) -> LorenzScores:
    """All metrics of one fitted law, on test paths that no training saw.

    Most of the time goes to compiling, which keeps one core busy: two parts are worked on at a time.
    """
    kl_key, level_key, pit_key, gap_key, _ = jr.split(jr.fold_in(jr.key(seed), 1), 5)
    test = held_out_paths()
    with ThreadPoolExecutor(2) as pool:
        kl = pool.submit(kl_tables, law, setting.kl_samples, repeats=setting.kl_repeats, key=kl_key)
        references = pool.submit(_references, setting)
        calibration = pool.submit(_calibration, law, test, setting.calibration_pairs, level_key, pit_key)
        consistency = pool.submit(_consistency, law, test, setting.consistency_starts, gap_key)
        flops = pool.submit(flops_per_sample, law.law)
    (own, shared), (levels, pits) = kl.result(), calibration.result()
    return LorenzScores(
        kl=own.kl,
        floor=own.floor,
        kl_shared=shared.kl,
        floor_shared=shared.floor,
        kflops=float(flops.result().transform) / 1e3,
        log_likelihood={
            lag: lag_score(law, test, lag, reference) for lag, reference in references.result().items()
        },
        coverage={lag: {q: coverage_and_se(levels[lag], q) for q in LEVELS} for lag in LAGS},
        pits=pits,
        levels=levels,
        consistency=consistency.result(),
    )


def _references(setting: LorenzSetting) -> dict[int, "Reference"]:
    return {lag: _reference(lag, setting.reference_pairs, setting.reference_paths) for lag in LAGS}


def _calibration(law, test, number, level_key, pit_key):
    """Levels of highest-density regions, and PIT, at each lag."""
    levels, pits = {}, {}
    for lag in LAGS:
        x_s, x_t = lag_pairs(test, lag, number)
        gap = lag * FRAME
        levels[lag] = np.asarray(hdr_levels(law, x_t, x_s, 0.0, gap, key=jr.fold_in(level_key, lag)))
        pits[lag] = np.asarray(pit(law, x_t, x_s, 0.0, gap, key=jr.fold_in(pit_key, lag)))
    return levels, pits


def _consistency(law, test, number, key):
    """One step against two and four; only from t = 0 does the data reach every gap."""
    starts, gaps = test.values[:number, 0], np.asarray(TIMES, np.float32)
    against = lambda steps: consistency_error(law, starts, 0.0, gaps, steps=steps, key=jr.fold_in(key, steps))
    return {steps: against(steps) for steps in (2, 4)}


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
    return _at_times(law, jr.normal(start_key, (number, 3)), max_gap, jr.split(noise_key, number))


@eqx.filter_jit
def _at_times(law, x0, max_gap, keys):
    one = lambda x, k: forecast(law, x, 0.0, np.asarray(TIMES), max_gap=max_gap, key=k)
    return jax.vmap(one, out_axes=1)(x0, keys)


def lag_pairs(
    test: Trajectories, lag: int, number: int
) -> tuple[Float[np.ndarray, "n 3"], Float[np.ndarray, "n 3"]]:
    """`number` test pairs at one lag, spread evenly over paths and start times."""
    x_s, x_t = test.values[:, :-lag].reshape(-1, 3), test.values[:, lag:].reshape(-1, 3)
    chosen = np.random.default_rng(lag).permutation(len(x_s))[:number]
    return x_s[chosen], x_t[chosen]


@functools.cache
def held_out_paths() -> Trajectories:
    return lorenz_trajectories(1024, key=jr.key(TEST_KEY))


class Reference(NamedTuple):
    """Log-density under the true SDE of the first few test pairs from t = 0, its error, and that by linear noise."""

    log_prob: Float[np.ndarray, " pairs"]
    error: Float[np.ndarray, " pairs"]
    linear_noise: Float[np.ndarray, " pairs"]


@functools.cache  # the same for every law: it takes minutes, and seeds share it
def _reference(lag: int, pairs: int, paths: int) -> Reference:
    values = held_out_paths().values[:pairs]
    key = jr.fold_in(jr.key(REFERENCE_KEY), lag)
    return Reference(*reference_log_probs(values[:, lag], values[:, 0], lag, paths=paths, key=key))


def lag_score(law: Standardised, test: Trajectories, lag: int, reference: Reference) -> LagScore:
    """Log-likelihood at one lag beside the reference, which is of the first of the `test` pairs from t = 0."""
    gap, to_standard = jnp.float32(lag * FRAME), float(jnp.log(law.scale).sum())
    # Start by start, so that one compiled program serves every lag.
    whole = np.stack(
        [
            np.asarray(log_probs(law, test.values[:, i + lag], test.values[:, i], gap), np.float64)
            for i in range(test.values.shape[1] - lag)
        ]
    )
    whole += to_standard
    zero = whole[0]
    pairs = len(reference.log_prob)
    se = lambda values: float(values.std() / np.sqrt(values.size))
    return LagScore(
        every_start=float(whole.mean()),
        every_start_se=se(whole),
        from_zero=float(zero.mean()),
        from_zero_se=se(zero),
        worst=float(whole.min()),
        median_from_zero=float(np.median(zero)),
        flow_on_reference=float(zero[:pairs].mean()),
        reference=float(reference.log_prob.mean()) + to_standard,
        reference_se=se(reference.log_prob),
        reference_error=float(np.sqrt(np.mean(reference.error**2) / pairs)),
        linear_noise=float(reference.linear_noise.mean()) + to_standard,
    )


def reference_log_probs(x_t, x_s, lag: int, *, paths: int, key: PRNGKeyArray):
    """Log-density of each transition under the true SDE by simulation, its error, and the one by linear noise.

    Over short gaps the law is nearly normal and paths guided to the end are all but exact; over long ones it is
    bent and split, and free paths with a short normal last segment are what stays honest.
    """
    gap, steps = jnp.float32(lag * FRAME), max(8, 4 * lag)

    def simulated(a, b, k):
        if lag <= LAST_GUIDED_LAG:
            return guided_log_prob(lorenz(), a, b, 0.0, gap, steps=steps, samples=32, key=k)
        settings = {"steps": steps, "samples": paths, "last": LAST_FRAMES / lag, "solver": SOLVER}
        return simulated_log_prob(lorenz(), a, b, 0.0, gap, **settings, key=k)

    batch = 64 if lag <= LAST_GUIDED_LAG else 2
    rows = jnp.asarray(x_t), jnp.asarray(x_s), jr.split(key, len(x_s))
    found = jax.jit(lambda rows: jax.lax.map(lambda row: simulated(*row), rows, batch_size=batch))(rows)
    linear = jax.jit(jax.vmap(lambda a, b: linear_noise_log_prob(lorenz(), a, b, 0.0, gap, steps=steps)))(
        *rows[:2]
    )
    return tuple(np.asarray(part, np.float64) for part in (found.log_prob, found.standard_error, linear))


def calibration_p_values(scores: LorenzScores) -> dict[int, float]:
    """Kolmogorov–Smirnov p-value of the levels at each lag."""
    return {lag: float(uniformity_test(levels).p_value) for lag, levels in scores.levels.items()}
