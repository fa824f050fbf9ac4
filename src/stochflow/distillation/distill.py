"""`distill`: from an SDE to a law that is sampled in one step."""

import dataclasses
import math
import os
import time
import warnings
from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import PRNGKeyArray

from ..flows import StochasticFlow
from ..laws import AbstractTransition, Relative, Standardised, Support, Transformed, times_in_order
from ..laws.transformed import Interval
from ..sde import SDE, EulerMaruyama
from ..training import Problem, RunFolder, train
from ..training.checkpoint import describe, fingerprint
from ..training.config import check_key, check_progress, checked_path
from ..training.devices import my_rows
from .checks import check_density, check_finite, check_noise, check_shapes
from .config import DistillConfig
from .pool import MARGIN, Pool, Simulator, Units
from .probe import (
    PROBED,
    TEST_PATHS,
    Symmetries,
    choose_solver,
    choose_steps,
    find_symmetries,
    solver_name,
)
from .starts import Starts, make_starts

# Pairs of paths of their own, the same for every validation.
VALIDATION_PAIRS = 16_384
VALIDATION_PATHS = 16_384
# Share of paths that may be lost to infinity before a law without them is no law of the SDE; and what is told of. Of
# states that lie beyond the support and are mirrored back a solver's step alone makes fewer than that.
MOST_LOST, LOST, FOLDED = 0.1, 1e-3, 0.02
# In more steps than these a horizon would not be simulated within days.
MOST_STEPS = 2**22
# Share of the updates that may be on paths of coarse steps.
COARSE = 0.75
# A half-line turns from logarithm to line at this quantile of the states: small ones stay apart, large ones unbent.
TURN = 0.5


@dataclasses.dataclass(frozen=True)
class Distilled:
    """A distilled law.

    - `flow`: the law in the SDE's own units and times, with its horizon.
    - `history`: one dictionary a validation; `lost` is the share of paths that were not finite and left out, `folded`
        that of states which lay beyond the support and were mirrored back.
    - `seconds`: all that it took, compilation included, and what an interrupted run had trained before.
        `stopped_early`: whether patience ran out.
    - `dt`, `solver`: what the pairs were made with.
    - `latest`: of an SDE that depends on the time itself, up to when the law holds.
    - `relative`: coordinates that the law sees displacements of only, as nothing in the SDE depended on them at the
        states that were probed: some starts, and others along the paths from there.
    """

    flow: AbstractTransition
    history: list[dict[str, Any]]
    config: DistillConfig
    horizon: float
    dt: float
    solver: str
    relative: tuple[int, ...]
    seconds: float
    stopped_early: bool
    simulator: Simulator = dataclasses.field(repr=False)
    support: Support = dataclasses.field(repr=False)

    @property
    def latest(self) -> float | None:
        return self.simulator.latest

    @property
    def lost(self) -> float:
        """The share of paths that were left out because they were not finite."""
        return self._mean("lost")

    @property
    def folded(self) -> float:
        """The share of states that lay beyond the support and were mirrored back."""
        return self._mean("folded")

    def _mean(self, name: str) -> float:
        return float(np.mean([row[name] for row in self.history])) if self.history else 0.0


