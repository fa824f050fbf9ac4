"""Linear SDEs with additive noise, in any dimension, and their bridge."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.scipy.linalg import cho_solve
from jaxtyping import Array, ArrayLike, Float, Scalar

from .checks import as_cholesky, as_matrix, as_square, as_vector
from .gaussian import AbstractGaussianBridge, AbstractGaussianTransition, AffineGaussian, Gaussian

# The series runs at ‖A‖h ≤ 1/2, where its Lyapunov operator has norm ≤ 1 and 1/19! is below float64's
# rounding.
SERIES_NORM = 0.5
SERIES_TERMS = 18
# The most doublings: ‖A‖Δt up to 8 million.
DOUBLINGS = 24


class LinearSDE(AbstractGaussianTransition):
    r"""$dX = (A X + b + B u)\,dt + L\,dW$, with covariates `u` that are constant over a step.

    $$x_t \mid x_s \sim \mathcal N\Big(e^{A\Delta t} x_s + \int_0^{\Delta t} e^{A\tau}\,d\tau\,(b + B u),\;
      \int_0^{\Delta t} e^{A\tau} L L^\top e^{A^\top\tau}\,d\tau\Big)$$

    `matrix` is $A$ (dim, dim), `offset` $b$ (dim,), `scale` $L$ (dim, noise), `control` $B$ (dim, cond) or
    `None`, in which case `u` is not used. $L$ may have fewer columns than rows as long as the noise reaches
    every direction through $A$ (controllability); else there is no density and `log_prob` is NaN.
    """

    matrix: Float[Array, "dim dim"]
    offset: Float[Array, " dim"]
    scale: Float[Array, "dim noise"]
    control: Float[Array, "dim cond"] | None
    dim: int = eqx.field(static=True)

    def __init__(
        self,
        matrix: ArrayLike | list,
        offset: ArrayLike | list,
        scale: ArrayLike | list,
        control: ArrayLike | list | None = None,
    ):
        self.matrix = as_square("matrix", matrix)
        self.dim = self.matrix.shape[0]
        self.offset = as_vector("offset", offset, self.dim)
        self.scale = as_matrix("scale", scale, self.dim)
        self.control = None if control is None else as_matrix("control", control, self.dim)

    def moments(self, gap: Scalar, u: Float[Array, " cond"] | None) -> AffineGaussian:
        return linear_moments(self.matrix, self._forcing(u), self.scale, gap)

    def _forcing(self, u):
        if self.control is None:
            return self.offset
        if u is None:
            raise ValueError(f"`u` must be a vector of length {self.control.shape[1]}; got None.")
        return self.offset + self.control @ u


class MatrixOrnsteinUhlenbeck(AbstractGaussianTransition):
    r"""$dX = A(\mu - X)\,dt + L\,dW$ with a matrix rate $A$.

    `rate` is $A$ (dim, dim), of any spectrum, `mean` is $\mu$, and `scale` is $L$, an invertible matrix or a
    vector of standard deviations. `u` is not used.
    """

    rate: Float[Array, "dim dim"]
    mean: Float[Array, " dim"]
    scale_tril: Float[Array, "dim dim"]
    dim: int = eqx.field(static=True)

    def __init__(self, rate: ArrayLike | list, mean: ArrayLike | list, scale: ArrayLike | list):
        self.rate = as_square("rate", rate)
        self.dim = self.rate.shape[0]
        self.mean = as_vector("mean", mean, self.dim)
        self.scale_tril = as_cholesky("scale", scale, self.dim)

    def moments(self, gap: Scalar, u: Float[Array, " cond"] | None) -> AffineGaussian:
        return linear_moments(-self.rate, self.rate @ self.mean, jnp.tril(self.scale_tril), gap)


class LinearBridge(AbstractGaussianBridge):
    r"""The bridge of any law with Gaussian, affine steps, by conditioning one Gaussian on another.

    With $x_r \mid x_s \sim \mathcal N(m, Q)$, $x_t \mid x_r \sim \mathcal N(F x_r + g, Q')$ and the gain
    $K = Q F^\top (F Q F^\top + Q')^{-1}$,
    $$x_r \mid x_s, x_t \sim \mathcal N\big(m + K(x_t - F m - g),\;
      (I - KF) Q (I - KF)^\top + K Q' K^\top\big),$$
    where the covariance is in Joseph's form, positive definite whatever the rounding.
    """

    law: AbstractGaussianTransition

    def __init__(self, law: AbstractGaussianTransition):
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
        first, second = self.law.moments(before, u).given(x_s), self.law.moments(after, u)
        reach = second.matrix @ first.scale_tril
        whole = jnp.linalg.cholesky(reach @ reach.T + second.scale_tril @ second.scale_tril.T)
        gain = cho_solve((whole, True), reach @ first.scale_tril.T).T
        left, right = first.scale_tril - gain @ reach, gain @ second.scale_tril
        mean = first.mean + gain @ (x_t - second.given(first.mean).mean)
        return Gaussian(mean, jnp.linalg.cholesky(left @ left.T + right @ right.T))


@jax.jit
def linear_moments(
    matrix: Float[Array, "dim dim"],
    forcing: Float[Array, " dim"],
    scale: Float[Array, "dim noise"],
    gap: Scalar,
) -> AffineGaussian:
    r"""The step of $dX = (A X + c)\,dt + L\,dW$ over a positive gap $\Delta t$.

    Over a short time $h = \Delta t/2^k$ the three integrals are Taylor series, of which the third is $h\sum_j
    (h\mathcal L)^j(L L^\top)/(j+1)!$ with $\mathcal L M = A M + M A^\top$. Then they are doubled $k$
    times: $F \to F^2$, $g \to g + F g$, $Q \to Q + F Q F^\top$. Unlike Van Loan's block exponential, nothing
    in this grows as $e^{+\lVert A\rVert \Delta t}$ when $A$ is stable, so long gaps and stiff $A$ keep all
    their digits.
    """
    size = jax.lax.stop_gradient(jnp.abs(matrix).sum(axis=0).max() * gap)
    size = eqx.error_if(size, size > SERIES_NORM * 2.0**DOUBLINGS, "`gap` must be shorter for this matrix.")
    count = jnp.ceil(jnp.log2(jnp.maximum(size / SERIES_NORM, 1.0)))
    start = _short_step(matrix, forcing, scale, gap * 2.0**-count)

    def double(step, k):
        power, offset, cov = step
        doubled = power @ power, offset + power @ offset, cov + power @ cov @ power.T
        return jax.tree.map(lambda new, old: jnp.where(k < count, new, old), doubled, step), None

    (power, offset, cov), _ = jax.lax.scan(double, start, jnp.arange(DOUBLINGS))
    return AffineGaussian(power, offset, jnp.linalg.cholesky(cov))


def _short_step(matrix, forcing, scale, h):
    generator = h * matrix

    def add_term(carry, k):
        total, (power, offset, cov) = carry
        product = generator @ cov / (k + 1)
        term = generator @ power / k, generator @ offset / (k + 1), product + product.T
        return (jax.tree.map(jnp.add, total, term), term), None

    first = jnp.eye(matrix.shape[0], dtype=generator.dtype), h * forcing, h * (scale @ scale.T)
    orders = jnp.arange(1, SERIES_TERMS + 1, dtype=generator.dtype)
    (total, _), _ = jax.lax.scan(add_term, (first, first), orders)
    return total
