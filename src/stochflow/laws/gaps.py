"""Time gaps, checked in one place, and what happens when a gap is zero.

A law with no time to move is *held* at a point. Each law computes its formulas with a gap that is safe to
divide by (`positive_gap`) and then chooses between that and the point, so that no gradient is NaN.
"""

import contextlib
import contextvars
from collections.abc import Callable, Iterator

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Bool, Float, Scalar, ScalarLike

BACKWARDS = "`t` must not be earlier than `s`, and both must be finite: a transition law runs forwards"
OUTSIDE = "`r` must lie between `s` and `t`, and all must be finite: a bridge is tied at both ends"

_times_in_order = contextvars.ContextVar("_times_in_order", default=False)


@contextlib.contextmanager
def times_in_order() -> Iterator[None]:
    """What is traced within takes times to be in order, unchecked.

    A check under `jit` is a callback into Python: it slows a small program down, keeps XLA from moving anything across
    it and keeps the program out of the compilation cache. Where times are known to be in order, as those of training
    batches are, it is not worth that.
    """
    token = _times_in_order.set(True)
    try:
        yield
    finally:
        _times_in_order.reset(token)


def require_order(ok: Callable[..., Bool[Array, ""]], message: str, *gaps: Scalar) -> tuple[Scalar, ...]:
    """The gaps, if `ok` of them holds: else a `ValueError` now or, if they are traced, an error at run time."""
    if shapes := [gap.shape for gap in gaps if gap.shape]:
        raise ValueError(f"times must be single numbers; got shape {shapes[0]}: use `jax.vmap` for several.")
    if not any(isinstance(gap, Tracer) for gap in gaps):
        if not bool(ok(*gaps)):
            raise ValueError(
                f"{message}; got a gap of {' and then '.join(f'{float(gap):g}' for gap in gaps)}."
            )
        return gaps
    if _times_in_order.get():
        return gaps
    bad = jnp.logical_not(ok(*gaps))
    return tuple(eqx.error_if(gap, bad, f"{message}.") for gap in gaps)


def time_gap(s: ScalarLike, t: ScalarLike) -> Scalar:
    r"""$\Delta t = t - s$; an error, under `jit` too, if `t` is earlier than `s` or one of them is not finite.

    Of plain numbers it is taken in double precision: single precision does not tell one minute of unix time from the
    next.
    """
    (gap,) = require_order(_is_gap, BACKWARDS, _difference(s, t))
    return gap


def bridge_gaps(s: ScalarLike, r: ScalarLike, t: ScalarLike) -> tuple[Scalar, Scalar]:
    r"""$(r - s, t - r)$; an error, under `jit` too, unless $s \le r \le t$ and all are finite."""
    gaps = _difference(s, r), _difference(r, t)
    before, after = require_order(lambda before, after: _is_gap(before) & _is_gap(after), OUTSIDE, *gaps)
    return before, after


def _difference(s, t):
    if all(isinstance(time, (int, float, np.number)) for time in (s, t)):
        return jnp.asarray(float(t) - float(s))
    return jnp.asarray(t) - jnp.asarray(s)


def _is_gap(gap: Scalar) -> Bool[Array, ""]:
    """Neither negative nor infinite nor NaN, of which the last fails every comparison."""
    return (gap >= 0) & (gap < jnp.inf)


def positive_gap(gap: Scalar) -> Scalar:
    """The gap itself, or 1 where it is zero: what a formula may divide by when its result is not used."""
    return jnp.where(gap == 0, 1.0, gap)


def pinned_end(
    before: Scalar, after: Scalar, x_s: Float[Array, " dim"], x_t: Float[Array, " dim"]
) -> tuple[Bool[Array, ""], Float[Array, " dim"]]:
    """Whether a bridge is at one of its ends, and the state there."""
    return (before == 0) | (after == 0), jnp.where(before == 0, x_s, x_t)


def point_mass_log_prob(x: Float[Array, " dim"], at: Float[Array, " dim"]) -> Scalar:
    r"""Log-density of a law that has collapsed to one point: $+\infty$ there and $-\infty$ elsewhere."""
    return jnp.where(jnp.all(x == at), jnp.inf, -jnp.inf)


def hold_sample(
    held: Bool[Array, ""], point: Float[Array, " dim"], x: Float[Array, " dim"], log_prob: Scalar
) -> tuple[Float[Array, " dim"], Scalar]:
    """A draw and its log-density, replaced by the point (and its infinite density) where the law is held."""
    return jnp.where(held, point, x), jnp.where(held, jnp.inf, log_prob)


def hold_log_prob(
    held: Bool[Array, ""], point: Float[Array, " dim"], x: Float[Array, " dim"], log_prob: Scalar
) -> Scalar:
    """A log-density at `x`, replaced by that of the point mass where the law is held."""
    return jnp.where(held, point_mass_log_prob(x, point), log_prob)
