"""`fit_latent`: a latent flow from trajectories."""

import dataclasses
import os
import warnings
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import PRNGKeyArray

from ..data import Trajectories, long_gaps
from ..data.batches import compact_series, draw_series
from ..latent import LatentFlow, LatentUnits, ObservedFlow, SmoothingPosterior
from ..objectives import bridge_loss, elbo_terms, forecast_energy, one_way_loss, stacked_gaps, state_rows
from .checkpoint import RunFolder, describe, fingerprint
from .config import LatentConfig
from .devices import SHARED, my_key, my_rows, my_share
from .fit import HOUSEKEEPING
from .loop import Problem, check_loss, train
from .states import States

# A longer series is seen a random stretch at a time, unless `window` says otherwise: memory must not grow with it.
LONGEST_WINDOW = 512
# Rows of validation series whose bound is worked out at once.
ROWS_AT_ONCE = 1 << 16

# Chains that leave the range of a batch's states, widened so many times, teach nothing.
STRAY = 2.0

Validation = Trajectories | Callable[[ObservedFlow], dict[str, float]]


@dataclasses.dataclass(frozen=True)
class LatentFitResult:
    """A fitted latent flow, with its units; `history` has one dictionary a report."""

    flow: ObservedFlow
    history: list[dict[str, Any]]
    config: LatentConfig
    stopped_early: bool


def fit_latent(
    model: LatentFlow,
    trajectories: Trajectories,
    *,
    config: LatentConfig = LatentConfig(),
    validation: Validation | None = None,
    trainable: Callable[[LatentFlow], Any] | None = None,
    folder: str | os.PathLike | None = None,
    progress: bool | None = None,
    key: PRNGKeyArray,
) -> LatentFitResult:
    r"""Learn a latent flow: minimise $\beta$-NELBO $+ \lambda\,$consistency $+ \beta_\text{skip}\,$skip-ahead KL.

    **Arguments:**

    - `model`: a [`LatentFlow`][stochflow.latent.LatentFlow], such as [`latent_flow`][stochflow.latent.latent_flow]
        makes.
    - `trajectories`: observations; NaN (a missing channel) contributes nothing.
    - `config`: see [`LatentConfig`][stochflow.training.LatentConfig].
    - `validation`: series to report the negative bound of, or a function of the fitted flow that returns numbers with a
        `"loss"` among them; the weights that do best are returned, and `config.patience` may stop the run early.
    - `trainable`: picks what is trained, such as `lambda model: model.posterior`; all of it by default.
    - `folder`, `progress`, `key`: as for [`fit`][stochflow.training.fit].
    """
    _check(model, trajectories, config, validation)
    units = units_of(trajectories, config, takes=model.emission.takes)
    data = compact_series(trajectories, units)
    assert units.horizon is not None
    reach = units.horizon if config.consistency_horizon is None else config.consistency_horizon
    objective = _Objective(config, _window(data, config), reach / units.time_scale)
    inner = config.consistency > 0 and config.bridge_steps > 0
    problem = Problem(
        loss=objective.loss,
        data=data,
        inner_loss=objective.bridge_loss if inner else None,
        inner=(lambda model: model.bridge) if inner else None,
        validate=None if validation is None else _make_validation(validation, units),
        trainable=trainable,
    )
    known = isinstance(validation, Trajectories)
    record = {
        "config": {k: v for k, v in dataclasses.asdict(config).items() if k not in HOUSEKEEPING},
        "model": describe(model),
        "weights": fingerprint(eqx.filter(model, eqx.is_array)),
        "validation": fingerprint((validation.times, validation.values))
        if known
        else repr(validation is None),
    }
    check_loss(model, problem, key=key)
    run = None if folder is None else RunFolder.create(folder, record)
    trained = train(model, problem, config, key=key, folder=run, progress=progress)
    return LatentFitResult(ObservedFlow(trained.model, units), trained.history, config, trained.stopped_early)


