"""`fit`: a transition law from trajectories."""

import dataclasses
import os
import warnings
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from ..data import PairSampler, Trajectories, draw_pairs_and_triplets, long_gaps
from ..laws import AbstractBridge, AbstractTransition, Standardised, StandardisedBridge
from ..objectives import bridge_loss, one_way_loss, stacked_gaps
from .checkpoint import RunFolder, describe, fingerprint
from .config import FitConfig
from .devices import my_key, my_share
from .loop import Problem, check_loss, train
from .validation import make_validation

# May differ when a run goes on: they change what is saved when, and nothing that is learnt.
HOUSEKEEPING = ("checkpoint_seconds",)
# Times are float32, and gaps differences of them: one this little longer than a horizon is not beyond it.
TOLERANCE = 1e-4


class FlowAndBridge(eqx.Module):
    """What is trained together."""

    flow: AbstractTransition
    bridge: AbstractBridge | None


@dataclasses.dataclass(frozen=True)
class FitResult:
    """A fitted law.

    - `flow`: the law in the data's own units and times, with its `horizon`; `flow.law` is the learnt flow in
        standardised units.
    - `bridge`: the bridge in the same units, or `None`.
    - `history`: one dictionary a report.
    """

    flow: Standardised
    bridge: StandardisedBridge | None
    history: list[dict[str, Any]]
    config: FitConfig
    stopped_early: bool


def fit(
    flow: AbstractTransition,
    trajectories: Trajectories,
    *,
    bridge: AbstractBridge | None = None,
    config: FitConfig = FitConfig(),
    validation: Trajectories | None = None,
    starts: Float[np.ndarray, "states dim"] | None = None,
    folder: str | os.PathLike | None = None,
    progress: bool | None = None,
    key: PRNGKeyArray,
) -> FitResult:
    """Learn the transition law of `trajectories`.

    **Arguments:**

    - `flow`: a [`StochasticFlow`][stochflow.flows.StochasticFlow], or any trainable transition law. The `flow` of an
        earlier result goes on in its own units.
    - `bridge`: needed for, and trained by, the consistency loss. That of an earlier result goes on beside its `flow`.
    - `config`: see [`FitConfig`][stochflow.training.FitConfig].
    - `validation`: series to report the log-likelihood of, per gap; the weights that do best on them are
        returned, and `config.patience` may stop the run early.
    - `starts`: states, in the data's units, that half of the consistency loss's triplets then start from; by default
        all of them start at rows of the data. The loss needs no data at its starts, so a region that few series pass
        can be given its due.
    - `folder`: a run folder. Config and metrics are written to it and checkpoints as the run goes; if it holds
        an unfinished run with the same arguments, that run goes on, bit for bit as if it had never stopped.
    - `progress`: show a bar; by default on a terminal only.
    - `key`: for batches and noise.
    """
    _check(flow, trajectories, bridge, config, validation)
    _check_starts(starts, trajectories, config)
    scaling = _Scaling.of(trajectories, config)
    if isinstance(flow, Standardised):
        scaling, flow = scaling.in_units_of(flow), flow.law
    if isinstance(bridge, StandardisedBridge):
        bridge = scaling.bare(bridge)
    _check_gaps("trajectories", trajectories, scaling.horizon)
    if validation is not None:
        _check_gaps("validation", validation, scaling.horizon)
    data = scaling.apply(trajectories)
    sampler = PairSampler(
        data,
        horizon=scaling.horizon / scaling.time_scale,
        scheme=config.pairs,
        start_fraction=config.start_fraction,
    )
    reach = scaling.horizon if config.consistency_horizon is None else config.consistency_horizon
    objective = _Objective(config, reach / scaling.time_scale, sampler.horizon)
    consistent = config.consistency > 0
    problem = Problem(
        loss=objective.loss,
        data=_Source(sampler, None if starts is None else scaling.states(starts)),
        inner_loss=objective.bridge_loss if consistent and config.bridge_steps else None,
        inner=(lambda model: model.bridge) if consistent and config.bridge_steps else None,
        validate=None if validation is None else make_validation(scaling.apply(validation), sampler.horizon),
    )
    model = FlowAndBridge(flow, bridge)
    check_loss(model, problem, key=key)
    run = None
    if folder is not None:
        run = RunFolder.create(folder, _record(model, config, validation, starts))
    trained = train(model, problem, config, key=key, folder=run, progress=progress)
    return FitResult(
        flow=scaling.law(
            trained.model.flow,
            max(reach, scaling.horizon) if consistent else scaling.horizon,
            latest=trajectories.latest + (reach if consistent else 0.0),
        ),
        bridge=None if bridge is None else scaling.bridge(trained.model.bridge, reach),
        history=trained.history,
        config=config,
        stopped_early=trained.stopped_early,
    )


