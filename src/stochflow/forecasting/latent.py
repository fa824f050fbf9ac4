"""A hidden law seen through noise: for channels that are missing here and there."""

import math
import os
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jax.scipy.special import logsumexp
from jaxtyping import Bool, Float, Int, PRNGKeyArray

from ..data import Trajectories
from ..inference import impute_latent
from ..io import pack, unpack
from ..latent import ObservedFlow, Series, latent_flow
from ..laws import Support
from ..laws.transformed import off_line, on_line, within
from ..training import LatentConfig, fit_latent
from .draws import LOG_DRAWS, at_times, gaps_to, in_chunks, most_steps
from .frames import Panel
from .history import padded_length
from .model import AbstractModel
from .units import keys_of, mark_of

# Hidden dimensions a channel, and beside: room for what a channel does not show, such as its trend.
HIDDEN_PER_CHANNEL, HIDDEN_BESIDE, MOST_HIDDEN = 1, 1, 16
# Of the posterior's last layer, so that it starts out near a path that stands still.
START_SMALL = 0.1
# Rows of the past that the posterior reads.
PAST = 512
# Steps between two reports.
REPORT = 100


class LatentPast(NamedTuple):
    """The last rows of each of several series, padded to one length; times are since the first of them."""

    times: Float[np.ndarray, "series rows"]
    values: Float[np.ndarray, "series rows dim"]
    mask: Bool[np.ndarray, "series rows dim"]
    present: Bool[np.ndarray, "series rows"]
    last: Float[np.ndarray, " series"]
    ids: list[Any]


class LatentModel(AbstractModel):
    """A fitted latent flow on the line of its support. Forecasts go on in steps no longer than `horizon`."""

    flow: ObservedFlow
    support: Support
    horizon: float = eqx.field(static=True)

    def __init__(self, flow: ObservedFlow, support: Support, horizon: float):
        self.flow, self.support, self.horizon = flow, support, horizon

    def __reduce__(self):
        """As a model file has it: the networks of Equinox hold functions that cannot be pickled."""
        return _unpacked, (*pack({"flow": self.flow, "support": self.support}), self.horizon)

    @property
    def own_scale(self) -> bool:
        return False

    @property
    def reads_partial(self) -> bool:
        return True

    def past(self, panel: Panel) -> LatentPast:
        """Read each series up to its last row with a value."""
        panel.require_starts(partial=True)
        kept = []
        for t, x in zip(panel.times, panel.values, strict=True):
            rows = np.flatnonzero(~np.isnan(x).all(axis=1))[-PAST:]
            kept.append((t[rows], _line(self.support, x[rows])))
        length = padded_length(max(len(t) for t, _ in kept))
        fill = lambda array: np.concatenate([array, np.repeat(array[-1:], length - len(array), axis=0)])
        values = np.stack([fill(x) for _, x in kept])
        present = np.stack([np.arange(length) < len(t) for t, _ in kept])
        return LatentPast(
            times=np.stack([fill(t - t[0]) for t, _ in kept]),
            values=np.nan_to_num(values),
            mask=~np.isnan(values) & present[..., None],
            present=present,
            last=np.array([t[-1] for t, _ in kept]),
            ids=panel.ids,
        )

    def draw(
        self,
        past: LatentPast,
        at: np.ndarray,
        future: np.ndarray,
        *,
        samples: int,
        joint: bool,
        key: PRNGKeyArray,
    ) -> np.ndarray:
        del future  # a latent flow reads no covariates
        gaps = gaps_to(at, past.last, self.horizon, joint=joint)
        starts, keys = (_series(past), gaps), keys_of(key, past.ids)

        def some(rows, kind):
            steps, length = kind
            drawn = _draw(self, _chosen(starts, rows, length), keys[rows], samples, steps, joint)
            return off_line(self.support, np.asarray(drawn, np.float64))

        return in_chunks(some, (len(gaps), samples, gaps.shape[1], self.dim), _kinds(past, gaps))

    def impute(self, panel: Panel, i: int, at: np.ndarray, *, samples: int, key: PRNGKeyArray) -> np.ndarray:
        there = ~np.isnan(panel.values[i]).all(axis=1)
        times, line = panel.times[i][there], _line(self.support, panel.values[i][there])
        key = jr.fold_in(key, mark_of(panel.ids[i]))
        drawn = impute_latent(self.flow, times, line, at, samples=samples, key=key)
        return off_line(self.support, np.asarray(drawn.values))

    def log_prob(self, past: LatentPast, x_t: np.ndarray, at: np.ndarray, future: np.ndarray) -> np.ndarray:
        """Of the channels that were seen, by the mean density over `LOG_DRAWS` hidden states: a little too low."""
        del future
        gaps = gaps_to(at[:, None], past.last, self.horizon, joint=False)
        keys, seen = keys_of(jr.key(0), past.ids), ~np.isnan(x_t)
        ends = np.nan_to_num(_line(self.support, x_t)), seen
        starts = _series(past), gaps

        def some(rows, kind):
            steps, length = kind
            end = jax.tree.map(lambda array: jnp.asarray(_single(array[rows])), ends)
            found = _log_prob(self, _chosen(starts, rows, length), end, keys[rows], steps)
            return np.asarray(found)[:, None, None, None]

        return in_chunks(some, (len(gaps), 1, 1, 1), _kinds(past, gaps), each=LOG_DRAWS)[:, 0, 0, 0]


