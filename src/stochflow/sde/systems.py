"""SDEs with names: the chaotic and the bistable one of the experiments, and the forms of the exact laws."""

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