def _record(model, config, validation, starts) -> dict[str, Any]:
    """What tells one run from another, but for the data and the key, which the checkpoint knows."""
    record = {
        "config": {k: v for k, v in dataclasses.asdict(config).items() if k not in HOUSEKEEPING},
        "flow": describe(model.flow),
        "bridge": describe(model.bridge),
        "weights": fingerprint(eqx.filter((model.flow, model.bridge), eqx.is_array)),
        "validation": None if validation is None else fingerprint((validation.times, validation.values)),
    }
    if starts is not None:
        record["starts"] = fingerprint(np.asarray(starts, np.float32))
    return record


@dataclasses.dataclass(frozen=True)
class _Scaling:
    """Between the data's units and those that the flow is trained in: unit variance, a horizon of one."""

    loc: np.ndarray
    scale: np.ndarray
    time_scale: float
    horizon: float

    @classmethod
    def of(cls, data: Trajectories, config: FitConfig) -> "_Scaling":
        longest = data.longest_gap
        if longest <= 0:
            raise ValueError("no series has two complete rows: there is no transition to learn from.")
        plain = np.zeros(data.dim, np.float32), np.ones(data.dim, np.float32)
        loc, scale = data.scale() if config.standardise else plain
        horizon = longest if config.horizon is None else min(config.horizon, longest)
        if config.horizon is not None and config.horizon > longest * (1 + TOLERANCE):
            warnings.warn(
                f"`config.horizon` is {config.horizon:g}, but the longest gap of the trajectories is {longest:g}, and "
                "that is what the law is trained for.",
                stacklevel=3,
            )
        time_scale = max(horizon, config.consistency_horizon or 0.0) if config.standardise else 1.0
        return cls(loc, scale, time_scale, horizon)

    def in_units_of(self, law: Standardised) -> "_Scaling":
        """The units that an earlier fit chose: only in them do its weights mean anything."""
        return dataclasses.replace(
            self, loc=np.asarray(law.loc), scale=np.asarray(law.scale), time_scale=law.time_scale
        )

    def bare(self, bridge: StandardisedBridge) -> AbstractBridge:
        """The bridge of an earlier fit, without its units, which must be these."""
        same = np.array_equal(bridge.loc, self.loc) and np.array_equal(bridge.scale, self.scale)
        if not same or bridge.time_scale != self.time_scale:
            raise ValueError(
                "`bridge` is in the units of an earlier fit: give the `flow` of the same result with it, or a new "
                "bridge, such as BridgeFlow(dim)."
            )
        return bridge.bridge

    def apply(self, data: Trajectories) -> Trajectories:
        values = np.where(data.mask, (data.values - self.loc) / self.scale, 0.0).astype(np.float32)
        times = (data.times / self.time_scale).astype(np.float32)
        return dataclasses.replace(data, values=values, times=times)

    def states(self, states: np.ndarray) -> Array:
        return jnp.asarray((np.asarray(states, np.float64) - self.loc) / self.scale, jnp.float32)

    def law(self, law: AbstractTransition, horizon: float, latest: float) -> Standardised:
        units = jnp.asarray(self.loc), jnp.asarray(self.scale), self.time_scale
        return Standardised(law, *units, horizon, None if law.homogeneous else latest)

    def bridge(self, bridge: AbstractBridge, horizon: float) -> StandardisedBridge:
        units = jnp.asarray(self.loc), jnp.asarray(self.scale), self.time_scale
        return StandardisedBridge(bridge, *units, horizon)


