"""A hidden law seen through noise: for channels that are missing here and there."""

import dataclasses
from typing import Any

import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import PRNGKeyArray

from ..data import Trajectories
from ..inference import forecast_latent, impute_latent
from ..latent import ObservedFlow, latent_flow
from ..laws import Support
from ..training import LatentConfig, fit_latent
from .direct import _to_line, mark_of
from .frames import Panel

# Hidden dimensions a channel, and beside: room for what a channel does not show, such as its trend.
HIDDEN_PER_CHANNEL, HIDDEN_BESIDE, MOST_HIDDEN = 1, 1, 16
# Rows of the past that the posterior reads.
PAST = 512


@dataclasses.dataclass(frozen=True)
class LatentModel:
    """A fitted latent flow on the line of its support."""

    flow: ObservedFlow
    support: Support
    names: tuple[str, ...]

    @property
    def dim(self) -> int:
        return len(self.names)

    @property
    def horizon(self) -> float:
        assert self.flow.units.horizon is not None
        return self.flow.units.horizon

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
        line = self._line(values[-PAST:])
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
        drawn = impute_latent(self.flow, times, self._line(values), at, samples=samples, key=key)
        return self._back(drawn.values)

    def _line(self, values):
        filled = np.where(np.isnan(values), _inside(self.support), values)
        line = np.asarray(_to_line(self.support, jnp.asarray(filled, jnp.float32)), np.float64)
        return np.where(np.isnan(values), np.nan, line)

    def _back(self, draws):
        flat = jnp.asarray(draws).reshape(-1, self.dim)
        return np.asarray(_from_line(self.support, flat)).reshape(np.shape(draws))


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


def _from_line(support, flat):
    import jax

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
    shell = LatentModel(None, support, names)  # type: ignore[arg-type]
    data = Trajectories.from_series(panel.times, [shell._line(x) for x in panel.values], names=panel.ids)
    model = latent_flow(channels, dim, posterior="smooth", width=32, layers=2, hidden=32, key=model_key)
    config = LatentConfig(
        steps=steps,
        log_every=steps,
        batch_size=min(32, max(8, len(panel))),
        learning_rate=5e-3,
        beta_skip=1.0,
        skip_scheme="log",
        skip_starts=128,
        window=min(128, data.times.shape[1]) if data.times.shape[1] > 2 else None,
        weights_warmup=steps // 10,
        consistency=0.0,
    )
    result = fit_latent(model, data, config=config, progress=progress, key=fit_key)
    return LatentModel(result.flow, support, names)
