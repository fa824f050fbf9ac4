"""SDEs with names: those of the experiments, and the forms of the exact laws."""

import math

import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Float

from .model import SDE


def lorenz(sigma: float = 10.0, rho: float = 28.0, beta: float = 8 / 3, noise: float = 0.15) -> SDE:
    r"""The Lorenz system with additive noise: $dX = f(X)\,dt + \mathrm{noise}\,dW$ in three dimensions,
    $f = (\sigma(x_2 - x_1),\; x_1(\rho - x_3) - x_2,\; x_1 x_2 - \beta x_3)$."""

    def drift(x: Float[Array, " dim"]) -> Float[Array, " dim"]:
        return jnp.stack([sigma * (x[1] - x[0]), x[0] * (rho - x[2]) - x[1], x[0] * x[1] - beta * x[2]])

    return SDE.autonomous(drift, lambda x: jnp.full_like(x, noise), 3, additive=True)


def double_well(strength: float = 1.0, noise: float = 0.5) -> SDE:
    r"""$dX = a(X - X^3)\,dt + \sigma\,dW$ in one dimension: wells at ±1, stationary density
    $\propto \exp\big(2a(x^2/2 - x^4/4)/\sigma^2\big)$."""
    return SDE.autonomous(
        lambda x: strength * (x - x**3), lambda x: jnp.full_like(x, noise), 1, additive=True
    )


def ornstein_uhlenbeck(rate: ArrayLike | list, mean: ArrayLike | list, std: ArrayLike | list) -> SDE:
    r"""$dX = \kappa(\mu - X)\,dt + \sigma\,dW$ per dimension: the SDE of `laws.OrnsteinUhlenbeck`."""
    rate, mean, std = jnp.asarray(rate), jnp.asarray(mean), jnp.asarray(std)
    return SDE.autonomous(lambda x: rate * (mean - x), lambda x: std + 0 * x, rate.size, additive=True)


def geometric_brownian_motion(drift: ArrayLike | list, volatility: ArrayLike | list) -> SDE:
    r"""$dX = \mu X\,dt + \sigma X\,dW$ (Itô) per dimension: the SDE of `laws.GeometricBrownianMotion`."""
    drift, volatility = jnp.asarray(drift), jnp.asarray(volatility)
    return SDE.autonomous(lambda x: drift * x, lambda x: volatility * x, drift.size)


def cox_ingersoll_ross(rate: ArrayLike | list, mean: ArrayLike | list, volatility: ArrayLike | list) -> SDE:
    r"""$dX = \kappa(\theta - X)\,dt + \sigma\sqrt X\,dW$ per dimension: the SDE of `laws.CIR`.

    The exact process stays at or above 0 and a step of a solver need not, so the diffusion is taken at
    $\max(X, 0)$ (full truncation: Lord, Koekkoek and van Dijk, 2010).
    """
    rate, mean, volatility = jnp.asarray(rate), jnp.asarray(mean), jnp.asarray(volatility)

    def diffusion(x: Float[Array, " dim"]) -> Float[Array, " dim"]:
        inside = x > 0
        return jnp.where(inside, volatility * jnp.sqrt(jnp.where(inside, x, 1.0)), 0.0)

    return SDE.autonomous(lambda x: rate * (mean - x), diffusion, rate.size)


def heston(
    rate: float = 1.5,
    mean: float = 0.04,
    volatility: float = 0.3,
    correlation: float = -0.7,
    growth: float = 0.0,
) -> SDE:
    r"""Heston's model of a price $S$: log-price and variance, with correlated noise,
    $$d\log S = (\mu - \tfrac12 V)\,dt + \sqrt V\,dW_1, \quad dV = \kappa(\theta - V)\,dt + \xi\sqrt V\,dW_2,
    \quad d\langle W_1, W_2\rangle = \rho\,dt.$$

    With $2\kappa\theta > \xi^2$ (Feller), as by default, $V$ stays positive; a step of a solver need not, so drift and
    diffusion are taken at $\max(V, 0)$ (full truncation: Lord, Koekkoek and van Dijk, 2010).
    """
    other = math.sqrt(1 - correlation**2)

    def drift(x: Float[Array, " dim"]) -> Float[Array, " dim"]:
        variance = jnp.maximum(x[1], 0.0)
        return jnp.stack([growth - 0.5 * variance, rate * (mean - variance)])

    def diffusion(x: Float[Array, " dim"]) -> Float[Array, "dim noise"]:
        inside = x[1] > 0
        root = jnp.where(inside, jnp.sqrt(jnp.where(inside, x[1], 1.0)), 0.0)
        shape = jnp.array([[1.0, 0.0], [volatility * correlation, volatility * other]], x.dtype)
        return root * shape

    return SDE.autonomous(drift, diffusion, 2, noise="full")


def lotka_volterra(
    birth: float = 1.0, hunt: float = 1.0, feed: float = 1.0, death: float = 1.0, noise: float = 0.2
) -> SDE:
    r"""Prey $x$ and predators $y$ in a random environment, both positive:
    $$dx = x(a - b y)\,dt + \sigma x\,dW_1, \qquad dy = y(c x - d)\,dt + \sigma y\,dW_2.$$"""

    def drift(x: Float[Array, " dim"]) -> Float[Array, " dim"]:
        return jnp.stack([x[0] * (birth - hunt * x[1]), x[1] * (feed * x[0] - death)])

    return SDE.autonomous(drift, lambda x: noise * x, 2)


def fitzhugh_nagumo(
    slowness: float = 0.08,
    a: float = 0.7,
    b: float = 0.8,
    current: float = 0.5,
    noise: tuple[float, float] = (0.3, 0.05),
) -> SDE:
    r"""A neuron that fires: voltage $v$ and recovery $w$,
    $$dv = (v - v^3/3 - w + I)\,dt + \sigma_1 dW_1, \qquad dw = \varepsilon(v + a - b w)\,dt + \sigma_2 dW_2.$$"""

    def drift(x: Float[Array, " dim"]) -> Float[Array, " dim"]:
        return jnp.stack([x[0] - x[0] ** 3 / 3 - x[1] + current, slowness * (x[0] + a - b * x[1])])

    return SDE.autonomous(drift, lambda x: jnp.array(noise, x.dtype), 2, additive=True)


def langevin_chain(dim: int = 20, strength: float = 1.0, stiffness: float = 1.0, noise: float = 0.7) -> SDE:
    r"""Overdamped Langevin dynamics of a ring of particles, each in a double well and tied to its two neighbours:
    $$dx_i = \big(a(x_i - x_i^3) + k(x_{i-1} - 2x_i + x_{i+1})\big)\,dt + \sigma\,dW_i.$$"""

    def drift(x: Float[Array, " dim"]) -> Float[Array, " dim"]:
        return strength * (x - x**3) + stiffness * (jnp.roll(x, 1) - 2 * x + jnp.roll(x, -1))

    return SDE.autonomous(drift, lambda x: jnp.full_like(x, noise), dim, additive=True)
