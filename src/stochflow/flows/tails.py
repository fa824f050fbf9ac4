"""Heavier tails than the normal's, where the condition asks for them."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

# Heaviness of a law's tails: never below the least, at which the law differs from a normal one by a thousandth of a
# nat a dimension and a surprise of thirty standard deviations costs fifty nats instead of four hundred and fifty.
LEAST_TAIL, HEAVIEST_TAIL = 0.02, 0.25
# Newton's steps from a start that is right to two digits.
LAMBERT_STEPS = 3


def stretch_tails(
    x: Float[Array, " dim"], weight: Float[Array, " dim"]
) -> tuple[Float[Array, " dim"], Float[Array, " dim"]]:
    r"""$h(x) = x\,e^{\delta x^2/2}$ with $\delta \ge 0$ the `weight`, and $\log h'(x)$.

    Slope one at the origin; of a normal $x$ the centre is left alone and the tails become those of a power law,
    $|y|^{-1-1/\delta}$ (Goerg, 2015). So a point far out costs the logarithm of its distance, not its square.
    """
    w = weight * x**2
    return x * jnp.exp(0.5 * w), 0.5 * w + jnp.log1p(w)


def unstretch_tails(
    y: Float[Array, " dim"], weight: Float[Array, " dim"]
) -> tuple[Float[Array, " dim"], Float[Array, " dim"]]:
    """The inverse of [`stretch_tails`][stochflow.flows.tails.stretch_tails] and the log of its slope."""
    w = lambert_w(weight * y**2)
    return y * jnp.exp(-0.5 * w), -0.5 * w - jnp.log1p(w)


@jax.custom_jvp
def lambert_w(v: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
    r"""The $w \ge 0$ with $w e^w = v$, for $v \ge 0$."""
    log_v = jnp.log1p(v)
    w = log_v * (1 - jnp.log1p(log_v) / (2 + log_v))
    positive = v > 0
    v, w = jnp.where(positive, v, 1.0), jnp.where(positive, w, 1.0)
    for _ in range(LAMBERT_STEPS):
        w = w / (1 + w) * (1 + jnp.log(v / w))
    return jnp.where(positive, w, 0.0)


@lambert_w.defjvp
def _lambert_w_jvp(primals, tangents):
    (v,), (dv,) = primals, tangents
    w = lambert_w(v)
    return w, jnp.exp(-w) / (1 + w) * dv


def tail_weight(raw: Float[Array, " dim"]) -> Float[Array, " dim"]:
    """A network's output as a heaviness between the least and the heaviest; a new network is near the least."""
    return LEAST_TAIL + (HEAVIEST_TAIL - LEAST_TAIL) * jax.nn.sigmoid(raw - 4.0)
