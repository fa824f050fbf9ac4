"""Values between the rows of a series, given those on either side."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Float, PRNGKeyArray

from .direct import KERNEL, PARTICLES, DirectModel, complete_rows, mark_of
from .frames import Panel


def impute_direct(
    model: DirectModel, panel: Panel, i: int, at: Float[np.ndarray, " n"], *, samples: int, key: PRNGKeyArray
) -> Float[np.ndarray, "samples n dim"]:
    r"""Draws at times within series number `i`, each a path through all times between two complete rows.

    Particles are moved by the law from one complete row to the next, $x_r \sim p(x_r \mid x_s)$, and chosen by how
    likely the next row is from where they are, $p(x_t \mid x_r)$: the bridge of the law itself, up to the number of
    particles. At a row of which some channels are known, particles are weighed by how near they come, and the others
    moved along by linear regression (Beaumont, Zhang and Balding, 2002).
    """
    times, values, u = complete_rows(panel, i)
    if len(times) < 2 or at.min() < times[0] or at.max() > times[-1]:
        where = "no two complete rows" if len(times) < 2 else "times beyond its first or last complete row"
        raise ValueError(f"series {panel.ids[i]!r} has {where}: nothing to go by on both sides.")
    z = model.units.values(values)
    centre, spread = model.own(z)
    scaled = (times - times[0]) / model.horizon, (z - centre) / spread
    known, ahead = _covariates(model, panel, i, u)
    partial = _partial(model, panel, i, centre, spread)
    before = np.searchsorted(times, at, side="right") - 1
    out = np.empty((samples, len(at), model.dim), np.float32)
    key = jr.fold_in(key, mark_of(panel.ids[i]))
    readings = _memories_along(model, *scaled)
    here = times[before] == at
    out[:, here] = scaled[1][before[here]]
    for row in np.unique(before[~here]):
        mine = np.flatnonzero((before == row) & ~here)
        stops = _stops(float(times[row]), float(times[row + 1]), at[mine], model.horizon)
        seen = [partial.get(float(stop), np.full(model.dim, np.nan)) for stop in stops[:-1]]
        gaps = np.diff(stops, prepend=times[row]) / model.horizon
        memory = jax.tree.map(lambda leaf, row=row: jnp.asarray(leaf[row]), readings)
        drawn = _between(
            model,
            memory,
            jnp.asarray(np.array([np.append(known[row], ahead(stop)) for stop in stops]), jnp.float32),
            jnp.asarray(gaps, jnp.float32),
            jnp.asarray(np.array([*seen, scaled[1][row + 1]]), jnp.float32),
            jr.fold_in(key, int(row)),
            samples,
        )
        out[:, mine] = np.asarray(drawn)[:, np.searchsorted(stops, at[mine])]
    line = np.asarray(model.units.loc) + np.asarray(model.units.scale) * (centre + spread * out)
    flat = jnp.asarray(line.reshape(-1, model.dim), jnp.float32)
    return np.asarray(_from_line(model.units.support, flat)).reshape(out.shape)


def _stops(start: float, end: float, at: np.ndarray, horizon: float) -> np.ndarray:
    """Where particles stop on the way: at the times asked for, at the end, and often enough for every step to be one
    that the law has learnt."""
    stops = np.append(at, end)
    steps = np.maximum(1, np.ceil(np.diff(stops, prepend=start) / horizon - 1e-6)).astype(int)
    starts = np.concatenate([[start], stops[:-1]])
    parts = [
        np.append(np.linspace(a, b, n, endpoint=False)[1:], b)
        for a, b, n in zip(starts, stops, steps, strict=True)
    ]
    return np.concatenate(parts)


def _covariates(model: DirectModel, panel: Panel, i: int, u: np.ndarray) -> tuple[np.ndarray, Any]:
    """Scaled covariates of each complete row but those known ahead; and those at any time, from the last row, complete
    or not, by then."""
    first = u.shape[1] - model.ahead
    rows = np.concatenate([np.zeros((len(panel.times[i]), first)), panel.future[i]], axis=1)
    later = model.units.covariates(rows)[:, first:]
    ahead = lambda time: later[np.searchsorted(panel.times[i], time, side="right") - 1]
    return model.units.covariates(u)[:, :first], ahead


def _partial(model, panel, i, centre, spread) -> dict[float, np.ndarray]:
    """What is known, in the law's units, at the rows of which only some channels are."""
    x = panel.values[i]
    rows = np.flatnonzero(np.isnan(x).any(axis=1) & ~np.isnan(x).all(axis=1))
    if not len(rows):
        return {}
    inside = np.nanmedian(x, axis=0)
    filled = np.where(np.isnan(x[rows]), inside, x[rows])
    z = (model.units.values(filled) - centre) / spread
    z = np.where(np.isnan(x[rows]), np.nan, z)
    return {float(t): each for t, each in zip(panel.times[i][rows], z, strict=True)}


@eqx.filter_jit
def _from_line(support, flat):
    return jax.vmap(lambda y: support.from_line(y)[0])(flat)


def _memories_along(model: DirectModel, times, values) -> Any:
    """The memory at each complete row."""
    gaps = np.diff(times, prepend=times[:1]).astype(np.float32)
    rows = len(times)
    padded = 1 << max(4, (rows - 1).bit_length())
    pad = lambda array: np.concatenate([array, np.repeat(array[-1:], padded - rows, axis=0)])
    found = _memory_scan(model.history, pad(values.astype(np.float32)), pad(gaps))
    return jax.tree.map(lambda leaf: np.asarray(leaf)[:rows], found)


@eqx.filter_jit
def _memory_scan(history, values, gaps):
    def step(memory, row):
        memory = history.update(memory, *row)
        return memory, memory

    return jax.lax.scan(step, history.start(values[0]), (values, gaps))[1]


@eqx.filter_jit
def _between(model, memory, known, gaps, seen, key, samples):
    """Paths of particles through the times between two rows, chosen by the second row."""
    steps = gaps.shape[0] - 1
    condition = lambda memory, known: jnp.concatenate([model.history.read(memory), known])
    memories = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (PARTICLES, *leaf.shape)), memory)
    path = jnp.zeros((PARTICLES, steps, model.dim), gaps.dtype)

    def step(carry, now):
        memories, path = carry
        i, gap, known, seen = now
        move_key, pick_key = jr.split(jr.fold_in(key, i))
        start = jnp.zeros((), gap.dtype)
        move = lambda memory, key: model.law.sample(memory.x, start, gap, condition(memory, known), key=key)
        x = jax.vmap(move)(memories, jr.split(move_key, PARTICLES)).astype(path.dtype)
        x, nearness = _meet(x, seen)
        memories = jax.vmap(lambda memory, x: model.history.update(memory, x, gap))(memories, x)
        path = path.at[:, i].set(x)
        # Where nothing was seen no particle is better than another: to choose would only lose some.
        everyone = jnp.arange(PARTICLES)
        chosen = jr.categorical(pick_key, nearness, shape=(PARTICLES,)).astype(everyone.dtype)
        chosen = jnp.where(jnp.isnan(seen).all(), everyone, chosen)
        return jax.tree.map(lambda leaf: leaf[chosen], (memories, path)), None

    stops = (jnp.arange(steps), gaps[:-1], known[:-1], seen[:-1])
    (memories, path), _ = jax.lax.scan(step, (memories, path), stops)
    density = lambda memory: model.law.log_prob(
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
