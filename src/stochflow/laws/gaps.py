"""Time gaps, checked in one place, and what happens when a gap is zero.

A law with no time to move is *held* at a point. Each law computes its formulas with a gap that is safe to
divide by (`positive_gap`) and then chooses between that and the point, so that no gradient is NaN.
"""

import contextlib
import contextvars
from collections.abc import Iterator

import equinox as eqx
import jax.numpy as jnp
from jax.core import Tracer
from jaxtyping import Array, Bool, Float, Scalar, ScalarLike

BACKWARDS = "`t` must not be earlier than `s`: a transition law runs forwards."

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


def require_order(value: Array, bad: Bool[Array, ""], message: str) -> Array:
    """`value`, and an error at run time where times are out of order."""
    return value if _times_in_order.get() else eqx.error_if(value, bad, message)


def time_gap(s: ScalarLike, t: ScalarLike) -> Scalar:
    r"""$\Delta t = t - s$; an error, under `jit` too, if `t` is earlier than `s`."""
    gap = jnp.asarray(t) - jnp.asarray(s)
    if not isinstance(gap, Tracer) and bool(gap < 0):
        raise ValueError(f"{BACKWARDS} Got {float(gap):g}.")
    return require_order(gap, gap < 0, BACKWARDS)


def bridge_gaps(s: ScalarLike, r: ScalarLike, t: ScalarLike) -> tuple[Scalar, Scalar]:
    r"""$(r - s, t - r)$; an error, under `jit` too, unless $s \le r \le t$."""
    before, after = jnp.asarray(r) - jnp.asarray(s), jnp.asarray(t) - jnp.asarray(r)
    message = "`r` must lie between `s` and `t`: a bridge is tied at both ends."
    outside = (before < 0) | (after < 0)
    return require_order(before, outside, message), require_order(after, outside, message)


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
