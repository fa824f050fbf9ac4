r"""The modified Bessel function $I_\nu(z)$ of real order $\nu > -1$, in logarithms and differentiable in
$\nu$ and $z$.

Two expansions cover the quarter plane, and $\rho = \sqrt{\nu^2 + z^2}$ decides between them.

- $\rho < 40$: the power series $I_\nu(z) = (z/2)^\nu \sum_k y^k / (k!\,\Gamma(\nu+k+1))$ with $y = z^2/4$,
  whose terms are all positive, by Horner's rule.
- $\rho \ge 40$: Debye's uniform expansion (DLMF 10.41.3), written in $\rho$ and $p = \nu/\rho$ so that it
  also holds at small $\nu$, where it becomes Hankel's expansion for large arguments:
  $$I_\nu(z) \sim \frac{e^{\rho}}{\sqrt{2\pi\rho}} \Big(\frac{z}{\nu+\rho}\Big)^{\nu}
    \sum_k \frac{U_k(p)}{\nu^k}, \qquad
    \frac{U_k(p)}{\nu^k} = \frac{1}{\rho^k} \sum_{j \le k} c_{kj}\,p^{2j}.$$
  It is even in $\nu$ and so stays true for $-1 < \nu < 0$, where the rest is smaller by $e^{-2z}$.
"""

import math
from fractions import Fraction

import jax
import jax.numpy as jnp
from jax.scipy.special import gammaln
from jaxtyping import Array, Float

# At this radius ten terms of Debye's expansion are exact to float64, and so are 56 of the power series.
RADIUS = 40.0
DEBYE_TERMS = 10
SERIES_TERMS = 56


@jax.jit
def log_ive(order: Float[Array, "*shape"], z: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
    r"""$\log\big(e^{-z} I_\nu(z)\big)$ for $\nu > -1$ and $z > 0$."""
    return order * jnp.log(z / 2) + log_bessel_kernel(order, z / 2, z / 2)


@jax.custom_jvp
def log_bessel_kernel(
    order: Float[Array, "*shape"], a: Float[Array, "*shape"], b: Float[Array, "*shape"]
) -> Float[Array, "*shape"]:
    r"""$\log\Big(e^{-a-b} \sum_k \frac{(ab)^k}{k!\,\Gamma(\nu+k+1)}\Big) =
    \log\big(e^{-a-b}(ab)^{-\nu/2}I_\nu(2\sqrt{ab})\big)$.

    For $\nu > -1$ and $a, b \ge 0$. Smooth at $a = 0$ and $b = 0$, and free of the cancellation between
    $a + b$ and $2\sqrt{ab}$ when both are large.
    """
    product = a * b
    near = order**2 + 4 * product < RADIUS**2
    series = _log_power_series(order, jnp.where(near, product, 0.0)) - a - b
    radius = jnp.sqrt(jnp.where(near, RADIUS**2, order**2 + 4 * product))
    # ρ − a − b, without the cancellation
    exponent = (order**2 - (a - b) ** 2) / (radius + a + b)
    return jnp.where(near, series, exponent + _log_debye_rest(order, radius))


# Since d/dy Σ y^k/(k! Γ(ν+k+1)) is the same sum at order ν + 1, two of the three derivatives are kernels
# too. The third is carried through the sums forwards: reverse mode would have to store every term.
def _by_order(tangent, value, order, a, b):
    kernel = lambda order: log_bessel_kernel.fun(order, a, b)
    return jax.jvp(kernel, (order,), (jnp.ones_like(order),))[1] * tangent


def _by_a(tangent, value, order, a, b):
    return (b * jnp.exp(log_bessel_kernel(order + 1, a, b) - value) - 1) * tangent


def _by_b(tangent, value, order, a, b):
    return _by_a(tangent, value, order, b, a)


log_bessel_kernel.defjvps(_by_order, _by_a, _by_b)


def _log_power_series(order, y):
    r"""$\log \sum_k y^k/(k!\,\Gamma(\nu+k+1))$ by its series, for $0 \le y \le 400$."""

    def horner(i, total):
        k = SERIES_TERMS - i
        return 1.0 + y / (k * (k + order)) * total

    return jnp.log(jax.lax.fori_loop(0, SERIES_TERMS, horner, jnp.ones_like(y))) - gammaln(order + 1)


def _log_debye_rest(order, radius):
    r"""Debye's expansion without $e^\rho$ and $(z/2)^\nu$."""
    square, total = (order / radius) ** 2, jnp.zeros_like(radius)
    for coefficients in reversed(DEBYE_COEFFICIENTS):
        inner = jnp.zeros_like(radius)
        for c in reversed(coefficients):
            inner = c + square * inner
        total = (inner + total) / radius
    return jnp.log1p(total) - order * jnp.log((order + radius) / 2) - 0.5 * jnp.log(2 * math.pi * radius)


def debye_coefficients(terms: int) -> tuple[tuple[float, ...], ...]:
    r"""$c_{kj}$ for $k = 1, \dots$ from $U_{k+1} = \tfrac12 p^2(1-p^2)U_k' + \tfrac18\int_0^p
    (1-5q^2)U_k\,dq$, exactly."""
    poly = {0: Fraction(1)}  # power of p -> coefficient
    table = []
    for k in range(1, terms + 1):
        new: dict[int, Fraction] = {}
        for n, c in poly.items():
            for power, value in (
                (n + 1, c * Fraction(n, 2) + c / (8 * (n + 1))),
                (n + 3, -c * Fraction(n, 2) - 5 * c / (8 * (n + 3))),
            ):
                new[power] = new.get(power, Fraction(0)) + value
        poly = new
        table.append(tuple(float(poly.get(k + 2 * j, Fraction(0))) for j in range(k + 1)))
    return tuple(table)


DEBYE_COEFFICIENTS = debye_coefficients(DEBYE_TERMS)