@dataclasses.dataclass(frozen=True)
class _Objective:
    """The paper's total loss, a row, for a batch of series of which it sees a stretch."""

    config: LatentConfig
    window: int
    horizon: float

    def loss(self, model, data, step, key):
        states_key, *own_keys = jr.split(key, 5)
        move_key, skip_key, triplet_key, noise_key = (my_key(own) for own in own_keys)
        forecast_key = jr.fold_in(skip_key, 1)
        config = _shared(self.config)
        batch, states = self._states(model, data, states_key)
        moves = states.moves(config.transitions, key=move_key)
        skips = states.skips(config, key=skip_key)
        if not model.posterior.independent:
            # What the posterior makes of a row given the row before is not its law given one long before: the
            # transition learns the long steps of its paths, and they are not bent to suit it.
            skips = jax.lax.stop_gradient(skips)._replace(log_q=jnp.zeros_like(skips.log_q))
        pairs = jax.tree.map(lambda *parts: jnp.concatenate(parts), moves.pairs, skips.pairs)
        log_prob, gaps = self._log_probs(model, states, pairs, triplet_key, noise_key)
        number = moves.log_q.shape[0]
        terms = {
            "reconstruction": states.reconstruction(model, batch),
            "kl": states.kl_a_row(model, moves.mean(moves.log_q - log_prob[:number])),
            "skip": skips.mean(skips.log_q - log_prob[number:]),
        } | gaps
        if config.forecast > 0:
            terms["forecast"] = self._forecast(model, batch, states, forecast_key)
        risen = lambda warmup: jnp.minimum(
            1.0, (step + 1) / ((config.weights_warmup if warmup is None else warmup) + 1)
        ).astype(log_prob.dtype)
        consistency = config.consistency * risen(config.consistency_warmup)
        weights = {
            "kl": config.beta * risen(config.beta_warmup),
            "skip": config.beta_skip * risen(config.skip_warmup),
            "one_to_two": consistency * config.one_to_two,
            "two_to_one": consistency * config.two_to_one,
            "taught": consistency,
            "forecast": config.forecast * risen(config.forecast_warmup),
        }
        total = sum(
            (weights[name] * terms[name] for name in weights if name in terms), terms["reconstruction"]
        )
        return total, terms

    def _forecast(self, model, batch, states, key):
        """The energy score of forecasts over skips, each from what the past tells of its first row."""
        row_key, noise_key = jr.split(key)
        series, first, last = states.skip_rows(_shared(self.config), key=row_key)
        steps = states.steps(series, first, last)
        starts = jax.tree.map(lambda leaf: leaf[series, first], states.filtered)
        last = jnp.minimum(last, batch.times.shape[1] - 1)
        score = lambda *row, key: forecast_energy(model.transition, model.emission, *row, key=key)
        s, t, u = steps.pairs.s, steps.pairs.t, steps.pairs.u
        axes = (0, 0, 0, 0, 0, None if u is None else 0)
        scores = jax.vmap(lambda k, *row: score(*row, key=k), in_axes=(0, *axes))(
            jr.split(noise_key, len(series)),
            starts,
            batch.values[series, last],
            batch.mask[series, last],
            s,
            t,
            u,
        )
        return steps.mean(scores)

    def bridge_loss(self, model, data, step, key):
        del step
        states_key, *own_keys = jr.split(key, 3)
        triplet_key, noise_key = (my_key(own) for own in own_keys)
        _, states = self._states(model, data, states_key)
        triplets = states.triplets(_shared(self.config), self.horizon, key=triplet_key)
        return bridge_loss(model.transition, model.bridge, triplets, key=noise_key), {}

    def _log_probs(self, model, states, pairs, triplet_key, noise_key):
        """Of all pairs, and the consistency gaps if they are asked for: one stacked call."""
        if self.config.consistency == 0 or self.config.one_way:
            axes = (0, 0, 0, 0, None if pairs.u is None else 0)
            log_prob = jax.vmap(model.transition.log_prob, in_axes=axes)
            taught = self._taught(model, states, triplet_key, noise_key) if self.config.one_way else {}
            return log_prob(pairs.x_t, pairs.x_s, pairs.s, pairs.t, pairs.u), taught
        triplets = states.triplets(_shared(self.config), self.horizon, key=triplet_key)
        directions = self.config.directions
        found = stacked_gaps(
            model.transition, model.bridge, triplets, pairs, directions=directions, key=noise_key
        )
        return found.log_prob, found.means()

    def _taught(self, model, states, triplet_key, noise_key):
        config, (draw_key, gap_key) = _shared(self.config), jr.split(triplet_key)
        triplets = states.triplets(config, self.horizon, key=draw_key)
        triplets = long_gaps(triplets, horizon=self.horizon, steps=config.one_way, key=gap_key)
        within = states.bounds(STRAY)
        loss = one_way_loss(model.transition, triplets, steps=config.one_way, within=within, key=noise_key)
        return {"taught": loss}

    def _states(self, model, data, key):
        draw_key, *own_keys = jr.split(key, 4)
        noise_key, drop_key, path_key = (my_key(own) for own in own_keys)
        batch = read = my_rows(draw_series(data, self.config.batch_size, self.window, key=draw_key))
        if self.config.input_noise > 0:
            noise = self.config.input_noise * jr.normal(noise_key, batch.values.shape)
            read = read._replace(values=read.values + noise)
        if self.config.drop_rows > 0:
            kept = jr.uniform(drop_key, batch.times.shape) >= self.config.drop_rows
            read = read._replace(mask=read.mask & kept[:, :, None])
        keys = jr.split(path_key, batch.times.shape[0])
        path, filtered = jax.vmap(lambda series, k: model.reader.read(series, key=k))(read, keys)
        rows = jax.vmap(lambda series: state_rows(model, series))(batch)
        context = model.posterior.context
        counts = rows.sum(axis=1)
        return batch, States(path.x, path.log_prob, filtered, batch.times, batch.u, rows, counts, context)


