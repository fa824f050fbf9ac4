"""Learning a law from few and long series, or from many: what is believed is what holds on rows that were held out."""

import dataclasses
import math
import os
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, ArrayLike, PRNGKeyArray

from ..data import CompleteRows, PairSampler
from ..flows import LocalFlow, StochasticFlow
from ..training import Problem, RunConfig, RunFolder, train
from ..training.checkpoint import describe
from ..training.devices import my_key, my_share
from .akin import MANY_SERIES, worth_of
from .correction import Check, correct
from .history import SIZE_HALF_LIFE
from .pieces import Piece, usual_gap

# As shares of the horizon, at which the law may change its ways.
SCALES = (0.003, 0.01, 0.03, 0.1, 0.3, 1.0)
# Steps between two reports: a second or so.
REPORT = 500
# A law is learnt for each fold, all in one program.
MOST_FOLDS = 20
# Whether series move together is looked for over gaps of so many usual ones: each row by itself may be mostly error.
BLOCK_GAPS = np.array([1.0, 5.0, 25.0])


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

    def __post_init__(self):
        for name in ("steps", "batch_size", "width"):
            self._require(name, _is_integer(getattr(self, name), least=1), "a positive integer")
        for name in ("depth", "folds"):
            self._require(name, _is_integer(getattr(self, name), least=0), "an integer ≥ 0")
        self._require("folds", self.folds != 1 and self.folds <= MOST_FOLDS, f"0, or from 2 to {MOST_FOLDS}")
        self._require("learning_rate", _is_finite(self.learning_rate) and self.learning_rate > 0, "positive")
        self._require("weight_decay", _is_finite(self.weight_decay) and self.weight_decay >= 0, "at least 0")

    def _require(self, name: str, holds: bool, what: str) -> None:
        if not holds:
            raise ValueError(f"`{name}` must be {what}; got {getattr(self, name)!r}.")

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


def _is_integer(value: Any, *, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


def _is_finite(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


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
    pieces = [piece.told_apart() for piece in pieces]
    blocks = _blocks(pieces, config.folds)
    *folds, law = _fit_side_by_side(pieces, blocks, usual, ahead, config, folder, progress, fit_key)
    return correct(law, folds, pieces, blocks, ahead, key=draw_key) if folds else (law, [])


def _blocks(pieces, number) -> list[np.ndarray]:
    """The fold of each row: whole series if there are many or, if these move together, a stretch of time, as those that
    were seen then would tell of the others; a stretch of each if there are few; -1 if there are no folds."""
    if not number:
        return [np.full(len(piece.times), -1) for piece in pieces]
    if worth_of([piece.on_clock for piece in pieces], BLOCK_GAPS * usual_gap(pieces)).min() < 1:
        clocks = [piece.on_clock.times for piece in pieces]
        ends = np.quantile(np.concatenate(clocks), np.arange(1, number) / number)
        return [np.searchsorted(ends, clock, side="right") for clock in clocks]
    if len(pieces) >= MANY_SERIES:
        return [np.full(len(piece.times), i % number) for i, piece in enumerate(pieces)]
    return [np.arange(len(piece.times)) * number // len(piece.times) for piece in pieces]


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
        half_life=SIZE_HALF_LIFE * usual_gap(pieces),
    )
    laws = [make(flow_key) for _ in range(config.folds + 1)]
    like = laws[0]
    rows = CompleteRows.from_series(
        [p.times for p in pieces],
        [p.values for p in pieces],
        u=[_with_block(p.u, block, ahead) for p, block in zip(pieces, blocks, strict=True)],
        ahead=ahead + 1,
    )
    sampler = PairSampler(rows, horizon=1.0, scheme="log")
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
        pairs = sampler.draw(my_share(batch_size), key=my_key(key))
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
