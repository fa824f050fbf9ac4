"""How far a law is to be believed: its drift and its spread, set by rows that were held out."""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jax.scipy.stats import norm
from jaxtyping import Float, Int, PRNGKeyArray

from ..baselines import fit_ornstein_uhlenbeck, fit_persistence, log_likelihood
from ..flows import Correction, LocalFlow
from ..flows.local import KNOTS, NORMAL_95
from ..laws import OrnsteinUhlenbeck
from ..laws.ornstein_uhlenbeck import relative_expm1
from ..metrics import LEVEL, quantiles_of_draws
from .akin import worth_of
from .pieces import Piece, usual_gap

# Held-out pairs and draws of each to set a correction by, at each gap.
PAIRS, DRAWS = 768, 64
# A pair stands for a gap if its own is within this share of it.
NEAR = 0.3
# Shares of the drift that are the flow's; the rest is that of the simple law.
SHARES = np.linspace(0.0, 1.0, 9)
# Twice the log-likelihood that a return to a mean must gain over none before it is believed: the 1 % point of the
# likelihood ratio of a unit root with an unknown mean lies there (Dickey and Fuller, 1981).
RETURN_EVIDENCE = 12.9
# Walks that are measured each from its own mean seem to return to it: for so many, what they gain by that lies below
# this times their number, and this times the root of it, in 99 cases of 100 (by simulation; 10 and 200 walks).
OWN_MEAN, OWN_MEANS = 1.6, 6.0
SPREADS = np.geomspace(0.5, 3.0, 37)
# A priori the flow's drift is believed only where the data holds many times this many stretches of the gap.
DOUBT = 300.0
# Stretches apart from one another, from which on the share of rows within an interval means something; and at which
# the law's noise counts as much as the simple law's.
ENOUGH_APART = 60.0
# Stretches apart at which the width of the simple law over a gap is believed by half, as is what rows of the fit ask
# for; and by how much it may differ from what rows next to each other say.
ENOUGH_FOR_WIDTH, LEAST_WIDTH, MOST_WIDTH = 10.0, 0.1, 10.0
# Where the data holds no more than so many stretches of the gap, a return to the mean that is beyond doubt is believed
# whole unless pairs speak against it. Chosen on the first six tenths of the series of `benchmarks/series.py`.
ENOUGH_FOR_RETURN = 30.0
# Standard deviations of a normal law that its central 90 % are wide.
NORMAL_WIDTH = 3.29
# The share of the law's own noise where nothing is known of how right it is.
LEAST_SHARE = 0.01
# Below this many pairs a gap is corrected as the next shorter one is.
FEWEST_PAIRS = 20


class Check(NamedTuple):
    """What held-out rows say of a gap: how many pairs there were and, for each channel, the share of them within the
    central 90 % and the CRPS over that of the best of the last value and an Ornstein–Uhlenbeck process's mean, with
    the same spread."""

    gap: float
    pairs: int
    coverage: list[float]
    relative_crps: list[float]


def correct(
    law: LocalFlow,
    folds: list[LocalFlow],
    pieces: list[Piece],
    blocks: list[Int[np.ndarray, " rows"]],
    ahead: int,
    *,
    key: PRNGKeyArray,
) -> tuple[LocalFlow, list[Check]]:
    """The law with its drift and spread set by what laws that did not see a fold, one each, say of its rows.

    `blocks` is the fold of each row; `ahead` the number of covariates that are read at the end of a gap.
    """
    gaps = np.unique(np.geomspace(min(usual_gap(pieces), 1.0), 1.0, KNOTS))
    found: list[list[_Forecasts]] = [[] for _ in gaps]
    for i, fold in enumerate(folds):
        chosen = [block == i for block in blocks]
        held = [piece.some(rows) for piece, rows in zip(pieces, chosen, strict=True) if rows.any()]
        rest = [piece.some(~rows) for piece, rows in zip(pieces, chosen, strict=True) if (~rows).sum() > 1]
        back = _back(rest or pieces)
        for number, gap in enumerate(gaps):
            pairs = held_pairs(held, gap, ahead) if held else None
            if pairs is not None and len(pairs.gaps):
                pair_key = jr.fold_in(jr.fold_in(key, i), number)
                found[number].append(_forecasts(fold, back, pairs, pair_key))
    correction, checks = _set_correction(gaps, found, stretches(pieces, gaps), _back(pieces))
    return law.corrected(correction), checks


