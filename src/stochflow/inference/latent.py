"""What a fitted latent flow is for: forecasts, reconstructions, imputations and bounds of the likelihood."""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from ..flows.nets import with_padded_widths
from ..latent import ObservedFlow, Series
from ..laws import warn_beyond_horizon
from ..objectives import elbo_terms
from .rollout import forecast, rollout


class LatentDraws(NamedTuple):
    """Draws at each of the times asked for.

    - `states`: the hidden states.
    - `means`: what is expected of each channel given the state; their mean over draws is the point forecast.
    - `values`: observations, with the noise of the emission.
    """

    states: Float[Array, "samples times dim"]
    means: Float[Array, "samples times channels"]
    values: Float[Array, "samples times channels"]


def observed_series(
    times: np.ndarray,
    values: np.ndarray,
    u: Float[np.ndarray, "rows cond"] | None = None,
) -> tuple[Series, float]:
    """A series as the models read it, and the origin of its times. NaN means missing; rows of nothing else are
    dropped."""
    times, values = np.asarray(times, np.float64), np.asarray(values, np.float64)
    if values.ndim != 2 or times.shape != values.shape[:1]:
        raise ValueError(
            f"`times` and `values` must have shapes (rows,) and (rows, channels); got {times.shape} and {values.shape}."
        )
    if not np.isfinite(times).all() or (np.diff(times) <= 0).any():
        raise ValueError("`times` must be finite and increase.")
    if np.isinf(values).any():
        raise ValueError(f"`values` must not be infinite; row {int(np.isinf(values).any(1).argmax())} is.")
    mask = ~np.isnan(values)
    kept = mask.any(axis=1)
    if not kept.any():
        raise ValueError("`values` must have at least one observation.")
    origin = float(times[kept][0])
    return Series(
        times=jnp.asarray(times[kept] - origin, jnp.result_type(float)),
        values=jnp.asarray(np.where(mask, values, 0.0)[kept], jnp.result_type(float)),
        mask=jnp.asarray(mask[kept]),
        present=jnp.ones(int(kept.sum()), bool),
        u=None if u is None else jnp.asarray(u, jnp.result_type(float))[kept],
    ), origin


def forecast_latent(
    flow: ObservedFlow,
    times: np.ndarray,
    values: np.ndarray,
    at: np.ndarray,
    *,
    samples: int = 100,
    max_gap: float | None = None,
    joint: bool = False,
    u: Float[np.ndarray, "rows cond"] | None = None,
    key: PRNGKeyArray,
) -> LatentDraws:
    """Draws at future times, given all that has been observed of one series.

    **Arguments:**

    - `times`, `values`: the past; NaN means missing.
    - `at`: when; no earlier than the last observation, in the same units and from the same origin as `times`.
    - `max_gap`: the longest step; by default every time is reached in one.
    - `joint`: whether a draw is one path through all of `at`, in steps from each time to the next, or the times are
        drawn independently, each straight from the last observation.
    - `key`: draw number i depends on it and on i alone.
    """
    series, origin = observed_series(times, values, u)
    ahead = np.asarray(at, np.float64) - origin
    last = float(series.times[-1])
    if ahead.size and ahead.min() < last - 1e-6 * max(1.0, abs(last)):
        raise ValueError(
            f"`at` must not lie before the last observation, at {last + origin:g}; got {ahead.min() + origin:g}. "
            "For times between observations use `impute_latent`."
        )
    if samples < 1:
        raise ValueError(f"`samples` must be at least 1; got {samples}.")
    scaled = flow.units.standardise(series)
    start, grid = last / flow.units.time_scale, np.maximum(ahead, last) / flow.units.time_scale
    gap = None if max_gap is None else max_gap / flow.units.time_scale
    if flow.units.horizon is not None and gap is None and not joint:
        warn_beyond_horizon(last, ahead.max(initial=last), flow.units.horizon)
    return _draw(flow, scaled, start, tuple(grid.tolist()), gap, joint, samples, key)


@eqx.filter_jit
def _draw(flow, series, start, grid, max_gap, joint, samples, key):
    model, units = flow.model, flow.units
    transition = with_padded_widths(model.transition)
    last = model.reader.last(series)
    u = None if series.u is None else series.u[-1]

    def one(i):
        start_key, move_key, noise_key = jr.split(jr.fold_in(key, i), 3)
        x, _ = last.transform_and_log_prob(jr.normal(start_key, last.mean.shape, last.mean.dtype))
        if joint:
            times = np.concatenate([[start], grid])
            states = rollout(transition, x, times, max_gap=max_gap, u=u, key=move_key)[1:]
        else:
            states = forecast(transition, x, start, np.asarray(grid), max_gap=max_gap, u=u, key=move_key)
        means = jax.vmap(model.emission.mean)(states)
        values = jax.vmap(lambda x, k: model.emission.sample(x, key=k))(
            states, jr.split(noise_key, len(grid))
        )
        return LatentDraws(states, units.restore(means), units.restore(values))

    return jax.vmap(one)(jnp.arange(samples))


class LikelihoodBound(NamedTuple):
    """Lower bounds of the log-likelihood of a series in nats, in the user's units: `elbo` ≤ `iwae` on average."""

    elbo: float
    iwae: float
    rows: int


