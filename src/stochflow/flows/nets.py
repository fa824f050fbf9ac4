"""The two networks that the flows are made of: one for any state, one for states that stand in a ring."""

from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, PRNGKeyArray, PyTree, Scalar

from .activations import silu

# The last layers start near zero, so that a new flow starts near its Gaussian base.
LAST_LAYER_SCALE = 0.01
# Numbers of single precision in a vector register: XLA's products are slower for six columns than for eight.
LANES = 8


# Places on either side that the first layer of a ring's network sees, and those between.
FIRST_REACH, REACH = 2, 1


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

    def __call__(self, x: Float[Array, " rest"], first: Sequence[Scalar] = ()) -> Float[Array, " out"]:
        """`first` are inputs that come before `x`, one by one: to join what is dear to compute is slow (see
        `laws.joins`), and a product with a vector is the sum of those with its parts."""
        head, *weights = self.weights
        x = x @ head[len(first) :] if first else x @ head
        for number, row in zip(first, head, strict=False):
            x = x + number * row
        for weight, bias in zip(weights, self.biases[:-1], strict=True):
            x = silu(x + bias) @ weight
        number = self.biases[-1].shape[0]
        return (x if x.shape[0] == number else x[:number]) + self.biases[-1]


class RingNet(eqx.Module):
    r"""A network for numbers that stand in a ring, place by place, with the same weights everywhere.

    Its input is `fields` vectors of `dim` numbers, one a place, and then numbers that hold for all places; its output
    `out_fields` such vectors. The first layer sees two places on either side, those between one, the last none; between
    them is SiLU. Rows of a weight are those of each neighbour in turn, then those of what holds for all.
    """

    weights: tuple[Float[Array, "_ _"], ...]
    biases: tuple[Float[Array, " _"], ...]
    dim: int = eqx.field(static=True)
    fields: int = eqx.field(static=True)

    def __init__(
        self, dim: int, fields: int, rest: int, out_fields: int, *, width: int, depth: int, key: PRNGKeyArray
    ):
        first = (2 * FIRST_REACH + 1) * fields + rest
        between = [(2 * REACH + 1) * width] * (depth - 1)
        keys = jr.split(key, depth + 1)
        sizes = [(first, width), *((size, width) for size in between), (width, out_fields)]
        sizes = sizes if depth else [(first, out_fields)]
        scales = [*[1.0] * depth, LAST_LAYER_SCALE]
        self.weights = tuple(
            scale * jr.normal(k, shape) / jnp.sqrt(shape[0])
            for k, shape, scale in zip(keys, sizes, scales, strict=True)
        )
        self.biases = tuple(jnp.zeros(m) for _, m in sizes)
        self.dim = dim
        self.fields = fields

    def __call__(self, x: Float[Array, " size"]) -> Float[Array, " out"]:
        places = x[: self.fields * self.dim].reshape(self.fields, self.dim).T
        head, *weights = self.weights
        number = (2 * FIRST_REACH + 1) * self.fields
        same = x[self.fields * self.dim :] @ head[number:] + self.biases[0]
        y = _convolved(places, head[:number], FIRST_REACH) + same[None]
        for i, (weight, bias) in enumerate(zip(weights, self.biases[1:], strict=True), 1):
            y = silu(y)
            y = (y @ weight if i == len(weights) else _convolved(y, weight, REACH)) + bias[None]
        return y.T.ravel()


def _convolved(
    y: Float[Array, "dim fields"], weight: Float[Array, "near out"], reach: int
) -> Float[Array, "dim out"]:
    """At each place a product with what stands there and so many places on either side: on a CPU in half the time that
    it takes to put the neighbours side by side first."""
    around = jnp.concatenate([y[-reach:], y, y[:reach]])
    kernel = weight.reshape(2 * reach + 1, y.shape[1], weight.shape[1])
    layout = ("NWC", "WIO", "NWC")
    return jax.lax.conv_general_dilated(around[None], kernel, (1,), "VALID", dimension_numbers=layout)[0]


def with_padded_widths(tree: PyTree) -> PyTree:
    """The same networks with columns of zeros added to their layers, up to whole vector registers.

    For sampling alone: the numbers are the same up to rounding and come a little faster, but what is trained or saved
    should have no idle weights.
    """

    def pad(net: MLP) -> MLP:
        idle = [-bias.shape[0] % LANES for bias in net.biases]
        # What the idle columns of a layer give is silu(0) = 0, and the rows that they meet in the next are zeros too.
        weights = [
            jnp.pad(weight, ((0, above), (0, own)))
            for weight, above, own in zip(net.weights, [0, *idle[:-1]], idle, strict=True)
        ]
        biases = [jnp.pad(bias, (0, own)) for bias, own in zip(net.biases[:-1], idle[:-1], strict=True)]
        padded = tuple(weights), (*biases, net.biases[-1])
        return eqx.tree_at(lambda net: (net.weights, net.biases), net, padded)

    is_net = lambda node: isinstance(node, MLP)
    return jax.tree.map(lambda node: pad(node) if is_net(node) else node, tree, is_leaf=is_net)
