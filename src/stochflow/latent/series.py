"""One series of observations, as the parts of a latent flow read it."""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float


class Series(NamedTuple):
    """Observations of one series, padded at the end.

    `values` may hold anything where `mask` is false: nothing reads it. `present` marks the rows that are not padding; a
    row that is present may have nothing observed, and then asks for the state at its time.
    """

    times: Float[Array, "*batch rows"]
    values: Float[Array, "*batch rows channels"]
    mask: Bool[Array, "*batch rows channels"]
    present: Bool[Array, "*batch rows"]
    u: Float[Array, "*batch rows cond"] | None = None

    @property
    def seen(self) -> Float[Array, "rows channels"]:
        """The values, zero where nothing was observed."""
        return jnp.where(self.mask, self.values, 0.0)

    @property
    def gaps(self) -> Float[Array, " rows"]:
        """Time since the row before; zero at the first row and in the padding."""
        gaps = jnp.diff(self.times, prepend=self.times[:1])
        return jnp.where(self.present, gaps, 0.0)
