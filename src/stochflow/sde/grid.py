"""The law of a one-dimensional SDE on a fine grid: the truth where there is no formula."""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Scalar, ScalarLike

from ..laws import time_gap
from .model import SDE

UNRESOLVED = (
    "`points` must be larger (or `doublings` smaller) for the grid to resolve one step; if the drift is "
    "stiff at `low` or `high`, where the expansion of a step fails first, `doublings` must be larger instead."
)


class GridLaw(eqx.Module):
    r"""$p(x_t \mid x_s)$ over one gap of an autonomous SDE in one dimension, by Chapman–Kolmogorov on a grid.

    The gap is cut into $2^k$ steps of length $h$ ($k$ = `doublings`). The law of one step is taken as the
    Gaussian whose mean and variance are right to $O(h^3)$, from three powers of the generator $L\varphi =
    f\varphi' + \tfrac12 g^2\varphi''$ (Kessler, 1997); its matrix on the grid is squared until it covers the
    gap, with the first and the last step at the points asked for, which need not be on the grid.

    The error is $O(h^2)$ for additive noise and $O(h)$ for multiplicative noise; the sums over the grid are
    exact to nine digits as long as a step's standard deviation is at least the grid's spacing, and that is
    checked. Mass that leaves $[\mathtt{low}, \mathtt{high}]$ is lost: leave room, which `mass` tells.
    """

    sde: SDE
    grid: Float[Array, " points"]
    middle: Float[Array, "points points"]
    step: Float[Array, ""]
    u: Float[Array, " cond"] | None

    def __init__(
        self,
        sde: SDE,
        gap: ScalarLike,
        u: Float[Array, " cond"] | None = None,
        *,
        low: float,
        high: float,
        points: int = 400,
        doublings: int = 8,
    ):
        if sde.dim != 1 or sde.noise_dim != 1:
            raise ValueError(f"`sde` must have one dimension; got {sde.dim}.")
        if not low < high:
            raise ValueError(f"`low` must be below `high`; got {low}, {high}.")
        if points < 2 or doublings < 2:
            raise ValueError(f"`points` and `doublings` must be at least 2; got {points}, {doublings}.")
        self.sde, self.u = sde, u
        self.grid = jnp.linspace(low, high, points)
        gap = time_gap(0.0, gap)
        self.step = eqx.error_if(gap, gap == 0, "`gap` must be positive.") / 2**doublings
        self.middle = self._middle(doublings)

    @eqx.filter_jit
    def log_prob(self, x_t: Float[Array, " dim"], x_s: Float[Array, " dim"]) -> Scalar:
        r"""$\log p(x_t \mid x_s)$ over the gap."""
        first = jnp.exp(self._log_kernel(self.grid, x_s[0]))
        last = jnp.exp(jax.vmap(lambda x: self._log_kernel(x_t[0], x))(self.grid))
        return jnp.log(self._spacing() * (first @ self.middle @ last))

    @eqx.filter_jit
    def mass(self, x_s: Float[Array, " dim"]) -> Scalar:
        """How much of the law from `x_s` has stayed on the grid: 1, if the grid is wide enough."""
        first = jnp.exp(self._log_kernel(self.grid, x_s[0]))
        return self._spacing() * (first @ self.middle).sum()

    @eqx.filter_jit
    def _middle(self, doublings):
        """All steps but the first and the last: powers 2 + 4 + … + 2^(k−1) of one step."""
        kernel = self._spacing() * jnp.exp(jax.vmap(lambda x: self._log_kernel(self.grid, x))(self.grid))
        _, std = jax.vmap(self._mean_and_std)(self.grid)
        # Written so that NaN, from a variance that the expansion makes negative, does not pass.
        kernel = eqx.error_if(kernel, jnp.any(~(std >= self._spacing())), UNRESOLVED)
        product = jnp.eye(self.grid.size, dtype=kernel.dtype)
        for _ in range(doublings - 1):
            kernel = kernel @ kernel
            product = product @ kernel
        return product

    def _spacing(self):
        return self.grid[1] - self.grid[0]

    def _log_kernel(self, y, x):
        mean, std = self._mean_and_std(x)
        return -0.5 * ((y - mean) / std) ** 2 - jnp.log(std) - 0.5 * math.log(2 * math.pi)

    def _mean_and_std(self, x):
        r"""Mean and std of one step from `x`, from $E\,\varphi(X_h) = \sum_k h^k L^k\varphi(x)/k!$."""

        def generator(phi):
            drift = lambda y: self.sde.ito_drift(0.0, y[None], self.u)[0]
            variance = lambda y: self.sde.diffusion_matrix(0.0, y[None], self.u)[0, 0] ** 2
            first = jax.grad(phi)
            return lambda y: drift(y) * first(y) + 0.5 * variance(y) * jax.grad(first)(y)

        def expected(phi):
            one = generator(phi)
            two = generator(one)
            three = generator(two)
            h = self.step
            return h * one(x) + h**2 / 2 * two(x) + h**3 / 6 * three(x)

        shift = expected(lambda y: y - x)
        second_moment = expected(lambda y: (y - x) ** 2)
        return x + shift, jnp.sqrt(second_moment - shift**2)


def grid_log_prob(
    sde: SDE,
    x_t: Float[Array, " dim"],
    x_s: Float[Array, " dim"],
    s: ScalarLike,
    t: ScalarLike,
    u: Float[Array, " cond"] | None = None,
    *,
    low: float,
    high: float,
    points: int = 400,
    doublings: int = 8,
) -> Scalar:
    r"""$\log p(x_t \mid x_s)$ of an autonomous one-dimensional SDE by `GridLaw`, for $t > s$.

    For many states over the same gap build the `GridLaw` once: the matrix is the expensive part.
    """
    law = GridLaw(sde, time_gap(s, t), u, low=low, high=high, points=points, doublings=doublings)
    return law.log_prob(x_t, x_s)
