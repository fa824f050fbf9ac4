"""The Cox–Ingersoll–Ross process."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jax.scipy.special import gammaln, log_ndtr, ndtr
from jaxtyping import Array, ArrayLike, Float, PRNGKeyArray, Scalar, ScalarLike

from .base import AbstractTransition
from .bessel import log_bessel_kernel
from .checks import as_positive, check_state, check_states
from .gaps import hold_log_prob, hold_sample, positive_gap, time_gap
from .ornstein_uhlenbeck import relative_expm1

# The CDF is summed over cells of w = √v, where the law is nearly N(√(a + b), 1/2): this half-width is eleven
# standard deviations, in cells of a half, each with so many Gauss–Legendre nodes (ten digits and more).
HALF_WIDTH = 8.0
BULK_CELLS = 48
NODES, WEIGHTS = np.polynomial.legendre.leggauss(8)
# Below the bulk the cells halve towards 0, where the density is a power; below them it is one to eight
# digits.
HALVINGS = 12
BISECTIONS = 50


class CIR(AbstractTransition):
    r"""$dX_i = \kappa_i(\theta_i - X_i)\,dt + \sigma_i\sqrt{X_i}\,dW_i$ in each dimension, on $x \ge 0$.

    With $c = 2\kappa/\big(\sigma^2(1 - e^{-\kappa\Delta t})\big)$, $a = 2\kappa\theta/\sigma^2$ and $b =
    c\,e^{-\kappa\Delta t} x_s$, the scaled state $v = c\,x_t$ is a Poisson($b$) mixture of Gamma($a + j$)
    laws ($2v$ is noncentral chi-square with $2a$ degrees of freedom and noncentrality $2b$), so
    $$\log p(x_t \mid x_s) = \log c + (a - 1)\log v - b - v + \log\sum_j \frac{(bv)^j}{j!\,\Gamma(a + j)}.$$

    `rate` is $\kappa$, `mean` $\theta$, `volatility` $\sigma$, all positive vectors. A negative start is an
    error; the density of an `x_t` that is not positive is zero. `u` is not used. `transform` is the quantile
    function of the normal CDF of the noise, dimension by dimension: increasing, differentiable (once) in all
    it depends on, and about a hundred times dearer than `sample_mixture`, which draws from that mixture.

    Reference: Cox, Ingersoll and Ross, "A theory of the term structure of interest rates", 1985.
    """

    rate: Float[Array, " dim"]
    mean: Float[Array, " dim"]
    volatility: Float[Array, " dim"]
    dim: int = eqx.field(static=True)

    def __init__(self, rate: ArrayLike | list, mean: ArrayLike | list, volatility: ArrayLike | list):
        self.rate = as_positive("rate", rate)
        self.dim = self.rate.size
        self.mean = as_positive("mean", mean, self.dim)
        self.volatility = as_positive("volatility", volatility, self.dim)

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
        """The quantile at the normal CDF of the noise, per dimension."""
        noise, x_s = check_states(self.dim, noise=noise, x_s=x_s)
        gap = time_gap(s, t)
        c, a, b = self._scale_shape_noncentrality(x_s, gap)
        x_t = jax.vmap(mixture_quantile)(noise, a, b) / c
        return hold_sample(gap == 0, x_s, x_t, _log_density(x_t, c, a, b))

    def log_prob(
        self,
        x_t: Float[Array, " dim"],
        x_s: Float[Array, " dim"],
        s: ScalarLike,
        t: ScalarLike,
        u: Float[Array, " cond"] | None = None,
    ) -> Scalar:
        """The noncentral chi-square log-density of `x_t`."""
        x_t, x_s = check_states(self.dim, x_t=x_t, x_s=x_s)
        gap = time_gap(s, t)
        log_prob = _log_density(x_t, *self._scale_shape_noncentrality(x_s, gap))
        return hold_log_prob(gap == 0, x_s, x_t, log_prob)

    def sample_mixture(
        self, x_s: Float[Array, " dim"], s: ScalarLike, t: ScalarLike, *, key: PRNGKeyArray
    ) -> Float[Array, " dim"]:
        """An exact draw from the Poisson mixture of gamma laws: fast, but not a function of normal noise."""
        x_s = check_state("x_s", x_s, self.dim)
        gap = time_gap(s, t)
        c, a, b = self._scale_shape_noncentrality(x_s, gap)
        poisson_key, gamma_key = jr.split(key)
        count = jr.poisson(poisson_key, b).astype(a.dtype)
        return jnp.where(gap == 0, x_s, jr.gamma(gamma_key, a + count) / c)

    def _scale_shape_noncentrality(self, x_s, gap):
        x_s = eqx.error_if(x_s, jnp.any(x_s < 0), "`x_s` must not be negative for a CIR law.")
        gap = positive_gap(gap)
        c = 2 / (self.volatility**2 * gap * relative_expm1(-self.rate * gap))
        a = 2 * self.rate * self.mean / self.volatility**2
        return c, a, c * jnp.exp(-self.rate * gap) * x_s


@jax.jit
def mixture_quantile(noise: Scalar, a: Scalar, b: Scalar) -> Scalar:
    r"""The $\Phi(\mathrm{noise})$-quantile of the Poisson($b$) mixture of Gamma($a + j$), monotone in the
    noise.

    The density of $w = \sqrt v$ is integrated cell by cell, from the nearer end so that tails keep their
    digits; bisection finds the point in its cell. The derivatives are those of the implicit function,
    $\partial w/\partial\vartheta = -\partial_\vartheta F / p$.
    """
    edges = jax.lax.stop_gradient(_cell_edges(a, b))
    log_head = 2 * a * jnp.log(edges[0]) - b - gammaln(a + 1)  # mass below the first edge, where p ∝ v^(a−1)
    upper = noise > 0
    starts = jnp.where(upper, edges[1:][::-1], edges[:-1])
    ends = jnp.where(upper, edges[:-1][::-1], edges[1:])
    masses = jax.vmap(_cell_mass, in_axes=(0, 0, None, None))(starts, ends, a, b)
    through = jnp.cumsum(masses) + jnp.where(upper, 0.0, jnp.exp(log_head))
    target = ndtr(-jnp.abs(noise))
    cell = jnp.minimum(jnp.searchsorted(through, target), masses.size - 1)
    start, before = starts[cell], through[cell] - masses[cell]
    w = jax.lax.stop_gradient(_bisect(start, ends[cell], target - before, a, b))
    # Zero in value; its derivative is the implicit function's.
    residual = before + _cell_mass(start, w, a, b) - target
    slope = jnp.where(upper, -1.0, 1.0) * jnp.exp(jax.lax.stop_gradient(_log_root_density(w, a, b)))
    w = w - (residual - jax.lax.stop_gradient(residual)) / slope
    in_head = log_ndtr(noise) < log_head
    depth = jnp.where(in_head, (log_ndtr(noise) - log_head) / (2 * a), 0.0)
    return jnp.where(in_head, edges[0] * jnp.exp(depth), w) ** 2


def _log_density(x_t, c, a, b):
    inside = jnp.all(x_t > 0)
    v = c * jnp.where(inside, x_t, 1.0)
    log_prob = jnp.sum(jnp.log(c) + (a - 1) * jnp.log(v) + log_bessel_kernel(a - 1, b, v))
    return jnp.where(inside, log_prob, -jnp.inf)


def _log_root_density(w, a, b):
    return jnp.log(2 * w) + 2 * (a - 1) * jnp.log(w) + log_bessel_kernel(a - 1, b, w**2)


def _cell_edges(a, b):
    centre = jnp.sqrt(a + b)
    top = centre + HALF_WIDTH
    bottom = jnp.maximum(centre - HALF_WIDTH, top / BULK_CELLS)
    halved = bottom * 2.0 ** jnp.arange(-HALVINGS, 0, dtype=bottom.dtype)
    return jnp.concatenate([halved, jnp.linspace(bottom, top, BULK_CELLS + 1)])


def _cell_mass(start, end, a, b):
    half = (end - start) / 2
    w = start + half * (1 + jnp.asarray(NODES, half.dtype))
    density = jnp.exp(jax.vmap(_log_root_density, in_axes=(0, None, None))(w, a, b))
    return jnp.abs(half) * (jnp.asarray(WEIGHTS, half.dtype) @ density)


def _bisect(start, end, target, a, b):
    def halve(bracket, _):
        low, high = bracket
        middle = (low + high) / 2
        enough = _cell_mass(start, middle, a, b) >= target
        return (jnp.where(enough, low, middle), jnp.where(enough, middle, high)), None

    (low, high), _ = jax.lax.scan(halve, (start, end), length=BISECTIONS)
    return (low + high) / 2
