"""The one loop that trains everything: compiled chunks, and Python only between them."""

import dataclasses
import time
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import PRNGKeyArray, PyTree

from ..laws import times_in_order
from .checkpoint import CheckpointError, RunFolder, fingerprint, load_tree, save_tree
from .config import RunConfig
from .devices import SHARED, brought_home, everywhere, on_devices, usable_devices
from .progress import progress_bar
from .step import TrainState, init_state, make_optimiser, make_step

# The share of updates beyond which a run is no run.
MOST_REFUSED = 0.1


@dataclasses.dataclass(frozen=True)
class Problem:
    """What to minimise.

    - `loss(model, data, step, key)` returns a number and a dictionary of numbers to log.
    - `inner_loss`, the same signature: minimised first, over the part of the model that `inner` picks.
    - `trainable` picks the part of the model that is trained; all of it by default.
    - `refresh(step)`, if given, returns the data of the chunk of steps that begins at `step`, in place of `data`: what
      is simulated on the fly is then seen once. It must depend on nothing else, so that a run can go on.
    - `validate(model)` returns a dictionary of numbers with a `"loss"` among them.
    """

    loss: Callable
    data: PyTree
    inner_loss: Callable | None = None
    inner: Callable[[PyTree], PyTree] | None = None
    validate: Callable[[PyTree], dict[str, float]] | None = None
    trainable: Callable[[PyTree], PyTree] | None = None
    refresh: Callable[[int], PyTree] | None = None


@dataclasses.dataclass(frozen=True)
class Trained:
    """The trained model and a row a report: its moving average; the best on validation data, if there are any, unless
    the data was simulated on the fly and the run has come to its end."""

    model: PyTree
    history: list[dict[str, Any]]
    stopped_early: bool


def train(
    model: PyTree,
    problem: Problem,
    config: RunConfig,
    *,
    key: PRNGKeyArray,
    folder: RunFolder | None = None,
    progress: bool | None = None,
) -> Trained:
    """Minimise `problem.loss`. With a `folder`, go on from its checkpoint to the very same end."""
    params, static = eqx.partition(model, _trainable(model, problem))
    inner_filter = _inner_filter(params, problem)
    optim = make_optimiser(config)

    def chunk(state, data, key):
        step = make_step(
            _bind(problem.loss, static, data),
            optim,
            config,
            inner_loss=None if problem.inner_loss is None else _bind(problem.inner_loss, static, data),
            inner_filter=inner_filter,
        )
        with times_in_order():  # batches are drawn so
            state, metrics = jax.lax.scan(lambda s, _: step(s, key), state, length=config.log_every)
        return state, jax.tree.map(jnp.mean, metrics)

    inner_params = eqx.filter(params, inner_filter)
    state = init_state(params, inner_params, optim, keep_best=problem.validate is not None)
    number = usable_devices(*(getattr(config, name, None) for name in SHARED))
    about = {
        "key": fingerprint(jr.key_data(key)),
        "data": fingerprint(problem.data),
        "number of devices": str(number),
    }
    state, history = _resume(state, folder, about)
    problem = dataclasses.replace(problem, data=everywhere(problem.data, number))
    state, history, stopped = _run(
        on_devices(chunk, number), state, history, problem, config, key, folder, about, progress, static
    )
    average = state.ema if config.ema else state.params
    # What is never seen twice cannot be learnt by heart: at the end of the schedule the best of a few thousand held-out
    # rows is the one that has their chance errors.
    unseen = problem.refresh is not None and not stopped
    chosen = average if problem.validate is None or unseen else state.best
    return Trained(eqx.combine(chosen, static), history, stopped)


def check_loss(model: PyTree, problem: Problem, *, key: PRNGKeyArray) -> None:
    """Trace the loss once, so that what cannot be trained says so before anything is written."""
    jax.eval_shape(lambda: problem.loss(model, problem.data, jnp.zeros((), jnp.int32), key)[0])


