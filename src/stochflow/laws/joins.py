"""Numbers side by side in one array."""

from collections.abc import Sequence

import jax.numpy as jnp
from jaxtyping import Array, Float, Scalar


def joined(parts: Sequence[Scalar]) -> Float[Array, " parts"]:
    """`jnp.stack(parts)`, by choosing.

    What a concatenation is made of, XLA computes inside its loop over all elements, with a branch for each: on a CPU
    nothing of it is vectorised then. What is chosen from is computed before, once.
    """
    out = jnp.broadcast_to(parts[0], (len(parts),))
    for i, part in enumerate(parts[1:], 1):
        out = jnp.where(jnp.arange(len(parts)) >= i, part, out)
    return out
