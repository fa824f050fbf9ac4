"""A state looked at through glasses of several strengths."""

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, PRNGKeyArray

# The weakest and the strongest magnification of new lenses, in standardised units.
WEAKEST, STRONGEST = 3.0, 300.0


class Lenses(eqx.Module):
    r"""Features $\operatorname{arsinh}(k\,(w \cdot x - b)) / \operatorname{arsinh}(k)$ of a state $x$, with the
    direction $w$, the place $b$ and the magnification $k$ of each learnt.

    Near a saddle a path doubles its distance from the stable manifold every so often, so what becomes of it depends on
    the *logarithm* of that distance, down to the noise. That is what a lens shows: it is steep at $b$, and logarithmic
    around it on either side, so that its gradient reaches $b$ from afar. A network whose inputs are of order one has
    to grow weights of hundreds to see as much.
    """

    directions: tuple[Float[Array, " lenses"], ...]  # vectors: an orthogonal update (Muon's) would level them
    places: Float[Array, " lenses"]
    log_powers: Float[Array, " lenses"]

    def __init__(self, dim: int, number: int, *, key: PRNGKeyArray):
        directions = jr.normal(key, (dim, number))
        self.directions = tuple(directions / jnp.linalg.norm(directions, axis=0, keepdims=True))
        self.places = jnp.zeros(number)
        self.log_powers = jnp.linspace(jnp.log(WEAKEST), jnp.log(STRONGEST), number)

    def __call__(self, x: Float[Array, " dim"]) -> Float[Array, " lenses"]:
        along = sum(w * x[i] for i, w in enumerate(self.directions)) - self.places
        power = jnp.exp(self.log_powers)
        return jnp.arcsinh(power * along) / jnp.arcsinh(power)