def distill(
    sde: SDE,
    *,
    starts: Starts,
    horizon: float,
    support: Sequence[Interval] | None = None,
    config: DistillConfig = DistillConfig(),
    folder: str | os.PathLike | None = None,
    progress: bool | None = None,
    key: PRNGKeyArray,
) -> Distilled:
    """Learn the transition law of an SDE from pairs that a solver makes on the fly.

    **Arguments:**

    - `sde`: an [`SDE`][stochflow.sde.SDE]: Itô or Stratonovich, diagonal or full noise, without covariates.
    - `starts`: where the law is to hold: a box `(low, high)`, an array of states (n, dim), or a function `key -> x0`.
        Paths lead on from there, and pairs start along them too. Of an SDE that depends on the time, half of the paths
        start at later times, up to the latest that the law is for.
    - `horizon`: the longest gap, in the SDE's units of time. Longer ones are chained: `rollout(..., max_gap=horizon)`.
    - `support`: for each coordinate `"real"`, `"positive"` or `(low, high)`; all real by default. The SDE stays as it
        is written; draws lie within the support and the density is right with respect to it.
    - `config`: see [`DistillConfig`][stochflow.distillation.DistillConfig].
    - `folder`: a run folder; an unfinished run with the same arguments goes on, bit for bit as if it had never stopped.
    - `progress`: show a bar; by default on a terminal only.
    - `key`: for the initial weights, the paths and the batches.
    """
    begin = time.monotonic()
    _check_arguments(sde, horizon, support, config, progress)
    check_key(key)
    folder = None if folder is None else checked_path("folder", folder)
    check_shapes(sde)
    flow_key, probe_key, path_key, held_key, train_key = jr.split(key, 5)
    simulator, units, symmetries = _prepare(sde, starts, float(horizon), support, config, probe_key)
    model = _network(sde, symmetries, config, flow_key)
    refresh = _make_refresh(simulator, units, config, path_key)

    first = refresh(0)
    _warn_of(first)

    problem = Problem(
        loss=_loss(config.batch_size),
        data=first,
        refresh=refresh,
        validate=_make_validation(simulator, units, config, held_key),
    )
    run = None if folder is None else RunFolder.create(folder, _record(model, config, horizon))
    prepared = time.monotonic() - begin
    trained = train(model, problem, config.run(), key=train_key, folder=run, progress=progress)
    # By interrupted calls, too.
    training = trained.history[-1]["seconds"] if trained.history else 0.0
    law = Standardised(
        trained.model, units.loc, units.scale, float(horizon), float(horizon), simulator.latest
    )
    return Distilled(
        flow=law if units.support.is_everything else Transformed(law, units.support),
        history=trained.history,
        config=config,
        horizon=float(horizon),
        dt=simulator.dt,
        solver=solver_name(simulator.scheme),
        relative=symmetries.relative,
        seconds=max(time.monotonic() - begin, prepared + training),
        stopped_early=trained.stopped_early,
        simulator=simulator,
        support=units.support,
    )


def _network(
    sde: SDE, symmetries: Symmetries, config: DistillConfig, key: PRNGKeyArray
) -> AbstractTransition:
    """A flow with the symmetries of the SDE. What nothing depends on is driven by the rest, and comes last."""
    relative = symmetries.relative
    flow = StochasticFlow(
        sde.dim,
        autonomous=symmetries.autonomous,
        correlated=sde.noise == "full",
        order=sorted(range(sde.dim), key=lambda i: i in relative),
        ring=symmetries.ring,
        **config.flow(),
        key=key,
    )
    return Relative(flow, relative) if relative else flow


def _check_arguments(sde: Any, horizon: Any, support: Any, config: Any, progress: Any) -> None:
    for name, value, kind in (("sde", sde, SDE), ("config", config, DistillConfig)):
        if not isinstance(value, kind):
            raise ValueError(f"`{name}` must be of `stochflow.{kind.__name__}`; got {value!r}.")
    number = isinstance(horizon, int | float | np.number) and not isinstance(horizon, bool)
    if not (number and horizon > 0 and math.isfinite(horizon)):
        raise ValueError(f"`horizon` must be positive and finite; got {horizon!r}.")
    if support is not None and (isinstance(support, str) or not isinstance(support, Sequence)):
        raise ValueError(f"`support` must have an entry for each coordinate, in a list; got {support!r}.")
    check_progress(progress)


