"""Heavier tails than the normal's, where the condition asks for them."""

import jax.numpy as jnp
from jaxtyping import Array, Float


def stretch_tails(
    x: Float[Array, " dim"], log_power: Float[Array, " dim"]
) -> tuple[Float[Array, " dim"], Float[Array, " dim"]]:
    r"""$h(x) = \sinh(p \operatorname{arsinh} x)/p$ with $p = e^{\text{log\_power}} \ge 1$, and $\log h'(x)$.

    Slope one at the origin and $|x|^p$ far out: of a normal $x$ the centre is left alone and the tails are
    stretched (after Jones and Pewsey, 2009).
    """
    power, s = jnp.exp(log_power), jnp.arcsinh(x)
    y = jnp.sinh(power * s) / power
    return y, jnp.log(jnp.cosh(power * s)) - 0.5 * jnp.log1p(x**2)


def unstretch_tails(
    y: Float[Array, " dim"], log_power: Float[Array, " dim"]
) -> tuple[Float[Array, " dim"], Float[Array, " dim"]]:
    """The inverse of [`stretch_tails`][stochflow.flows.tails.stretch_tails] and the log of its slope."""
    power = jnp.exp(log_power)
    s = jnp.arcsinh(power * y) / power
    x = jnp.sinh(s)
    return x, 0.5 * jnp.log1p(x**2) - 0.5 * jnp.log1p((power * y) ** 2)
