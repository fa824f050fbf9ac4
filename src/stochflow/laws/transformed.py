"""A law on part of the line: positive, bounded, or on a half-line, coordinate by coordinate."""

import math
from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float, Scalar

from .base import AbstractBridge, AbstractTransition
from .checks import as_positive, check_states
from .gaps import hold_log_prob, hold_sample, time_gap
from .standardised import Standardised, StandardisedBridge

Interval = str | tuple[float, float]
NAMED = {"real": (-math.inf, math.inf), "positive": (0.0, math.inf)}


class Support(eqx.Module):
    r"""A product of open intervals, and a smooth bijection of each to the whole line.

    A half-line $(a, \infty)$ goes by $x = a + c\,\log(1 + e^{y/c})$ with $c$ the `scale`, far above which nothing is
    bent and far below which it is a logarithm; $(-\infty, b)$ by its mirror image; a bounded interval by the logistic
    function, $x = a + (b - a)\,\sigma(y)$. Growth is at most linear, so heavy tails in $y$ stay what they are in $x$.

    **Arguments:**

    - `intervals`: for each coordinate `"real"`, `"positive"`, or a pair `(low, high)` that may hold infinities.
    - `scale`: where half-lines turn from logarithm to line; one number a coordinate, 1 by default. A typical size of
        the coordinate's distance to its bound is a good choice.
    """

    scale: Float[Array, " dim"]
    bounds: tuple[tuple[float, float], ...] = eqx.field(static=True)

    def __init__(self, intervals: Sequence[Interval], scale: ArrayLike | list | None = None):
        self.bounds = tuple(_bounds(interval) for interval in intervals)
        self.scale = as_positive("scale", jnp.ones(self.dim) if scale is None else scale, self.dim)

    @property
    def dim(self) -> int:
        return len(self.bounds)

    @property
    def is_everything(self) -> bool:
        return all(bound == NAMED["real"] for bound in self.bounds)

    def contains(self, x: Float[Array, " dim"]) -> Scalar:
        low, high = (jnp.array(side, x.dtype) for side in zip(*self.bounds, strict=True))
        return jnp.all((x > low) & (x < high))

    def fold(self, x: Float[Array, " dim"]) -> Float[Array, " dim"]:
        """What lies beyond a bound mirrored back: for states that a solver's step has carried over it."""
        return jnp.stack([_fold(x[i], *bound) for i, bound in enumerate(self.bounds)])

    def to_line(self, x: Float[Array, " dim"]) -> Float[Array, " dim"]:
        return self._each(lambda x, *about: (_to_line(x, *about),), x, within)[0]

    def from_line(self, y: Float[Array, " dim"]) -> tuple[Float[Array, " dim"], Scalar]:
        """The point of the support and the log-determinant of the map, $\\log|dx/dy|$."""
        x, log_slopes = self._each(_from_line, y, lambda *bound: 0.0)
        return x, log_slopes.sum()

    def log_slopes(self, y: Float[Array, " dim"]) -> Float[Array, " dim"]:
        """$\\log dx_i/dy_i$ of each coordinate by itself."""
        return self._each(_from_line, y, lambda *bound: 0.0)[1]

    def _each(self, map_one, x, elsewhere):
        """What the map of each coordinate makes of it. Each map is applied to all coordinates, and its own are chosen:
        to take a state apart and put it together again is slow under `vmap`. Coordinates that are not its own are
        `elsewhere`, where the map and its gradient are finite."""
        scale = jax.lax.stop_gradient(self.scale)
        found = None
        for bound in dict.fromkeys(self.bounds):
            own = jnp.array([each == bound for each in self.bounds])
            new = map_one(jnp.where(own, x, elsewhere(*bound)), *bound, scale)
            found = new if found is None else [jnp.where(own, a, b) for a, b in zip(new, found, strict=True)]
        assert found is not None
        return found


class Transformed(AbstractTransition):
    r"""The law of $x$ when `law` is that of $y$ and `support` sends $y$ to $x$, coordinate by coordinate.

    $$\log p(x_t \mid x_s) = \log p_y(y_t \mid y_s) - \log\left|\frac{dx_t}{dy_t}\right|$$

    Draws lie within the support; where a point does not, its log-density is $-\infty$. A start outside has no law: all
    that comes of it is NaN.
    """

    law: AbstractTransition
    support: Support

    def __init__(self, law: AbstractTransition, support: Support | Sequence[Interval]):
        self.law = law
        self.support = support if isinstance(support, Support) else Support(support)
        if self.support.dim != law.dim:
            raise ValueError(f"`support` must have {law.dim} coordinates; got {self.support.dim}.")

    @property
    def dim(self) -> int:
        return self.law.dim

    @property
    def homogeneous(self) -> bool:
        return self.law.homogeneous

    def transform_and_log_prob(self, noise, x_s, s, t, u=None):
        """The state on the line, brought back to the support."""
        noise, x_s = check_states(self.dim, noise=noise, x_s=x_s)
        y_t, log_prob = self.law.transform_and_log_prob(noise, self.support.to_line(x_s), s, t, u)
        x_t, log_slope = self.support.from_line(y_t)
        # The round trip through the line would lose the last digit of `x_s`.
        return hold_sample(time_gap(s, t) == 0, x_s, x_t, log_prob - log_slope)

    def log_prob(self, x_t, x_s, s, t, u=None):
        """The log-density per unit of the user's volume; minus infinity outside the support."""
        x_t, x_s = check_states(self.dim, x_t=x_t, x_s=x_s)
        y_t, log_slope = self._line(x_t)
        log_prob = self.law.log_prob(y_t, self.support.to_line(x_s), s, t, u) - log_slope
        return hold_log_prob(time_gap(s, t) == 0, x_s, x_t, log_prob)

    def noise_and_log_prob(self, x_t, x_s, s, t, u=None):
        x_t, x_s = check_states(self.dim, x_t=x_t, x_s=x_s)
        y_t, log_slope = self._line(x_t)
        noise, log_prob = self.law.noise_and_log_prob(y_t, self.support.to_line(x_s), s, t, u)
        return noise, hold_log_prob(time_gap(s, t) == 0, x_s, x_t, log_prob - log_slope)

    def _line(self, x_t):
        """`x_t` on the line and the log-slope there; outside the support some point, and an infinite slope."""
        inside = self.support.contains(x_t)
        y_t = jnp.where(inside, self.support.to_line(x_t), 0.0)
        _, log_slope = self.support.from_line(y_t)
        return y_t, jnp.where(inside, log_slope, jnp.inf)


