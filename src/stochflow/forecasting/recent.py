"""How much wider, or narrower, than a law says a series has moved of late: gap by gap, over the last stretches."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.stats import norm
from jaxtyping import Array, Float, Int

from ..flows import LocalFlow
from ..flows.local import NORMAL_95
from ..metrics.estimates import AnyArray
from .correction import LEVEL, NEAR

# Of each gap so many stretches are looked at, one at each half of a gap back from the last row.
STRETCHES, PER_GAP = 128, 2
# A stretch so many gaps ago counts half as much as the last one. This and the next were chosen by forecasts within the
# first six tenths of the series of `benchmarks/series.py`, which the tests there begin after.
HALF_LIFE = 12.0
# What so many stretches apart say is believed by half; what a few say is a matter of chance.
HALF = 16.0
# What is tried, and beyond which no width is believed.
SPREADS = np.geomspace(0.3, 1 / 0.3, 49)
# Of each place in the rows of the fit so many stretches, the last ones, are witnesses of what is usual.
LATEST = 8
# Of a gap: times are sums of single precision.
ROUNDING = 0.02


class Read(NamedTuple):
    """The rows of a series in the units of the law, the number of the last that is there, what was read at each, and
    what the state is measured from at each, if not from zero."""

    values: Float[Array, "rows dim"]
    gaps: Float[Array, " rows"]
    last: Int[Array, ""]
    seen: Float[Array, "rows size"]
    covariates: Float[Array, "rows known"]
    centres: Float[Array, "rows dim"] | None = None


class Said(NamedTuple):
    """What last stretches say at each gap of a correction: how many times as wide as the law the noise should be, and
    which part of that their number is worth; and the sizes of the noise of the very last ones, NaN where there are
    none."""

    log_wider: Float[AnyArray, "*series knots dim"]
    belief: Float[AnyArray, "*series knots"]
    latest: Float[AnyArray, "*series knots latest dim"]


def recent_said(law: LocalFlow, rows: Read, ahead: int) -> Said:
    """What the stretches before the last row say, where each counts the less the longer ago it is. Without a correction
    there are no gaps."""
    if law.correction is None:
        nothing = jnp.zeros((0, LATEST, law.dim), rows.values.dtype)
        return Said(nothing[:, 0], nothing[:, 0, 0], nothing)
    return jax.vmap(lambda log_gap: _at(law, rows, ahead, jnp.exp(log_gap)))(law.correction.log_gaps)


def recent_width(law: LocalFlow, said: Said) -> Float[Array, "knots dim"]:
    """How many times as wide as the law says its noise is taken to be: what last stretches say, against what those of
    the fit say together, and of that the part which is believed."""
    if law.correction is None:
        return jnp.asarray(said.log_wider)
    return jnp.exp(said.belief[:, None] * (said.log_wider - law.correction.witness))


@jax.jit
def usual_width(said: Said) -> Float[Array, "knots dim"]:
    """What the very last stretches at many places say together, in logarithms; nothing where there are none."""
    latest = jnp.moveaxis(jnp.asarray(said.latest), 0, 1)  # of each gap: place, stretch, channel
    sizes = latest.reshape(latest.shape[0], -1, latest.shape[-1])
    there = jnp.isfinite(sizes).all(axis=2)
    asked = jax.vmap(_asked)(jnp.where(there[..., None], sizes, 0.0), there.astype(sizes.dtype))
    return jnp.where(there.any(axis=1)[:, None], asked, 0.0)


def _at(law, rows, ahead, gap):
    start, end, dt, real, new = _stretches(rows, gap)
    known = rows.covariates.shape[1] - ahead
    u = jnp.concatenate(
        [rows.seen[start], rows.covariates[start, :known], rows.covariates[end, known:]], axis=1
    )
    read = lambda x_t, x_s, dt, u: law.channel_noise(x_t, x_s, jnp.zeros_like(dt), dt, u)
    centre = jnp.zeros((), dt.dtype) if rows.centres is None else rows.centres[start]
    size = jnp.abs(jax.vmap(read)(rows.values[end] - centre, rows.values[start] - centre, dt, u))
    real &= jnp.isfinite(size).all(axis=1)
    fade = 0.5 ** (jnp.arange(STRETCHES, dtype=size.dtype) / (PER_GAP * HALF_LIFE))
    weight = jnp.where(real, fade * new, 0.0)
    # As many as lie apart: what two stretches share is said once.
    number = weight.sum() ** 2 / jnp.maximum((fade * weight).sum(), jnp.finfo(size.dtype).tiny)
    asked = jnp.where(number > 0, _asked(jnp.where(real[:, None], size, 0.0), weight), 0.0)
    latest = jnp.where(real[:, None], size, jnp.nan)[:LATEST]
    said = Said(asked, number**2 / (number**2 + HALF**2), latest)
    return jax.tree.map(lambda leaf: leaf.astype(rows.values.dtype), said)


def _asked(size: Float[Array, "n dim"], weight: Float[Array, " n"]) -> Float[Array, " dim"]:
    """How much wider than the law each channel should have been, in logarithms: the mean of what would have held 90 %
    of what came and of what would have had the best CRPS."""
    covering = jax.vmap(_quantile, in_axes=(1, None))(size, weight) / NORMAL_95
    tried = jnp.asarray(SPREADS, size.dtype)
    score = weight[None, :, None] * _crps(size[None], tried[:, None, None])
    sharpest = tried[score.sum(axis=1).argmin(axis=0)]
    return 0.5 * (jnp.log(jnp.clip(covering, SPREADS[0], SPREADS[-1])) + jnp.log(sharpest))


def _stretches(rows, gap):
    """First and last rows of stretches about this gap long, from the last row backwards, how long each is, which are
    there, and what part of a gap each has for itself and not with the later one. Holes in the data count as little
    longer than the gap: what lies before them is not lost, and times stay so small that single precision will do."""
    index = jnp.arange(rows.gaps.shape[0])
    passed = jnp.cumsum(jnp.minimum(rows.gaps, (1 + 2 * NEAR) * gap))
    times = jnp.where(index <= rows.last, passed - passed[rows.last], jnp.inf)
    wanted = -gap * (1 + jnp.arange(STRETCHES) / PER_GAP)
    start = jnp.minimum(jnp.searchsorted(times, wanted - ROUNDING * gap), rows.last)
    end = jnp.searchsorted(times, times[start] + (1 - ROUNDING) * gap)
    real = (end <= rows.last) & (wanted > times[0] - gap)
    real &= jnp.concatenate([jnp.ones(1, bool), start[1:] < start[:-1]])
    end = jnp.minimum(end, rows.last)
    dt = times[end] - times[start]
    real &= jnp.abs(dt - gap) <= NEAR * gap
    apart = jnp.concatenate([gap[None], times[start[:-1]] - times[start[1:]]])
    return start, end, jnp.where(real, dt, gap), real, jnp.minimum(apart / gap, 1.0)


def _quantile(sizes: Float[Array, " n"], weight: Float[Array, " n"]) -> Float[Array, ""]:
    """The least of some sizes that, with those below it, has the share `LEVEL` of their weight."""
    order = jnp.argsort(jnp.where(weight > 0, sizes, jnp.inf))
    below = jnp.cumsum(weight[order])
    return sizes[order][jnp.argmax(below >= LEVEL * below[-1])]


def _crps(x, std):
    """Of a normal law around zero."""
    z = x / std
    return std * (z * (2 * norm.cdf(z) - 1) + 2 * norm.pdf(z) - 1 / jnp.sqrt(jnp.pi))
