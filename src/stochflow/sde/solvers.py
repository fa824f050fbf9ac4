"""One step of each solver, and the Brownian increments that drive it."""

import abc
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, PRNGKeyArray, Scalar, ScalarLike

from .model import SDE


class Increments(NamedTuple):
    r"""What a solver sees of Brownian motion over steps of length $h$: one step, or a leading axis of steps.

    `dw` is $W_{t+h} - W_t$ and `average` is $\tfrac1h\int_t^{t+h} (W_\tau - W_t)\,d\tau$, which is
    $I_{(1,0)}/h$ in the notation of Kloeden and Platen; only solvers of strong order 1.5 look at it.
    """

    dw: Float[Array, "... noise"]
    average: Float[Array, "... noise"]


def draw_increment(h: Scalar, noise_dim: int, dtype: jnp.dtype, *, key: PRNGKeyArray) -> Increments:
    r"""One increment: `average` given `dw` is $\mathcal N(dW/2,\, h/12)$."""
    dw_key, average_key = jr.split(key)
    dw = jnp.sqrt(h) * jr.normal(dw_key, (noise_dim,), dtype)
    return Increments(dw, dw / 2 + jnp.sqrt(h / 12) * jr.normal(average_key, (noise_dim,), dtype))


def brownian_increments(gap: ScalarLike, steps: int, noise_dim: int, *, key: PRNGKeyArray) -> Increments:
    """The increments of one Brownian path over `steps` equal steps that cover `gap`; see `solve_driven`."""
    h = jnp.asarray(gap, jnp.result_type(float)) / steps
    return jax.vmap(lambda key: draw_increment(h, noise_dim, h.dtype, key=key))(jr.split(key, steps))


def coarsen(increments: Increments) -> Increments:
    """The same path in half as many steps, each twice as long."""
    dw, average = increments
    if dw.shape[0] % 2:
        raise ValueError(f"`increments` must have an even number of steps; got {dw.shape[0]}.")
    first, second = Increments(dw[::2], average[::2]), Increments(dw[1::2], average[1::2])
    return Increments(first.dw + second.dw, (first.average + first.dw + second.average) / 2)


class AbstractSolver(eqx.Module):
    """One step of a numerical scheme. A step of length zero is the identity.

    The whole move is summed before it is added to the state: far from zero a drift over a short step is less than half
    of the state's last digit, and added by itself it would be lost at every step.
    """

    @abc.abstractmethod
    def check(self, sde: SDE) -> None:
        """A `ValueError` if this scheme is not made for such an SDE."""

    @abc.abstractmethod
    def step(
        self,
        sde: SDE,
        x: Float[Array, " dim"],
        t: Scalar,
        h: Scalar,
        u: Float[Array, " cond"] | None,
        increment: Increments,
    ) -> Float[Array, " dim"]:
        """The state at `t + h`."""


class EulerMaruyama(AbstractSolver):
    r"""$x + f h + g\,dW$: strong order 1/2 (1 if the noise is additive), weak order 1, for every SDE."""

    def check(self, sde: SDE) -> None:
        pass

    def step(
        self,
        sde: SDE,
        x: Float[Array, " dim"],
        t: Scalar,
        h: Scalar,
        u: Float[Array, " cond"] | None,
        increment: Increments,
    ) -> Float[Array, " dim"]:
        return x + (h * sde.ito_drift(t, x, u) + sde.apply_diffusion(t, x, u, increment.dw))


class Milstein(AbstractSolver):
    r"""Euler–Maruyama $+\ \tfrac12 g\,g'\,(dW^2 - h)$: strong order 1, for diagonal noise.

    Each $g_i$ may depend on its own $x_i$ only (the noise is then commutative): that is not checked.
    """

    def check(self, sde: SDE) -> None:
        _require_diagonal(sde, "milstein")

    def step(
        self,
        sde: SDE,
        x: Float[Array, " dim"],
        t: Scalar,
        h: Scalar,
        u: Float[Array, " cond"] | None,
        increment: Increments,
    ) -> Float[Array, " dim"]:
        diffusion = lambda x: sde.diffusion(t, x, u)
        g, slope = jax.jvp(diffusion, (x,), (diffusion(x),))
        move = h * sde.ito_drift(t, x, u) + g * increment.dw + 0.5 * slope * (increment.dw**2 - h)
        return x + move