def _shared(config: LatentConfig) -> LatentConfig:
    """The config of one of the devices that share a batch."""
    counts = {name: getattr(config, name) for name in SHARED if name != "batch_size"}
    return dataclasses.replace(config, **{name: n and my_share(n) for name, n in counts.items()})


def units_of(data: Trajectories, config: LatentConfig, *, takes: str = "reals") -> LatentUnits:
    """Unit variance of every channel, unless they are binaries or counts, and a unit of time in which the process moves
    by about one."""
    loc, scale = _scale(data, config, takes)
    longest = max(np.ptp(t[ok]) if ok.any() else 0.0 for t, ok in zip(data.times, data.present, strict=True))
    if longest <= 0:
        raise ValueError("no series has two rows: there is no transition to learn from.")
    reach = float(max(longest, config.consistency_horizon or 0.0))
    usual = float(
        np.median(np.concatenate([np.diff(t[ok]) for t, ok in zip(data.times, data.present, strict=True)]))
    )
    return LatentUnits(loc, scale, _time_unit(usual, reach, config), reach, usual)


def _time_unit(usual, reach, config):
    """Between the usual gap and the longest, by their geometric mean: rates are then neither tiny nor huge."""
    if config.time_unit is not None or not config.standardise:
        return 1.0 if config.time_unit is None else config.time_unit
    return float(np.sqrt(reach * usual))


def _scale(data, config, takes):
    """Location and scale of each channel. One that never changes keeps its unit: there is nothing to scale."""
    seen = np.where(data.mask, data.values.astype(np.float64), np.nan).reshape(-1, data.dim)
    if (never := np.flatnonzero(np.isnan(seen).all(axis=0))).size:
        raise ValueError(f"channel {never[0]} is never observed: it has no law to learn; drop it.")
    if not config.standardise or takes != "reals":
        return np.zeros(data.dim, np.float32), np.ones(data.dim, np.float32)
    std = np.nanstd(seen, axis=0)
    if config.common_scale:
        std = np.full(data.dim, np.sqrt(np.mean(std**2)))
    still = std <= 1e-6 * np.abs(seen[~np.isnan(seen)]).max(initial=0.0)
    return np.nanmean(seen, axis=0).astype(np.float32), np.where(still, 1.0, std).astype(np.float32)


