"""Learning a law from few and long series, or from many: what is believed is what holds on rows that were held out."""

import dataclasses
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Float, PRNGKeyArray

from ..baselines import fit_ornstein_uhlenbeck
from ..data import Trajectories
from ..flows import Correction, LocalFlow, StochasticFlow
from ..flows.local import KNOTS
from ..laws import OrnsteinUhlenbeck
from ..training import FitConfig, fit

# As shares of the horizon, at which the law may change its ways.
SCALES = (0.003, 0.01, 0.03, 0.1, 0.3, 1.0)
# Held-out pairs and draws of each to set a correction by, at each gap.
PAIRS, DRAWS = 768, 64
# A pair stands for a gap if its own is within this share of it.
NEAR = 0.3
# Shares of the drift that are the flow's, and an Ornstein–Uhlenbeck process's; what is left is the last value's.
SHARES = [(a / 4, b / 4) for a in range(5) for b in range(5 - a)]
SPREADS = np.geomspace(0.5, 3.0, 37)
LEVEL = 0.9
# A priori the flow's drift is believed only where the data holds many times this many stretches of the gap.
DOUBT = 60.0
# Below this many pairs a gap is corrected as the next shorter one is.
FEWEST_PAIRS = 20
# Series enough to hold out whole ones.
MANY_SERIES = 12


class Piece(NamedTuple):
    """A stretch of one series: complete rows, in the law's units, with covariates."""

    times: Float[np.ndarray, " rows"]
    values: Float[np.ndarray, "rows dim"]
    u: Float[np.ndarray, "rows cond"]


