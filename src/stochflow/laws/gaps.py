"""Time gaps, checked in one place."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, Scalar, ScalarLike


def time_gap(s: ScalarLike, t: ScalarLike) -> Scalar:
    r"""$\Delta t = t - s$; an error, under `jit` too, if `t` is earlier than `s`."""
    gap = jnp.asarray(t) - jnp.asarray(s)
    return eqx.error_if(gap, gap < 0, "`t` must not be earlier than `s`: a transition law runs forwards.")


def point_mass_log_prob(x: Float[Array, " dim"], at: Float[Array, " dim"]) -> Scalar:
    r"""Log-density of a law that has collapsed to one point: $+\infty$ there and $-\infty$ elsewhere."""
    return jnp.where(jnp.all(x == at), jnp.inf, -jnp.inf)
