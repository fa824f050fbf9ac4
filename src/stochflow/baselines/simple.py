"""Persistence, Ornstein–Uhlenbeck by maximum likelihood, and the value of a season ago."""

import dataclasses
from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

from ..laws import BrownianMotion, OrnsteinUhlenbeck

Series = Sequence[np.ndarray]
# Rates that are tried, in units of one over the usual gap: from "never, within the data" to "at once".
SLOWEST, FASTEST, TRIED = 1e-7, 20.0, 400
# Golden-section steps within the best of those: the likelihood is flat there to every digit.
REFINEMENTS = 40
GOLDEN = (np.sqrt(5) - 1) / 2


def fit_persistence(times: Series, values: Series) -> BrownianMotion:
    """The last value, with normal noise that grows as the root of the gap: maximum likelihood over rows in a row.

    One `times` of shape (rows,) and one `values` of shape (rows, dim) a series; rows with a NaN are passed over.
    """
    before, after, gaps = _steps(times, values)
    variance = np.mean((after - before) ** 2 / gaps[:, None], axis=0)
    return BrownianMotion(np.zeros(before.shape[1]), np.sqrt(_positive(variance)))


def fit_ornstein_uhlenbeck(times: Series, values: Series) -> OrnsteinUhlenbeck:
    r"""The exact maximum-likelihood fit of an Ornstein–Uhlenbeck process to each channel, at irregular times.

    Given the rate, mean and noise follow by weighted least squares; the rate is found by search. A series that does not
    come back gets a rate near zero, and is then Brownian motion.
    """
    before, after, gaps = _steps(times, values)
    usual = np.median(gaps)
    found = [_fit_channel(before[:, i], after[:, i], gaps, usual) for i in range(before.shape[1])]
    rate, mean, std = np.array(found).T
    return OrnsteinUhlenbeck(rate, mean, std)


def log_likelihood(
    law: BrownianMotion | OrnsteinUhlenbeck, times: Series, values: Series
) -> Float[np.ndarray, " dim"]:
    """The log-likelihood of each channel of a simple law, each row given the one before."""
    before, after, gaps = _steps(times, values)
    if isinstance(law, BrownianMotion):
        mean, std = before, np.diagonal(np.asarray(law.scale_tril, np.float64)) * np.sqrt(gaps)[:, None]
    else:
        rate, level, noise = (np.asarray(each, np.float64) for each in (law.rate, law.mean, law.std))
        faded = rate * gaps[:, None]
        mean = level + np.exp(-faded) * (before - level)
        std = noise * np.sqrt(-np.expm1(-2 * faded) / (2 * rate))
    return (-0.5 * ((after - mean) / std) ** 2 - np.log(std) - 0.5 * np.log(2 * np.pi)).sum(axis=0)


def _fit_channel(before, after, gaps, usual):
    value = lambda log_rate: _profile(before, after, gaps, np.exp(log_rate))[0]
    grid = np.linspace(np.log(SLOWEST / usual), np.log(FASTEST / usual), TRIED)
    best = int(np.argmax([value(point) for point in grid]))
    low, high = grid[max(best - 1, 0)], grid[min(best + 1, TRIED - 1)]
    for _ in range(REFINEMENTS):
        left, right = high - GOLDEN * (high - low), low + GOLDEN * (high - low)
        low, high = (low, right) if value(left) > value(right) else (left, high)
    rate = float(np.exp((low + high) / 2))
    _, mean, variance = _profile(before, after, gaps, rate)
    return rate, mean, np.sqrt(_positive(variance))


def _profile(before, after, gaps, rate):
    """The log-likelihood at the best mean and noise for a rate, up to a constant, and those two."""
    decay = np.exp(-rate * gaps)
    share, noise = -np.expm1(-rate * gaps), -np.expm1(-2 * rate * gaps) / (2 * rate)
    moved = after - decay * before
    mean = (moved * share / noise).sum() / (share**2 / noise).sum()
    variance = np.mean((moved - mean * share) ** 2 / noise)
    return -0.5 * (np.log(_positive(variance) * noise)).sum(), mean, variance


def _positive(variance):
    """At least what is still positive in single precision, where a channel has no noise at all."""
    return np.maximum(variance, np.finfo(np.float32).tiny)


def _steps(times, values):
    """Complete rows and the next such of the same series, with the gaps between them."""
    parts = []
    for t, x in zip(times, values, strict=True):
        t, x = np.asarray(t, np.float64), np.asarray(x, np.float64)
        whole = ~np.isnan(x).any(axis=1)
        parts.append((x[whole][:-1], x[whole][1:], np.diff(t[whole])))
    before, after, gaps = (np.concatenate(part) for part in zip(*parts, strict=True))
    if len(gaps) == 0:
        raise ValueError("no series has two complete rows: there is no transition to learn from.")
    return before, after, gaps


@dataclasses.dataclass(frozen=True)
class SeasonalNaive:
    """The value a whole number of periods ago, with normal noise as large as it has been off.

    Not a transition law: it reads the past of the series, not its last state.
    """

    period: float
    std: Float[np.ndarray, " dim"]

    @classmethod
    def fit(cls, times: Series, values: Series, period: float) -> "SeasonalNaive":
        """From one `times` and one `values` a series."""
        if not period > 0:
            raise ValueError(f"`period` must be positive; got {period}.")
        off = []
        for t, x in zip(times, values, strict=True):
            later = t >= t[0] + period
            if later.any():
                off.append(x[later] - _at(t, x, t[later] - period))
        if not off:
            raise ValueError(f"no series is longer than the period of {period:g}.")
        return cls(period, np.sqrt(np.nanmean(np.concatenate(off) ** 2, axis=0)))

    def predict(
        self, times: np.ndarray, values: np.ndarray, at: Float[np.ndarray, " n"]
    ) -> tuple[Float[np.ndarray, "n dim"], Float[np.ndarray, "n dim"]]:
        """Mean and standard deviation at later times."""
        periods = np.maximum(1, np.ceil((np.asarray(at) - times[-1]) / self.period - 1e-9))
        mean = _at(times, values, at - periods * self.period)
        return mean, np.broadcast_to(self.std, mean.shape) * np.sqrt(periods)[:, None]


def _at(times, values, at):
    """The value at the last row no later than each time, or at the first row."""
    return values[np.maximum(np.searchsorted(times, at + 1e-9 * np.abs(at), side="right") - 1, 0)]
