"""Emissions: what is observed of a state."""

import abc

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Bool, Float, PRNGKeyArray, Scalar

from ..flows.activations import softplus

LOG_2PI = 1.8378770664093453
# No observation is more exact than this, in standard deviations of its channel.
LEAST_STD = 1e-3
STDS = ("fixed", "shared", "channel", "state")


class AbstractEmission(eqx.Module):
    """$p(o \\mid x)$, channel by channel given the state. A channel that was not observed contributes nothing."""

    dim: eqx.AbstractVar[int]
    channels: eqx.AbstractVar[int]

    @abc.abstractmethod
    def log_prob(
        self, value: Float[Array, " channels"], mask: Bool[Array, " channels"], x: Float[Array, " dim"]
    ) -> Scalar:
        """Log-density (or log-probability) of the observed channels."""

    @abc.abstractmethod
    def mean(self, x: Float[Array, " dim"]) -> Float[Array, " channels"]:
        """What is expected of each channel."""

    @abc.abstractmethod
    def sample(self, x: Float[Array, " dim"], *, key: PRNGKeyArray) -> Float[Array, " channels"]:
        """An observation of all channels."""


class GaussianEmission(AbstractEmission):
    """Normal noise around a decoded mean.

    `std`: `"fixed"` at `initial_std`; `"shared"`, one learnt number; `"channel"`, one a channel; `"state"`, decoded
    from the state, with a second head. Few series are soon over-fitted by a learnt one.
    """

    net: eqx.nn.MLP
    raw_std: Float[Array, " _"]
    dim: int = eqx.field(static=True)
    channels: int = eqx.field(static=True)
    std: str = eqx.field(static=True)
    initial_std: float = eqx.field(static=True)

    def __init__(
        self,
        dim: int,
        channels: int,
        *,
        width: int = 30,
        depth: int = 2,
        std: str = "fixed",
        initial_std: float = 0.2,
        key: PRNGKeyArray,
    ):
        if std not in STDS:
            raise ValueError(f"`std` must be one of {', '.join(STDS)}; got {std!r}.")
        if not initial_std > LEAST_STD:
            raise ValueError(f"`initial_std` must be greater than {LEAST_STD:g}; got {initial_std}.")
        heads = 2 if std == "state" else 1
        self.net = eqx.nn.MLP(dim, heads * channels, width, depth, softplus, key=key)
        learnt = {"fixed": 0, "shared": 1, "channel": channels, "state": 0}[std]
        self.raw_std = jnp.full(learnt, jnp.log(jnp.expm1(initial_std - LEAST_STD)), jnp.result_type(float))
        self.dim = dim
        self.channels = channels
        self.std = std
        self.initial_std = float(initial_std)

    def mean_and_std(
        self, x: Float[Array, " dim"]
    ) -> tuple[Float[Array, " channels"], Float[Array, " channels"]]:
        """Both, one number a channel."""
        out = self.net(x)
        raw = out[self.channels :] if self.std == "state" else self.raw_std
        std = self.initial_std if self.std == "fixed" else LEAST_STD + jax.nn.softplus(raw)
        return out[: self.channels], jnp.broadcast_to(std, (self.channels,)).astype(out.dtype)

    def mean(self, x):
        return self.mean_and_std(x)[0]

    def log_prob(self, value, mask, x):
        mean, std = self.mean_and_std(x)
        distance = (jnp.where(mask, value, mean) - mean) / std
        return _over_observed(-0.5 * (distance**2 + LOG_2PI) - jnp.log(std), mask)

    def sample(self, x, *, key):
        mean, std = self.mean_and_std(x)
        return mean + std * jr.normal(key, mean.shape, mean.dtype)


class StudentTEmission(AbstractEmission):
    """Student's t around a decoded mean, with a learnt scale a channel: for data with outliers."""

    net: eqx.nn.MLP
    raw_scale: Float[Array, " channels"]
    dim: int = eqx.field(static=True)
    channels: int = eqx.field(static=True)
    degrees: float = eqx.field(static=True)

    def __init__(
        self,
        dim: int,
        channels: int,
        *,
        width: int = 30,
        depth: int = 2,
        degrees: float = 4.0,
        initial_scale: float = 0.2,
        key: PRNGKeyArray,
    ):
        if not degrees > 1:
            raise ValueError(f"`degrees` must be greater than 1, or there is no mean; got {degrees}.")
        if not initial_scale > LEAST_STD:
            raise ValueError(f"`initial_scale` must be greater than {LEAST_STD:g}; got {initial_scale}.")
        self.net = eqx.nn.MLP(dim, channels, width, depth, softplus, key=key)
        self.raw_scale = jnp.full(
            channels, jnp.log(jnp.expm1(initial_scale - LEAST_STD)), jnp.result_type(float)
        )
        self.dim = dim
        self.channels = channels
        self.degrees = float(degrees)

    def mean(self, x):
        return self.net(x)

    def log_prob(self, value, mask, x):
        mean, scale, nu = self.net(x), self._scale(), self.degrees
        distance = (jnp.where(mask, value, mean) - mean) / scale
        constant = jax.lax.lgamma((nu + 1) / 2) - jax.lax.lgamma(nu / 2) - 0.5 * jnp.log(nu * jnp.pi)
        return _over_observed(
            constant.astype(mean.dtype) - jnp.log(scale) - (nu + 1) / 2 * jnp.log1p(distance**2 / nu), mask
        )

    def sample(self, x, *, key):
        mean = self.net(x)
        return mean + self._scale() * jr.t(key, self.degrees, mean.shape, mean.dtype)

    def _scale(self):
        return LEAST_STD + jax.nn.softplus(self.raw_scale)


class BernoulliEmission(AbstractEmission):
    """Channels that are 0 or 1."""

    net: eqx.nn.MLP
    dim: int = eqx.field(static=True)
    channels: int = eqx.field(static=True)

    def __init__(self, dim: int, channels: int, *, width: int = 30, depth: int = 2, key: PRNGKeyArray):
        self.net = eqx.nn.MLP(dim, channels, width, depth, softplus, key=key)
        self.dim = dim
        self.channels = channels

    def mean(self, x):
        return jax.nn.sigmoid(self.net(x))

    def log_prob(self, value, mask, x):
        logits = self.net(x)
        value = jnp.where(mask, value, 0.0)
        return _over_observed(value * logits - jax.nn.softplus(logits), mask)

    def sample(self, x, *, key):
        mean = self.mean(x)
        return jr.bernoulli(key, mean).astype(mean.dtype)


class PoissonEmission(AbstractEmission):
    """Counts, with a log-rate decoded from the state."""

    net: eqx.nn.MLP
    dim: int = eqx.field(static=True)
    channels: int = eqx.field(static=True)

    def __init__(self, dim: int, channels: int, *, width: int = 30, depth: int = 2, key: PRNGKeyArray):
        self.net = eqx.nn.MLP(dim, channels, width, depth, softplus, key=key)
        self.dim = dim
        self.channels = channels

    def mean(self, x):
        return jnp.exp(self.net(x))

    def log_prob(self, value, mask, x):
        log_rate = self.net(x)
        value = jnp.where(mask, value, 0.0)
        return _over_observed(value * log_rate - jnp.exp(log_rate) - jax.lax.lgamma(value + 1), mask)

    def sample(self, x, *, key):
        mean = self.mean(x)
        return jr.poisson(key, mean).astype(mean.dtype)


def _over_observed(log_probs, mask):
    return jnp.where(mask, log_probs, 0.0).sum()
