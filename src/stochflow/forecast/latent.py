"""A hidden law seen through noise: for channels that are missing here and there."""

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import PRNGKeyArray

from ..data import Trajectories
from ..inference import forecast_latent, impute_latent
from ..latent import ObservedFlow, latent_flow
from ..laws import Support
from ..training import LatentConfig, fit_latent
from .direct import mark_of, on_line
from .frames import Panel

# Hidden dimensions a channel, and beside: room for what a channel does not show, such as its trend.
HIDDEN_PER_CHANNEL, HIDDEN_BESIDE, MOST_HIDDEN = 1, 1, 16
# Of the posterior's last layer, so that it starts out near a path that stands still.
START_SMALL = 0.1
# Rows of the past that the posterior reads.
PAST = 512


@dataclasses.dataclass(frozen=True)
class LatentModel:
    """A fitted latent flow on the line of its support. Forecasts go on in steps no longer than `horizon`."""

    flow: ObservedFlow
    support: Support
    names: tuple[str, ...]
    horizon: float

    @property
    def dim(self) -> int:
        return len(self.names)

    def draw(
        self,
        times: np.ndarray,
        values: np.ndarray,
        at: np.ndarray,
        name: Any,
        *,
        samples: int,
        joint: bool,
        key: PRNGKeyArray,
    ) -> np.ndarray:
        """Draws at later times of one series, (samples, times, channels)."""
        line = _line(self.support, values[-PAST:])
        drawn = forecast_latent(
            self.flow, times[-PAST:], line, at, samples=samples, joint=joint, max_gap=self.horizon,
            key=jr.fold_in(key, mark_of(name)),
        )  # fmt: skip
        return self._back(drawn.values)

    def impute(
        self,
        times: np.ndarray,
        values: np.ndarray,
        at: np.ndarray,
        name: Any,
        *,
        samples: int,
        key: PRNGKeyArray,
    ) -> np.ndarray:
        """Draws at times within one series, (samples, times, channels)."""
        key = jr.fold_in(key, mark_of(name))
        drawn = impute_latent(self.flow, times, _line(self.support, values), at, samples=samples, key=key)
        return self._back(drawn.values)

    def _back(self, draws):
        flat = jnp.asarray(draws).reshape(-1, self.dim)
        return np.asarray(_from_line(self.support, flat)).reshape(np.shape(draws))


def _line(support: Support, values: np.ndarray) -> np.ndarray:
    """Values on the line, NaN where there is none."""
    filled = np.where(np.isnan(values), _inside(support), values)
    return np.where(np.isnan(values), np.nan, on_line(support, filled))


def _inside(support: Support) -> np.ndarray:
    """A point of the support, to stand where nothing was observed."""
    pick = lambda low, high: (
        (low + high) / 2
        if np.isfinite(low + high)
        else low + 1
        if np.isfinite(low)
        else high - 1
        if np.isfinite(high)
        else 0
    )
    return np.array([pick(*bound) for bound in support.bounds])


@eqx.filter_jit
def _from_line(support, flat):
    return jax.vmap(lambda y: support.from_line(y)[0])(flat)


def fit_latent_model(
    panel: Panel,
    names: tuple[str, ...],
    support: Support,
    *,
    horizon: float | None,
    steps: int,
    progress: bool | None,
    key: PRNGKeyArray,
) -> LatentModel:
    """A smoothing posterior, a saturating clock, a learnt noise for each channel."""
    channels = len(names)
    dim = min(MOST_HIDDEN, HIDDEN_PER_CHANNEL * channels + HIDDEN_BESIDE)
    model_key, fit_key = jr.split(key)
    data = Trajectories.from_series(panel.times, [_line(support, x) for x in panel.values], names=panel.ids)
    model = latent_flow(channels, dim, posterior="smooth", width=32, layers=2, hidden=32, key=model_key)
    # Of random weights the posterior's paths, a product of as many matrices as there are rows, may explode.
    last = lambda model: (model.posterior.head.layers[-1].weight, model.posterior.head.layers[-1].bias)
    model = eqx.tree_at(last, model, replace_fn=lambda leaf: START_SMALL * leaf)
    config = LatentConfig(
        steps=steps,
        log_every=steps,
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
    result = fit_latent(model, data, config=config, progress=progress, key=fit_key)
    longest = result.flow.units.horizon
    assert longest is not None
    return LatentModel(result.flow, support, names, longest if horizon is None else min(horizon, longest))
