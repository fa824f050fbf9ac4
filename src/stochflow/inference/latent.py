"""What a fitted latent flow is for: forecasts, reconstructions, imputations and bounds of the likelihood."""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from ..flows.nets import with_padded_widths
from ..latent import ObservedFlow
from ..laws import warn_beyond_horizon
from ..objectives import elbo_terms, state_rows
from .past import bucket, check_draws, check_finite, read_past
from .rollout import plan_steps

# Of the times themselves: a time that is this little earlier than the last observation is not earlier.
SLACK = 1e-9
# Rows of paths whose bound is worked out at once: memory does not grow with the number of paths.
ROWS_AT_ONCE = 1 << 16
CHAINED = "chain shorter steps with `max_gap={horizon:g}`"


class LatentDraws(NamedTuple):
    """Draws at each of the times asked for.

    - `states`: the hidden states.
    - `means`: what is expected of each channel given the state; their mean over draws is the point forecast.
    - `values`: observations, with the noise of the emission.
    """

    states: Float[Array, "samples times dim"]
    means: Float[Array, "samples times channels"]
    values: Float[Array, "samples times channels"]


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
    - `at`: when, in increasing order; no earlier than the last observation, in the same units and from the same origin
        as `times`.
    - `max_gap`: the longest step; by default every time is reached in one.
    - `joint`: whether a draw is one path through all of `at`, in steps from each time to the next, or the times are
        drawn independently, each straight from the last observation.
    - `key`: draw number i depends on it and on i alone.
    """
    past = read_past(flow, times, values, u)
    check_draws(samples, key)
    ahead = _checked_times(at) - past.origin
    if ahead.size and ahead.min() < past.last - SLACK * max(1.0, abs(past.last + past.origin)):
        raise ValueError(
            f"`at` must not lie before the last observation, at {past.last + past.origin:g}; got "
            f"{ahead.min() + past.origin:g}. For times between observations use `impute_latent`."
        )
    if max_gap is not None and not max_gap > 0:
        raise ValueError(f"`max_gap` must be positive; got {max_gap}.")
    ahead, unit = np.maximum(ahead, past.last), flow.units.time_scale
    starts = np.concatenate([[past.last], ahead])[:-1] if joint else np.full(len(ahead), past.last)
    steps = ahead - starts if max_gap is None else np.minimum(ahead - starts, max_gap)
    warn_beyond_horizon(np.zeros(len(steps)), steps, flow.units.horizon, CHAINED)
    itinerary = plan_steps(
        flow.model.transition,
        past.series.times.dtype,
        past.last / unit,
        ahead / unit,
        max_gap=None if max_gap is None else max_gap / unit,
        joint=joint,
        rounded=bucket,
    )
    draws = _draw(flow, past.series, itinerary, int(samples), key)
    draws = jax.tree.map(lambda leaf: leaf[:, : len(ahead)], draws)
    check_finite(bool(jnp.isfinite(draws.means).all()), "draws")
    return draws


def _checked_times(at) -> Float[np.ndarray, " times"]:
    at = np.asarray(at)
    if at.ndim != 1 or at.dtype.kind not in "iuf":
        raise ValueError(f"`at` must hold numbers in one dimension; got {at.dtype} of shape {at.shape}.")
    at = at.astype(np.float64)
    if not np.isfinite(at).all() or (np.diff(at) < 0).any():
        raise ValueError("`at` must hold finite times that do not decrease.")
    return at


@eqx.filter_jit
def _draw(flow, series, itinerary, samples, key):
    model, units = flow.model, flow.units
    transition = with_padded_widths(model.transition)
    last = model.reader.last(series)
    u = None if series.u is None else series.u[series.present.sum() - 1]

    def one(i):
        start_key, move_key, noise_key = jr.split(jr.fold_in(key, i), 3)
        x, _ = last.transform_and_log_prob(jr.normal(start_key, last.mean.shape, last.mean.dtype))
        states = itinerary.follow(transition, x, u, key=move_key)
        return _seen(model, units, states, noise_key)

    return jax.vmap(one)(jnp.arange(samples))


def _seen(model, units, states, key) -> LatentDraws:
    """States, and what is observed of them."""
    means = jax.vmap(model.emission.mean)(states)
    keys = jax.vmap(lambda i: jr.fold_in(key, i))(jnp.arange(len(states)))
    values = jax.vmap(lambda x, k: model.emission.sample(x, key=k))(states, keys)
    return LatentDraws(states, units.restore(means), units.restore(values))


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
    series = read_past(flow, times, values, u).series
    check_draws(samples, key)
    log_weights, rows = _log_weights(flow, series, int(samples), key)
    weights = np.asarray(log_weights, np.float64)
    check_finite(bool(np.isfinite(weights).all()), "log-weights")
    observed = np.asarray(series.mask) & np.asarray(rows)[:, None]
    volume = float((observed * np.log(np.asarray(flow.units.scale, np.float64))).sum())
    iwae = np.logaddexp.reduce(weights) - np.log(samples)
    return LikelihoodBound(float(weights.mean()) - volume, float(iwae) - volume, int(np.asarray(rows).sum()))


@eqx.filter_jit
def _log_weights(flow, series, samples, key):
    at_once = max(1, min(samples, ROWS_AT_ONCE // len(series.times)))

    def log_weight(i):
        terms = elbo_terms(flow.model, series, key=jr.fold_in(key, i))
        return -(terms.reconstruction + terms.kl).sum()

    return jax.lax.map(log_weight, jnp.arange(samples), batch_size=at_once), state_rows(flow.model, series)


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
    - `at`: when, in increasing order; by default at all observed rows that have a state (a reconstruction): all but the
        first few where the posterior reads windows. At the time of an
        observation the state is that of the posterior; between two of them it is drawn from the bridge, each time
        given the one before, so that a draw is one path.
    """
    past = read_past(flow, times, values, u)
    check_draws(samples, key)
    known = past.times[flow.model.posterior.context :]
    wanted = known if at is None else _checked_times(at) - past.origin
    slack = 1e-6 * max(1.0, float(np.abs(known).max()))
    if wanted.size == 0:
        raise ValueError("`at` must hold at least one time.")
    if wanted.min() < known[0] - slack or wanted.max() > known[-1] + slack:
        raise ValueError(
            f"`at` must lie between the first state, at {known[0] + past.origin:g}, and the last observation, at "
            f"{known[-1] + past.origin:g}; for later times use `forecast_latent`."
        )
    before = np.clip(np.searchsorted(known, wanted + slack, side="right") - 1, 0, len(known) - 1)
    at_row = np.abs(known[before] - wanted) <= slack
    if not at_row.all() and flow.model.between is None:
        raise ValueError("`flow.model.bridge` must be there to draw states between observations.")
    after = np.minimum(before + 1, len(known) - 1)
    first = np.diff(before, prepend=-1) > 0
    plan = jax.tree.map(jnp.asarray, (before, after, at_row, first, wanted / flow.units.time_scale))
    draws = _impute(flow, past.series, plan, int(samples), key)
    check_finite(bool(jnp.isfinite(draws.means).all()), "draws")
    return draws


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
        return _seen(model, units, states, noise_key)

    return jax.lax.map(one, jnp.arange(samples), batch_size=32)