class StochasticRungeKutta(AbstractSolver):
    r"""Milstein with a difference in place of the derivative (Platen): strong order 1, for diagonal noise.

    $$x + f h + g\,dW + \frac{g(x + f h + g\sqrt h) - g(x)}{2\sqrt h}(dW^2 - h)$$

    Each $g_i$ may depend on its own $x_i$ only. Reference: Kloeden and Platen, section 11.1.
    """

    def check(self, sde: SDE) -> None:
        _require_diagonal(sde, "runge_kutta")

    def step(
        self,
        sde: SDE,
        x: Float[Array, " dim"],
        t: Scalar,
        h: Scalar,
        u: Float[Array, " cond"] | None,
        increment: Increments,
    ) -> Float[Array, " dim"]:
        root = jnp.sqrt(jnp.where(h > 0, h, 1.0))
        drift, g = sde.ito_drift(t, x, u), sde.diffusion(t, x, u)
        slope = (sde.diffusion(t, x + (h * drift + g * root), u) - g) / (2 * root)
        return x + (h * drift + g * increment.dw + slope * (increment.dw**2 - h))


class AdditiveRungeKutta(AbstractSolver):
    r"""Strong order 1.5 for additive noise, two drifts a step (Rößler's SRA1).

    With $\bar w = I_{(1,0)}/h$ the average of the path over the step,
    $$x + \tfrac h3 f(t, x) + \tfrac{2h}3
      f\big(t + \tfrac34 h,\; x + \tfrac34 h f(t, x) + \tfrac32 g(t+h)\,\bar w\big)
      + g(t+h)(dW - \bar w) + g(t)\,\bar w.$$

    Reference: Rößler, "Runge–Kutta methods for the strong approximation of solutions of SDEs", 2010.
    """

    def check(self, sde: SDE) -> None:
        if not sde.additive:
            raise ValueError("`solver` must not be additive_runge_kutta unless `additive=True`; got False.")

    def step(
        self,
        sde: SDE,
        x: Float[Array, " dim"],
        t: Scalar,
        h: Scalar,
        u: Float[Array, " cond"] | None,
        increment: Increments,
    ) -> Float[Array, " dim"]:
        dw, average = increment
        first = sde.drift(t, x, u)
        middle = x + (0.75 * h * first + 1.5 * sde.apply_diffusion(t + h, x, u, average))
        second = sde.drift(t + 0.75 * h, middle, u)
        noise = sde.apply_diffusion(t + h, x, u, dw - average) + sde.apply_diffusion(t, x, u, average)
        return x + (h * (first + 2 * second) / 3 + noise)


class Heun(AbstractSolver):
    """Heun's predictor and corrector in Stratonovich's calculus: strong order 1 if the noise commutes."""

    def check(self, sde: SDE) -> None:
        pass

    def step(
        self,
        sde: SDE,
        x: Float[Array, " dim"],
        t: Scalar,
        h: Scalar,
        u: Float[Array, " cond"] | None,
        increment: Increments,
    ) -> Float[Array, " dim"]:
        move = lambda t, x: h * sde.stratonovich_drift(t, x, u) + sde.apply_diffusion(t, x, u, increment.dw)
        first = move(t, x)
        return x + 0.5 * (first + move(t + h, x + first))


SOLVERS: dict[str, AbstractSolver] = {
    "euler_maruyama": EulerMaruyama(),
    "milstein": Milstein(),
    "runge_kutta": StochasticRungeKutta(),
    "additive_runge_kutta": AdditiveRungeKutta(),
    "heun": Heun(),
}


def find_solver(solver: str | AbstractSolver) -> AbstractSolver:
    """The solver of that name, or the solver itself."""
    if isinstance(solver, AbstractSolver):
        return solver
    if solver not in SOLVERS:
        raise ValueError(f"`solver` must be one of {', '.join(SOLVERS)}; got {solver!r}.")
    return SOLVERS[solver]


def _require_diagonal(sde, name):
    if sde.noise != "diagonal":
        raise ValueError(
            f"`solver` must not be {name} unless the noise is diagonal; got {sde.noise!r} noise."
        )
