"""The Ornstein–Uhlenbeck process, one dimension at a time, and its bridge."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Float, Scalar

from .checks import as_positive, as_vector
from .gaussian import AbstractGaussianBridge, AbstractGaussianTransition, AffineGaussian, Gaussian

# Below this size the quotient of `relative_expm1` loses digits in its derivative, so a series takes over.
SERIES_BELOW = 0.5
# z¹⁵/16! at z = 1/2 is below the rounding of float64.
SERIES_TERMS = 15


def relative_expm1(z: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
    r"""$(e^z - 1)/z$, and 1 at $z = 0$; smooth there, with accurate derivatives in float32 too."""
    small = jnp.abs(z) < SERIES_BELOW
    series = jnp.ones_like(z)
    near = jnp.where(small, z, 0.0)
    for k in range(SERIES_TERMS, 0, -1):
        series = 1.0 + near / (k + 1) * series
    far = jnp.where(small, 1.0, z)
    return jnp.where(small, series, jnp.expm1(far) / far)


class OrnsteinUhlenbeck(AbstractGaussianTransition):
    r"""$dX_i = \kappa_i (\mu_i - X_i)\,dt + \sigma_i\,dW_i$ in each dimension.

    $$x_t \mid x_s \sim \mathcal N\Big(\mu + e^{-\kappa\Delta t}(x_s - \mu),\;
      \sigma^2 \frac{1 - e^{-2\kappa\Delta t}}{2\kappa}\Big)$$

    `rate` is $\kappa$ (of any sign; 0 is Brownian motion, and nothing breaks near it), `mean` $\mu$ and `std`
    $\sigma > 0$, all vectors of length `dim`. `u` is not used.
    """

    rate: Float[Array, " dim"]
    mean: Float[Array, " dim"]
    std: Float[Array, " dim"]
    dim: int = eqx.field(static=True)

    def __init__(self, rate: ArrayLike | list, mean: ArrayLike | list, std: ArrayLike | list):
        self.rate = as_vector("rate", rate)
        self.dim = self.rate.size
        self.mean = as_vector("mean", mean, self.dim)
        self.std = as_positive("std", std, self.dim)

    def moments(self, gap: Scalar, u: Float[Array, " cond"] | None) -> AffineGaussian:
        decay, offset, variance = self.decay_offset_variance(gap)
        return AffineGaussian(jnp.diag(decay), offset, jnp.diag(jnp.sqrt(variance)))

    def decay_offset_variance(
        self, gap: Scalar
    ) -> tuple[Float[Array, " dim"], Float[Array, " dim"], Float[Array, " dim"]]:
        r"""$e^{-\kappa\Delta t}$, $(1 - e^{-\kappa\Delta t})\mu$ and the variance, per dimension."""
        fading = -self.rate * gap
        variance = self.std**2 * gap * relative_expm1(2 * fading)
        return jnp.exp(fading), -jnp.expm1(fading) * self.mean, variance


class OrnsteinUhlenbeckBridge(AbstractGaussianBridge):
    r"""The Ornstein–Uhlenbeck process of `law`, tied at both ends.

    With the step $x_r \mid x_s \sim \mathcal N(m, q)$ before, the step $x_t \mid x_r \sim \mathcal N(f x_r +
    g, q')$ after, and $Q = q' + f^2 q$ the variance of the whole,
    $$x_r \mid x_s, x_t \sim \mathcal N\Big(\frac{q' m + q f (x_t - g)}{Q},\; \frac{q q'}{Q}\Big).$$
    """

    law: OrnsteinUhlenbeck

    def __init__(self, law: OrnsteinUhlenbeck):
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
        decay_before, offset_before, var_before = self.law.decay_offset_variance(before)
        decay, offset, var_after = self.law.decay_offset_variance(after)
        # Dividing first keeps float32 from underflow when both variances are tiny.
        share = var_after / (var_after + decay**2 * var_before)
        pull = var_before * decay / (var_after + decay**2 * var_before)
        mean = share * (decay_before * x_s + offset_before) + pull * (x_t - offset)
        return Gaussian(mean, jnp.diag(jnp.sqrt(var_before * share)))
