"""How much wider, or narrower, than a law says a series has moved of late: gap by gap, over the last stretches."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.stats import norm
from jaxtyping import Array, Float, Int

from ..flows import LocalFlow
from ..flows.local import NORMAL_95
from .correction import LEVEL, NEAR

# Of each gap the last so many stretches, one after the other, are looked at.
STRETCHES = 128
# What so many say is believed by half; what a few say is a matter of chance.
HALF = 30.0
# What is tried, and beyond which no width is believed.
SPREADS = np.geomspace(0.3, 1 / 0.3, 25)
# Of a gap: times are sums of single precision.
ROUNDING = 0.02


class Read(NamedTuple):
    """The rows of a series in the units of the law, the number of the last that is there, and what was read at each."""

    values: Float[Array, "rows dim"]
    gaps: Float[Array, " rows"]
    last: Int[Array, ""]
    seen: Float[Array, "rows size"]
    covariates: Float[Array, "rows known"]


def recent_width(law: LocalFlow, rows: Read, ahead: int) -> Float[Array, "knots dim"]:
    """How many times as wide as the law says its noise should be at each gap of its correction, none without one.

    The mean, in logarithms, of what would have held 90 % of what came and of what would have had the best CRPS; and of
    that the part that the number of stretches is worth.
    """
    if law.correction is None:
        return jnp.zeros((0, law.dim), rows.values.dtype)
    return jax.vmap(lambda log_gap: _at(law, rows, ahead, jnp.exp(log_gap)))(law.correction.log_gaps)


def _at(law, rows, ahead, gap):
    start, end, dt, real = _stretches(rows, gap)
    known = rows.covariates.shape[1] - ahead
    u = jnp.concatenate(
        [rows.seen[start], rows.covariates[start, :known], rows.covariates[end, known:]], axis=1
    )
    read = lambda x_t, x_s, dt, u: law.channel_noise(x_t, x_s, jnp.zeros_like(dt), dt, u)
    size = jnp.abs(jax.vmap(read)(rows.values[end], rows.values[start], dt, u))
    real &= jnp.isfinite(size).all(axis=1)
    number = real.sum()
    covering = _quantile(jnp.where(real[:, None], size, jnp.inf), number) / NORMAL_95
    tried = jnp.asarray(SPREADS, size.dtype)
    score = jnp.where(real[None, :, None], _crps(size[None], tried[:, None, None]), 0.0).sum(axis=1)
    sharpest = tried[score.argmin(axis=0)]
    best = 0.5 * (jnp.log(jnp.clip(covering, SPREADS[0], SPREADS[-1])) + jnp.log(sharpest))
    belief = number**2 / (number**2 + HALF**2)
    return jnp.where(number > 0, jnp.exp(belief * best), 1.0).astype(rows.values.dtype)


def _stretches(rows, gap):
    """First and last rows of stretches about this gap long, from the last row backwards, how long each is, and which
    are there. Holes in the data count as little longer than the gap: what lies before them is not lost, and times stay
    so small that single precision will do."""
    index = jnp.arange(rows.gaps.shape[0])
    passed = jnp.cumsum(jnp.minimum(rows.gaps, (1 + 2 * NEAR) * gap))
    times = jnp.where(index <= rows.last, passed - passed[rows.last], jnp.inf)
    wanted = -gap * jnp.arange(1, STRETCHES + 1)
    start = jnp.minimum(jnp.searchsorted(times, wanted - ROUNDING * gap), rows.last)
    end = jnp.searchsorted(times, times[start] + (1 - ROUNDING) * gap)
    real = (end <= rows.last) & (wanted > times[0] - gap)
    real &= jnp.concatenate([jnp.ones(1, bool), start[1:] < start[:-1]])
    end = jnp.minimum(end, rows.last)
    dt = times[end] - times[start]
    real &= jnp.abs(dt - gap) <= NEAR * gap
    return start, end, jnp.where(real, dt, gap), real


def _quantile(sizes, number):
    """The `LEVEL` quantile of the first `number` of each column in order; infinite ones come last."""
    ordered = jnp.sort(sizes, axis=0)
    place = LEVEL * jnp.maximum(number - 1, 0)
    below = jnp.floor(place).astype(jnp.int32)
    above = jnp.minimum(below + 1, jnp.maximum(number - 1, 0))
    return ordered[below] + (place - below) * (ordered[above] - ordered[below])


def _crps(x, std):
    """Of a normal law around zero."""
    z = x / std
    return std * (z * (2 * norm.cdf(z) - 1) + 2 * norm.pdf(z) - 1 / jnp.sqrt(jnp.pi))
