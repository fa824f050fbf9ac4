"""A latent flow that was learnt on standardised values and rescaled times, with the user's units."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Float

from .model import LatentFlow
from .series import Series


class LatentUnits(eqx.Module):
    """Between the user's units and those that a latent flow was trained in.

    `horizon` is the longest gap, in the user's units, that the transition was trained for, and `gap` the usual one
    from row to row.
    """

    loc: Float[Array, " channels"]
    scale: Float[Array, " channels"]
    time_scale: float = eqx.field(static=True)
    horizon: float | None = eqx.field(static=True)
    gap: float | None = eqx.field(static=True)

    def __init__(
        self,
        loc: ArrayLike,
        scale: ArrayLike,
        time_scale: float = 1.0,
        horizon: float | None = None,
        gap: float | None = None,
    ):
        self.loc = jnp.asarray(loc, jnp.result_type(float))
        self.scale = jnp.asarray(scale, jnp.result_type(float))
        self.time_scale = float(time_scale)
        self.horizon = None if horizon is None else float(horizon)
        self.gap = None if gap is None else float(gap)

    def standardise(self, series: Series) -> Series:
        loc, scale = self._like(series.values)
        return series._replace(times=series.times / self.time_scale, values=(series.values - loc) / scale)

    def restore(self, values: Float[Array, "*batch channels"]) -> Float[Array, "*batch channels"]:
        loc, scale = self._like(values)
        return loc + scale * values

    def _like(self, values):
        shape = (1,) * (values.ndim - 1) + (-1,)
        return self.loc.reshape(shape), self.scale.reshape(shape)


class ObservedFlow(eqx.Module):
    """A fitted latent flow and its units: what forecasts, reconstructions and bounds are made with."""

    model: LatentFlow
    units: LatentUnits
