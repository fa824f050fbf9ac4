"""Values between the rows of a series, given those on either side. All is in the law's units; its horizon is one."""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from ..flows import LocalFlow
from ..latent.small import cholesky, inverse_and_log_det
from .draws import SLACK
from .history import History, padded
from .recent import Read, recent_said, recent_width

# Rows of the past that say how wide the moves were of late, at the most; and series of them that are read at once.
PAST, AT_ONCE = 8192, 8
# Particles that go from one complete row to the next.
PARTICLES = 512
# Stops between two rows come in powers of two from this one on, so that few programs serve all.
LEAST_STOPS = 2
# Draws that say how far the law goes over a gap, and how much wider than normal noise a guess is made, to be safe.
SCOUTS, SAFE = 256, 1.2
# Particles are chosen anew when their weights are worth no more than this share of them.
TIRED = 0.5
# How near, in standard deviations, a particle must come to what was seen of a row.
KERNEL = 0.5


class Rows(NamedTuple):
    """A series: its complete rows with the covariates that are not known ahead, and with those that are; the latter at
    every row; the rows of which some channels were seen, NaN where not; and what the state is measured from at each
    complete row, if not from zero."""

    times: Float[np.ndarray, " rows"]
    values: Float[np.ndarray, "rows dim"]
    known: Float[np.ndarray, "rows known"]
    covariates: Float[np.ndarray, "rows covariates"]
    all_times: Float[np.ndarray, " all"]
    ahead: Float[np.ndarray, "all ahead"]
    partial_times: Float[np.ndarray, " partial"]
    partial: Float[np.ndarray, "partial dim"]
    centres: Float[np.ndarray, "rows dim"] | None = None


def between(
    law: LocalFlow,
    history: History,
    rows: Rows,
    at: Float[np.ndarray, " n"],
    *,
    samples: int,
    key: PRNGKeyArray,
) -> Float[np.ndarray, "samples n dim"]:
    r"""Draws at times within a series, each a path through all times between two complete rows.

    Particles go from one complete row to the next, half of them as the law says, $x_r \sim p(x_r \mid x_s)$, and half
    as normal noise would that must meet the next row. They are weighed by the law's own density over that of both ways,
    chosen on the way by how near to the next row they are (Doucet and Johansen, 2011, section 4), and in the end by how
    likely it is from where they are, $p(x_t \mid x_r)$: the bridge of the law itself, up to the number of particles. At
    a row of which some channels are known, particles are weighed by how near they come, and the others moved along by
    linear regression (Beaumont, Zhang and Balding, 2002). The law is as wide as the rows before say that
    it should be, as in a forecast from there.
    """
    dim = rows.values.shape[1]
    partial = dict(zip(rows.partial_times.tolist(), rows.partial, strict=True))
    before = np.searchsorted(rows.times, at, side="right") - 1
    out = np.empty((samples, len(at), dim), np.float32)
    memories = history.memories(rows.times, rows.values)
    here = rows.times[before] == at
    out[:, here] = rows.values[before[here]]
    holes = np.unique(before[~here])
    for row, wider in zip(holes, _widths(law, history, rows, holes), strict=True):
        mine = np.flatnonzero((before == row) & ~here)
        start, end = (float(time) for time in rows.times[row : row + 2])
        met = rows.partial_times[(rows.partial_times > start) & (rows.partial_times < end)]
        stops = _stops(start, end, np.union1d(at[mine], met))
        centre = np.zeros(dim) if rows.centres is None else rows.centres[row]
        seen = np.array([partial.get(float(stop), np.full(dim, np.nan)) for stop in stops]) - centre
        ahead = rows.ahead[np.searchsorted(rows.all_times, stops, side="right") - 1]
        known = np.concatenate([np.tile(rows.known[row], (len(stops), 1)), ahead], axis=1)
        way = _Stops.of(known, np.diff(stops, prepend=start), seen, rows.values[row + 1] - centre)
        memory = jax.tree.map(lambda leaf, row=row: jnp.asarray(leaf[row]), memories)
        memory = memory.measured_from(jnp.asarray(centre, memory.x.dtype))
        row_key = jr.fold_in(key, int(row))
        drawn = _between(law.widened(jnp.asarray(wider)), history, memory, way, row_key, samples)
        out[:, mine] = np.asarray(drawn)[:, np.searchsorted(stops, at[mine])] + centre
    return out


