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


def simulate(
    law: AbstractTransition,
    like: Trajectories,
    number: int,
    *,
    span: float,
    steps: tuple[float, float],
    smoothing: float = 0.0,
    residuals: bool = False,
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
    """
    low, high = steps
    if not 0 < low <= high <= span:
        raise ValueError(f"`steps` must satisfy 0 < shortest ≤ longest ≤ span; got {steps} and {span}.")
    if number < 1:
        raise ValueError(f"`number` must be at least 1; got {number}.")
    pick_key, kernel_key, time_key, noise_key = jr.split(key, 4)
    series, rows = _first_complete_rows(like)
    chosen = np.asarray(jr.randint(pick_key, (number,), 0, len(series)))
    starts = _spread(like.values[series, rows], chosen, smoothing, kernel_key)
    covariates = None if like.u is None else like.u[series[chosen], rows[chosen]]
    times = _random_times(number, span, low, high, time_key)
    pool = _residuals(law, like, low, high) if residuals else None
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


def smoothed_starts(
    like: Trajectories, number: int, smoothing: float, *, key: PRNGKeyArray
) -> Float[np.ndarray, "number dim"]:
    """First complete rows of `like`, drawn with replacement and spread as `simulate` does."""
    pick_key, kernel_key = jr.split(key)
    series, rows = _first_complete_rows(like)
    chosen = np.asarray(jr.randint(pick_key, (number,), 0, len(series)))
    return _spread(like.values[series, rows], chosen, smoothing, kernel_key)


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
    found = []
    noise_of = jax.vmap(law.noise_and_log_prob, in_axes=(0, 0, 0, 0, None if like.u is None else 0))
    noise = jax.jit(lambda *pairs: noise_of(*pairs)[0])
    for lag in range(1, like.values.shape[1]):
        s, t = like.times[:, :-lag], like.times[:, lag:]
        fits = like.complete[:, :-lag] & like.complete[:, lag:] & (t - s >= low) & (t - s <= high)
        if fits.any():
            u = None if like.u is None else like.u[:, :-lag][fits]
            found.append(noise(like.values[:, lag:][fits], like.values[:, :-lag][fits], s[fits], t[fits], u))
    if not found:
        raise ValueError(
            f"`like` must have pairs with gaps between {low:g} and {high:g} to take residuals from."
        )
    return jnp.concatenate(found)


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
    for first in range(0, len(starts), CHUNK):
        rows = np.minimum(np.arange(first, first + min(CHUNK, len(starts))), len(starts) - 1)
        u = None if covariates is None else covariates[rows]
        found = np.asarray(draw(starts[rows], times[rows], u, keys[rows]))
        out[rows, 1:] = found
    return out
