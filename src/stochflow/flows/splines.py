"""Monotone rational-quadratic splines on [-B, B], the identity outside (Durkan et al., 2019; Gregory and
Delbourgo, 1982).
"""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Scalar

from .activations import exp

# No bin is narrower than this share of the interval, so that slopes and their logs stay finite.
MIN_BIN = 1e-3
# Raw sizes beyond this make no difference that a float can hold.
LARGEST_LOG = 30.0


def _bin(value, raw_widths, raw_heights, raw_slopes, half_width, *, by_height):
    """Corner, width, height and both slopes of the bin that holds each value.

    Sizes are `MIN_BIN` plus a softmax of the rest. Sums over bins are one product with a matrix, and the bin is chosen
    by an unrolled loop before anything is divided: a compiler then has loops over the batch, which vectorise where
    loops over a dozen bins do not.
    """
    dim, bins = raw_widths.shape
    powers = exp(jnp.clip(jnp.concatenate([raw_widths, raw_heights]), -LARGEST_LOG, LARGEST_LOG))
    sums = powers @ jnp.triu(
        jnp.ones((bins, bins + 1), powers.dtype), 1
    )  # of the bins before each; in the end, of all
    before, total = sums[:, :-1], sums[:, -1]
    room = 1 - MIN_BIN * bins
    share = (value / half_width + 1) / 2  # of the interval that lies left of the value
    side = slice(dim, None) if by_height else slice(None, dim)
    log_slopes = jnp.pad(
        raw_slopes, ((0, 0), (1, 1))
    )  # slope one at both ends: the identity goes on smoothly
    tables = before[:dim], before[dim:], powers[:dim], powers[dim:], log_slopes[:, :-1], log_slopes[:, 1:]
    above = [(share - MIN_BIN * k) * total[side] >= room * before[side, k] for k in range(1, bins)]
    number = sum((each.astype(jnp.int32) for each in above), jnp.zeros(dim, jnp.int32))
    least = MIN_BIN * number
    chosen = [_pick(table, number) for table in tables]
    x_before, y_before, x_power, y_power, log_d0, log_d1 = chosen
    left = lambda before, total: half_width * (2 * (least + room * before / total) - 1)
    size = lambda power, total: 2 * half_width * (MIN_BIN + room * power / total)
    x_total, y_total = total[:dim], total[dim:]
    corner = left(x_before, x_total), left(y_before, y_total)
    return *corner, size(x_power, x_total), size(y_power, y_total), exp(log_d0), exp(log_d1)


def _bin_of_one(value, knots, half_width):
    """The same for one number and all its raw knots: loops over bins are unrolled altogether, so that under `vmap` all
    operations are over the batch."""
    bins = (len(knots) + 1) // 3
    powers = [exp(jnp.clip(knot, -LARGEST_LOG, LARGEST_LOG)) for knot in knots[: 2 * bins]]
    slopes = [jnp.ones_like(value), *map(exp, knots[2 * bins :]), jnp.ones_like(value)]
    widths, heights = powers[:bins], powers[bins:]
    room = 1 - MIN_BIN * bins
    share = (value / half_width + 1) / 2
    x_total, y_total = _sum(widths), _sum(heights)
    nothing = jnp.zeros_like(value)
    chosen = nothing, nothing, nothing, widths[0], heights[0], slopes[0], slopes[1]
    x_before, y_before = nothing, nothing
    for k in range(1, bins):
        x_before, y_before = x_before + widths[k - 1], y_before + heights[k - 1]
        above = (share - MIN_BIN * k) * x_total >= room * x_before
        here = MIN_BIN * k, x_before, y_before, widths[k], heights[k], slopes[k], slopes[k + 1]
        chosen = [jnp.where(above, new, old) for new, old in zip(here, chosen, strict=True)]
    least, x_before, y_before, x_power, y_power, d0, d1 = chosen
    left = lambda before, total: half_width * (2 * (least + room * before / total) - 1)
    size = lambda power, total: 2 * half_width * (MIN_BIN + room * power / total)
    corner = left(x_before, x_total), left(y_before, y_total)
    return *corner, size(x_power, x_total), size(y_power, y_total), d0, d1


