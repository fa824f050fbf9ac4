"""SiLU, softplus, exponential, tanh and sine, as fast as the processor allows.

On a CPU the exponential is a third of the time of a draw. XLA's is exact to the last bit and handles every
special value; a network needs neither. This one is a polynomial for the fraction of the exponent and an integer
shift for the whole part, wrong by at most 2e-7 in single precision; the logarithm of softplus is a polynomial too.
XLA's sine is not vectorised at all; a polynomial takes a tenth of its time.
"""

import math

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

LOG2_E = 1.4426950408889634
# Least-squares fit of 2^f on |f| ≤ 1/2, highest power first.
EXP2 = (0.0013264727, 0.009671513, 0.055507337, 0.24022242, 0.693147, 1.0)
# Least-squares fit of log(1 + e) / e on 0 ≤ e ≤ 1, highest power first.
LOG1P = (
    0.005253523,
    -0.029588872,
    0.07836246,
    -0.13674858,
    0.19111485,
    -0.24844388,
    0.33319275,
    -0.49999502,
    0.99999997,
)
# Least-squares fit of sin(r) / r in r² on |r| ≤ π/2, highest power first.
SINE = (2.60501958e-06, -0.00019808983, 0.00833304978, -0.166666579, 0.999999996)
# π in two parts, the first of which has so few bits that its multiples are exact.
PI_HIGH = 3.140625
PI_LOW = math.pi - PI_HIGH
SIGN_BIT = 31
# Adding 1.5 · 2²³ to a small float32 leaves its integer part in the low bits of the mantissa.
SHIFTER = 1.5 * 2.0**23
MANTISSA_BITS = 23


@jax.custom_jvp
def silu(x: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
    r"""$x\,\sigma(x)$. Its slope is kept for the backward pass in one array, where autodiff would keep three."""
    return x * sigmoid(x)


@silu.defjvp
def _silu_jvp(primals, tangents):
    (x,), (dx,) = primals, tangents
    s = sigmoid(x)
    y = x * s
    return y, (s + y * (1 - s)) * dx


@jax.custom_jvp
def sigmoid(x: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
    r"""$\sigma(x) = 1/(1 + e^{-x})$, exact in double precision and within 2e-7 in single."""
    if x.dtype != jnp.float32:
        return jax.nn.sigmoid(x)
    return 1 / (1 + _exp2(-LOG2_E * x))


@sigmoid.defjvp
def _sigmoid_jvp(primals, tangents):
    (x,), (dx,) = primals, tangents
    s = sigmoid(x)
    return s, s * (1 - s) * dx


@jax.custom_jvp
def exp(x: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
    r"""$e^x$, exact in double precision; in single within a share of 2e-7 and, beyond 2^±126, that power of two."""
    return jnp.exp(x) if x.dtype != jnp.float32 else _exp2(LOG2_E * x)


@exp.defjvp
def _exp_jvp(primals, tangents):
    (x,), (dx,) = primals, tangents
    y = exp(x)
    return y, y * dx


@jax.custom_jvp
def tanh(x: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
    r"""$\tanh x$, exact in double precision and within 4e-7 in single; 0 at 0."""
    return jnp.tanh(x) if x.dtype != jnp.float32 else 2 * sigmoid(2 * x) - 1


@tanh.defjvp
def _tanh_jvp(primals, tangents):
    (x,), (dx,) = primals, tangents
    y = tanh(x)
    return y, (1 - y * y) * dx


@jax.custom_jvp
def softplus(x: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
    r"""$\log(1 + e^x)$, exact in double precision and within 2e-7 of the larger of it and one in single."""
    if x.dtype != jnp.float32:
        return jax.nn.softplus(x)
    e = _exp2(-LOG2_E * jnp.abs(x))
    return jnp.maximum(x, 0.0) + e * _polynomial(LOG1P, e)


@softplus.defjvp
def _softplus_jvp(primals, tangents):
    (x,), (dx,) = primals, tangents
    return softplus(x), sigmoid(x) * dx


@jax.custom_jvp
def sine(x: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
    r"""$\sin x$, exact in double precision; in single within 3e-7 or the rounding of $x$ itself, whichever is more."""
    if x.dtype != jnp.float32:
        return jnp.sin(x)
    halves = lax.round(x * jnp.float32(1 / math.pi), lax.RoundingMethod.TO_NEAREST_EVEN)
    left = (x - halves * jnp.float32(PI_HIGH)) - halves * jnp.float32(PI_LOW)
    found = left * _polynomial(SINE, left * left)
    flipped = lax.bitcast_convert_type(found, jnp.int32) ^ (halves.astype(jnp.int32) << SIGN_BIT)
    return lax.bitcast_convert_type(flipped, jnp.float32)


@sine.defjvp
def _sine_jvp(primals, tangents):
    (x,), (dx,) = primals, tangents
    return sine(x), sine(x + math.pi / 2) * dx


def _exp2(y: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
    y = jnp.clip(y, -126.0, 126.0)
    whole = lax.round(y, lax.RoundingMethod.TO_NEAREST_EVEN)
    fraction = y - whole
    mantissa = _polynomial(EXP2, fraction)
    exponent = lax.bitcast_convert_type(whole + SHIFTER, jnp.int32) << MANTISSA_BITS
    return lax.bitcast_convert_type(lax.bitcast_convert_type(mantissa, jnp.int32) + exponent, jnp.float32)


def _polynomial(coefficients, x):
    found = jnp.float32(coefficients[0])
    for coefficient in coefficients[1:]:
        found = found * x + jnp.float32(coefficient)
    return found