@dataclasses.dataclass(frozen=True)
class LearnConfig:
    """How a law is learnt: the networks (`depth` 0: linear maps), the optimiser, and `folds` for the correction (0:
    none)."""

    steps: int = 3000
    batch_size: int = 256
    learning_rate: float = 1e-2
    weight_decay: float = 1.0
    width: int = 32
    depth: int = 0
    folds: int = 3

    def fit_config(self) -> FitConfig:
        return FitConfig(
            steps=self.steps,
            batch_size=self.batch_size,
            learning_rate=self.learning_rate,
            weight_decay=self.weight_decay,
            optimiser="adamw",
            pairs="log",
            horizon=1.0,
            standardise=False,
            warmup_steps=min(200, self.steps // 4),
            ema=0.99,
            log_every=self.steps,
        )


def learn(
    pieces: list[Piece], ahead: int, config: LearnConfig, *, progress: bool | None, key: PRNGKeyArray
) -> LocalFlow:
    """A law of displacements up to a gap of one; its drift and spread corrected by what was held out."""
    fold_key, last_key = jr.split(key)
    correction = None
    if config.folds:
        correction = _cross_correction(pieces, ahead, config, progress, fold_key)
    law = _fit(pieces, ahead, config, progress, last_key)
    return law if correction is None else LocalFlow(law.law, correction)


def _fit(pieces, ahead, config, progress, key) -> LocalFlow:
    dim = pieces[0].values.shape[1]
    flow_key, fit_key = jr.split(key)
    flow = StochasticFlow(
        dim,
        cond_dim=pieces[0].u.shape[1] - dim,
        width=config.width,
        depth=config.depth,
        layers=0,
        clock="saturating",
        coupling="spline",
        correlated=dim > 1,
        tails=True,
        scales=SCALES,
        key=flow_key,
    )
    data = Trajectories.from_series(
        [p.times for p in pieces], [p.values for p in pieces], u=[p.u for p in pieces]
    )
    data = dataclasses.replace(data, ahead=ahead)
    result = fit(LocalFlow(flow), data, config=config.fit_config(), progress=progress, key=fit_key)
    law = result.flow.law
    assert isinstance(law, LocalFlow)
    return law


def _cross_correction(pieces, ahead, config, progress, key) -> Correction | None:
    """Fit without each part in turn, and set the correction by the parts that were left out."""
    gaps = np.geomspace(_usual_gap(pieces), 1.0, KNOTS)
    found = [[] for _ in gaps]
    for i, (kept, held) in enumerate(_folds(pieces, config.folds)):
        if not kept or not any(len(piece.times) > 1 for piece in held):
            continue
        fit_key, draw_key = jr.split(jr.fold_in(key, i))
        law, back = _fit(kept, ahead, config, progress, fit_key), _back(kept)
        for number, gap in enumerate(gaps):
            pairs = _held_pairs(held, gap, ahead)
            if len(pairs.gaps):
                found[number].append(_forecasts(law, back, pairs, jr.fold_in(draw_key, number)))
    span = sum(np.ptp(piece.times) for piece in pieces)
    return _set_correction(gaps, found, span, _back(pieces))


def _back(pieces) -> OrnsteinUhlenbeck:
    return fit_ornstein_uhlenbeck([p.times for p in pieces], [p.values for p in pieces])


def _usual_gap(pieces) -> float:
    return float(np.median(np.concatenate([np.diff(piece.times) for piece in pieces])))


def _folds(pieces, number):
    """(kept, held out) each time: whole series if there are many, else a stretch of time of each."""
    if len(pieces) >= MANY_SERIES:
        for i in range(number):
            held = [piece for j, piece in enumerate(pieces) if j % number == i]
            yield [piece for j, piece in enumerate(pieces) if j % number != i], held
        return
    for i in range(number):
        kept, held = [], []
        for piece in pieces:
            rows = len(piece.times)
            low, high = i * rows // number, (i + 1) * rows // number
            held.append(_cut(piece, low, high))
            kept += [part for part in (_cut(piece, 0, low), _cut(piece, high, rows)) if len(part.times) > 1]
        yield kept, held


def _cut(piece, low, high):
    return Piece(*(array[low:high] for array in piece))


class _HeldPairs(NamedTuple):
    x_s: np.ndarray
    x_t: np.ndarray
    gaps: np.ndarray
    u: np.ndarray


def _held_pairs(held, gap, ahead) -> _HeldPairs:
    """Pairs of held-out rows about this gap apart, evenly spread, at most `PAIRS` of them."""
    found = []
    for piece in held:
        t = piece.times
        ends = np.searchsorted(t, t + gap * (1 - 1e-6))
        starts = np.flatnonzero(ends < len(t))
        ends = ends[starts]
        near = np.abs(t[ends] - t[starts] - gap) <= NEAR * gap
        starts, ends = starts[near], ends[near]
        u = piece.u[starts].copy()
        if ahead:
            u[:, -ahead:] = piece.u[ends, -ahead:]
        found.append((piece.values[starts], piece.values[ends], t[ends] - t[starts], u))
    joined = [np.concatenate(parts) for parts in zip(*found, strict=True)]
    chosen = np.unique(np.linspace(0, len(joined[2]) - 1, PAIRS).astype(int)) if len(joined[2]) else []
    return _HeldPairs(*(array[chosen] for array in joined))


class _Forecasts(NamedTuple):
    """In units of the size: what came, the drift, that of an Ornstein–Uhlenbeck process, and draws around the drift."""

    y: Float[np.ndarray, "pairs dim"]
    drift: Float[np.ndarray, "pairs dim"]
    back: Float[np.ndarray, "pairs dim"]
    around: Float[np.ndarray, "pairs draws dim"]


def _forecasts(law: LocalFlow, back: OrnsteinUhlenbeck, pairs: _HeldPairs, key) -> _Forecasts:
    number = len(pairs.gaps)
    pad = lambda a: np.concatenate([a, np.repeat(a[-1:], PAIRS - number, axis=0)]).astype(np.float32)
    drift, around = _drift_and_noise(law, pad(pairs.gaps), pad(pairs.u), jr.split(key, PAIRS))
    size = np.exp(pairs.u[:, : law.dim])
    y = (pairs.x_t - pairs.x_s) / size
    share = -np.expm1(-np.asarray(back.rate) * pairs.gaps[:, None])
    pulled = share * (np.asarray(back.mean) - pairs.x_s) / size
    return _Forecasts(y, np.asarray(drift)[:number], pulled, np.asarray(around)[:number])


@eqx.filter_jit
def _drift_and_noise(law, gaps, u, keys):
    def one(gap, u, key):
        origin = jnp.zeros(law.dim)
        prepared = law.law.prepare(origin, 0.0, gap, u[law.dim :] if law.law.cond_dim else None)
        draw = lambda noise: law.law.prepared_transform_and_log_prob(noise, prepared)[0]
        draws = jax.vmap(draw)(jr.normal(key, (DRAWS, law.dim)))
        return prepared.base.mean, draws - prepared.base.mean[None]

    return jax.vmap(one)(gaps, u, keys)


def _set_correction(gaps, found, span, back) -> Correction | None:
    rows, set_at = [], []
    for gap, parts in zip(gaps, found, strict=True):
        joined = _Forecasts(*(np.concatenate(each) for each in zip(*parts, strict=True))) if parts else None
        if joined is None or len(joined.y) < FEWEST_PAIRS:
            continue
        # Pairs that overlap say the same thing again: only so many stand on their own.
        apart = min(len(joined.y), max(2.0, span / gap))
        rows.append([_best(*(a[..., i] for a in joined), apart) for i in range(joined.y.shape[1])])
        set_at.append(np.log(gap))
    if not set_at:
        return None
    trust, pull, spread = np.moveaxis(np.array(rows), -1, 0)
    as_array = lambda array: jnp.asarray(array, jnp.float32)
    return Correction(
        *map(as_array, (set_at, trust, pull, spread)), rate=as_array(back.rate), level=as_array(back.mean)
    )


def _best(y, drift, back, around, apart) -> tuple[float, float, float]:
    """Trust, pull and spread: the mean of all shares of the drift, each as far as it cannot be told from the best."""
    scores = [_scores(y - a * drift - b * back, around) for a, b in SHARES]  # of each: spread, pair
    each = np.stack([score[score.mean(axis=1).argmin()] for score in scores])
    worse = each - each[each.mean(axis=1).argmin()]
    error = np.maximum(worse.std(axis=1), 1e-12) / np.sqrt(apart)
    doubt = DOUBT / apart * np.array(SHARES)[:, 0]
    weights = np.exp(-0.5 * (worse.mean(axis=1) / error) ** 2 - doubt)
    trust, pull = weights @ np.array(SHARES) / weights.sum()
    rest = y - trust * drift - pull * back
    sharpest = SPREADS[_scores(rest, around).mean(axis=1).argmin()]
    covered = np.array([_coverage(rest, spread * around) for spread in SPREADS])
    calibrated = SPREADS[min(int((covered < LEVEL).sum()), len(SPREADS) - 1)]
    return float(trust), float(pull), float(np.sqrt(sharpest * calibrated))


def _scores(rest, around):
    """CRPS of each pair for each spread: $E|s e - r| - s E|e - e'|/2$ with $r$ what the mean leaves."""
    draws = around.shape[1]
    ordered = np.sort(around, axis=1)
    half = ordered @ (2 * np.arange(1, draws + 1) - draws - 1) / (draws * (draws - 1))
    off = np.stack([np.abs(spread * ordered - rest[:, None]).mean(axis=1) for spread in SPREADS])
    return off - SPREADS[:, None] * half[None]


def _coverage(rest, around):
    low, high = np.quantile(around, [(1 - LEVEL) / 2, (1 + LEVEL) / 2], axis=1)
    return ((rest >= low) & (rest <= high)).mean()