def _window(data, config):
    rows = data.times.shape[1]
    if config.window is None and rows > LONGEST_WINDOW:
        warnings.warn(
            f"series of up to {rows} rows are trained on random stretches of {LONGEST_WINDOW}; set `window` for "
            "longer ones.",
            stacklevel=3,
        )
    return min(rows, config.window or LONGEST_WINDOW)


def _make_validation(validation, units):
    if not isinstance(validation, Trajectories):
        return lambda model: _with_loss(validation(ObservedFlow(model, units)))
    data = compact_series(validation, units)
    number, rows = data.times.shape
    keys = jr.split(jr.key(0), number)

    @eqx.filter_jit
    def terms(model):
        one = lambda item: elbo_terms(model, item[0], key=item[1])
        return jax.lax.map(one, (data, keys), batch_size=max(1, min(number, ROWS_AT_ONCE // rows)))

    def validate(model) -> dict[str, float]:
        found = terms(model)
        row = lambda values: float(np.asarray(values, np.float64).sum() / np.asarray(found.rows).sum())
        loss = row(found.reconstruction + found.kl)
        scores = {"reconstruction": row(found.reconstruction), "kl": row(found.kl)}
        return {"loss": loss if np.isfinite(loss) else float("inf")} | scores

    return validate


def _with_loss(found):
    if not isinstance(found, dict) or "loss" not in found:
        raise ValueError(f"`validation` must return a dictionary with a number named 'loss'; got {found!r}.")
    return found


# What an emission takes, in words, and whether a value is none of it.
OUTSIDE = {
    "binaries": ("0 or 1", lambda x: (x != 0) & (x != 1)),
    "counts": ("whole numbers from 0 on", lambda x: (x < 0) | (x != np.round(x))),
}


def _check_values(model, data):
    if model.emission.takes not in OUTSIDE:
        return
    words, outside = OUTSIDE[model.emission.takes]
    wrong = np.argwhere(data.mask & outside(data.values))
    if len(wrong):
        i, row, channel = wrong[0]
        raise ValueError(
            f"the emission takes {words}; series {data.names[i]!r} has {data.values[i, row, channel]:g} in row {row}, "
            f"channel {channel}."
        )


def _check(model, data, config, validation):
    for name, given, wanted in (("model", model, LatentFlow), ("trajectories", data, Trajectories)):
        if not isinstance(given, wanted):
            raise ValueError(f"`{name}` must be a {wanted.__name__}; got {type(given).__name__}.")
    if not isinstance(config, LatentConfig):
        raise ValueError(f"`config` must be a LatentConfig; got {type(config).__name__}.")
    if model.channels != data.dim:
        raise ValueError(f"`model` has {model.channels} channels but the trajectories have {data.dim}.")
    if isinstance(validation, Trajectories) and validation.dim != data.dim:
        raise ValueError(f"`validation` has {validation.dim} channels but the trajectories have {data.dim}.")
    _check_values(model, data)
    if config.consistency > 0 and model.bridge is None and not config.one_way:
        raise ValueError(
            "`model.bridge` must be there when `config.consistency` is positive: give the model a bridge, or set "
            "`consistency` to 0."
        )
    if config.forecast > 0 and isinstance(model.posterior, SmoothingPosterior):
        raise ValueError(
            "`config.forecast` must be 0 for a smoothing posterior, which cannot tell a state by the past alone."
        )
    if config.patience is not None and validation is None:
        raise ValueError("`validation` must be given when `config.patience` is set.")
    rows = int(data.present.sum(1).max())
    if rows <= model.posterior.context + 1:
        raise ValueError(
            f"the posterior reads {model.posterior.context} rows before the first state and a transition needs two "
            f"states: the longest series has only {rows} rows."
        )
