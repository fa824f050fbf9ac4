"""A law of the observed values themselves, given what each series has done."""

import dataclasses
import os
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jax.scipy.special import logsumexp
from jaxtyping import Float, PRNGKeyArray

from ..flows import LocalFlow
from ..laws import Support
from .akin import Series, worth_of
from .between import Rows, between
from .correction import enough_for_width, stretches
from .draws import LOG_DRAWS, SLACK, at_times, gaps_to, in_chunks, in_steps, most_steps
from .effects import Effects, find_effects
from .frames import Panel
from .history import History, Memory, means_so_far, rates_of_moves
from .learn import BLOCK_GAPS, Check, LearnConfig, Piece, learn
from .model import AbstractModel
from .reading import PAST, Past, places, read_rows
from .recent import Said, usual_width
from .units import FINEST_DOUBLE, STILL, Units, covariate_units, keys_of, make_support, mark_of, on_line

# What a density costs, in draws.
DENSITY = 16
# Places in the rows of the fit at which the law is told what stretches before say; and the share of it that is
# believed of all series, where stretches are many. Rows of the fit lie nearer to the law than others will, and those
# that were held out from laws of fewer rows further away: with this share intervals hold what they should where the law
# is known (`benchmarks/known.py`).
PLACES, BELIEVED = 64, 0.3
# The horizon, if none is given, is this share of all the time that was observed: that many stretches tell of it.
HORIZON_SHARE = 20


class DirectPast(NamedTuple):
    """What a forecast starts from, for each of several series: memory, last time, covariates but those ahead, its own
    units, and how much wider than the law says its moves have been of late at each gap of its correction."""

    memory: Memory
    last: Float[np.ndarray, " series"]
    known: Float[np.ndarray, "series known"]
    ids: list[Any]
    centre: Float[np.ndarray, "series dim"]
    spread: Float[np.ndarray, "series dim"]
    wider: Float[np.ndarray, "series knots dim"]