def _back(pieces) -> OrnsteinUhlenbeck:
    """The simple law: Ornstein–Uhlenbeck for channels that return to a mean beyond doubt, and the last value for
    others."""
    times, values = [p.times for p in pieces], [p.values for p in pieces]
    law = fit_ornstein_uhlenbeck(times, values)
    walk = fit_persistence(times, values)
    gained = 2 * (log_likelihood(law, times, values) - log_likelihood(walk, times, values))
    own = sum(piece.centres is not None for piece in pieces)
    returns = gained > max(RETURN_EVIDENCE, OWN_MEAN * own + OWN_MEANS * np.sqrt(own))
    std = np.where(returns, np.asarray(law.std), np.diagonal(np.asarray(walk.scale_tril)))
    return OrnsteinUhlenbeck(np.where(returns, np.asarray(law.rate), 0.0), law.mean, std)


def stretches(pieces: list[Piece], gaps: Float[np.ndarray, " gaps"]) -> Float[np.ndarray, " gaps"]:
    """How many stretches of a gap lie apart from one another, those of series that move together as one; two at the
    least."""
    worth = worth_of([piece.on_clock for piece in pieces], gaps)
    return np.maximum(2.0, worth * sum(np.ptp(piece.times) for piece in pieces) / gaps)


class HeldPairs(NamedTuple):
    x_s: np.ndarray
    x_t: np.ndarray
    gaps: np.ndarray
    u: np.ndarray


def held_pairs(held, gap, ahead) -> HeldPairs:
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
        centre = 0.0 if piece.centres is None else piece.centres[starts]
        found.append((piece.values[starts] - centre, piece.values[ends] - centre, t[ends] - t[starts], u))
    joined = [np.concatenate(parts) for parts in zip(*found, strict=True)]
    chosen = np.unique(np.linspace(0, len(joined[2]) - 1, PAIRS).astype(int)) if len(joined[2]) else []
    return HeldPairs(*(array[chosen] for array in joined))


class _Forecasts(NamedTuple):
    """In units of the size: what came, the drift, that of an Ornstein–Uhlenbeck process, draws around the drift;
    and the standard deviation of the process."""

    y: Float[np.ndarray, "pairs dim"]
    drift: Float[np.ndarray, "pairs dim"]
    back: Float[np.ndarray, "pairs dim"]
    around: Float[np.ndarray, "pairs draws dim"]
    plain: Float[np.ndarray, "pairs dim"]


def _forecasts(law: LocalFlow, back: OrnsteinUhlenbeck, pairs: HeldPairs, key) -> _Forecasts:
    number, pad = len(pairs.gaps), _padded
    drift, around, size = _drift_and_noise(law, pad(pairs.gaps), pad(pairs.u), jr.split(key, PAIRS))
    size = np.asarray(size)[:number]
    y = (pairs.x_t - pairs.x_s) / size
    share = -np.expm1(-np.asarray(back.rate) * pairs.gaps[:, None])
    pulled = share * (np.asarray(back.mean) - pairs.x_s) / size
    gaps, rate, std = pairs.gaps[:, None], np.asarray(back.rate), np.asarray(back.std)
    plain = std * np.sqrt(gaps * np.asarray(relative_expm1(jnp.asarray(-2 * rate * gaps)))) / size
    return _Forecasts(y, np.asarray(drift)[:number], pulled, np.asarray(around)[:number], plain)


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


def _padded(array: np.ndarray) -> np.ndarray:
    """One program serves all numbers of pairs."""
    return np.concatenate([array, np.repeat(array[-1:], PAIRS - len(array), axis=0)]).astype(np.float32)