class _Source(NamedTuple):
    """What batches are drawn from: pairs of the data, and states for triplets beside its own."""

    pairs: PairSampler
    starts: Float[Array, "states dim"] | None = None


@dataclasses.dataclass(frozen=True)
class _Objective:
    """Likelihood plus λ times the weighted consistency gaps, for a batch."""

    config: FitConfig
    horizon: float
    known: float

    def loss(self, model, source, step, key):
        start = self.config.consistency_start
        if self.config.consistency == 0:
            return self.likelihood_loss(model, source, step, key)
        consistent = self.one_way_loss if self.config.one_way else self.consistent_loss
        if start == 0:
            return consistent(model, source, step, key)
        return jax.lax.cond(step < start, self.likelihood_loss, consistent, model, source, step, key)

    def likelihood_loss(self, model, source, step, key):
        del step
        pair_key, _, _ = jr.split(my_key(key), 3)
        pairs = source.pairs.draw(my_share(self.config.batch_size), key=pair_key)
        log_prob = jax.vmap(model.flow.log_prob, in_axes=(0, 0, 0, 0, None if pairs.u is None else 0))
        nll = -log_prob(pairs.x_t, pairs.x_s, pairs.s, pairs.t, pairs.u).mean()
        return nll, {"nll": nll} | {name: jnp.asarray(jnp.nan, nll.dtype) for name in self._extra}

    @property
    def _extra(self) -> tuple[str, ...]:
        """Names of the terms that are not known before the consistency loss sets in."""
        if self.config.consistency == 0:
            return ()
        return ("taught_nll",) if self.config.one_way else self.config.directions

    def consistent_loss(self, model, source, step, key):
        draw_key, noise_key = jr.split(my_key(key))
        pairs, triplets = self._draw(source, my_share(self.config.batch_size), step, draw_key)
        directions = self.config.directions
        gaps = stacked_gaps(model.flow, model.bridge, triplets, pairs, directions=directions, key=noise_key)
        nll, means = -gaps.log_prob.mean(), gaps.means()
        gap = sum(getattr(self.config, name) * mean for name, mean in means.items())
        return nll + self._weight(step, nll.dtype) * gap, {"nll": nll} | means

    def one_way_loss(self, model, source, step, key):
        _, triplet_key, noise_key = jr.split(my_key(key), 3)
        nll, _ = self.likelihood_loss(model, source, step, key)
        _, triplets = self._draw(source, 0, step, triplet_key)
        triplets = long_gaps(
            triplets, horizon=self.horizon, steps=self.config.one_way, key=jr.fold_in(triplet_key, 2)
        )
        taught = one_way_loss(model.flow, triplets, steps=self.config.one_way, key=noise_key)
        return nll + self._weight(step, nll.dtype) * taught, {"nll": nll, "taught_nll": taught}

    def _weight(self, step, dtype):
        risen = (step - self.config.consistency_start + 1) / (self.config.consistency_warmup + 1)
        return self.config.consistency * jnp.clip(risen, 0.0, 1.0).astype(dtype)

    def bridge_loss(self, model, source, step, key):
        triplet_key, noise_key = jr.split(my_key(key))
        _, triplets = self._draw(source, 0, step, triplet_key)
        return bridge_loss(model.flow, model.bridge, triplets, key=noise_key), {}

    def _reach(self, step):
        """The longest gap of a triplet."""
        if self.config.consistency_growth == 0:
            return self.horizon
        grown = (step - self.config.consistency_start) / self.config.consistency_growth
        least = min(self.known, self.horizon)
        return least + (self.horizon - least) * jnp.clip(grown, 0.0, 1.0).astype(jnp.float32)

    def _draw(self, source, number, step, key):
        """So many pairs of the data, and the triplets of a step."""
        batch = my_share(self.config.consistency_batch or self.config.batch_size)
        draw_key, start_key, jitter_key = jr.split(key, 3)
        pairs, triplets = draw_pairs_and_triplets(
            source.pairs, number, batch, horizon=self._reach(step), scheme=self.config.triplets, key=draw_key
        )
        if source.starts is not None:
            triplets = triplets._replace(x_s=_replace_half(triplets.x_s, source.starts, start_key))
        if self.config.consistency_jitter > 0:
            moved = self.config.consistency_jitter * jr.normal(jitter_key, triplets.x_s.shape)
            triplets = triplets._replace(x_s=triplets.x_s + moved)
        return pairs, triplets