class DirectModel(AbstractModel):
    """A fitted law with its units and its way of reading the past.

    With `own_scale` each series is measured from the mean of its rows so far and by the size of its moves, and else all
    are measured alike. Of either, the law has what is left when `effects` of covariates that are known ahead are taken
    off.
    """

    law: LocalFlow
    history: History
    units: Units
    ahead: int = eqx.field(static=True)
    own_scale: bool = eqx.field(static=True)
    effects: Effects | None

    def __init__(
        self,
        law: LocalFlow,
        history: History,
        units: Units,
        *,
        ahead: int,
        own_scale: bool,
        effects: Effects | None = None,
    ):
        self.law, self.history, self.units = law, history, units
        self.ahead, self.own_scale, self.effects = ahead, own_scale, effects

    @property
    def reads_partial(self) -> bool:
        return False

    @property
    def support(self) -> Support:
        return self.units.support

    @property
    def horizon(self) -> float:
        return self.units.horizon

    def past(self, panel: Panel) -> DirectPast:
        """Read each series up to its last complete row."""
        rows, *ends = self._rows(panel)
        memory, _, wider = read_rows(self, rows)
        last, known, centre, spread = map(np.array, ends)
        return DirectPast(memory, last, known, panel.ids, centre, spread, np.asarray(wider))

    def said(self, panel: Panel) -> Said:
        """What the last stretches of each series say of how wide the law should be."""
        return read_rows(self, self._rows(panel)[0], one_length=True).said

    def _rows(self, panel: Panel) -> tuple[list[Past], list[float], list, list, list]:
        """The rows of each series in the law's units; and its last time, covariates but those ahead, centre and
        spread."""
        panel.require_starts(partial=False)
        rows, last, known, centres, spreads = [], [], [], [], []
        for i in range(len(panel)):
            t, x, u = panel.complete(i)
            z = self.units.values(x)
            scaled = (t - t[0]) / self.horizon
            centre, spread = self._own(scaled, z)
            u = self.units.covariates(u)
            z = (z - centre) / spread - self._at_once(u[:, u.shape[1] - self.ahead :])
            so_far = means_so_far(z) if self.own_scale else np.zeros_like(z)
            rows.append(Past(*(array[-PAST:] for array in (scaled, z, u, so_far))))
            last.append(t[-1])
            known.append(u[-1][: u.shape[1] - self.ahead])
            centres.append(centre)
            spreads.append(spread)
        return rows, last, known, centres, spreads

    def draw(
        self,
        past: DirectPast,
        at: np.ndarray,
        future: np.ndarray,
        *,
        samples: int,
        joint: bool,
        key: PRNGKeyArray,
    ) -> np.ndarray:
        gaps = gaps_to(at, past.last, self.horizon, joint=joint)
        ahead = self._ahead(future)
        known = past.memory, past.known, past.wider, gaps, ahead
        keys = keys_of(key, past.ids)

        def some(rows, kind):
            chosen = jax.tree.map(lambda array: jnp.asarray(np.asarray(array)[rows], jnp.float32), known)
            z = np.asarray(_draw(self, chosen, keys[rows], samples, kind[0], joint), np.float64)
            z = z + self._at_once(ahead[rows])[:, None]
            centre, spread = (own[rows][:, None, None] for own in (past.centre, past.spread))
            return self.units.restore(centre + spread * z)

        return in_chunks(some, (len(gaps), samples, gaps.shape[1], self.dim), most_steps(gaps)[:, None])

    def impute(self, panel: Panel, i: int, at: np.ndarray, *, samples: int, key: PRNGKeyArray) -> np.ndarray:
        times, values, u = panel.complete(i)
        if len(times) < 2 or at.min() < times[0] or at.max() > times[-1]:
            where = (
                "no two complete rows" if len(times) < 2 else "times beyond its first or last complete row"
            )
            raise ValueError(f"series {panel.ids[i]!r} has {where}: nothing to go by on both sides.")
        z = self.units.values(values)
        scaled = lambda t: (t - times[0]) / self.horizon
        centre, spread = self._own(scaled(times), z)
        partly = panel.partial(i)
        seen = self.units.values(np.where(np.isnan(partly.values), values[0], partly.values))
        u, ahead = self.units.covariates(u), self._ahead(panel.future[i])
        # What is known at a time, or at the last row before it.
        known_at = lambda when: ahead[np.searchsorted(panel.times[i], when, side="right") - 1]
        own = lambda z, when: (z - centre) / spread - self._at_once(known_at(when))
        z = own(z, times)
        rows = Rows(
            times=scaled(times),
            values=z,
            known=u[:, : u.shape[1] - self.ahead],
            covariates=u,
            all_times=scaled(panel.times[i]),
            ahead=ahead,
            partial_times=scaled(partly.times),
            partial=np.where(np.isnan(partly.values), np.nan, own(seen, partly.times)),
            centres=means_so_far(z) if self.own_scale else None,
        )
        key = jr.fold_in(key, mark_of(panel.ids[i]))
        drawn = between(self.law, self.history, rows, scaled(at), samples=samples, key=key)
        return self.units.restore(centre + spread * (drawn + self._at_once(known_at(at))))

    def log_prob(self, past: DirectPast, x_t: np.ndarray, at: np.ndarray, future: np.ndarray) -> np.ndarray:
        """Beyond the horizon by the mean density over `LOG_DRAWS` chains of steps up to the last: a little too low."""
        gaps = (at - past.last) / self.horizon
        ahead = self._ahead(future)
        z = (self.units.values(x_t) - past.centre) / past.spread - self._at_once(ahead)
        given = past.known, past.spread, past.wider, gaps, ahead, on_line(self.support, x_t), z
        keys = keys_of(jr.key(0), past.ids)

        def some(rows, kind):
            as_float = lambda array: jnp.asarray(np.asarray(array)[rows], jnp.float32)
            chosen = jax.tree.map(as_float, (past.memory, *given))
            return np.asarray(_log_prob(self, chosen, keys[rows], kind[0]))[:, None, None, None]

        steps, found = most_steps(gaps[:, None]), np.empty(len(gaps))
        for mine, each in ((steps == 1, DENSITY), (steps > 1, LOG_DRAWS)):
            index = np.flatnonzero(mine)
            shape = len(index), 1, 1, 1
            drawn = in_chunks(
                lambda rows, kind, index=index: some(index[rows], kind), shape, steps[index, None], each=each
            )
            found[index] = drawn[:, 0, 0, 0]
        return found

    def _own(self, times: np.ndarray, z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Centre and spread of one series in the law's units; times in horizons."""
        if not self.own_scale:
            return np.zeros(self.dim), np.ones(self.dim)
        if not self.history.roams:  # models of format 1 were learnt in standard deviations
            spread = z.std(axis=0)
            return z.mean(axis=0), np.where(spread > STILL, spread, 1.0)
        usual = self.history.usual if self.effects is None else self.effects.moves
        return z.mean(axis=0), _own_spread(times, z, self.history.gap, np.asarray(usual))

    def at_once(self) -> Float[np.ndarray, "ahead dim"]:
        """How much higher a series stands with one more of each covariate that is known ahead: in the user's units,
        in log-odds between two bounds, and with one bound in logarithms of the distance to it, where that is short.
        Where each series has units of its own, the usual one."""
        half = [np.isfinite(low) != np.isfinite(high) for low, high in self.support.bounds]
        bent = np.where(half, np.asarray(self.support.scale), 1.0)
        slopes = self._at_once(np.eye(self.ahead)) * np.asarray(self.units.scale) / bent
        scale = np.asarray(self.units.covariate_scale)
        return slopes / scale[len(scale) - self.ahead :, None]

    def _at_once(self, ahead: Float[np.ndarray, "*rows ahead"]) -> Float[np.ndarray, "*rows dim"]:
        """What covariates that are known ahead, in the law's units, do to a series in its own."""
        return np.zeros((*ahead.shape[:-1], self.dim)) if self.effects is None else self.effects.at(ahead)

    def _ahead(self, future: np.ndarray) -> np.ndarray:
        """Covariates that are known ahead, in the law's units."""
        if not self.ahead:
            return future
        loc, scale = self.units.covariate_loc, self.units.covariate_scale
        return (future - np.asarray(loc)[-self.ahead :]) / np.asarray(scale)[-self.ahead :]


def _own_spread(times: np.ndarray, z: np.ndarray, gap: float, usual: np.ndarray) -> np.ndarray:
    """How many times as far as usual a series moves; one that has not moved yet will move as much as others do."""
    moves = rates_of_moves(times, z, gap)
    rate = moves.mean(axis=0) if len(moves) else np.zeros(z.shape[1])
    return np.sqrt(np.where(rate > STILL**2 * usual, rate / usual, 1.0))


def _condition(model, memory, known, ahead):
    return jnp.concatenate([model.history.read(memory), known, ahead])


@eqx.filter_jit
def _draw(model, starts, keys, samples, steps, joint):
    def series(start, key):
        memory, known, wider, gaps, ahead = start
        law = model.law.widened(wider)

        def make_step(ahead):
            def step(memory, gap, key):
                u = _condition(model, memory, known, ahead)
                z = law.sample(memory.x, jnp.zeros((), gap.dtype), gap, u, key=key)
                return model.history.update(memory, z.astype(memory.x.dtype), gap)

            return step

        path = lambda key: at_times(make_step, memory, gaps, ahead, steps=steps, joint=joint, key=key).x
        return jax.vmap(path)(jr.split(key, samples))

    return jax.lax.map(lambda each: series(*each), (starts, keys))


@eqx.filter_jit
def _log_prob(model, rows, keys, steps):
    def one(row, key):
        memory, known, spread, wider, gap, ahead, line, z = row
        _, log_slope = model.support.from_line(line)
        volume = jnp.log(model.units.scale * spread).sum() + log_slope
        law, start = model.law.widened(wider), jnp.zeros((), gap.dtype)
        last = gap / jnp.maximum(1, jnp.ceil(gap - SLACK))
        density = lambda memory: law.log_prob(
            z, memory.x, start, last, _condition(model, memory, known, ahead)
        )
        if steps == 1:
            return density(memory) - volume

        def step(memory, gap, key):
            x = law.sample(memory.x, start, gap, _condition(model, memory, known, ahead), key=key)
            return model.history.update(memory, x.astype(memory.x.dtype), gap)

        path = lambda key: density(in_steps(step, memory, gap - last, steps, key=key))
        return logsumexp(jax.vmap(path)(jr.split(key, LOG_DRAWS))) - jnp.log(LOG_DRAWS) - volume

    return jax.vmap(one)(rows, keys)


@dataclasses.dataclass(frozen=True)
class DirectPlan:
    """What is decided before a law is learnt."""

    support: list[Any]
    horizon: float | None
    own_scale: bool | None
    learning: LearnConfig
    show: Callable[[float], str] = "{:g}".format
    folder: str | os.PathLike | None = None


def fit_direct(
    panel: Panel, names: tuple[str, ...], plan: DirectPlan, *, progress: bool | None, key: PRNGKeyArray
) -> tuple[DirectModel, list[Check]]:
    """Choose units, read the past of every row, and learn; and what held-out rows say, gaps in the user's units."""
    series = [panel.complete(i) for i in range(len(panel))]
    series = [each for each in series if len(each[0]) > 1]
    if not series:
        raise ValueError("no series has two complete rows: there is no transition to learn from.")
    panel.require_starts(partial=False)  # and not when all has been learnt
    horizon = plan.horizon or _horizon(series)
    if horizon < (least := min(np.diff(t).min() for t, _, _ in series)):
        raise ValueError(
            f"`horizon` must be at least as long as the shortest gap between two rows, {plan.show(least)}; got "
            f"{plan.show(horizon)}."
        )
    if horizon > (most := max(t[-1] - t[0] for t, _, _ in series)) * (1 + 1e-6):
        raise ValueError(
            f"`horizon` must be no longer than the longest series, {plan.show(most)}; got {plan.show(horizon)}: no two "
            "rows are so far apart, and forecasts further ahead are chained."
        )
    units = _units(series, names, plan.support, horizon)
    own_scale = _differ(series, units) if plan.own_scale is None else plan.own_scale
    ahead = panel.future[0].shape[1]
    if own_scale:
        units = _typical(series, units)
    pieces = [((t - t[0]) / horizon, units.values(x)) for t, x, _ in series]
    began = [(t[0] - min(t[0] for t, _, _ in series)) / horizon for t, _, _ in series]
    gap = float(np.median(np.concatenate([np.diff(t) for t, _ in pieces])))
    centres: list[np.ndarray | None] = [None] * len(pieces)
    if own_scale:
        pieces = _in_own_units(pieces, gap)
    effects = None
    if ahead:
        known = [units.covariates(u)[:, -ahead:] for _, _, u in series]
        effects = find_effects([t for t, _ in pieces], [z for _, z in pieces], known, gap)
        pieces = [(t, z - effects.at(u)) for (t, z), u in zip(pieces, known, strict=True)]
    if own_scale:
        centres = [means_so_far(z) for _, z in pieces]
    history = History.fit(pieces, gap, centres)
    read = [
        Piece(t, z, np.concatenate([history.along(t, z, centre), units.covariates(u)], axis=1), centre, clock)
        for (t, z), centre, (_, _, u), clock in zip(pieces, centres, series, began, strict=True)
    ]
    law, checks = learn(
        read, history.usual, ahead, plan.learning, folder=plan.folder, progress=progress, key=key
    )
    checks = [check._replace(gap=check.gap * horizon) for check in checks]
    model = DirectModel(law, history, units, ahead=ahead, own_scale=own_scale, effects=effects)
    if law.correction is None or not checks:
        return model, checks
    # What the rows of the fit themselves say of how wide the law should be.
    whole = [panel.seen(i, partial=False) for i in range(len(panel))]
    said = usual_width(model.said(panel.heads(*places(whole, PLACES))))
    number = stretches(read, np.exp(law.correction.log_gaps))
    told = law.correction.witnessed(said, BELIEVED * enough_for_width(number))
    return eqx.tree_at(lambda model: model.law, model, law.corrected(told)), checks


def _horizon(series) -> float:
    """A share of all the time observed, that of series which move together as of one, no longer than half of the
    longest series, no shorter than a few rows."""
    spans = np.array([t[-1] - t[0] for t, _, _ in series])
    usual = np.median(np.concatenate([np.diff(t) for t, _, _ in series]))
    worth = worth_of([Series(t, x) for t, x, _ in series], BLOCK_GAPS * usual).min()
    return float(
        np.clip(worth * spans.sum() / HORIZON_SHARE, min(4 * usual, spans.max()), max(spans.max() / 2, usual))
    )


def _units(series, names, intervals, horizon) -> Units:
    x, u = (np.concatenate([each[i] for each in series]) for i in (1, 2))
    support = make_support(x, names, intervals, finest=FINEST_DOUBLE)
    as_array = lambda array: jnp.asarray(array, jnp.float32)
    line = on_line(support, x)
    return Units(support, *map(as_array, (line.mean(0), line.std(0), *covariate_units(u))), horizon=horizon)


def _typical(series, units) -> Units:
    """The same units with the spread of the usual series, and not that of all together, as one."""
    spreads = np.array([units.values(x).std(axis=0) for _, x, _ in series])
    typical = np.array([np.median(each[each > STILL]) if (each > STILL).any() else 1.0 for each in spreads.T])
    return dataclasses.replace(units, scale=units.scale * jnp.asarray(typical, units.scale.dtype))


def _in_own_units(pieces, gap):
    """Each series from its own mean, and in units in which all move as far as the usual one."""
    rates = np.array([rates_of_moves(t, z, gap).mean(axis=0) for t, z in pieces])
    usual = np.array([np.median(each[each > 0]) if (each > 0).any() else 1.0 for each in rates.T])
    return [(t, (z - z.mean(axis=0)) / _own_spread(t, z, gap, usual)) for t, z in pieces]


def _differ(series, units) -> bool:
    """Whether series are so unlike each other in level or spread that each needs units of its own."""
    if len(series) == 1:
        return False
    z = [units.values(x) for _, x, _ in series]
    spreads = np.array([each.std(0) for each in z])
    means = np.array([each.mean(0) for each in z])
    usual = np.median(spreads, axis=0) + 1e-12
    return bool((spreads.max(0) > 4 * usual).any() or (means.std(0) > 4 * usual).any())
