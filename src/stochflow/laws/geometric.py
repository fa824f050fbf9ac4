"""Geometric Brownian motion and its bridge: Brownian motion of the logarithm."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Float, Scalar, ScalarLike

from .base import AbstractBridge, AbstractTransition
from .brownian import BrownianBridge, BrownianMotion
from .checks import as_positive, as_vector, check_states
from .gaps import bridge_gaps, hold_log_prob, hold_sample, pinned_end, time_gap


class GeometricBrownianMotion(AbstractTransition):
    r"""$dX_i = \mu_i X_i\,dt + \sigma_i X_i\,dW_i$ (Itô) in each dimension, on $x > 0$.

    $\log X$ is the Brownian motion `log_motion`, with drift $\mu - \sigma^2/2$ and standard deviation
    $\sigma$. `drift` is $\mu$, `volatility` is $\sigma > 0$. A start that is not positive is an error; the
    density of an `x_t` that is not positive is zero. `u` is not used.
    """

    log_motion: BrownianMotion
    dim: int = eqx.field(static=True)

    def __init__(self, drift: ArrayLike | list, volatility: ArrayLike | list):
        drift = as_vector("drift", drift)
        volatility = as_positive("volatility", volatility, drift.size)
        self.log_motion = BrownianMotion(drift - volatility**2 / 2, volatility)
        self.dim = drift.size

    @property
    def homogeneous(self) -> bool:
        return True

    def transform_and_log_prob(
        self,
        noise: Float[Array, " dim"],
        x_s: Float[Array, " dim"],
        s: ScalarLike,
        t: ScalarLike,
        u: Float[Array, " cond"] | None = None,
    ) -> tuple[Float[Array, " dim"], Scalar]:
        """The exponential of the Brownian step."""
        noise, x_s = check_states(self.dim, noise=noise, x_s=x_s)
        log_x_t, log_prob = self.log_motion.transform_and_log_prob(noise, log_positive("x_s", x_s), s, t, u)
        return hold_sample(time_gap(s, t) == 0, x_s, jnp.exp(log_x_t), log_prob - log_x_t.sum())

    def log_prob(
        self,
        x_t: Float[Array, " dim"],
        x_s: Float[Array, " dim"],
        s: ScalarLike,
        t: ScalarLike,
        u: Float[Array, " cond"] | None = None,
    ) -> Scalar:
        """The log-normal log-density of `x_t`."""
        x_t, x_s = check_states(self.dim, x_t=x_t, x_s=x_s)
        inside, log_x_t = log_or_outside(x_t)
        log_prob = self.log_motion.log_prob(log_x_t, log_positive("x_s", x_s), s, t, u) - log_x_t.sum()
        return hold_log_prob(time_gap(s, t) == 0, x_s, x_t, jnp.where(inside, log_prob, -jnp.inf))


class GeometricBrownianBridge(AbstractBridge):
    """Geometric Brownian motion tied at both ends: the Brownian bridge of the logarithm."""

    law: GeometricBrownianMotion

    def __init__(self, law: GeometricBrownianMotion):
        self.law = law

    @property
    def dim(self) -> int:
        return self.law.dim

    @property
    def homogeneous(self) -> bool:
        return True

    def transform_and_log_prob(
        self,
        noise: Float[Array, " dim"],
        x_s: Float[Array, " dim"],
        x_t: Float[Array, " dim"],
        s: ScalarLike,
        r: ScalarLike,
        t: ScalarLike,
        u: Float[Array, " cond"] | None = None,
    ) -> tuple[Float[Array, " dim"], Scalar]:
        """The exponential of the Brownian bridge."""
        noise, x_s, x_t = check_states(self.dim, noise=noise, x_s=x_s, x_t=x_t)
        ends = log_positive("x_s", x_s), log_positive("x_t", x_t)
        log_x_r, log_prob = BrownianBridge(self.law.log_motion).transform_and_log_prob(
            noise, *ends, s, r, t, u
        )
        held = pinned_end(*bridge_gaps(s, r, t), x_s, x_t)
        return hold_sample(*held, jnp.exp(log_x_r), log_prob - log_x_r.sum())

    def log_prob(
        self,
        x_r: Float[Array, " dim"],
        x_s: Float[Array, " dim"],
        x_t: Float[Array, " dim"],
        s: ScalarLike,
        r: ScalarLike,
        t: ScalarLike,
        u: Float[Array, " cond"] | None = None,
    ) -> Scalar:
        """The log-normal log-density of `x_r`."""
        x_r, x_s, x_t = check_states(self.dim, x_r=x_r, x_s=x_s, x_t=x_t)
        inside, log_x_r = log_or_outside(x_r)
        ends = log_positive("x_s", x_s), log_positive("x_t", x_t)
        log_prob = BrownianBridge(self.law.log_motion).log_prob(log_x_r, *ends, s, r, t, u) - log_x_r.sum()
        held = pinned_end(*bridge_gaps(s, r, t), x_s, x_t)
        return hold_log_prob(*held, x_r, jnp.where(inside, log_prob, -jnp.inf))


def log_positive(name: str, x: Float[Array, " dim"]) -> Float[Array, " dim"]:
    """The logarithm of a state that has to be positive; an error, under `jit` too, if it is not."""
    return jnp.log(eqx.error_if(x, jnp.any(x <= 0), f"`{name}` must be positive for a geometric law."))


def log_or_outside(x: Float[Array, " dim"]) -> tuple[Array, Float[Array, " dim"]]:
    """Whether `x` is positive, and its logarithm if so (else zeros, which no gradient passes)."""
    inside = jnp.all(x > 0)
    return inside, jnp.log(jnp.where(inside, x, 1.0))