def _widths(law: LocalFlow, history: History, rows: Rows, holes: np.ndarray):
    """How much wider than the law says moves have been of late, at each of these rows."""
    if law.correction is None or not len(holes):  # such a law is never widened
        return [np.zeros((0, law.dim), np.float32)] * len(holes)
    values, gaps, _ = padded(rows.times, rows.values)
    length = min(PAST, len(gaps))
    first = lambda array: np.repeat(array[:1], length, axis=0)
    seen = history.along(rows.times, rows.values, rows.centres)
    pad = lambda array: np.concatenate([array, np.repeat(array[-1:], len(gaps) - len(array), axis=0)])
    arrays = values, seen, rows.covariates.astype(np.float32)
    arrays += () if rows.centres is None else (rows.centres.astype(np.float32),)
    arrays = [np.concatenate([first(array), pad(array)]) for array in arrays]
    gaps = np.concatenate([np.zeros(length, np.float32), gaps])
    number = 1 << (len(holes) - 1).bit_length()
    wanted = np.concatenate([holes, np.repeat(holes[-1:], number - len(holes))])
    found = _widths_at(law, arrays, gaps, wanted + 1, length, rows.ahead.shape[1])
    return list(np.asarray(found)[: len(holes)])


@eqx.filter_jit
def _widths_at(law, arrays, gaps, firsts, length, ahead):
    arrays, gaps = [jnp.asarray(array) for array in arrays], jnp.asarray(gaps)

    def one(first):
        cut = lambda array: jax.lax.dynamic_slice_in_dim(array, first, length)
        values, seen, covariates, *centres = map(cut, arrays)
        rows = Read(values, cut(gaps), jnp.asarray(length - 1), seen, covariates, *centres)
        return recent_width(law, recent_said(law, rows, ahead))

    return jax.lax.map(one, jnp.asarray(firsts), batch_size=AT_ONCE)


def _stops(start: float, end: float, at: np.ndarray) -> np.ndarray:
    """Where particles stop on the way: at the times asked for, at the end, and often enough for every step to be one
    that the law has learnt."""
    stops = np.append(at, end)
    steps = np.maximum(1, np.ceil(np.diff(stops, prepend=start) - SLACK)).astype(int)
    starts = np.concatenate([[start], stops[:-1]])
    parts = [
        np.append(np.linspace(a, b, n, endpoint=False)[1:], b)
        for a, b, n in zip(starts, stops, steps, strict=True)
    ]
    return np.concatenate(parts)


class _Stops(NamedTuple):
    """Where particles stop, the last of `number` at the next complete row, `end`: what is known there, how long it is
    from the stop before and to the end, and what was seen on the way."""

    known: Float[Array, "stops known"]
    gaps: Float[Array, " stops"]
    after: Float[Array, " stops"]
    seen: Float[Array, "stops dim"]
    end: Float[Array, " dim"]
    number: Int[Array, ""]

    @classmethod
    def of(cls, known: np.ndarray, gaps: np.ndarray, seen: np.ndarray, end: np.ndarray) -> "_Stops":
        """Padded to a power of two: one program for each serves all holes."""
        number = len(gaps)
        spare = (1 << max(LEAST_STOPS, (number - 1).bit_length())) - number
        after = np.minimum(gaps.sum() - np.cumsum(gaps), 1.0)  # the law has learnt gaps up to one
        after[-1] = gaps[-1]
        single = lambda array: jnp.asarray(array, jnp.float32)
        pad = lambda array: single(np.concatenate([array, np.repeat(array[-1:], spare, axis=0)]))
        return cls(pad(known), pad(gaps), pad(after), pad(seen), single(end), jnp.asarray(number))