def _prepare(sde, starts, horizon, support, config, key):
    """The simulator, the units, and the symmetries that the flow is to have."""
    start_key, draw_key, time_key, step_key, path_key = jr.split(key, 5)
    intervals = ["real"] * sde.dim if support is None else list(support)
    if len(intervals) != sde.dim:
        raise ValueError(f"`support` must have {sde.dim} coordinates, as `dim` says; got {len(intervals)}.")
    region = Support(intervals)
    made = make_starts(starts, sde.dim, region, key=start_key)
    x0 = made.draw(TEST_PATHS, key=draw_key)
    # Up to the latest time that pairs are drawn from: a change beyond the horizon matters as much.
    latest = horizon * max(MARGIN, 1 + config.onward)
    times = latest * jr.uniform(time_key, (TEST_PATHS,), x0.dtype)
    check_finite(sde, x0[:PROBED], times[:PROBED])
    states = _states(sde, made, horizon, region, x0, config.onward, key=jr.fold_in(path_key, 1))
    check_noise(sde, states, times[: len(states)])
    symmetries = find_symmetries(sde, states, times[: len(states)])
    scheme = choose_solver(sde, config.solver, symmetries)
    if config.dt is None:
        steps = choose_steps(sde, scheme, x0, horizon, key=step_key)
    else:
        if not horizon / config.dt <= MOST_STEPS:
            raise ValueError(
                f"`dt` of {config.dt:g} makes {horizon / config.dt:.3g} steps of the horizon {horizon:g}, and at most "
                f"{MOST_STEPS:,} are taken: choose a longer `dt`, or a shorter `horizon`."
            )
        steps = math.ceil(horizon / config.dt)
    substeps = max(1, math.ceil(steps / config.rows))
    simulator = Simulator(sde, made, scheme, horizon, config.rows, substeps, config.onward)
    check_density(sde, scheme, x0, horizon, substeps * config.rows, key=jr.fold_in(path_key, 2))
    relative = tuple(i for i in symmetries.relative if region.bounds[i] == (-math.inf, math.inf))
    symmetries = dataclasses.replace(symmetries, relative=relative, ring=_ring(symmetries, region, config))
    units = _units(simulator, region, symmetries, path_key)
    return dataclasses.replace(simulator, any_time=not symmetries.autonomous), units, symmetries


