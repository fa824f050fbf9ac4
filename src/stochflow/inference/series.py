"""New series from a law: what its short gaps, chained, say about its long ones."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Float, PRNGKeyArray

from ..data import Trajectories
from ..laws import AbstractTransition

# Paths to a compiled call: memory stays small, and one program serves any number.
CHUNK = 4096
# How many starts are tried for each that is taken where paths part.
CANDIDATES = 4


def simulate(
    law: AbstractTransition,
    like: Trajectories,
    number: int,
    *,
    span: float,
    steps: tuple[float, float],
    smoothing: float = 0.0,
    residuals: bool = False,
    contested: float = 0.0,
    key: PRNGKeyArray,
) -> Trajectories:
    r"""`number` new series that start as those of `like` do and go on as `law` says, at random times.

    A Markov law is the same law in one step or in several, but a learnt one is better at the gaps that it saw most
    of. Series simulated in short steps teach the long gaps by plain maximum likelihood (`fit` them together with the
    data): no bridge is needed, no start is seen twice, and nothing is learnt by heart.

    **Arguments:**

    - `span`: how long each series is; its last step is cut there.
    - `steps`: shortest and longest step; each is drawn uniformly between them.
    - `smoothing`: the starts are first complete rows of `like`, drawn with replacement. With a positive smoothing $h$
        they are spread by a normal kernel of $h$ standard deviations of those rows and shrunk by
        $1/\sqrt{1 + h^2}$ to keep their variance: the smoothed bootstrap.
    - `residuals`: draw the noise of each step from what the pairs of `like` with such a gap have shown, instead of
        from a normal law. A law that is a little too wide, step after step, would else make paths that are far too
        wide. For laws that can tell the noise of a pair, such as flows.
    - `contested`: of this share of the series the starts are those from which paths part: of `CANDIDATES` times as many
        spread starts, each sends out two paths, and is then taken in proportion to how far these come apart. A start
        near a separatrix, where the law is hardest to learn, is rare among the others. What follows a start is drawn
        anew, so the law given the start stays what it is.
    """
    low, high = steps
    if not 0 < low <= high <= span:
        raise ValueError(f"`steps` must satisfy 0 < shortest ≤ longest ≤ span; got {steps} and {span}.")
    if number < 1:
        raise ValueError(f"`number` must be at least 1; got {number}.")
    _check_share(contested)
    pick_key, kernel_key, time_key, noise_key = jr.split(key, 4)
    pool = _residuals(law, like, low, high) if residuals else None
    parting_key = jr.fold_in(noise_key, 1)
    starts, covariates = _mixed_starts(
        law, like, number, smoothing, contested, pool, span, high, (pick_key, kernel_key, parting_key)
    )
    times = _random_times(number, span, low, high, time_key)
    values = _paths(law, starts, times, covariates, pool, noise_key)
    values = np.where(
        np.isfinite(values), values, np.nan
    )  # where a path has left all bounds it is not observed
    # Up to the row that reaches the span.
    lengths = 1 + (times < span * (1 - 1e-6)).sum(axis=1)
    cut = lambda array: [np.asarray(row)[:n] for row, n in zip(array, lengths, strict=True)]
    along = None if covariates is None else np.repeat(covariates[:, None], times.shape[1], axis=1)
    return Trajectories.from_series(
        cut(times.astype(np.float64)), cut(values), u=None if along is None else cut(along)
    )


def series_starts(
    law: AbstractTransition,
    like: Trajectories,
    number: int,
    *,
    span: float,
    step: float,
    smoothing: float = 0.0,
    contested: float = 0.0,
    key: PRNGKeyArray,
) -> Float[np.ndarray, "number dim"]:
    """The starts that [`simulate`][stochflow.inference.simulate] would give its series, alone.

    First complete rows of `like`, drawn with replacement and spread by `smoothing`; a share of them, `contested`, where
    paths of `law` over `span`, in steps of at most `step`, part.
    """
    if number < 1:
        raise ValueError(f"`number` must be at least 1; got {number}.")
    _check_share(contested)
    if not 0 < step <= span:
        raise ValueError(f"`step` must be positive and no longer than `span`; got {step} and {span}.")
    return _mixed_starts(law, like, number, smoothing, contested, None, span, step, jr.split(key, 3))[0]


def _check_share(contested):
    if not 0 <= contested <= 1:
        raise ValueError(f"`contested` must lie in [0, 1]; got {contested}.")


def _mixed_starts(law, like, number, smoothing, contested, pool, span, longest, keys):
    """Spread starts, a share of them where paths part, and the covariates that they came with."""
    pick_key, kernel_key, parting_key = keys
    hard = round(contested * number)
    starts, covariates = _starts(like, number - hard + CANDIDATES * hard, smoothing, pick_key, kernel_key)
    if not hard:
        return starts, covariates
    kept, tried = np.arange(number - hard), np.arange(number - hard, len(starts))
    apart = _parting(law, starts, covariates, tried, pool, span, longest, parting_key)
    order = _in_proportion(apart, hard, jr.fold_in(pick_key, 1))
    rows = np.concatenate([kept, tried[order]])
    return starts[rows], None if covariates is None else covariates[rows]


def _starts(like, number, smoothing, pick_key, kernel_key):
    """Spread first rows, and the covariates that they came with."""
    series, rows = _first_complete_rows(like)
    chosen = np.asarray(jr.randint(pick_key, (number,), 0, len(series)))
    covariates = None if like.u is None else like.u[series[chosen], rows[chosen]]
    return _spread(like.values[series, rows], chosen, smoothing, kernel_key), covariates


def _parting(law, starts, covariates, rows, pool, span, longest, key):
    """How far, at most, two paths from each of the starts come apart, in units of how wide all paths are."""
    number = int(np.ceil(span / longest))
    times = np.broadcast_to(np.linspace(0, span, number + 1, dtype=np.float32), (2 * len(rows), number + 1))
    twice = np.concatenate([rows, rows])
    u = None if covariates is None else covariates[twice]
    one, other = np.split(_paths(law, starts[twice], times, u, pool, key)[:, 1:], 2)
    with np.errstate(over="ignore", invalid="ignore"):
        width = np.nanstd(np.where(np.isfinite(one), one, np.nan), axis=(0, 1))
        apart = np.sqrt((((one - other) / np.where(width > 0, width, 1.0)) ** 2).sum(axis=2)).max(axis=1)
    return np.where(
        np.isfinite(apart), apart, 0.0
    )  # a start whose path leaves all bounds has nothing to teach


def _in_proportion(weights, number, key):
    """`number` different rows, each drawn in proportion to its weight: those with the greatest $\\log w$ + Gumbel."""
    with np.errstate(divide="ignore"):
        score = np.log(weights) + np.asarray(jr.gumbel(key, weights.shape))
    return np.sort(np.argpartition(-score, number - 1)[:number])


def _spread(firsts, chosen, smoothing, key):
    firsts = firsts.astype(np.float64)
    mean, std = firsts.mean(axis=0), firsts.std(axis=0)
    kernel = smoothing * std * np.asarray(jr.normal(key, (len(chosen), firsts.shape[1])))
    return (mean + (firsts[chosen] - mean + kernel) / np.sqrt(1 + smoothing**2)).astype(np.float32)


def _first_complete_rows(like):
    series = np.flatnonzero(like.complete.any(axis=1))
    if len(series) == 0:
        raise ValueError("`like` must have a complete row to start from.")
    return series, like.complete[series].argmax(axis=1)


def _random_times(number, span, low, high, key):
    """Rows of increasing times from 0; those past the span are set to it."""
    most = int(np.ceil(span / low))
    increments = np.asarray(jr.uniform(key, (number, most), minval=low, maxval=high), np.float64)
    times = np.minimum(np.concatenate([np.zeros((number, 1)), np.cumsum(increments, axis=1)], axis=1), span)
    longest = 1 + (times < span * (1 - 1e-6)).sum(axis=1).max()
    return times[:, :longest].astype(np.float32)


def _residuals(law, like, low, high):
    """The noise of every pair of complete rows of one series whose gap lies in the range."""
    series, first, last = _pairs_with_gaps(like, low, high)
    if len(series) == 0:
        raise ValueError(
            f"`like` must have pairs with gaps between {low:g} and {high:g} to take residuals from."
        )
    axes = 0, 0, 0, 0, None if like.u is None else 0
    noise = jax.jit(jax.vmap(lambda *pair: law.noise_and_log_prob(*pair)[0], in_axes=axes))

    def of_rows(rows):
        i, a, b = series[rows], first[rows], last[rows]
        u = None if like.u is None else like.u[i, a]
        return noise(like.values[i, b], like.values[i, a], like.times[i, a], like.times[i, b], u)

    return jnp.concatenate([of_rows(rows) for rows in _chunks(len(series))])[: len(series)]


def _pairs_with_gaps(like, low, high):
    """Series, earlier and later row of every pair of complete rows whose gap lies in the range."""
    found = [np.zeros((3, 0), int)]
    for lag in range(1, like.values.shape[1]):
        gap = like.times[:, lag:] - like.times[:, :-lag]
        fits = like.complete[:, :-lag] & like.complete[:, lag:] & (gap >= low) & (gap <= high)
        series, first = np.nonzero(fits)
        found.append(np.stack([series, first, first + lag]))
    return np.concatenate(found, axis=1)


def _chunks(number):
    """Rows to a compiled call, all of one length: the last of them, if need be, is the last row again and again."""
    size = min(CHUNK, number)
    return [np.minimum(np.arange(i, i + size), number - 1) for i in range(0, number, size)]


def _paths(law, starts, times, covariates, pool, key):
    def noise(key):
        if pool is None:
            return jr.normal(key, (law.dim,), jnp.float32)
        return pool[jr.randint(key, (), 0, pool.shape[0])]

    @jax.jit
    def draw(x0, times, u, keys):
        def path(x0, times, u, key):
            def step(x, now):
                s, t, i = now
                x = law.transform(noise(jr.fold_in(key, i)), x, s, t, u).astype(jnp.float32)
                return x, x

            numbers = jnp.arange(times.shape[0] - 1)
            return jax.lax.scan(step, x0, (times[:-1], times[1:], numbers))[1]

        return jax.vmap(path, in_axes=(0, 0, None if u is None else 0, 0))(x0, times, u, keys)

    out = np.empty((*times.shape, starts.shape[1]), np.float32)
    out[:, 0] = starts
    keys = jr.split(key, len(starts))
    for rows in _chunks(len(starts)):
        u = None if covariates is None else covariates[rows]
        found = np.asarray(draw(starts[rows], times[rows], u, keys[rows]))
        out[rows, 1:] = found
    return out