def _sum(numbers):
    total = numbers[0]
    for number in numbers[1:]:
        total = total + number
    return total


@jax.custom_jvp
def _pick(table: Float[Array, "dim bins"], number: Int[Array, " dim"]) -> Float[Array, " dim"]:
    """The entry of that number in each row."""
    columns = jnp.split(table, table.shape[1], axis=1)
    chosen = columns[0][:, 0]
    for k, column in enumerate(columns[1:], 1):
        chosen = jnp.where(number >= k, column[:, 0], chosen)
    return chosen


@_pick.defjvp
def _pick_jvp(primals, tangents):
    """Backwards this is one elementwise choice; of the loop it would be one a bin."""
    (table, number), (change, _) = primals, tangents
    here = number[:, None] == jnp.arange(table.shape[1])[None]
    return _pick(table, number), jnp.where(here, change, 0.0).sum(axis=1)


def _log_slope(theta, secant, d0, d1):
    curved = secant + (d0 + d1 - 2 * secant) * theta * (1 - theta)
    numerator = d1 * theta**2 + 2 * secant * theta * (1 - theta) + d0 * (1 - theta) ** 2
    return 2 * jnp.log(secant) + jnp.log(numerator) - 2 * jnp.log(curved)


def rational_quadratic(
    x: Float[Array, " dim"],
    raw_widths: Float[Array, "dim bins"],
    raw_heights: Float[Array, "dim bins"],
    raw_slopes: Float[Array, "dim bins-1"],
    half_width: float,
) -> tuple[Float[Array, " dim"], Float[Array, " dim"]]:
    """The spline's value and the log of its slope. All raw parameters zero: the identity, with `==`."""
    find = lambda x: _bin(x, raw_widths, raw_heights, raw_slopes, half_width, by_height=False)
    return _forward(x, half_width, find)


def rational_quadratic_of_one(x: Scalar, knots: Sequence[Scalar], half_width: float) -> tuple[Scalar, Scalar]:
    """The same for one number; its raw widths, heights and slopes one after another."""
    return _forward(x, half_width, lambda x: _bin_of_one(x, knots, half_width))


def _forward(x, half_width, find):
    inside = jnp.abs(x) < half_width
    x_in = jnp.where(inside, x, 0.0)
    x0, y0, width, height, d0, d1 = find(x_in)
    secant, theta = height / width, (x_in - x0) / width
    curved = secant + (d0 + d1 - 2 * secant) * theta * (1 - theta)
    # Written as a correction to the input, so that an identity spline returns its input bit for bit.
    straight = (y0 - x0) + (secant - 1) * (x_in - x0)
    bend = height * theta * (1 - theta) * ((d0 - secant) - (d0 + d1 - 2 * secant) * theta) / curved
    y = x_in + straight + bend
    return jnp.where(inside, y, x), jnp.where(inside, _log_slope(theta, secant, d0, d1), 0.0)


def rational_quadratic_inverse(
    y: Float[Array, " dim"],
    raw_widths: Float[Array, "dim bins"],
    raw_heights: Float[Array, "dim bins"],
    raw_slopes: Float[Array, "dim bins-1"],
    half_width: float,
) -> tuple[Float[Array, " dim"], Float[Array, " dim"]]:
    """The inverse's value and the log of the inverse's slope."""
    inside = jnp.abs(y) < half_width
    y_in = jnp.where(inside, y, 0.0)
    x0, y0, width, height, d0, d1 = _bin(
        y_in, raw_widths, raw_heights, raw_slopes, half_width, by_height=True
    )
    secant, rise = height / width, y_in - y0
    bend = d0 + d1 - 2 * secant
    a = height * (secant - d0) + rise * bend
    b = height * d0 - rise * bend
    c = -secant * rise
    root = jnp.sqrt(jnp.maximum(b**2 - 4 * a * c, 0.0))
    theta = 2 * c / (-b - root)  # the form that does not cancel
    x = x0 + theta * width
    return jnp.where(inside, x, y), jnp.where(inside, -_log_slope(theta, secant, d0, d1), 0.0)