def _series(past: LatentPast) -> Series:
    return Series(past.times, past.values, past.mask, past.present)  # type: ignore[arg-type]


def _kinds(past: LatentPast, gaps: np.ndarray) -> Int[np.ndarray, "series 2"]:
    """How many steps and how many rows the program of each series is for."""
    lengths = [padded_length(int(rows)) for rows in past.present.sum(axis=1)]
    return np.stack([most_steps(gaps), np.array(lengths)], axis=1)


def _chosen(starts, rows, length):
    """Some of the series, up to that length, and of their gaps, in single precision."""
    series, gaps = starts
    cut = jax.tree.map(lambda array: jnp.asarray(_single(array[rows, :length])), series)
    return cut, jnp.asarray(_single(gaps[rows]))


def _single(array: np.ndarray) -> np.ndarray:
    return array if array.dtype == bool else array.astype(np.float32)


def _states(model, start, keys, steps, joint):
    """Hidden states of one series at each time, for each key."""
    series, gaps = start
    flow, units = model.flow.model, model.flow.units
    scaled = units.standardise(series)
    marginals = flow.posterior.marginals(scaled)
    last = series.present.sum() - 1
    mean, std = marginals.mean[last], marginals.std[last]

    def step(state, gap, key):
        x, s = state
        t = s + gap * (model.horizon / units.time_scale)
        return flow.transition.sample(x, s, t, key=key).astype(x.dtype), t

    def path(key):
        start_key, move_key = jr.split(key)
        x = mean + std * jr.normal(start_key, mean.shape, mean.dtype)
        start = x, scaled.times[last]
        nothing = jnp.zeros((gaps.shape[0], 0))
        return at_times(lambda _: step, start, gaps, nothing, steps=steps, joint=joint, key=move_key)[0]

    return jax.vmap(path)(keys)


@eqx.filter_jit
def _draw(model, starts, keys, samples, steps, joint):
    def one(start, key):
        state_key, noise_key = jr.split(key)
        x = _states(model, start, jr.split(state_key, samples), steps, joint)
        noise = jr.split(noise_key, x.shape[:2])
        seen = jax.vmap(jax.vmap(lambda x, key: model.flow.model.emission.sample(x, key=key)))(x, noise)
        return model.flow.units.restore(seen)

    return jax.lax.map(lambda series: one(*series), (starts, keys))


@eqx.filter_jit
def _log_prob(model, starts, ends, keys, steps):
    units, emission = model.flow.units, model.flow.model.emission

    def one(start, end, key):
        line, seen = end
        x = _states(model, start, jr.split(key, LOG_DRAWS), steps, False)[:, 0]
        value = (line - units.loc) / units.scale
        each = jax.vmap(lambda x: emission.log_prob(value, seen, x))(x)
        volume = jnp.where(seen, jnp.log(units.scale) + model.support.log_slopes(line), 0.0).sum()
        return logsumexp(each) - jnp.log(LOG_DRAWS) - volume

    return jax.vmap(one)(starts, ends, keys)


def _unpacked(spec: dict[str, Any], arrays: dict[str, np.ndarray], horizon: float) -> LatentModel:
    return LatentModel(**unpack(spec, arrays), horizon=horizon)


def _line(support: Support, values: np.ndarray) -> np.ndarray:
    """Values on the line, NaN where there is none."""
    filled = np.where(np.isnan(values), [within(*bound) for bound in support.bounds], values)
    return np.where(np.isnan(values), np.nan, on_line(support, filled))


def fit_latent_model(
    panel: Panel,
    support: Support,
    *,
    horizon: float | None,
    steps: int,
    folder: str | os.PathLike | None,
    progress: bool | None,
    key: PRNGKeyArray,
) -> LatentModel:
    """A smoothing posterior, a saturating clock, a learnt noise for each channel."""
    panel.require_starts(partial=True)  # and not when all has been learnt
    channels = support.dim
    dim = min(MOST_HIDDEN, HIDDEN_PER_CHANNEL * channels + HIDDEN_BESIDE)
    model_key, fit_key = jr.split(key)
    data = Trajectories.from_series(panel.times, [_line(support, x) for x in panel.values], names=panel.ids)
    model = latent_flow(channels, dim, posterior="smooth", width=32, layers=2, hidden=32, key=model_key)
    # Of random weights the posterior's paths, a product of as many matrices as there are rows, may explode.
    last = lambda model: (model.posterior.head.layers[-1].weight, model.posterior.head.layers[-1].bias)
    model = eqx.tree_at(last, model, replace_fn=lambda leaf: START_SMALL * leaf)
    config = LatentConfig(
        steps=steps,
        log_every=math.gcd(steps, REPORT),
        batch_size=min(32, max(8, len(panel))),
        learning_rate=5e-3,
        warmup_steps=min(500, steps // 4),
        ema=0.99,
        beta_skip=1.0,
        skip_scheme="log",
        skip_starts=128,
        window=min(128, data.times.shape[1]) if data.times.shape[1] > 2 else None,
        weights_warmup=steps // 10,
        consistency=0.0,
    )
    result = fit_latent(model, data, config=config, folder=folder, progress=progress, key=fit_key)
    longest = result.flow.units.horizon
    assert longest is not None
    return LatentModel(result.flow, support, longest if horizon is None else min(horizon, longest))