def _states(sde, made, horizon, region, x0, onward, *, key):
    """Some starts and, where they are finite, states along coarse paths: what is beyond the starts matters too."""
    rows = 16
    walker = Simulator(sde, made, EulerMaruyama(), horizon, rows, 4, onward)
    fold = jax.vmap(jax.vmap(region.fold))
    paths = jax.jit(lambda key: fold(walker.paths(PROBED, key=key)))(key)
    along = paths.reshape(-1, sde.dim)
    along = along[jnp.isfinite(along).all(axis=1)]
    few = jr.choice(jr.fold_in(key, 1), len(along), (PROBED - PROBED // 4,)) if len(along) else jnp.arange(0)
    return jnp.concatenate([x0[: PROBED // 4], along[few]])


def _ring(symmetries: Symmetries, region: Support, config: DistillConfig) -> bool:
    """Whether the flow is one of a ring: as the config says or, if it does not, as the SDE is."""
    plain = not config.tails and config.coupling != "triangular" and len(set(region.bounds)) == 1
    if config.ring is None:
        return symmetries.ring and plain and not symmetries.relative
    if config.ring and not symmetries.ring:
        raise ValueError(
            "`ring` must not be True unless each coordinate is driven by those near it, as all others are, and by "
            "noise of its own."
        )
    return config.ring


def _units(simulator, region, symmetries, key) -> Units:
    """Mean and standard deviation on the line; for displacements, zero and the size of the longest; in a ring, the same
    for all."""
    everywhere = lambda function: jax.vmap(jax.vmap(function))
    folded = np.asarray(
        jax.jit(lambda key: everywhere(region.fold)(simulator.paths(TEST_PATHS, key=key)))(key)
    )
    folded = folded[:, np.isfinite(folded).all(axis=(0, 2))]
    _require_most(folded.shape[1], TEST_PATHS, simulator.dt)
    distance = [_distance(folded[..., i], *bound) for i, bound in enumerate(region.bounds)]
    if symmetries.ring:
        distance = [sum(distance) / len(distance)] * len(distance)
    support = Support(region.bounds, jnp.asarray(distance, folded.dtype))
    line = np.asarray(jax.jit(everywhere(support.to_line))(folded), np.float64)
    line = line[:, np.isfinite(line).all(axis=(0, 2))]
    loc, scale = line.mean(axis=(0, 1)), line.std(axis=(0, 1))
    for i in symmetries.relative:
        loc[i], scale[i] = 0.0, np.sqrt(np.square(line[simulator.rows, :, i] - line[0, :, i]).mean())
    if symmetries.ring:
        loc[:], scale[:] = loc.mean(), scale.mean()
    if not (scale > 0).all():
        raise ValueError(
            f"every coordinate must move; coordinate {int(np.argmin(scale))} stays where it starts."
        )
    return Units(support, jnp.asarray(loc, folded.dtype), jnp.asarray(scale, folded.dtype))


def _distance(values, low, high) -> float:
    """A usual distance to the bound of a half-line; 1 where there is no such bound."""
    if math.isfinite(low) == math.isfinite(high):
        return 1.0
    return float(np.quantile(np.abs(values - (low if math.isfinite(low) else high)), TURN))


def _make_refresh(simulator, units, config, key):
    """A function of the step: the paths of the updates from there on, coarse ones at first."""
    quick = dataclasses.replace(simulator, substeps=max(1, simulator.substeps // config.coarse))
    compiled = lambda each: jax.jit(
        lambda key: each.pool(config.paths, units, config.start_fraction, key=key)
    )
    fine = compiled(simulator)
    coarse = fine if quick.substeps == simulator.substeps else compiled(quick)

    def refresh(step: int) -> Pool:
        early = step + config.log_every <= COARSE * config.steps  # so that the last are always fine
        pool = (coarse if early else fine)(jr.fold_in(key, step))
        return _checked(pool, quick.dt if early else simulator.dt)

    return refresh


def _loss(batch_size):
    def loss(model, pool, step, key):
        pairs = my_rows(pool.draw(batch_size, step, key=key))
        log_prob = jax.vmap(model.log_prob)
        nll = -log_prob(pairs.x_t, pairs.x_s, pairs.s, pairs.t).mean()
        shares = {"lost": pool.lost, "folded": pool.folded}
        return nll, {"nll": nll} | {name: share.astype(nll.dtype) for name, share in shares.items()}

    return loss


def _make_validation(simulator, units, config, key):
    """A function of the model: mean negative log-likelihood of held-out pairs, always the same ones."""
    path_key, pair_key = jr.split(key)

    @jax.jit
    def draw(path_key, pair_key):
        pool = simulator.pool(VALIDATION_PATHS, units, config.start_fraction, key=path_key)
        return pool.draw(VALIDATION_PAIRS, 0, key=pair_key)

    pairs = draw(path_key, pair_key)

    @eqx.filter_jit
    def mean(model):
        one = lambda row: model.log_prob(*row)
        with times_in_order():
            return -jax.lax.map(one, (pairs.x_t, pairs.x_s, pairs.s, pairs.t), batch_size=2048).mean()

    def validate(model) -> dict[str, float]:
        loss = float(mean(model))
        return {"loss": loss if math.isfinite(loss) else math.inf}

    return validate


def _checked(pool: Pool, dt: float) -> Pool:
    _require_most(2 * int(pool.finite), 2 * pool.order.shape[0], dt)
    return pool


def _warn_of(pool: Pool) -> None:
    """What the first paths say, before a law is learnt from such."""
    if pool.lost > LOST:
        warnings.warn(
            f"{float(pool.lost):.1%} of the paths are not finite, and the law will be that of the others: choose a "
            "smaller `dt`, another `solver`, or `starts` from which the SDE does not explode.",
            stacklevel=3,
        )
    if pool.folded > FOLDED:
        warnings.warn(
            f"{float(pool.folded):.1%} of the states lie beyond `support` and are mirrored back, and the law will be "
            "that of the mirrored process: widen `support` if the SDE does go there, and choose a smaller `dt` if not.",
            stacklevel=3,
        )


def _require_most(finite, number, dt):
    if finite < (1 - MOST_LOST) * number:
        raise ValueError(
            f"{number - finite} of {number} paths are not finite with `dt` {dt:g}: choose a smaller `dt`, another "
            "`solver`, or `starts` from which the SDE does not explode."
        )


def _record(model, config, horizon) -> dict[str, Any]:
    """What tells one run from another, but for the paths and the key, which the checkpoint knows."""
    settings = {
        name: value for name, value in dataclasses.asdict(config).items() if name != "checkpoint_seconds"
    }
    return {
        "config": settings,
        "horizon": horizon,
        "flow": describe(model),
        "weights": fingerprint(eqx.filter(model, eqx.is_array)),
    }
