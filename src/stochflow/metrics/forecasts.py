"""Scores of many forecasts at once, each of them some draws or a normal law, against what came; where that is NaN,
nothing was seen and nothing is scored.

Host arrays in double precision, of any number of forecasts: nothing here is compiled for a shape, but the energy score.
"""

from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import erf
from jaxtyping import Float

from .scores import energy_score

Draws = Float[np.ndarray, "n draws dim"]
Truth = Float[np.ndarray, "n dim"]
LEVEL = 0.9
# Of the differences between channels: the order that Scheuerer and Hamill (2015) recommend.
ORDER = 0.5
SQRT_PI, SQRT_2 = np.sqrt(np.pi), np.sqrt(2.0)


def crps_of_draws(draws: Draws, truth: Truth) -> Float[np.ndarray, "n dim"]:
    """The fair CRPS of each forecast and channel, as [`crps`][stochflow.metrics.crps] has it."""
    number = draws.shape[1]
    if number < 2:
        raise ValueError(f"the CRPS needs at least 2 draws of each forecast; got {number}.")
    ordered = np.sort(draws.astype(np.float64), axis=1)
    centred = ordered - ordered.mean(axis=1, keepdims=True)
    half = np.einsum("ndc,d->nc", centred, 2.0 * np.arange(1, number + 1) - number - 1)
    return np.abs(ordered - truth[:, None]).mean(axis=1) - half / (number * (number - 1))


def crps_of_normal(mean: np.ndarray, std: np.ndarray, truth: np.ndarray) -> np.ndarray:
    """The CRPS of a normal law (Gneiting and Raftery, 2007)."""
    z = (truth - mean) / std
    below = np.asarray(erf(jnp.asarray(z / SQRT_2)), np.float64)
    density = np.exp(-0.5 * z**2) / np.sqrt(2 * np.pi)
    return std * (z * below + 2 * density - 1 / SQRT_PI)


def quantiles_of_draws(draws: np.ndarray, levels: Sequence[float], *, axis: int) -> np.ndarray:
    """Quantiles of the law that draws are from, levels in front: below that of level $p$ the next draw lies with
    probability $p$, whatever the law (ranks over $n + 1$; the outermost draw beyond $1/(n+1)$ of either end)."""
    return np.quantile(draws, list(levels), axis=axis, method="weibull")


def central_interval(draws: Draws, level: float = LEVEL) -> Float[np.ndarray, "2 n dim"]:
    """The ends of the central interval of this probability."""
    return quantiles_of_draws(draws, [(1 - level) / 2, (1 + level) / 2], axis=1)


def inside_central(draws: Draws, truth: Truth, level: float = LEVEL) -> Float[np.ndarray, "n dim"]:
    """One where the truth lies within the central interval of this probability, and zero elsewhere."""
    low, high = central_interval(draws, level)
    return np.where(np.isnan(truth), np.nan, (truth >= low) & (truth <= high))


def mean_crps(draws: Draws, truth: Truth) -> float:
    return float(np.nanmean(crps_of_draws(draws, truth)))


def mean_energy_score(draws: Draws, truth: Truth) -> float:
    """The CRPS of vectors."""
    draws, truth = _whole(draws, truth)
    # Around what came, in double precision: levels may be far above the moves.
    draws, truth = draws.astype(np.float64) - truth[:, None], np.zeros_like(truth)
    return float(np.mean(jax.lax.map(lambda each: energy_score(*each), (draws, truth.astype(draws.dtype)))))


def variogram_score(draws: Draws, truth: Truth) -> float:
    r"""$\sum_{ij} (|y_i - y_j|^p - E|X_i - X_j|^p)^2$ with $p = 1/2$: whether channels belong together."""
    if truth.shape[1] < 2:
        raise ValueError("the variogram score compares channels: there is only one.")
    draws, truth = _whole(draws, truth)
    total, apart = 0.0, lambda x, i: np.abs(x - x[..., i : i + 1]) ** ORDER
    for i in range(
        truth.shape[1]
    ):  # a channel at a time: all pairs of many channels are more than fits in memory
        total += float(np.square(apart(truth, i) - apart(draws, i).mean(axis=1)).sum(axis=1).mean())
    return total


def central_coverage(draws: Draws, truth: Truth) -> float:
    """The share within the central 90 %."""
    return float(np.nanmean(inside_central(draws, truth)))


def pit_distance(draws: Draws, truth: Truth) -> float:
    """The Kolmogorov–Smirnov distance to the uniform law of where the truth lies among the draws, the mean over
    channels: 0 if forecasts are calibrated. So many forecasts `n` of a calibrated law have about `0.87 / sqrt(n)`."""
    rank = (draws < truth[:, None]).sum(axis=1) + 0.5 * (draws == truth[:, None]).sum(axis=1) + 0.5
    share = np.where(np.isnan(truth), np.nan, rank / (draws.shape[1] + 1))
    columns = [np.sort(column[~np.isnan(column)]) for column in share.T]
    return float(np.mean([_from_uniform(column) for column in columns if len(column)]))


def _from_uniform(ordered: Float[np.ndarray, " n"]) -> float:
    steps = np.arange(len(ordered) + 1) / len(ordered)
    return float(np.maximum(steps[1:] - ordered, ordered - steps[:-1]).max())


def absolute_error(draws: Draws, truth: Truth) -> float:
    return float(np.nanmean(np.abs(np.median(draws, axis=1) - truth)))


def root_mean_square_error(draws: Draws, truth: Truth) -> float:
    return float(np.sqrt(np.nanmean(np.square(draws.mean(axis=1) - truth))))


def _whole(draws: np.ndarray, truth: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The forecasts of complete rows, for scores that compare channels."""
    whole = ~np.isnan(truth).any(axis=1)
    if not whole.any():
        raise ValueError("this score compares channels, and no row has all of them: choose another `metric`.")
    return draws[whole], truth[whole]


# What a forecast may be scored by, under the names that users know.
FORECAST_SCORES: dict[str, Callable[[Draws, Truth], float]] = {
    "crps": mean_crps,
    "energy": mean_energy_score,
    "variogram": variogram_score,
    "coverage": central_coverage,
    "pit": pit_distance,
    "mae": absolute_error,
    "rmse": root_mean_square_error,
}
