"""A law of the observed values themselves, given what each series has done."""

import dataclasses
import os
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from ..flows import LocalFlow
from ..laws import Support
from .frames import Panel
from .history import History, Memory
from .learn import Check, LearnConfig, Piece, learn

# Rows of the past that are read at the most: what lies before them has faded from every memory.
PAST = 1024
# Draws in one call of the compiled program: memory stays small whatever the number of series.
AT_ONCE = 1 << 18
# The horizon, if none is given, is this share of all the time that was observed: that many stretches tell of it.
HORIZON_SHARE = 20
# Draws of a path between two rows, of which the next row then chooses.
PARTICLES = 512
# Of a series in the units of all: a standard deviation below this is none.
STILL = 1e-6
# Of channels that were seen in part of a row, in standard deviations of the draws: how near a draw must come.
KERNEL = 0.5


class Units(eqx.Module):
    """From the user's values and times to those of the law: on the line, centred and scaled; the horizon is one."""

    support: Support
    loc: Float[Array, " dim"]
    scale: Float[Array, " dim"]
    covariate_loc: Float[Array, " cond"]
    covariate_scale: Float[Array, " cond"]
    horizon: float = eqx.field(static=True)

    def values(self, x: np.ndarray) -> np.ndarray:
        return (on_line(self.support, x) - np.asarray(self.loc)) / np.asarray(self.scale)

    def covariates(self, u: np.ndarray) -> np.ndarray:
        return (u - np.asarray(self.covariate_loc)) / np.asarray(self.covariate_scale)


def on_line(support: Support, x: Float[np.ndarray, "rows dim"]) -> Float[np.ndarray, "rows dim"]:
    """Rows of values on the line; a program for each power of two serves all lengths."""
    if support.is_everything:
        return np.asarray(x, np.float64)
    padded = np.ones((1 << (len(x) - 1).bit_length(), x.shape[1])) * x[:1]
    padded[: len(x)] = x
    line = _to_line(support, jnp.asarray(padded, jnp.result_type(float)))
    return np.asarray(line, np.float64)[: len(x)]


@eqx.filter_jit
def _to_line(support, x):
    return jax.vmap(support.to_line)(x)


class Past(NamedTuple):
    """What a forecast starts from, for each of several series: memory, last time, and covariates but those ahead."""

    memory: Memory
    last: Float[np.ndarray, " series"]
    known: Float[np.ndarray, "series known"]
    ids: list[Any]
    centre: Float[np.ndarray, "series dim"]
    spread: Float[np.ndarray, "series dim"]


