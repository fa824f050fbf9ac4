"""Values between the rows of a series, given those on either side. All is in the law's units; its horizon is one."""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Float, PRNGKeyArray

from ..flows import LocalFlow
from .draws import SLACK
from .history import History, padded
from .recent import Read, recent_width

# Rows of the past that say how wide the moves were of late, at the most; and series of them that are read at once.
PAST, AT_ONCE = 8192, 8
# Particles that go from one complete row to the next.
PARTICLES = 512
# How near, in standard deviations, a particle must come to what was seen of a row.
KERNEL = 0.5


class Rows(NamedTuple):
    """A series: its complete rows with the covariates that are not known ahead, and with those that are; the latter at
    every row; and the rows of which some channels were seen, NaN where not."""

    times: Float[np.ndarray, " rows"]
    values: Float[np.ndarray, "rows dim"]
    known: Float[np.ndarray, "rows known"]
    covariates: Float[np.ndarray, "rows covariates"]
    all_times: Float[np.ndarray, " all"]
    ahead: Float[np.ndarray, "all ahead"]
    partial_times: Float[np.ndarray, " partial"]
    partial: Float[np.ndarray, "partial dim"]


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

    Particles are moved by the law from one complete row to the next, $x_r \sim p(x_r \mid x_s)$, and chosen by how
    likely the next row is from where they are, $p(x_t \mid x_r)$: the bridge of the law itself, up to the number of
    particles. At a row of which some channels are known, particles are weighed by how near they come, and the others
    moved along by linear regression (Beaumont, Zhang and Balding, 2002). The law is as wide as the rows before say that
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
        seen = [partial.get(float(stop), np.full(dim, np.nan)) for stop in stops[:-1]]
        ahead = rows.ahead[np.searchsorted(rows.all_times, stops, side="right") - 1]
        known = np.concatenate([np.tile(rows.known[row], (len(stops), 1)), ahead], axis=1)
        gaps = np.diff(stops, prepend=start)
        arrays = known, gaps, np.array([*seen, rows.values[row + 1]])
        arrays = tuple(jnp.asarray(array, jnp.float32) for array in arrays)
        memory = jax.tree.map(lambda leaf, row=row: jnp.asarray(leaf[row]), memories)
        row_key = jr.fold_in(key, int(row))
        drawn = _between(law.widened(jnp.asarray(wider)), history, memory, arrays, row_key, samples)
        out[:, mine] = np.asarray(drawn)[:, np.searchsorted(stops, at[mine])]
    return out


def _widths(law: LocalFlow, history: History, rows: Rows, holes: np.ndarray):
    """How much wider than the law says moves have been of late, at each of these rows."""
    if not len(holes):
        return []
    values, gaps, _ = padded(rows.times, rows.values)
    length = min(PAST, len(gaps))
    first = lambda array: np.repeat(array[:1], length, axis=0)
    seen = history.along(rows.times, rows.values)
    pad = lambda array: np.concatenate([array, np.repeat(array[-1:], len(gaps) - len(array), axis=0)])
    arrays = values, seen, rows.covariates.astype(np.float32)
    arrays = [np.concatenate([first(array), pad(array)]) for array in arrays]
    gaps = np.concatenate([np.zeros(length, np.float32), gaps])
    number = 1 << (len(holes) - 1).bit_length()
    wanted = np.concatenate([holes, np.repeat(holes[-1:], number - len(holes))])
    found = _widths_at(law, *arrays, gaps, wanted + 1, length, rows.ahead.shape[1])
    return list(np.asarray(found)[: len(holes)])


@eqx.filter_jit
def _widths_at(law, values, seen, covariates, gaps, firsts, length, ahead):
    def one(first):
        cut = lambda array: jax.lax.dynamic_slice_in_dim(array, first, length)
        last = jnp.asarray(length - 1)
        return recent_width(law, Read(cut(values), cut(gaps), last, cut(seen), cut(covariates)), ahead)

    arrays = values, seen, covariates, gaps
    values, seen, covariates, gaps = map(jnp.asarray, arrays)
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


@eqx.filter_jit
def _between(law, history, memory, stops, key, samples):
    """Paths of particles through the times between two rows, chosen by the second row."""
    known, gaps, seen = stops
    steps = gaps.shape[0] - 1
    condition = lambda memory, known: jnp.concatenate([history.read(memory), known])
    memories = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (PARTICLES, *leaf.shape)), memory)
    path = jnp.zeros((PARTICLES, steps, law.dim), gaps.dtype)

    def step(carry, now):
        memories, path = carry
        i, gap, known, seen = now
        move_key, pick_key = jr.split(jr.fold_in(key, i))
        start = jnp.zeros((), gap.dtype)
        move = lambda memory, key: law.sample(memory.x, start, gap, condition(memory, known), key=key)
        x = jax.vmap(move)(memories, jr.split(move_key, PARTICLES)).astype(path.dtype)
        x, nearness = _meet(x, seen)
        memories = jax.vmap(lambda memory, x: history.update(memory, x, gap))(memories, x)
        path = path.at[:, i].set(x)
        # Where nothing was seen no particle is better than another: to choose would only lose some.
        everyone = jnp.arange(PARTICLES)
        chosen = jr.categorical(pick_key, nearness, shape=(PARTICLES,)).astype(everyone.dtype)
        chosen = jnp.where(jnp.isnan(seen).all(), everyone, chosen)
        return jax.tree.map(lambda leaf: leaf[chosen], (memories, path)), None

    on_the_way = jnp.arange(steps), gaps[:-1], known[:-1], seen[:-1]
    (memories, path), _ = jax.lax.scan(step, (memories, path), on_the_way)
    density = lambda memory: law.log_prob(
        seen[-1], memory.x, jnp.zeros((), gaps.dtype), gaps[-1], condition(memory, known[-1])
    )
    last = jnp.nan_to_num(jax.vmap(density)(memories), nan=-jnp.inf)
    chosen = jr.categorical(jr.fold_in(key, steps), last, shape=(samples,))
    return path[chosen]


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
