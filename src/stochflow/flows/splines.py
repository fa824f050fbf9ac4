"""Monotone rational-quadratic splines on [-B, B], the identity outside (Durkan et al., 2019; Gregory and
Delbourgo, 1982).
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

# No bin is narrower than this share of the interval, so that slopes and their logs stay finite.
MIN_BIN = 1e-3


def _bins(raw: Float[Array, "dim bins"], half_width: float) -> tuple[Float[Array, "dim bins"], ...]:
    """The left edges of the bins and their sizes."""
    bins = raw.shape[1]
    share = MIN_BIN + (1 - MIN_BIN * bins) * jax.nn.softmax(raw, axis=1)
    # A product with a triangle: XLA's cumulative sum costs more than all the rest of the spline on a CPU.
    before = share @ jnp.triu(jnp.ones((bins, bins), raw.dtype), 1)
    return half_width * (2 * before - 1), 2 * half_width * share


def _bin(value, raw_widths, raw_heights, raw_slopes, half_width, *, by_height):
    """Corner, width, height and both slopes of the bin that holds each value."""
    (x_lefts, widths), (y_lefts, heights) = _bins(raw_widths, half_width), _bins(raw_heights, half_width)
    zero = jnp.zeros_like(value)[:, None]  # log-slope of both ends: the identity goes on smoothly
    log_slopes = jnp.concatenate([zero, raw_slopes, zero], axis=1)
    tables = x_lefts, y_lefts, widths, heights, log_slopes[:, :-1], log_slopes[:, 1:]
    edges = y_lefts if by_height else x_lefts
    chosen = [table[:, 0] for table in tables]
    for k in range(
        1, widths.shape[1]
    ):  # unrolled: a loop over the batch vectorises where one over bins does not
        above = value >= edges[:, k]
        chosen = [jnp.where(above, table[:, k], old) for table, old in zip(tables, chosen, strict=True)]
    x0, y0, width, height, log_d0, log_d1 = chosen
    return x0, y0, width, height, jnp.exp(log_d0), jnp.exp(log_d1)


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
    inside = jnp.abs(x) < half_width
    x_in = jnp.where(inside, x, 0.0)
    x0, y0, width, height, d0, d1 = _bin(
        x_in, raw_widths, raw_heights, raw_slopes, half_width, by_height=False
    )
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
