"""Emissions: what is observed of a state."""

import abc
import math

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Bool, Float, PRNGKeyArray, Scalar

from ..flows.activations import sine, softplus

LOG_2PI = 1.8378770664093453
# No observation is more exact than this, in standard deviations of its channel.
LEAST_STD = 1e-3
STDS = ("fixed", "shared", "channel", "state")


class AbstractEmission(eqx.Module):
    """$p(o \\mid x)$, channel by channel given the state. A channel that was not observed contributes nothing."""

    dim: eqx.AbstractVar[int]
    channels: eqx.AbstractVar[int]

    @property
    def takes(self) -> str:
        """What is observed: `"reals"`, which a fit brings to standard units, or `"binaries"` or `"counts"`, which are
        left as they are."""
        return "reals"

    @abc.abstractmethod
    def log_prob(
        self, value: Float[Array, " channels"], mask: Bool[Array, " channels"], x: Float[Array, " dim"]
    ) -> Scalar:
        """Log-density (or log-probability) of the observed channels."""

    @abc.abstractmethod
    def mean(self, x: Float[Array, " dim"]) -> Float[Array, " channels"]:
        """What is expected of each channel."""

    @abc.abstractmethod
    def mean_and_std(
        self, x: Float[Array, " dim"]
    ) -> tuple[Float[Array, " channels"], Float[Array, " channels"]]:
        """What is expected of each channel, and its standard deviation."""

    @abc.abstractmethod
    def sample(self, x: Float[Array, " dim"], *, key: PRNGKeyArray) -> Float[Array, " channels"]:
        """An observation of all channels."""

    def with_stds(self, stds: Float[Array, " channels"]) -> "AbstractEmission":
        """The same with another standard deviation for each channel, to be trained on or not; none is less than twice
        the least."""
        raise ValueError(f"a {type(self).__name__} has no standard deviation that could be set.")


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

    def mean_and_std(self, x):
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

    def with_stds(self, stds):
        if self.std == "state":
            raise ValueError(
                "an emission whose std depends on the state has no other: its network says both."
            )
        stds = jnp.asarray(stds, self.net.layers[0].weight.dtype)
        sizes = {"width": self.net.width_size, "depth": self.net.depth}
        other = GaussianEmission(
            self.dim, self.channels, **sizes, std="channel", initial_std=self.initial_std, key=jr.key(0)
        )
        raw = jnp.log(jnp.expm1(jnp.maximum(stds - LEAST_STD, LEAST_STD)))
        return eqx.tree_at(lambda emission: (emission.net, emission.raw_std), other, (self.net, raw))


class StudentTEmission(AbstractEmission):
    """Student's t around a decoded mean, with a learnt scale a channel: for data with outliers.

    Up to two `degrees` of freedom there is no standard deviation; in its place stands the scale.
    """

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

    def mean_and_std(self, x):
        wider = math.sqrt(self.degrees / (self.degrees - 2)) if self.degrees > 2 else 1.0
        return self.net(x), wider * self._scale()

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

    @property
    def takes(self) -> str:
        return "binaries"

    def mean(self, x):
        return jax.nn.sigmoid(self.net(x))

    def mean_and_std(self, x):
        mean = self.mean(x)
        return mean, jnp.sqrt(jnp.maximum(mean * (1 - mean), LEAST_STD**2))

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

    @property
    def takes(self) -> str:
        return "counts"

    def mean(self, x):
        return jnp.exp(self.net(x))

    def mean_and_std(self, x):
        mean = self.mean(x)
        return mean, jnp.sqrt(jnp.maximum(mean, LEAST_STD**2))

    def log_prob(self, value, mask, x):
        log_rate = self.net(x)
        value = jnp.where(mask, value, 0.0)
        return _over_observed(value * log_rate - jnp.exp(log_rate) - jax.lax.lgamma(value + 1), mask)

    def sample(self, x, *, key):
        mean = self.mean(x)
        return jr.poisson(key, mean).astype(mean.dtype)


class PeriodicEmission(AbstractEmission):
    r"""An emission that sees the last coordinates of the state as phases, through their sines and cosines.

    $$o \sim p(\,\cdot \mid y, \cos\theta, \sin\theta, \dots, \cos h\theta, \sin h\theta), \qquad x = (y, \theta)$$

    `emission` is any other, whose states are as long as [`features`][stochflow.latent.PeriodicEmission.features] of a
    state: `phases` times `2 * harmonics` numbers in place of the phases. The first `unseen` coordinates it does not
    see: they move the others and are known by that alone, as a pace is.
    """

    emission: AbstractEmission
    phases: int = eqx.field(static=True)
    harmonics: int = eqx.field(static=True)
    unseen: int = eqx.field(static=True)

    def __init__(self, emission: AbstractEmission, *, phases: int = 1, harmonics: int = 1, unseen: int = 0):
        if phases < 1 or harmonics < 1 or unseen < 0:
            raise ValueError(
                "`phases` and `harmonics` must be at least 1 and `unseen` at least 0; got "
                f"{phases}, {harmonics} and {unseen}."
            )
        if emission.dim < 2 * phases * harmonics:
            raise ValueError(
                f"`emission` must have states of at least the {2 * phases * harmonics} sines and cosines; got "
                f"{emission.dim}."
            )
        self.emission = emission
        self.phases = phases
        self.harmonics = harmonics
        self.unseen = unseen

    @property
    def dim(self) -> int:
        return self.emission.dim - (2 * self.harmonics - 1) * self.phases + self.unseen

    @property
    def channels(self) -> int:
        return self.emission.channels

    @property
    def takes(self) -> str:
        return self.emission.takes

    def features(self, x: Float[Array, " dim"]) -> Float[Array, " features"]:
        """The state as `emission` sees it."""
        # One product and one sine for all, and nothing joined: in a batch XLA joins short vectors number by number.
        matrix, offset, turning = self._arguments
        arguments = jnp.asarray(matrix, x.dtype) @ x + jnp.asarray(offset, x.dtype)
        return jnp.where(turning, sine(arguments), arguments)

    @property
    def _arguments(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Each feature as a linear map of the state, an offset, and whether the sine of that is taken."""
        seen, waves = self.dim - self.phases - self.unseen, self.phases * self.harmonics
        angles = np.kron(np.arange(1, self.harmonics + 1)[:, None], np.eye(self.phases))
        matrix = np.zeros((seen + 2 * waves, self.dim))
        matrix[:seen, self.unseen : self.unseen + seen] = np.eye(seen)
        matrix[seen:, self.dim - self.phases :] = np.concatenate([angles, angles])
        kind = np.repeat([0, 1, 2], [seen, waves, waves])  # as it is, cosines, sines
        return matrix, np.where(kind == 1, np.pi / 2, 0.0), kind > 0

    def mean(self, x):
        return self.emission.mean(self.features(x))

    def mean_and_std(self, x):
        return self.emission.mean_and_std(self.features(x))

    def log_prob(self, value, mask, x):
        return self.emission.log_prob(value, mask, self.features(x))

    def sample(self, x, *, key):
        return self.emission.sample(self.features(x), key=key)

    def with_stds(self, stds):
        inner = self.emission.with_stds(stds)
        return PeriodicEmission(inner, phases=self.phases, harmonics=self.harmonics, unseen=self.unseen)


def _over_observed(log_probs, mask):
    return jnp.where(mask, log_probs, 0.0).sum()
