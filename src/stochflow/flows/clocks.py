"""Clocks: how far the mean and the noise of a law may have moved after a gap."""

import abc

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Scalar


class AbstractClock(eqx.Module):
    """Two gates of the gap, one number a dimension each; both are zero at a gap of zero."""

    @abc.abstractmethod
    def drift_gate(self, dt: Scalar) -> Float[Array, " dim"]:
        """What multiplies a learnt rate of change."""

    @abc.abstractmethod
    def noise_gate(self, dt: Scalar) -> Float[Array, " dim"]:
        """What multiplies a learnt noise scale."""


class LinearClock(AbstractClock):
    r"""The paper's: $\Delta t$ for the mean and $\sqrt{\Delta t}$ for the noise (its Eq. 5)."""

    dim: int = eqx.field(static=True)

    def drift_gate(self, dt: Scalar) -> Float[Array, " dim"]:
        return jnp.broadcast_to(dt, (self.dim,))

    def noise_gate(self, dt: Scalar) -> Float[Array, " dim"]:
        return jnp.broadcast_to(jnp.sqrt(dt), (self.dim,))


class SaturatingClock(AbstractClock):
    r"""A clock that settles, as most processes do.

    $$\frac{1 - e^{-\kappa \Delta t}}{\kappa} \text{ for the mean,} \qquad
      \sqrt{\frac{1 - e^{-2\kappa\Delta t}}{2\kappa}} \text{ for the noise,}$$

    with $\kappa > 0$ learnt for each dimension. As $\kappa \to 0$ this is the linear clock; with a linear
    network it contains the Ornstein–Uhlenbeck law exactly.
    """

    raw_rate: Float[Array, " dim"]

    def __init__(self, dim: int, *, rate: float = 0.5):
        self.raw_rate = jnp.full(dim, jnp.log(jnp.expm1(rate)), jnp.result_type(float))

    @property
    def rate(self) -> Float[Array, " dim"]:
        return jax.nn.softplus(self.raw_rate)

    def drift_gate(self, dt: Scalar) -> Float[Array, " dim"]:
        return -jnp.expm1(-self.rate * dt) / self.rate

    def noise_gate(self, dt: Scalar) -> Float[Array, " dim"]:
        return jnp.sqrt(-jnp.expm1(-2 * self.rate * dt) / (2 * self.rate))


CLOCKS = {"saturating": SaturatingClock, "linear": LinearClock}


def make_clock(name: str, dim: int) -> AbstractClock:
    """`"saturating"` or `"linear"`."""
    if name not in CLOCKS:
        raise ValueError(f"`clock` must be one of {', '.join(CLOCKS)}; got {name!r}.")
    return CLOCKS[name](dim)
