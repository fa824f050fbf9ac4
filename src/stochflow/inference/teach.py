"""A latent flow's long gaps, learnt from its short ones."""

import dataclasses
import os
import time

import equinox as eqx
import jax
import jax.random as jr
import numpy as np
from jaxtyping import PRNGKeyArray

from ..data import Trajectories
from ..data.batches import compact_series
from ..latent import ObservedFlow
from ..training import FitConfig, FitResult, fit
from .series import simulate

# Paths that stray further than this from the middle of the states, in units of the furthest of those, are dropped.
STRAY = 1.5


@dataclasses.dataclass(frozen=True)
class TaughtFlow:
    """The flow with its new transition, and the fit that made it; `stray` is the share of paths that were dropped."""

    flow: ObservedFlow
    fit: FitResult
    stray: float
    seconds: float


def teach_latent(
    flow: ObservedFlow,
    data: Trajectories,
    *,
    config: FitConfig,
    steps: tuple[float, float],
    paths: int = 16_384,
    rows: int = 12,
    every: int = 3,
    span: float | None = None,
    residuals: bool = False,
    folder: str | os.PathLike | None = None,
    progress: bool | None = None,
    key: PRNGKeyArray,
) -> TaughtFlow:
    """Learn the transition again, its long gaps from paths of its own that go in short steps.

    A handful of series has few starts for the longest gaps, which are then learnt by heart, and thousands of pairs for
    the short ones. So the transition is chained from the states that the posterior reads off `data`, and
    [`fit`][stochflow.fit] to those paths and to short stretches of the states themselves: afterwards one step and many
    are one law, as far as the fit goes. Posterior and emission stay as they are.

    **Arguments:**

    - `config`: of the fit; `standardise` is ignored, as states have units of their own.
    - `steps`: shortest and longest step of the paths, in the data's units of time: gaps that the flow is good at.
    - `paths`: how many; each is as long as `span`, which is the flow's horizon by default.
    - `rows`, `every`: length of the stretches of states, and how many rows one begins after the other.
    - `residuals`: draw the noise of the paths from what the stretches show, as [`simulate`][stochflow.simulate] does.
    """
    if rows < 2 or every < 1:
        raise ValueError(f"`rows` must be at least 2 and `every` at least 1; got {rows} and {every}.")
    begin = time.monotonic()
    scale = flow.units.time_scale
    span = flow.units.horizon if span is None else span
    if span is None:
        raise ValueError("`span` must be given: the flow has no horizon.")
    states_key, path_key, fit_key = jr.split(key, 3)
    stretches = _stretches(flow, data, rows, every, states_key)
    law = flow.model.transition
    made = simulate(
        law,
        stretches,
        paths,
        span=span / scale,
        steps=(steps[0] / scale, steps[1] / scale),
        residuals=residuals,
        key=path_key,
    )
    kept, stray = _without_strays(made, stretches)
    config = dataclasses.replace(config, standardise=False)
    found = fit(
        law,
        Trajectories.joined(stretches, kept),
        config=config,
        folder=folder,
        progress=progress,
        key=fit_key,
    )
    taught = eqx.tree_at(lambda f: f.model.transition, flow, found.flow.law)
    return TaughtFlow(taught, found, stray, time.monotonic() - begin)


def _stretches(flow, data, rows, every, key):
    """One path of states a series, cut into stretches of `rows` rows that overlap."""
    series = compact_series(data, flow.units)
    posterior = flow.model.posterior
    draw = eqx.filter_jit(jax.vmap(lambda one, k: posterior.sample_and_log_prob(one, key=k).x))
    states = np.asarray(draw(series, jr.split(key, len(data))), np.float64)
    times, counts = np.asarray(series.times, np.float64), np.asarray(series.present.sum(axis=1))
    found = [
        (i, first)
        for i, count in enumerate(counts)
        for first in range(posterior.context, int(count) - rows + 1, every)
    ]
    if not found:
        raise ValueError(f"no series has the {posterior.context + rows} rows that a stretch needs.")
    cut = lambda array: [array[i, first : first + rows] for i, first in found]
    return Trajectories.from_series(
        cut(times), cut(states), u=None if series.u is None else cut(np.asarray(series.u))
    )


def _without_strays(made, stretches):
    middle = stretches.values.mean(axis=(0, 1))
    furthest = np.abs(stretches.values - middle).max(axis=(0, 1))
    away = np.where(made.mask, np.abs(made.values - middle) / furthest, 0.0)
    good = np.isfinite(away).all(axis=(1, 2)) & (away.max(axis=(1, 2)) < STRAY)
    if not good.any():
        raise FloatingPointError(
            "every path strays from the states that the posterior finds: the flow is not yet good at such `steps`."
        )
    rows = made.present
    cut = lambda array: [array[i, rows[i]] for i in np.flatnonzero(good)]
    u = None if made.u is None else cut(made.u)
    return Trajectories.from_series(cut(made.times), cut(made.values), u=u), float(1 - good.mean())