class DirectModel(eqx.Module):
    """A fitted law with its units and its way of reading the past.

    With `own_scale` each series is measured in its own mean and standard deviation, and else all are in the same.
    """

    law: LocalFlow
    history: History
    units: Units
    ahead: int = eqx.field(static=True)
    own_scale: bool = eqx.field(static=True)

    @property
    def dim(self) -> int:
        return self.law.dim

    @property
    def horizon(self) -> float:
        """In the user's units of time."""
        return self.units.horizon

    def own(self, z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Centre and spread of one series in the law's units."""
        return own_units(z) if self.own_scale else (np.zeros(self.dim), np.ones(self.dim))

    def past(self, panel: Panel) -> Past:
        """Read each series up to its last complete row."""
        rows, last, known, centres, spreads = [], [], [], [], []
        for i in range(len(panel)):
            t, x, u = complete_rows(panel, i)
            if len(t) == 0:
                raise ValueError(f"series {panel.ids[i]!r} has no complete row to start from.")
            z = self.units.values(x)
            centre, spread = self.own(z)
            rows.append(((t - t[0])[-PAST:] / self.horizon, ((z - centre) / spread)[-PAST:]))
            last.append(t[-1])
            known.append(self.units.covariates(u)[-1][: u.shape[1] - self.ahead])
            centres.append(centre)
            spreads.append(spread)
        memory = _memories(self.history, rows)
        return Past(memory, np.array(last), np.array(known), panel.ids, np.array(centres), np.array(spreads))

    def draw(
        self,
        past: Past,
        at: Float[np.ndarray, "series times"],
        future: Float[np.ndarray, "series times ahead"],
        *,
        samples: int,
        joint: bool,
        key: PRNGKeyArray,
    ) -> Float[np.ndarray, "series samples times dim"]:
        """Draws at later times of each series. Those of a series depend on the key and on its id alone."""
        gaps = (at - past.last[:, None]) / self.horizon
        if joint:
            gaps = np.diff(gaps, axis=1, prepend=0.0)
        steps = int(max(1, np.ceil(gaps.max(initial=0.0) - 1e-6)))
        ahead = (future - np.asarray(self.units.covariate_loc)[-self.ahead :]) if self.ahead else future
        ahead = ahead / np.asarray(self.units.covariate_scale)[-self.ahead :] if self.ahead else future
        number, times = gaps.shape
        chunk = int(np.clip(AT_ONCE // max(1, samples * times), 1, 1 << (number - 1).bit_length()))
        chunk = 1 << (chunk.bit_length() - 1)
        keys = _keys(key, past.ids)
        out = np.empty((number, samples, times, self.dim), np.float32)
        for first in range(0, number, chunk):
            rows = np.minimum(np.arange(first, first + chunk), number - 1)
            pick = lambda array, rows=rows: jnp.asarray(np.asarray(array)[rows], jnp.float32)
            found = _draw(
                self,
                jax.tree.map(pick, past.memory),
                pick(past.known),
                pick(past.centre),
                pick(past.spread),
                pick(gaps),
                pick(ahead),
                keys[rows],
                samples,
                steps,
                joint,
            )
            out[first : first + chunk] = np.asarray(found)[: number - first]
        return out

    def log_prob(self, past: Past, x_t: np.ndarray, at: np.ndarray, future: np.ndarray) -> np.ndarray:
        """The log-density of one later row of each series, in the user's units; in one step."""
        ahead = self.units.covariates(np.concatenate([np.zeros_like(past.known), future], axis=1))
        ahead = ahead[:, past.known.shape[1] :]
        gaps = (at - past.last) / self.horizon
        as_float = lambda array: jnp.asarray(array, jnp.float32)
        return np.asarray(
            _log_prob(
                self, past.memory, *map(as_float, (past.known, past.centre, past.spread, gaps, ahead, x_t))
            )
        )


def own_units(z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and spread of one series in the law's units; one that has not moved yet will move as much as others do."""
    spread = z.std(axis=0)
    return z.mean(axis=0), np.where(spread > STILL, spread, 1.0)


def complete_rows(panel: Panel, i: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Times, values and covariates (static, past, ahead) of the complete rows of series number `i`."""
    whole = ~np.isnan(panel.values[i]).any(axis=1)
    number = int(whole.sum())
    static = np.broadcast_to(panel.static[i], (number, panel.static.shape[1]))
    u = np.concatenate([static, panel.past[i][whole], panel.future[i][whole]], axis=1)
    return panel.times[i][whole], panel.values[i][whole], u


def _keys(key, ids):
    """A key for each series from its id, so that results do not depend on what else is forecast."""
    marks = np.array([mark_of(name) for name in ids], np.uint32)
    return jax.vmap(lambda mark: jr.fold_in(key, mark))(marks)


def mark_of(name: Any) -> int:
    """A number for an id: FNV-1a over its text, the same on every machine."""
    mark = 2166136261
    for byte in str(name).encode():
        mark = (mark ^ byte) * 16777619 % 2**32
    return mark


def _memories(history: History, rows) -> Memory:
    """The memory after the last row of each series, in batches of one padded length."""
    lengths = [1 << max(4, (len(t) - 1).bit_length()) for t, _ in rows]
    found: list[Any] = [None] * len(rows)
    for length in sorted(set(lengths)):
        group = [i for i, n in enumerate(lengths) if n == length]
        for first in range(0, len(group), 256):
            part = group[first : first + 256]
            padded = (part + [part[-1]] * 256)[: 1 << (len(part) - 1).bit_length()]
            arrays = [_padded(rows[i][0], rows[i][1], length) for i in padded]
            values, gaps, keep = (np.stack(each) for each in zip(*arrays, strict=True))
            memory = _last(history, values, gaps, keep)
            memory = jax.tree.map(np.asarray, memory)
            for place, i in enumerate(part):
                found[i] = jax.tree.map(lambda leaf, place=place: leaf[place], memory)
    return jax.tree.map(lambda *leaves: np.stack(leaves), *found)


def _padded(times, values, length):
    gaps = np.diff(times, prepend=times[:1]).astype(np.float32)
    spare = length - len(times)
    repeat = lambda array: np.concatenate([array, np.repeat(array[-1:], spare, axis=0)])
    return repeat(values.astype(np.float32)), repeat(gaps), np.arange(length) < len(times)


@eqx.filter_jit
def _last(history, values, gaps, keep):
    return jax.vmap(history.last)(values, gaps, keep)


def _condition(model, memory, known, ahead):
    return jnp.concatenate([model.history.read(memory), known, ahead])


def _restored(model, z, centre, spread):
    line = model.units.loc + model.units.scale * (centre + spread * z)
    return model.units.support.from_line(line)


@eqx.filter_jit
def _draw(model, memory, known, centre, spread, gaps, ahead, keys, samples, steps, joint):
    def move(memory, known, gap, ahead, key):
        """To one time, in as many equal steps as the horizon asks for; the memory goes along."""
        number = jnp.maximum(1, jnp.ceil(gap - 1e-6))

        def step(memory, i):
            part = jnp.where(i < number, gap / number, 0.0)
            u = _condition(model, memory, known, ahead)
            start = jnp.zeros((), part.dtype)
            z = model.law.sample(memory.x, start, part, u, key=jr.fold_in(key, i)).astype(memory.x.dtype)
            moved = model.history.update(memory, z, part)
            return jax.tree.map(lambda new, old: jnp.where(i < number, new, old), moved, memory), None

        if steps == 1:
            return step(memory, 0)[0]
        return jax.lax.scan(step, memory, jnp.arange(steps))[0]

    def series(memory, known, centre, spread, gaps, ahead, key):
        def sample(key):
            numbers = jnp.arange(gaps.shape[0])
            if joint:
                walk = lambda memory, now: (
                    m := move(memory, known, now[0], now[1], jr.fold_in(key, now[2])),
                    m.x,
                )
                return jax.lax.scan(walk, memory, (gaps, ahead, numbers))[1]
            to = lambda gap, ahead, i: move(memory, known, gap, ahead, jr.fold_in(key, i)).x
            return jax.vmap(to)(gaps, ahead, numbers)

        z = jax.vmap(sample)(jr.split(key, samples))
        return jax.vmap(jax.vmap(lambda z: _restored(model, z, centre, spread)[0]))(z)

    return jax.vmap(series)(memory, known, centre, spread, gaps, ahead, keys)


@eqx.filter_jit
def _log_prob(model, memory, known, centre, spread, gaps, ahead, x_t):
    def one(memory, known, centre, spread, gap, ahead, x):
        line = model.units.support.to_line(x)
        z = ((line - model.units.loc) / model.units.scale - centre) / spread
        _, log_slope = model.units.support.from_line(line)
        volume = jnp.log(model.units.scale * spread).sum() + log_slope
        u = _condition(model, memory, known, ahead)
        return model.law.log_prob(z, memory.x, jnp.zeros(()), gap, u) - volume

    return jax.vmap(one)(memory, known, centre, spread, gaps, ahead, x_t)


@dataclasses.dataclass(frozen=True)
class DirectPlan:
    """What is decided before a law is learnt."""

    support: list[Any]
    horizon: float | None
    own_scale: bool | None
    learning: LearnConfig
    folder: str | os.PathLike | None = None


def fit_direct(
    panel: Panel, names: tuple[str, ...], plan: DirectPlan, *, progress: bool | None, key: PRNGKeyArray
) -> tuple[DirectModel, list[Check]]:
    """Choose units, read the past of every row, and learn; and what held-out rows say, gaps in the user's units."""
    series = [complete_rows(panel, i) for i in range(len(panel))]
    series = [each for each in series if len(each[0]) > 1]
    if not series:
        raise ValueError("no series has two complete rows: there is no transition to learn from.")
    horizon = plan.horizon or _horizon(series)
    units = _units(series, names, plan.support, horizon)
    own_scale = _differ(series, units) if plan.own_scale is None else plan.own_scale
    ahead = panel.future[0].shape[1]
    if own_scale:
        units = _typical(series, units)
    pieces = []
    for t, x, u in series:
        z = units.values(x)
        centre, spread = own_units(z) if own_scale else (np.zeros(z.shape[1]), np.ones(z.shape[1]))
        pieces.append(((t - t[0]) / horizon, (z - centre) / spread, units.covariates(u)))
    gap = float(np.median(np.concatenate([np.diff(t) for t, _, _ in pieces])))
    history = History.fit([(t, z) for t, z, _ in pieces], gap)
    read = [Piece(t, z, np.concatenate([history.along(t, z), u], axis=1)) for t, z, u in pieces]
    law, checks = learn(
        read, history.usual, ahead, plan.learning, folder=plan.folder, progress=progress, key=key
    )
    checks = [check._replace(gap=check.gap * horizon) for check in checks]
    return DirectModel(law, history, units, ahead, own_scale), checks


def _horizon(series) -> float:
    """A share of all the time observed, no longer than half of the longest series, no shorter than a few rows."""
    spans = np.array([t[-1] - t[0] for t, _, _ in series])
    usual = np.median(np.concatenate([np.diff(t) for t, _, _ in series]))
    return float(
        np.clip(spans.sum() / HORIZON_SHARE, min(4 * usual, spans.max()), max(spans.max() / 2, usual))
    )


def _units(series, names, intervals, horizon) -> Units:
    x, u = (np.concatenate([each[i] for each in series]) for i in (1, 2))
    support = make_support(x, names, intervals)
    as_array = lambda array: jnp.asarray(array, jnp.float32)
    line = on_line(support, x)
    centre, spread = (u.mean(0), np.maximum(u.std(0), 1e-6)) if u.shape[1] else (np.zeros(0), np.ones(0))
    return Units(support, *map(as_array, (line.mean(0), line.std(0), centre, spread)), horizon=horizon)


def _typical(series, units) -> Units:
    """The same units with the spread of the usual series, and not that of all together, as one."""
    spreads = np.array([units.values(x).std(axis=0) for _, x, _ in series])
    typical = np.array([np.median(each[each > STILL]) if (each > STILL).any() else 1.0 for each in spreads.T])
    return dataclasses.replace(units, scale=units.scale * jnp.asarray(typical, units.scale.dtype))


def make_support(x: np.ndarray, names: tuple[str, ...], intervals: list[Any]) -> Support:
    """The support of the values, all of which must lie within it. A half-line is a logarithm up to the furthest value
    and a line beyond: what is rare is not blown up."""
    region = Support(intervals)
    reach = np.ones(len(names))
    check_support(x, names, region)
    for i, (low, high) in enumerate(region.bounds):
        seen = x[~np.isnan(x[:, i]), i]
        if not len(seen) or np.ptp(seen) == 0:
            what = f"is constant ({seen[0]:g})" if len(seen) else "is never observed"
            raise ValueError(f"column {names[i]!r} {what}: it has no law to learn; drop it.")
        if np.isfinite(low) != np.isfinite(high):
            reach[i] = (seen - low).max() if np.isfinite(low) else (high - seen).max()
    return Support(region.bounds, jnp.asarray(reach, jnp.float32))


def check_support(x: np.ndarray, names: tuple[str, ...], support: Support) -> None:
    """All values that are there must lie within the support."""
    for i, (low, high) in enumerate(support.bounds):
        outside = (x[:, i] <= low) | (x[:, i] >= high)
        if outside.any():
            raise ValueError(
                f"column {names[i]!r} must lie between {low:g} and {high:g}, as `support` says; got "
                f"{x[outside.argmax(), i]:g}."
            )


def _differ(series, units) -> bool:
    """Whether series are so unlike each other in level or spread that each needs units of its own."""
    if len(series) == 1:
        return False
    z = [units.values(x) for _, x, _ in series]
    spreads = np.array([each.std(0) for each in z])
    means = np.array([each.mean(0) for each in z])
    usual = np.median(spreads, axis=0) + 1e-12
    return bool((spreads.max(0) > 4 * usual).any() or (means.std(0) > 4 * usual).any())
