"""Learning a law from few and long series, or from many: what is believed is what holds on rows that were held out."""

import dataclasses
import math
import os
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, ArrayLike, Float, PRNGKeyArray

from ..baselines import fit_ornstein_uhlenbeck, fit_persistence, log_likelihood
from ..data import PairSampler, Trajectories
from ..flows import Correction, LocalFlow, StochasticFlow
from ..flows.local import KNOTS
from ..laws import OrnsteinUhlenbeck
from ..training import Problem, RunConfig, RunFolder, train
from ..training.checkpoint import describe
from .history import SIZE_HALF_LIFE

# As shares of the horizon, at which the law may change its ways.
SCALES = (0.003, 0.01, 0.03, 0.1, 0.3, 1.0)
# Held-out pairs and draws of each to set a correction by, at each gap.
PAIRS, DRAWS = 768, 64
# A pair stands for a gap if its own is within this share of it.
NEAR = 0.3
# Shares of the drift that are the flow's; the rest is that of the simple law.
SHARES = np.linspace(0.0, 1.0, 9)
# Twice the log-likelihood that a return to a mean must gain over none before it is believed: the 1 % point of the
# likelihood ratio of a unit root with an unknown mean lies there (Dickey and Fuller, 1981).
RETURN_EVIDENCE = 12.9
SPREADS = np.geomspace(0.5, 3.0, 37)
LEVEL = 0.9
# A priori the flow's drift is believed only where the data holds many times this many stretches of the gap.
DOUBT = 300.0
# Stretches apart from one another, from which on the share of rows within an interval means something.
ENOUGH_APART = 60.0
# Below this many pairs a gap is corrected as the next shorter one is.
FEWEST_PAIRS = 20
# Steps between two reports: a second or so.
REPORT = 500
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
    batch_size: int = 384
    learning_rate: float = 1e-2
    weight_decay: float = 1.0
    width: int = 32
    depth: int = 0
    folds: int = 3

    def run_config(self) -> RunConfig:
        return RunConfig(
            steps=self.steps,
            batch_size=self.batch_size,
            learning_rate=self.learning_rate,
            weight_decay=self.weight_decay,
            optimiser="adamw",
            warmup_steps=min(200, self.steps // 4),
            ema=0.99,
            log_every=math.gcd(self.steps, REPORT),
        )


class Check(NamedTuple):
    """What held-out rows say of a gap: how many pairs there were and, for each channel, the share of them within the
    central 90 % and the CRPS over that of the best of the last value and an Ornstein–Uhlenbeck process's mean, with
    the same spread."""

    gap: float
    pairs: int
    coverage: list[float]
    relative_crps: list[float]


def learn(
    pieces: list[Piece],
    usual: ArrayLike,
    ahead: int,
    config: LearnConfig,
    *,
    folder: str | os.PathLike | None = None,
    progress: bool | None,
    key: PRNGKeyArray,
) -> tuple[LocalFlow, list[Check]]:
    """A law of displacements up to a gap of one; its drift and spread corrected by what was held out.

    The law of all rows and, for each fold, one that sees none of its rows are trained side by side in one program; in
    `folder`, if there is one, so that an interrupted run goes on.
    """
    fit_key, draw_key = jr.split(key)
    pieces = [_told_apart(piece) for piece in pieces]
    blocks = _blocks(pieces, config.folds)
    *folds, law = _fit_side_by_side(pieces, blocks, usual, ahead, config, folder, progress, fit_key)
    if not folds:
        return law, []
    gaps = np.geomspace(_usual_gap(pieces), 1.0, KNOTS)
    found = [[] for _ in gaps]
    for i, fold in enumerate(folds):
        chosen = [block == i for block in blocks]
        held = [_rows(piece, rows) for piece, rows in zip(pieces, chosen, strict=True) if rows.any()]
        rest = [_rows(piece, ~rows) for piece, rows in zip(pieces, chosen, strict=True) if (~rows).sum() > 1]
        back = _back(rest or pieces)
        for number, gap in enumerate(gaps):
            pairs = _held_pairs(held, gap, ahead)
            if len(pairs.gaps):
                key = jr.fold_in(jr.fold_in(draw_key, i), number)
                found[number].append(_forecasts(fold, back, pairs, key))
    span = sum(np.ptp(piece.times) for piece in pieces)
    correction, checks = _set_correction(gaps, found, span, _back(pieces))
    return law.corrected(correction), checks


def _rows(piece: Piece, chosen: np.ndarray) -> Piece:
    return Piece(piece.times[chosen], piece.values[chosen], piece.u[chosen])


def _told_apart(piece: Piece) -> Piece:
    """Without rows that come so soon after another that single precision, far from the origin, sees no gap."""
    short = piece.times.astype(np.float32)
    return _rows(piece, np.concatenate([[True], np.diff(np.maximum.accumulate(short)) > 0]))


def _back(pieces) -> OrnsteinUhlenbeck:
    """The simple law: Ornstein–Uhlenbeck for channels that return to a mean beyond doubt, and the last value for
    others."""
    times, values = [p.times for p in pieces], [p.values for p in pieces]
    law = fit_ornstein_uhlenbeck(times, values)
    gained = 2 * (
        log_likelihood(law, times, values) - log_likelihood(fit_persistence(times, values), times, values)
    )
    rate = np.where(gained > RETURN_EVIDENCE, np.asarray(law.rate), 0.0)
    return OrnsteinUhlenbeck(rate, law.mean, law.std)


def _blocks(pieces, number) -> list[np.ndarray]:
    """The fold of each row: whole series if there are many, else a stretch of each."""
    if number and len(pieces) >= MANY_SERIES:
        return [np.full(len(piece.times), i % number) for i, piece in enumerate(pieces)]
    return [np.arange(len(piece.times)) * number // max(1, len(piece.times)) for piece in pieces]


class _SideBySide(eqx.Module):
    """Several laws of one shape. Matrices are stacked; vectors are kept apart, as weight decay is for matrices only."""

    params: list[Array | tuple[Array, ...]]

    @classmethod
    def of(cls, laws: list[LocalFlow]) -> "_SideBySide":
        leaves = [jax.tree.leaves(eqx.filter(law, eqx.is_inexact_array)) for law in laws]
        return cls([jnp.stack(each) if each[0].ndim > 1 else each for each in zip(*leaves, strict=True)])

    def stacked(self, like: LocalFlow) -> LocalFlow:
        params, static = eqx.partition(like, eqx.is_inexact_array)
        leaves = [jnp.stack(each) if isinstance(each, tuple) else each for each in self.params]
        return eqx.combine(jax.tree.unflatten(jax.tree.structure(params), leaves), static)


def _fit_side_by_side(pieces, blocks, usual, ahead, config, folder, progress, key) -> list[LocalFlow]:
    """A law without each fold, and last the law of all rows."""
    dim = pieces[0].values.shape[1]
    flow_key, fit_key = jr.split(key)
    make = lambda key: LocalFlow(
        StochasticFlow(
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
            key=key,
        ),
        usual,
        half_life=SIZE_HALF_LIFE * _usual_gap(pieces),
    )
    laws = [make(flow_key) for _ in range(config.folds + 1)]
    like = laws[0]
    data = Trajectories.from_series(
        [p.times for p in pieces],
        [p.values for p in pieces],
        u=[_with_block(p.u, block, ahead) for p, block in zip(pieces, blocks, strict=True)],
    )
    sampler = PairSampler(dataclasses.replace(data, ahead=ahead + 1), horizon=1.0, scheme="log")
    run = config.run_config()
    problem = Problem(loss=_make_loss(like, config.folds, ahead, run.batch_size), data=sampler)
    model = _SideBySide.of(laws)
    record = {"config": dataclasses.asdict(config), "law": describe(like)}
    at = None if folder is None else RunFolder.create(folder, record)
    trained = train(model, problem, run, key=fit_key, folder=at, progress=progress)
    stacked = trained.model.stacked(like)
    pick = lambda i: jax.tree.map(lambda leaf: leaf[i] if eqx.is_inexact_array(leaf) else leaf, stacked)
    return [pick(i) for i in range(config.folds + 1)]


def _with_block(u, block, ahead):
    """The fold of a row among its covariates, twice: one is read at the start of a pair, one at its end."""
    known, later = u[:, : u.shape[1] - ahead], u[:, u.shape[1] - ahead :]
    return np.concatenate([known, block[:, None], later, block[:, None]], axis=1)


def _make_loss(like, folds, ahead, batch_size):
    def loss(model, sampler, step, key):
        del step
        pairs = sampler.draw(batch_size, key=key)
        width = pairs.u.shape[1]
        first, last = pairs.u[:, width - ahead - 2], pairs.u[:, width - 1]
        u = jnp.concatenate(
            [pairs.u[:, : width - ahead - 2], pairs.u[:, width - ahead - 1 : width - 1]], axis=1
        )
        # A pair is held out from a law if it begins in, ends in or spans the law's fold; the last law has none.
        mine = jnp.arange(folds + 1)[:, None]
        use = ((mine < first[None]) | (mine > last[None])).astype(u.dtype)
        each = lambda law: jax.vmap(law.log_prob)(pairs.x_t, pairs.x_s, pairs.s, pairs.t, u)
        log_prob = eqx.filter_vmap(each)(model.stacked(like))
        nll = -(use * log_prob).sum(axis=1) / jnp.maximum(use.sum(axis=1), 1.0)
        return nll.sum(), {"nll": nll[-1]}

    return loss


def _usual_gap(pieces) -> float:
    return float(np.median(np.concatenate([np.diff(piece.times) for piece in pieces])))


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
    drift, around, size = _drift_and_noise(law, pad(pairs.gaps), pad(pairs.u), jr.split(key, PAIRS))
    size = np.asarray(size)[:number]
    y = (pairs.x_t - pairs.x_s) / size
    share = -np.expm1(-np.asarray(back.rate) * pairs.gaps[:, None])
    pulled = share * (np.asarray(back.mean) - pairs.x_s) / size
    return _Forecasts(y, np.asarray(drift)[:number], pulled, np.asarray(around)[:number])


@eqx.filter_jit
def _drift_and_noise(law, gaps, u, keys):
    def one(gap, u, key):
        origin = jnp.zeros(law.dim)
        base = law.law.prepare(origin, 0.0, gap, u[law.dim :] if law.law.cond_dim else None).base
        centred = law.centred(base)
        draws = jax.vmap(lambda noise: law.law.stack.forward(noise, centred)[0])(
            jr.normal(key, (DRAWS, law.dim))
        )
        size = jnp.exp(law.log_size(u[: law.dim], gap))
        return base.mean, draws - base.mean[None], size

    return jax.vmap(one)(gaps, u, keys)


def _set_correction(gaps, found, span, back) -> tuple[Correction | None, list[Check]]:
    rows, set_at, checks = [], [], []
    for gap, parts in zip(gaps, found, strict=True):
        joined = _joined(parts) if parts else None
        if joined is None or len(joined.y) < FEWEST_PAIRS:
            continue
        # Pairs that overlap say the same thing again: only so many stand on their own.
        apart = min(len(joined.y), max(2.0, span / gap))
        channels = [[a[..., i] for a in joined] for i in range(joined.y.shape[1])]
        rows.append([_best(*channel, apart=apart) for channel in channels])
        set_at.append(np.log(gap))
        said = [_check(*channel, *row) for channel, row in zip(channels, rows[-1], strict=True)]
        coverage, relative = zip(*said, strict=True)
        checks.append(Check(float(gap), len(joined.y), list(coverage), list(relative)))
    if not set_at:
        return None, []
    trust, pull, spread = np.moveaxis(np.array(rows), -1, 0)
    as_array = lambda array: jnp.asarray(array, jnp.float32)
    correction = Correction(
        log_gaps=as_array(set_at),
        trust=as_array(trust),
        pull=as_array(pull),
        spread=as_array(spread),
        rate=as_array(back.rate),
        level=as_array(back.mean),
    )
    return correction, checks


def _joined(parts: list[_Forecasts]) -> _Forecasts:
    join = lambda name: np.concatenate([getattr(part, name) for part in parts])
    return _Forecasts(join("y"), join("drift"), join("back"), join("around"))


def _check(y, drift, back, around, trust, pull, spread) -> tuple[float, float]:
    """Coverage, and CRPS relative to the better of two simple means."""
    rest = y - trust * drift - pull * back
    at = lambda rest: _scores(rest, around).mean(axis=1)
    ours = np.interp(spread, SPREADS, at(rest))
    return float(_coverage(rest, spread * around)), float(ours / min(at(y).min(), at(y - back).min()))


def _best(y, drift, back, around, *, apart) -> tuple[float, float, float]:
    """Trust, pull and spread: the mean of all shares of the drift, each as far as it cannot be told from the best."""
    scores = [_scores(y - a * drift - (1 - a) * back, around) for a in SHARES]  # of each: spread, pair
    each = np.stack([score[score.mean(axis=1).argmin()] for score in scores])
    worse = each - each[each.mean(axis=1).argmin()]
    error = np.maximum(worse.std(axis=1), 1e-12) / np.sqrt(apart)
    weights = np.exp(-0.5 * (worse.mean(axis=1) / error) ** 2 - DOUBT / apart * SHARES)
    trust = weights @ SHARES / weights.sum()
    pull = 1 - trust
    rest = y - trust * drift - pull * back
    sharpest = SPREADS[_scores(rest, around).mean(axis=1).argmin()]
    covered = np.array([_coverage(rest, spread * around) for spread in SPREADS])
    calibrated = SPREADS[min(int((covered < LEVEL).sum()), len(SPREADS) - 1)]
    # What few stretches cover is a matter of chance: there the sharper guide is the score.
    share = 0.5 * min(1.0, apart / ENOUGH_APART)
    return float(trust), float(pull), float(sharpest ** (1 - share) * calibrated**share)


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
