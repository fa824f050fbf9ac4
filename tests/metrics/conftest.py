"""One exact law for all metrics: Ornstein–Uhlenbeck, its bridge, and ways of getting it wrong."""

import equinox as eqx
import jax.numpy as jnp
import jax.scipy as jsp
import pytest
from jaxtyping import Array

from stochflow.laws import AbstractBridge, AbstractTransition


class OU(AbstractTransition):
    """dx = −x dt + dW in each dimension; `inflation` and `drift_with_gap` make its spread wrong."""

    dim: int = eqx.field(static=True, default=2)
    inflation: Array = eqx.field(converter=jnp.asarray, default=1.0)
    drift_with_gap: Array = eqx.field(converter=jnp.asarray, default=0.0)

    def mean_and_std(self, x_s, s, t):
        gap = t - s
        std = jnp.sqrt(-jnp.expm1(-2 * gap) / 2) * self.inflation * (1 + self.drift_with_gap * gap)
        return jnp.exp(-gap) * x_s, std

    def transform_and_log_prob(self, noise, x_s, s, t, u=None):
        mean, std = self.mean_and_std(x_s, s, t)
        return mean + std * noise, self.log_prob(mean + std * noise, x_s, s, t)

    def log_prob(self, x_t, x_s, s, t, u=None):
        mean, std = self.mean_and_std(x_s, s, t)
        return jsp.stats.norm.logpdf(x_t, mean, std).sum()


class OUBridge(AbstractBridge):
    dim: int = eqx.field(static=True, default=2)

    def mean_and_std(self, x_s, x_t, s, r, t):
        mean, std = OU().mean_and_std(x_s, s, r)
        _, later_std = OU().mean_and_std(x_s, r, t)
        decay = jnp.exp(r - t)
        precision = 1 / std**2 + decay**2 / later_std**2
        return (mean / std**2 + decay * x_t / later_std**2) / precision, 1 / jnp.sqrt(precision)

    def transform_and_log_prob(self, noise, x_s, x_t, s, r, t, u=None):
        mean, std = self.mean_and_std(x_s, x_t, s, r, t)
        return mean + std * noise, self.log_prob(mean + std * noise, x_s, x_t, s, r, t)

    def log_prob(self, x_r, x_s, x_t, s, r, t, u=None):
        mean, std = self.mean_and_std(x_s, x_t, s, r, t)
        return jsp.stats.norm.logpdf(x_r, mean, std).sum()


@pytest.fixture
def law():
    return OU


@pytest.fixture
def bridge():
    return OUBridge