def _run(chunk, state, history, problem, config, key, folder, about, progress, static):
    """Chunks until the end; logs, validates, saves and decides to stop between them."""
    last_save, stopped = time.monotonic(), _out_of_patience(state, config)
    seconds = history[-1]["seconds"] if history else 0.0
    try:
        with progress_bar(config.steps, int(state.step), show=progress) as report:
            while int(state.step) < config.steps and not stopped:
                begin = time.monotonic()
                data = problem.data if problem.refresh is None else problem.refresh(int(state.step))
                ahead, metrics = brought_home(jax.block_until_ready(chunk(state, data, key)))
                took = time.monotonic() - begin
                seconds += took
                row = {"step": int(ahead.step), "seconds": round(seconds, 3)}
                row |= {name: float(value) for name, value in metrics.items()}
                row |= {"skipped": int(ahead.guard.non_finite), "outlying": int(ahead.guard.outlying)}
                if config.bridge_steps:
                    row["skipped_inner"] = int(ahead.guard.inner)
                if problem.validate is not None:
                    ahead, scores = _validate(ahead, problem, config, static)
                    row |= {f"validation_{name}": float(value) for name, value in scores.items()}
                state, history = ahead, [*history, row]  # together: whenever it stops, state and report agree
                stopped = _out_of_patience(state, config)
                report(row["step"], row["loss"], config.log_every / took)
                if folder is not None:
                    folder.append_metrics(row)
                    # Now, if the next chunk might end too late for it.
                    if time.monotonic() + took - last_save > config.checkpoint_seconds:
                        _save(state, folder, about)
                        last_save = time.monotonic()
    finally:  # on Ctrl-C too: what has been trained is kept
        if folder is not None:
            _save(state, folder, about)
    _complain(state, config)
    return state, history, stopped


def _bind(fn, static, data):
    return lambda params, step, key: fn(eqx.combine(params, static), data, step, key)


def _trainable(model, problem):
    """True at the arrays that are trained."""
    arrays = jax.tree.map(eqx.is_inexact_array, model)
    if problem.trainable is None:
        return arrays
    nothing = jax.tree.map(lambda _: False, model)
    return eqx.tree_at(problem.trainable, nothing, problem.trainable(arrays))


def _inner_filter(params, problem):
    """True at the leaves that the inner steps train, false elsewhere."""
    nothing = jax.tree.map(lambda _: False, params)
    if problem.inner is None:
        return nothing
    marked = jax.tree.map(lambda _: True, problem.inner(params))
    return eqx.tree_at(problem.inner, nothing, marked)


def _validate(state: TrainState, problem: Problem, config: RunConfig, static):
    params = state.ema if config.ema else state.params
    assert problem.validate is not None
    scores = problem.validate(eqx.combine(params, static))
    if scores["loss"] < float(state.best_score):
        new = params, jnp.array(scores["loss"], state.best_score.dtype), 0 * state.stale
    else:
        new = state.best, state.best_score, state.stale + 1
    return eqx.tree_at(lambda s: (s.best, s.best_score, s.stale), state, new), scores


def _out_of_patience(state, config):
    return config.patience is not None and int(state.stale) >= config.patience


def _save(state, folder, about):
    save_tree(folder.checkpoint, state, {**about, "step": str(int(state.step))})


def _resume(state, folder, about):
    if folder is None:
        return state, []
    if not folder.checkpoint.exists():
        return state, folder.rewind_metrics(0)
    state, known = load_tree(folder.checkpoint, state)
    for what in about:
        if known.get(what, "1") != about[what]:
            said = {"key": "key or seed"}.get(what, what)
            raise CheckpointError(
                f"{folder.path} holds a run with another {said}: pass the same {said} to go on with it, delete it, or "
                "choose another folder."
            )
    return state, folder.rewind_metrics(int(state.step))


def _complain(state, config):
    guard, total = state.guard, int(state.step)
    non_finite, outlying, inner = int(guard.non_finite), int(guard.outlying), int(guard.inner)
    advice = "the run has diverged. Lower `learning_rate` or look at the data."
    if (refused := non_finite + outlying) > MOST_REFUSED * total:
        raise FloatingPointError(
            f"{refused} of {total} updates were refused ({non_finite} non-finite, {outlying} outlying): {advice}"
        )
    if inner > MOST_REFUSED * total * config.bridge_steps:
        raise FloatingPointError(
            f"{inner} of {total * config.bridge_steps} inner updates of the bridge were not finite: {advice}"
        )