def _replace_half(x_s, starts, key):
    """Two rows of four by states drawn from `starts`: half of those that go each way, and half of each kind of end."""
    drawn = starts[jr.randint(key, x_s.shape[:1], 0, starts.shape[0])]
    return jnp.where(((jnp.arange(x_s.shape[0]) // 2) % 2 == 1)[:, None], drawn, x_s)


def _check(flow, data, bridge, config, validation):
    _check_kinds(flow, data, bridge, config, validation)
    if flow.dim != data.dim:
        raise ValueError(f"`flow` has dim {flow.dim} but the trajectories have {data.dim} channels.")
    if config.consistency > 0 and bridge is None and not config.one_way:
        raise ValueError(
            "`bridge` must be given when `config.consistency` is positive, such as BridgeFlow(dim)."
        )
    if config.one_way and bridge is not None:
        raise ValueError("`bridge` would not be trained with `config.one_way`; leave it out.")
    if config.consistency == 0 and bridge is not None:
        raise ValueError("`bridge` would not be trained: set `config.consistency`, or leave the bridge out.")
    if bridge is not None and bridge.dim != flow.dim:
        raise ValueError(f"`bridge` has dim {bridge.dim} but `flow` has {flow.dim}.")
    if validation is not None and (validation.dim, validation.cond_dim) != (data.dim, data.cond_dim):
        raise ValueError(
            f"`validation` has {validation.dim} channels and {validation.cond_dim} covariates where the "
            f"trajectories have {data.dim} and {data.cond_dim}."
        )
    if config.patience is not None and validation is None:
        raise ValueError("`validation` must be given when `config.patience` is set.")


def _check_kinds(flow, data, bridge, config, validation):
    if not isinstance(flow, AbstractTransition):
        raise ValueError(
            f"`flow` must be a transition law, such as `StochasticFlow(dim, key=key)`; got {type(flow).__name__}."
        )
    if bridge is not None and not isinstance(bridge, AbstractBridge):
        raise ValueError(
            f"`bridge` must be a bridge, such as `BridgeFlow(dim, key=key)`; got {type(bridge).__name__}."
        )
    for name, given in (("trajectories", data), ("validation", validation)):
        if not isinstance(given, Trajectories) and not (name == "validation" and given is None):
            raise ValueError(
                f"`{name}` must be `Trajectories`, such as `Trajectories.from_arrays(times, values)` makes; got "
                f"{type(given).__name__}."
            )
    if not isinstance(config, FitConfig):
        raise ValueError(
            f"`config` must be a `FitConfig`, such as `FitConfig()`; got {type(config).__name__}."
        )


def _check_gaps(name, data, horizon):
    """There must be something to learn from, or to validate on, within the horizon; said in the user's units."""
    shortest = data.gaps.min(initial=np.inf)
    if shortest > horizon * (1 + TOLERANCE):
        found = "there is no gap" if np.isinf(shortest) else f"the shortest gap is {shortest:g}"
        raise ValueError(
            f"no two complete rows of a series of `{name}` lie within the horizon of {horizon:g}: {found}; give a "
            "longer `config.horizon` or other series."
        )


def _check_starts(starts, data, config):
    if starts is None:
        return
    if config.consistency == 0:
        raise ValueError("`starts` would not be used: set `config.consistency`, or leave them out.")
    if data.u is not None:
        raise ValueError("`starts` have no covariates, but the trajectories do; leave them out.")
    shape = np.shape(starts)
    if len(shape) != 2 or shape[0] == 0 or shape[1] != data.dim:
        raise ValueError(f"`starts` must be an array of states, (number, {data.dim}); got shape {shape}.")
    if not np.isfinite(starts).all():
        raise ValueError("`starts` must be finite.")