def _bounds(interval: Interval) -> tuple[float, float]:
    if isinstance(interval, str):
        if interval not in NAMED:
            raise ValueError(f"`support` must be {', '.join(NAMED)} or a pair (low, high); got {interval!r}.")
        return NAMED[interval]
    try:
        low, high = (float(side) for side in interval)
    except (TypeError, ValueError):
        known = ", ".join(NAMED)
        raise ValueError(f"`support` must be {known} or a pair (low, high); got {interval!r}.") from None
    if not low < high:
        raise ValueError(f"`support` must have `low` below `high`; got {low:g}, {high:g}.")
    return low, high


def within(low: float, high: float) -> float:
    """A point of an interval."""
    if math.isfinite(low) and math.isfinite(high):
        return (low + high) / 2
    if math.isfinite(low):
        return low + 1
    return high - 1 if math.isfinite(high) else 0.0


def _fold(x, low, high):
    if math.isfinite(low) and math.isfinite(high):
        turn = jnp.mod(x - low, 2 * (high - low))
        return low + jnp.minimum(turn, 2 * (high - low) - turn)
    if math.isfinite(low):
        return low + jnp.abs(x - low)
    return high - jnp.abs(high - x) if math.isfinite(high) else x


def on_line(support: Support, x: Float[np.ndarray, "*rows dim"]) -> Float[np.ndarray, "*rows dim"]:
    """`Support.to_line` of each row, in double precision whatever that of JAX is: a level may be far from zero, and a
    value near its bound."""
    return _each_column(lambda x, low, high, scale: _to_line(x, low, high, scale, np), support, x)


def off_line(support: Support, y: Float[np.ndarray, "*rows dim"]) -> Float[np.ndarray, "*rows dim"]:
    """The points of `Support.from_line`, in double precision too."""
    return _each_column(lambda y, low, high, scale: _from_line(y, low, high, scale, np)[0], support, y)


def _each_column(map_one, support, x):
    x, scale = np.asarray(x, np.float64), np.asarray(support.scale, np.float64)
    with np.errstate(all="ignore"):  # what is not in the support becomes NaN
        columns = [map_one(x[..., i], *bound, scale[i]) for i, bound in enumerate(support.bounds)]
    return np.stack(columns, axis=-1)


def _to_line(x, low, high, scale, xp: Any = jnp):
    """Of JAX or, with `xp`, of NumPy."""
    if math.isfinite(low) and math.isfinite(high):
        return xp.log(x - low) - xp.log(high - x)
    if math.isfinite(low):
        return scale * _inverse_softplus((x - low) / scale, xp)
    return -scale * _inverse_softplus((high - x) / scale, xp) if math.isfinite(high) else x


def _from_line(y, low, high, scale, xp: Any = jnp):
    """The point and the log-slope; a point that rounding puts on a bound is moved to the next number inside."""
    if math.isfinite(low) and math.isfinite(high):
        # From the nearer bound: what is left to the other would be lost in rounding.
        x = xp.where(y < 0, low + (high - low) * _sigmoid(y, xp), high - (high - low) * _sigmoid(-y, xp))
        log_slope = math.log(high - low) - _softplus(-y, xp) - _softplus(y, xp)
    elif math.isfinite(low):
        x, log_slope = low + scale * _softplus(y / scale, xp), -_softplus(-y / scale, xp)
    elif math.isfinite(high):
        x, log_slope = high - scale * _softplus(-y / scale, xp), -_softplus(y / scale, xp)
    else:
        return y, xp.zeros_like(y)
    return xp.clip(x, _next(low, math.inf, x.dtype), _next(high, -math.inf, x.dtype)), log_slope


def _softplus(x, xp):
    return xp.logaddexp(x, 0.0)


def _inverse_softplus(x, xp):
    return x + xp.log(-xp.expm1(-x))


def _sigmoid(y, xp):
    return jax.nn.sigmoid(y) if xp is jnp else xp.exp(-_softplus(-y, xp))


def _next(bound, towards, dtype):
    """The number of this precision beside a bound; no denormal one, which a processor may read as zero."""
    tiny = float(jnp.finfo(dtype).tiny)
    beside = float(np.nextafter(np.asarray(bound, dtype), np.asarray(towards, dtype)))
    return math.copysign(tiny, beside) if 0 < abs(beside) < tiny else beside


def horizon_of(law: AbstractTransition | AbstractBridge) -> float | None:
    """The longest gap that a law or a bridge was trained for, in the user's units; `None` if it has no limit."""
    if isinstance(law, Transformed):
        return horizon_of(law.law)
    return law.horizon if isinstance(law, Standardised | StandardisedBridge) else None


def latest_of(law: AbstractTransition) -> float | None:
    """The latest time that a law which depends on the time itself was trained on; `None` if it has no limit."""
    if isinstance(law, Transformed):
        return latest_of(law.law)
    return law.latest if isinstance(law, Standardised) else None