def _set_correction(gaps, forecasts, number, back) -> tuple[Correction, list[Check]]:
    rows, set_at, checks = [], [], []
    for gap, parts, apart in zip(gaps, forecasts, number, strict=True):
        joined = _joined(parts) if parts else None
        if joined is None or len(joined.y) < FEWEST_PAIRS:
            continue
        # Pairs that overlap say the same thing again: only so many stand on their own.
        apart = float(min(len(joined.y), apart))
        channels = [[a[..., i] for a in joined] for i in range(joined.y.shape[1])]
        simple = [_simple(y, back, plain, apart) for y, _, back, _, plain in channels]
        channels = [
            [y, drift, share * back, around, width * plain]
            for (y, drift, back, around, plain), (share, width) in zip(channels, simple, strict=True)
        ]
        found = [_best(*channel, apart=apart) for channel in channels]
        # Numbers from few stretches are themselves in doubt, and forecasts are wider for it: width of both laws.
        doubt = _predictive(apart)
        channels = [[*channel[:-1], doubt * channel[-1]] for channel in channels]
        found = [(trust, pull, doubt * spread, share) for trust, pull, spread, share in found]
        simple = [(share, doubt * width) for share, width in simple]
        said = [_check(channel, row) for channel, row in zip(channels, found, strict=True)]
        rows.append([_of_the_law(row, each) for row, each in zip(found, simple, strict=True)])
        set_at.append(np.log(gap))
        coverage, relative = zip(*said, strict=True)
        checks.append(Check(float(gap), len(joined.y), list(coverage), list(relative)))
    if not set_at:
        # Nothing was held out that could be checked: the last value, with the noise of the moves there were.
        set_at, rows = [np.log(gaps[0])], [[(0.0, 1.0, 1.0, LEAST_SHARE)] * back.dim]
    trust, pull, spread, share = np.moveaxis(np.array(rows), -1, 0)
    as_array = lambda array: jnp.asarray(array, jnp.float32)
    correction = Correction(
        log_gaps=as_array(set_at),
        trust=as_array(trust),
        pull=as_array(pull),
        spread=as_array(spread),
        share=as_array(share),
        rate=as_array(back.rate),
        level=as_array(back.mean),
        noise=as_array(back.std),
    )
    return correction, checks


def _joined(parts: list[_Forecasts]) -> _Forecasts:
    join = lambda name: np.concatenate([getattr(part, name) for part in parts])
    return _Forecasts(*(join(name) for name in _Forecasts._fields))


def _check(channel, found) -> tuple[float, float]:
    """Coverage, and CRPS relative to the better of two simple means with the law's noise."""
    (y, drift, back, around, plain), (trust, pull, spread, share) = channel, found
    rest = y - trust * drift - pull * back
    noise = _shared(around, plain, spread, share)
    ours = _crps(rest, noise).mean()
    simple = min(_scores(y, around).mean(axis=1).min(), _scores(y - back, around).mean(axis=1).min())
    low, high = (
        _between(end, sign * NORMAL_95, around, plain, spread, share)
        for end, sign in zip(_central(around), (-1, 1), strict=True)
    )
    return float(((rest >= low) & (rest <= high)).mean()), float(ours / simple)


def _best(y, drift, back, around, plain, *, apart) -> tuple[float, float, float, float]:
    """Trust, pull, spread and share. Trust is a mean over what it might be, each as far as it cannot be told from the
    best, and the less the fewer stretches there are. So is the share that the law has in the noise, unless there are so
    many stretches that there is no reason to doubt it."""
    scores = [_scores(y - a * drift - (1 - a) * back, around) for a in SHARES]  # of each: spread, pair
    each = np.stack([score[score.mean(axis=1).argmin()] for score in scores])
    trust = _believed(each, DOUBT / apart, apart)
    pull = 1 - trust
    rest = y - trust * drift - pull * back
    sharpest = SPREADS[_scores(rest, around).mean(axis=1).argmin()]
    covered = np.array([_coverage(rest, spread * around) for spread in SPREADS])
    calibrated = SPREADS[min(int((covered < LEVEL).sum()), len(SPREADS) - 1)]
    # What few stretches cover is a matter of chance: there the sharper guide is the score.
    weight = 0.5 * min(1.0, apart / ENOUGH_APART)
    spread = float(sharpest ** (1 - weight) * calibrated**weight)
    shares = np.stack([_crps(rest, _shared(around, plain, spread, share)) for share in SHARES])
    better = _believed(shares, ENOUGH_APART / apart, apart)
    return trust, pull, spread, max(better, apart / (apart + ENOUGH_APART))


