"""What every metric hands back: a number and how well it is known."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

AnyArray = jax.Array | np.ndarray


class Estimate(NamedTuple):
    """A Monte-Carlo mean and its standard error; the fields share one shape, that of the quantity."""

    mean: Float[Array, "*shape"]
    se: Float[Array, "*shape"]


def mean_and_se(values: Float[AnyArray, " n"]) -> Estimate:
    r"""Mean of independent values and its standard error $\hat\sigma/\sqrt n$; two values at least."""
    if values.shape[0] < 2:
        raise ValueError(f"`values` must hold at least two numbers; got {values.shape[0]}.")
    values = jnp.asarray(values)
    return Estimate(values.mean(), values.std(ddof=1) / jnp.sqrt(values.shape[0]))