@eqx.filter_jit
def _between(law, history, memory, stops, key, samples):
    """Paths of particles through the times between two rows, drawn towards the second row and chosen by it."""
    dtype, dim, end = stops.gaps.dtype, law.dim, stops.end
    memories = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (PARTICLES, *leaf.shape)), memory)
    path = jnp.zeros((PARTICLES, stops.gaps.shape[0], dim), dtype)
    everyone = jnp.arange(PARTICLES)
    # Scouts go from where the series is, over the gap and over what comes after it: one call of the law for all.
    which = jnp.concatenate([everyone, jnp.repeat(PARTICLES + jnp.arange(2), SCOUTS)])
    prepare = lambda memory, gap, known: law.prepare(
        memory.x, jnp.zeros_like(gap), gap, jnp.concatenate([history.read(memory), known])
    )

    def step(i, carry):
        memories, path, weight = carry
        gap, after, known, seen = (array[i] for array in (stops.gaps, stops.after, stops.known, stops.seen))
        move_key, guess_key, side_key, pick_key = jr.split(jr.fold_in(key, i), 4)
        starts = jax.tree.map(
            lambda leaf, first: jnp.concatenate([leaf, jnp.broadcast_to(first, (2, *first.shape))]),
            memories,
            memory,
        )
        gaps = jnp.concatenate([jnp.full(PARTICLES, gap), jnp.stack([gap, after])])
        prepared = jax.vmap(prepare, in_axes=(0, 0, None))(starts, gaps, known)
        noise = jr.normal(move_key, (len(which), dim), dtype)
        drawn, _ = jax.vmap(law.prepared_transform_and_log_prob)(
            noise, jax.tree.map(lambda leaf: leaf[which], prepared)
        )
        drawn = drawn.astype(dtype)
        blind, scouts = drawn[:PARTICLES], drawn[PARTICLES:].reshape(2, SCOUTS, dim)
        near, far = _covariance(scouts[0]), _covariance(scouts[1])
        share = near @ inverse_and_log_det(near + far)[0]
        mean = memories.x + (end[None] - memories.x) @ share.T
        spread = near - share @ near
        spread = SAFE**2 * ((spread + spread.T) / 2 + 1e-4 * jnp.diag(jnp.diagonal(spread)))
        guess = mean + jr.normal(guess_key, blind.shape, dtype) @ cholesky(spread).T
        x = jnp.where(jr.bernoulli(side_key, 0.5, (PARTICLES, 1)), blind, guess)
        arrived = i == stops.number - 1
        x = jnp.where(arrived, end[None], x).astype(dtype)
        of_law = jax.vmap(law.prepared_log_prob)(x, jax.tree.map(lambda leaf: leaf[:PARTICLES], prepared))
        of_guess = jnp.where(arrived, -jnp.inf, _log_normal(x - mean, spread))
        of_both = jnp.where(arrived, 0.0, jnp.logaddexp(of_law, of_guess))
        weight = (weight + of_law - of_both).astype(dtype)
        x, nearness = _meet(x, seen)
        path = path.at[:, i].set(x)
        ahead = jnp.where(arrived, 0.0, _log_normal(end[None] - x, SAFE**2 * far))
        worth = jnp.nan_to_num(weight + ahead, nan=-jnp.inf) + nearness
        share_of = jax.nn.softmax(worth)
        # Rows of which something was seen choose in any case: their weights are not carried on.
        choose = (1 / jnp.square(share_of).sum() < TIRED * PARTICLES) | ~jnp.isnan(seen).all()
        choose &= ~arrived
        chosen = jnp.where(choose, jr.categorical(pick_key, worth, shape=(PARTICLES,)), everyone)
        weight = jnp.where(choose, -ahead[chosen], weight).astype(dtype)
        memories = jax.vmap(lambda memory, x: history.update(memory, x, gap))(memories, x)
        memories, path = jax.tree.map(lambda leaf: leaf[chosen], (memories, path))
        return memories, path, weight

    start = memories, path, jnp.zeros(PARTICLES, dtype)
    _, path, weight = jax.lax.fori_loop(0, stops.number, step, start)
    weight = jnp.nan_to_num(weight, nan=-jnp.inf)
    chosen = jr.categorical(jr.fold_in(key, stops.number), weight, shape=(samples,))
    return path[chosen]


def _covariance(drawn: Float[Array, "n dim"]) -> Float[Array, "dim dim"]:
    """Of what scouts found. Tails that are heavy would make a guess too wide: what lies far out counts as less."""
    away = drawn - jnp.median(drawn, axis=0)[None]
    furthest = 3 * jnp.median(jnp.abs(away), axis=0)[None] / 0.6745
    away = jnp.clip(away, -furthest, furthest)
    floor = 1e-6 * jnp.square(away).mean() + jnp.finfo(drawn.dtype).tiny
    return away.T @ away / drawn.shape[0] + floor * jnp.eye(drawn.shape[1], dtype=drawn.dtype)


def _log_normal(x: Float[Array, "n dim"], covariance: Float[Array, "dim dim"]) -> Float[Array, " n"]:
    """Log-density of normal noise with this covariance."""
    precision, log_det = inverse_and_log_det(covariance)
    return -0.5 * (((x @ precision) * x).sum(axis=1) + log_det + x.shape[1] * jnp.log(2 * jnp.pi))


def _meet(x, seen):
    """Particles moved to what was seen of a row, and how near they were; unchanged where nothing was."""
    there = ~jnp.isnan(seen)
    value = jnp.where(there, seen, 0.0)
    mean, std = x.mean(axis=0), x.std(axis=0) + 1e-9
    away = jnp.where(there[None], (value[None] - x) / std[None], 0.0)
    standard = jnp.where(there[None], (x - mean[None]) / std[None], 0.0)
    # Ridge keeps channels that were not seen, whose columns are zero, out of the regression.
    gram = standard.T @ standard / x.shape[0] + 1e-3 * jnp.eye(x.shape[1], dtype=x.dtype)
    slopes = jnp.linalg.solve(gram, standard.T @ (x - mean[None]) / x.shape[0])
    moved = x + away @ slopes
    met = jnp.where(there[None], value[None], moved)
    nearness = -0.5 * (jnp.square(away) / KERNEL**2).sum(axis=1)
    return jnp.where(there.any(), met, x), jnp.where(there.any(), nearness, 0.0)
