"""Scores of draws against what came, of many forecasts at once: means over forecasts, and over channels."""

from collections.abc import Callable

import jax
import numpy as np
from jaxtyping import Float

from ..metrics import energy_score
from .backtest import crps_of_samples

Draws = Float[np.ndarray, "n draws dim"]
Truth = Float[np.ndarray, "n dim"]
LEVEL = 0.9
# Of the differences between channels: the order that Scheuerer and Hamill (2015) recommend.
ORDER = 0.5


def crps_score(draws: Draws, truth: Truth) -> float:
    return float(np.mean([crps_of_samples(draws[..., c], truth[:, c]).mean() for c in range(truth.shape[1])]))


def energy(draws: Draws, truth: Truth) -> float:
    """The CRPS of vectors."""
    return float(np.mean(jax.lax.map(lambda each: energy_score(*each), (draws, truth.astype(draws.dtype)))))


def variogram(draws: Draws, truth: Truth) -> float:
    r"""$\sum_{ij} (|y_i - y_j|^p - E|X_i - X_j|^p)^2$ with $p = 1/2$: whether channels belong together."""
    if truth.shape[1] < 2:
        raise ValueError("the variogram score compares channels: there is only one.")
    of_draws = (np.abs(draws[..., :, None] - draws[..., None, :]) ** ORDER).mean(axis=1)
    of_truth = np.abs(truth[:, :, None] - truth[:, None, :]) ** ORDER
    return float(np.square(of_truth - of_draws).sum(axis=(1, 2)).mean())


def coverage(draws: Draws, truth: Truth) -> float:
    low, high = np.quantile(draws, [(1 - LEVEL) / 2, (1 + LEVEL) / 2], axis=1)
    return float(((truth >= low) & (truth <= high)).mean())


def absolute_error(draws: Draws, truth: Truth) -> float:
    return float(np.abs(np.median(draws, axis=1) - truth).mean())


def squared_error(draws: Draws, truth: Truth) -> float:
    return float(np.sqrt(np.square(draws.mean(axis=1) - truth).mean()))


METRICS: dict[str, Callable[[Draws, Truth], float]] = {
    "crps": crps_score,
    "energy": energy,
    "variogram": variogram,
    "coverage": coverage,
    "mae": absolute_error,
    "rmse": squared_error,
}