def _simple(y, back, plain, apart) -> tuple[float, float]:
    """How much of its return to the mean the simple law has over a gap, and how many times as wide it is as rows next
    to each other say, of which it was fitted. An error of measurement returns at once: such rows make a return look
    too fast, and noise over a long gap too wide."""
    wide = lambda share: np.sqrt(np.mean(((y - share * back) / plain) ** 2))
    normal = np.asarray(norm.ppf((np.arange(DRAWS) + 0.5) / DRAWS))[None]
    scores = [_crps(y - share * back, wide(share) * plain[:, None] * normal) for share in SHARES]
    share = _believed(np.stack(scores), -ENOUGH_FOR_RETURN / apart, apart)
    width = np.clip(wide(share), LEAST_WIDTH, MOST_WIDTH) ** enough_for_width(apart)
    return share, float(width)


def enough_for_width(apart: float | np.ndarray) -> float | np.ndarray:
    """How far what so many stretches say of a width is believed."""
    return apart / (apart + ENOUGH_FOR_WIDTH)


def _predictive(apart: float) -> float:
    """How much wider the central 90 % of what comes are than those of a normal law whose mean and width were both set
    by so many stretches, the width by what rows next to each other say as well: Student's instead of the normal
    quantile, and the error of the mean."""
    from scipy.special import stdtrit  # slow to import, and nothing else needs it

    quantile = stdtrit(apart + ENOUGH_FOR_WIDTH - 2, (1 + LEVEL) / 2) / NORMAL_95
    return float(quantile * np.sqrt(1 + 2 / apart))


def _of_the_law(found, simple) -> tuple[float, float, float, float]:
    """Trust, pull, spread and share of a law whose simple law is the process itself."""
    trust, pull, spread, share = found
    simple_share, width = simple
    return trust, pull * simple_share, spread * width ** ((1 - share) / share), share


def _believed(scores: Float[np.ndarray, "shares pairs"], doubt: float, apart: float) -> float:
    """The mean of all shares, each weighted by how far its score can be told from the best one's, and by doubt."""
    worse = scores - scores[scores.mean(axis=1).argmin()]
    error = np.maximum(worse.std(axis=1), 1e-12) / np.sqrt(apart)
    weights = np.exp(-0.5 * (worse.mean(axis=1) / error) ** 2 - doubt * SHARES)
    return float(weights @ SHARES / weights.sum())


def _shared(around, plain, spread, share):
    """Noise whose width is between that of the law and that of the simple law, and whose shape is between its own and
    that of a normal law."""
    normal = np.asarray(norm.ppf((np.arange(DRAWS) + 0.5) / DRAWS))
    each = np.broadcast_to(normal, around.shape).T
    return _between(np.sort(around, axis=1).T, each, around, plain, spread, share).T


def _between(own, normal, around, plain, spread, share):
    """Of noise like that, what lies between a number of the law's own and one of a normal law."""
    low, high = _central(around)
    width = np.maximum((high - low) / NORMAL_WIDTH, 1e-9)
    return (share * own / width + (1 - share) * normal) * (spread * width) ** share * plain ** (1 - share)


def _crps(rest, noise):
    """CRPS of each pair: $E|e - r| - E|e - e'|/2$, draws in order."""
    draws = noise.shape[1]
    half = noise @ (2 * np.arange(1, draws + 1) - draws - 1) / (draws * (draws - 1))
    return np.abs(noise - rest[:, None]).mean(axis=1) - half


def _scores(rest, around):
    """CRPS of each pair for each spread: $E|s e - r| - s E|e - e'|/2$ with $r$ what the mean leaves."""
    draws = around.shape[1]
    ordered = np.sort(around, axis=1)
    half = ordered @ (2 * np.arange(1, draws + 1) - draws - 1) / (draws * (draws - 1))
    off = np.stack([np.abs(spread * ordered - rest[:, None]).mean(axis=1) for spread in SPREADS])
    return off - SPREADS[:, None] * half[None]


def _coverage(rest, around):
    low, high = _central(around)
    return ((rest >= low) & (rest <= high)).mean()


def _central(draws):
    """The ends of the central interval of each row's law."""
    return quantiles_of_draws(draws, [(1 - LEVEL) / 2, (1 + LEVEL) / 2], axis=1)