def likelihood_bound(
    flow: ObservedFlow,
    times: np.ndarray,
    values: np.ndarray,
    *,
    samples: int = 64,
    u: Float[np.ndarray, "rows cond"] | None = None,
    key: PRNGKeyArray,
) -> LikelihoodBound:
    r"""The evidence lower bound, and the tighter one of importance weights over `samples` paths of the posterior.

    $$\log \frac1K \sum_k \frac{p(x^k, o)}{q(x^k \mid o)}$$
    """
    series, _ = observed_series(times, values, u)
    log_weights, rows = _log_weights(flow, flow.units.standardise(series), samples, key)
    weights = np.asarray(log_weights, np.float64)
    observed = np.asarray(series.mask) & np.asarray(rows)[:, None]
    volume = float((observed * np.log(np.asarray(flow.units.scale, np.float64))).sum())
    iwae = np.logaddexp.reduce(weights) - np.log(samples)
    return LikelihoodBound(float(weights.mean()) - volume, float(iwae) - volume, int(np.asarray(rows).sum()))


@eqx.filter_jit
def _log_weights(flow, series, samples, key):
    terms = jax.lax.map(
        lambda i: elbo_terms(flow.model, series, key=jr.fold_in(key, i)), jnp.arange(samples), batch_size=64
    )
    return -(terms.reconstruction + terms.kl).sum(axis=1), terms.rows[0]


def impute_latent(
    flow: ObservedFlow,
    times: np.ndarray,
    values: np.ndarray,
    at: np.ndarray | None = None,
    *,
    samples: int = 100,
    u: Float[np.ndarray, "rows cond"] | None = None,
    key: PRNGKeyArray,
) -> LatentDraws:
    """Draws at times within one series, given all of it: what was noisy, missing, or never measured.

    **Arguments:**

    - `times`, `values`: the whole series; NaN means missing.
    - `at`: when, in increasing order; at the times of the series by default (a reconstruction). At the time of an
        observation the state is that of the posterior; between two of them it is drawn from the bridge, each time
        given the one before, so that a draw is one path.
    """
    series, origin = observed_series(times, values, u)
    known = np.asarray(series.times, np.float64)[flow.model.posterior.context :]
    wanted = np.asarray(times if at is None else at, np.float64) - origin
    if not len(known):
        raise ValueError(
            f"the posterior reads {flow.model.posterior.context} rows before the first state; got {len(series.times)}."
        )
    slack = 1e-6 * max(1.0, float(np.abs(known).max()))
    if wanted.size == 0 or not np.isfinite(wanted).all() or (np.diff(wanted) < 0).any():
        raise ValueError("`at` must hold at least one time, and they must not decrease.")
    if wanted.min() < known[0] - slack or wanted.max() > known[-1] + slack:
        raise ValueError(
            f"`at` must lie between the first state, at {known[0] + origin:g}, and the last observation, at "
            f"{known[-1] + origin:g}; for later times use `forecast_latent`."
        )
    before = np.clip(np.searchsorted(known, wanted + slack, side="right") - 1, 0, len(known) - 1)
    at_row = np.abs(known[before] - wanted) <= slack
    if not at_row.all() and flow.model.between is None:
        raise ValueError("`flow.model.bridge` must be there to draw states between observations.")
    after = np.minimum(before + 1, len(known) - 1)
    first = np.diff(before, prepend=-1) > 0
    plan = jax.tree.map(jnp.asarray, (before, after, at_row, first, wanted / flow.units.time_scale))
    return _impute(flow, flow.units.standardise(series), plan, samples, key)


@eqx.filter_jit
def _impute(flow, series, plan, samples, key):
    model, units, context = flow.model, flow.units, flow.model.posterior.context
    bridge = model.between
    times = series.times[context:]

    def one(i):
        path_key, bridge_key, noise_key = jr.split(jr.fold_in(key, i), 3)
        path = model.reader.sample_and_log_prob(series, key=path_key).x[context:]

        def step(carry, now):
            x_last, last = carry
            before, after, at_row, first, r, number = now
            x_s, s = jnp.where(first, path[before], x_last), jnp.where(first, times[before], last)
            if bridge is None:
                x = path[before]
            else:
                t = jnp.where(at_row, r + 1, times[after])  # at a row no bridge is needed, and none must fail
                s_before = jnp.where(at_row, r - 1, s)
                u = None if series.u is None else series.u[context + before]
                between = bridge.sample(
                    x_s, path[after], s_before, r, t, u, key=jr.fold_in(bridge_key, number)
                )
                x = jnp.where(at_row, path[before], between)
            return (x, r), x

        numbers = jnp.arange(plan[0].shape[0])
        r = plan[4].astype(times.dtype)
        _, states = jax.lax.scan(step, (path[0], times[0]), (*plan[:4], r, numbers))
        means = jax.vmap(model.emission.mean)(states)
        keys = jr.split(noise_key, numbers.shape[0])
        values = jax.vmap(lambda x, k: model.emission.sample(x, key=k))(states, keys)
        return LatentDraws(states, units.restore(means), units.restore(values))

    return jax.lax.map(one, jnp.arange(samples), batch_size=32)
