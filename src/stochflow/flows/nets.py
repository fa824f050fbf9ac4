"""The one network that the flows are made of."""

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, PRNGKeyArray

from .activations import silu

# The last layers start near zero, so that a new flow starts near its Gaussian base.
LAST_LAYER_SCALE = 0.01


class MLP(eqx.Module):
    r"""A multilayer perceptron with SiLU between its layers.

    Weights are stored as `(in, out)` and applied from the right: under `vmap` that is one row-major matrix
    product.
    """

    weights: tuple[Float[Array, "_ _"], ...]
    biases: tuple[Float[Array, " _"], ...]

    def __init__(self, in_size: int, out_size: int, *, width: int, depth: int, key: PRNGKeyArray):
        sizes = [in_size, *[width] * depth, out_size]
        keys = jr.split(key, depth + 1)
        scales = [*[1.0] * depth, LAST_LAYER_SCALE]
        self.weights = tuple(
            scale * jr.normal(k, (n, m)) / jnp.sqrt(n)
            for k, n, m, scale in zip(keys, sizes[:-1], sizes[1:], scales, strict=True)
        )
        self.biases = tuple(jnp.zeros(m) for m in sizes[1:])

    def __call__(self, x: Float[Array, " in"]) -> Float[Array, " out"]:
        for weight, bias in zip(self.weights[:-1], self.biases[:-1], strict=True):
            x = silu(x @ weight + bias)
        return x @ self.weights[-1] + self.biases[-1]
