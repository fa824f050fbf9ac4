"""A stochastic differential equation: a drift, a diffusion, and how to read them."""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, ScalarLike

NOISES = ("diagonal", "full")
INTERPRETATIONS = ("ito", "stratonovich")


class SDE(eqx.Module):
    r"""$dX = f(t, X, u)\,dt + g(t, X, u)\,dW$ (or $\circ\,dW$) with a state of `dim` numbers.

    - `drift(t, x, u)` returns $f$, of shape (dim,); `u` is `None` unless covariates are given. For functions
      of the state alone there is `SDE.autonomous`.
    - `diffusion(t, x, u)` returns, with `noise="diagonal"`, the vector (dim,) of a diagonal $g$, and with
      `noise="full"` the matrix (dim, noise_dim).
    - `interpretation` is `"ito"` or `"stratonovich"`. Each solver uses the drift of the calculus that it
      needs: the two differ by $\tfrac12\sum_j (\partial_x g_j)\,g_j$.
    - `additive` is a promise that $g$ does not depend on $x$. Solvers of higher order rely on it; only `distill`
      looks whether it is kept, at the states that it probes.
    """

    drift: Callable
    diffusion: Callable
    dim: int = eqx.field(static=True)
    noise_dim: int = eqx.field(static=True)
    noise: str = eqx.field(static=True)
    interpretation: str = eqx.field(static=True)
    additive: bool = eqx.field(static=True)

    def __init__(
        self,
        drift: Callable,
        diffusion: Callable,
        dim: int,
        *,
        noise: str = "diagonal",
        interpretation: str = "ito",
        noise_dim: int | None = None,
        additive: bool = False,
    ):
        _require_choice("noise", noise, NOISES)
        _require_choice("interpretation", interpretation, INTERPRETATIONS)
        _require_count("dim", dim)
        if noise == "diagonal" and noise_dim not in (None, dim):
            raise ValueError(
                f"`noise_dim` must be `dim` for diagonal noise; got {noise_dim} with `dim` {dim}."
            )
        if noise_dim is not None:
            _require_count("noise_dim", noise_dim)
        self.drift, self.diffusion, self.dim = drift, diffusion, int(dim)
        self.noise_dim = int(dim if noise_dim is None else noise_dim)
        self.noise, self.interpretation, self.additive = noise, interpretation, additive

    @classmethod
    def autonomous(cls, drift: Callable, diffusion: Callable, dim: int, **options) -> "SDE":
        """The SDE of a drift and a diffusion that are functions `f(x)` of the state alone."""
        return cls(StateFunction(drift), StateFunction(diffusion), dim, **options)

    def diffusion_matrix(
        self, t: ScalarLike, x: Float[Array, " dim"], u: Float[Array, " cond"] | None = None
    ) -> Float[Array, "dim noise"]:
        """The diffusion as a matrix (dim, noise_dim), whatever the noise."""
        value = self.diffusion(t, x, u)
        return jnp.diag(value) if self.noise == "diagonal" else value

    def apply_diffusion(
        self,
        t: ScalarLike,
        x: Float[Array, " dim"],
        u: Float[Array, " cond"] | None,
        dw: Float[Array, " noise"],
    ) -> Float[Array, " dim"]:
        r"""$g(t, x, u)\,dW$."""
        value = self.diffusion(t, x, u)
        return value * dw if self.noise == "diagonal" else value @ dw

    def ito_drift(
        self, t: ScalarLike, x: Float[Array, " dim"], u: Float[Array, " cond"] | None = None
    ) -> Float[Array, " dim"]:
        """The drift of the same process written in Itô's calculus."""
        drift = self.drift(t, x, u)
        return drift if self.interpretation == "ito" else drift + self._correction(t, x, u)

    def stratonovich_drift(
        self, t: ScalarLike, x: Float[Array, " dim"], u: Float[Array, " cond"] | None = None
    ) -> Float[Array, " dim"]:
        """The drift of the same process written in Stratonovich's calculus."""
        drift = self.drift(t, x, u)
        return drift if self.interpretation == "stratonovich" else drift - self._correction(t, x, u)

    def _correction(self, t, x, u):
        if self.additive:
            return jnp.zeros_like(x)
        matrix = lambda x: self.diffusion_matrix(t, x, u)
        along = lambda column: jax.jvp(matrix, (x,), (column,))[1]
        derivatives = jax.vmap(along, in_axes=1)(matrix(x))  # [j, i, k] = Σ_l g_lj ∂_l g_ik
        return 0.5 * jnp.einsum("jij->i", derivatives)


class StateFunction(eqx.Module):
    """A function of the state, called as one of time, state and covariates."""

    function: Callable

    def __call__(
        self, t: ScalarLike, x: Float[Array, " dim"], u: Float[Array, " cond"] | None = None
    ) -> Float[Array, "..."]:
        return self.function(x)


def _require_count(name, value):
    if not isinstance(value, int | np.integer) or isinstance(value, bool) or value < 1:
        raise ValueError(f"`{name}` must be a positive integer; got {value!r}.")


def _require_choice(name, value, choices):
    if value not in choices:
        raise ValueError(f"`{name}` must be one of {', '.join(choices)}; got {value!r}.")
