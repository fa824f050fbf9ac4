"""Brownian motion with drift, and its bridge."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Float, Scalar

from .checks import as_cholesky, as_vector
from .gaussian import AbstractGaussianBridge, AbstractGaussianTransition, AffineGaussian, Gaussian


class BrownianMotion(AbstractGaussianTransition):
    r"""$dX = \mu\,dt + L\,dW$: $x_t \mid x_s \sim \mathcal N(x_s + \mu \Delta t,\; \Delta t\, L L^\top)$.

    `drift` is $\mu$, a vector; `scale` is $L$, an invertible matrix or a vector of standard deviations. `u`
    is not used.
    """

    drift: Float[Array, " dim"]
    scale_tril: Float[Array, "dim dim"]
    dim: int = eqx.field(static=True)

    def __init__(self, drift: ArrayLike | list, scale: ArrayLike | list):
        self.drift = as_vector("drift", drift)
        self.dim = self.drift.size
        self.scale_tril = as_cholesky("scale", scale, self.dim)

    def moments(self, gap: Scalar, u: Float[Array, " cond"] | None) -> AffineGaussian:
        identity = jnp.eye(self.dim, dtype=self.drift.dtype)
        return AffineGaussian(identity, gap * self.drift, jnp.sqrt(gap) * jnp.tril(self.scale_tril))


class BrownianBridge(AbstractGaussianBridge):
    r"""Brownian motion tied at both ends; the drift of `law` plays no part.

    $$x_r \mid x_s, x_t \sim \mathcal N\Big(x_s + \tfrac{r-s}{t-s}(x_t - x_s),\;
      \tfrac{(r-s)(t-r)}{t-s} L L^\top\Big)$$
    """

    law: BrownianMotion

    def __init__(self, law: BrownianMotion):
        self.law = law

    @property
    def dim(self) -> int:
        return self.law.dim

    def between(
        self,
        x_s: Float[Array, " dim"],
        x_t: Float[Array, " dim"],
        before: Scalar,
        after: Scalar,
        u: Float[Array, " cond"] | None,
    ) -> Gaussian:
        whole = before + after
        mean = x_s + before / whole * (x_t - x_s)
        return Gaussian(mean, jnp.sqrt(before * after / whole) * jnp.tril(self.law.scale_tril))
