"""Networks with idle columns say what the ones without say."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import pytest

from stochflow import StochasticFlow
from stochflow.flows import MLP
from stochflow.flows.nets import LANES, with_padded_widths


@pytest.mark.parametrize("width", [16, 30])
@pytest.mark.parametrize("out_size", [1, 6, 8, 35])
@pytest.mark.parametrize("depth", [0, 1, 2])
def test_padded_widths_change_no_number(depth, out_size, width, getkey):
    net = MLP(5, out_size, width=width, depth=depth, key=getkey())
    bias_keys = jr.split(getkey(), depth + 1)  # new networks have none to speak of
    biases = tuple(jr.normal(key, bias.shape) for key, bias in zip(bias_keys, net.biases, strict=True))
    net = eqx.tree_at(lambda net: net.biases, net, biases)
    padded, x = with_padded_widths(net), jr.normal(getkey(), (5,))
    assert all(weight.shape[1] % LANES == 0 for weight in padded.weights)
    assert padded(x).shape == (out_size,)
    assert jnp.allclose(padded(x), net(x), atol=1e-14)


def test_every_network_of_a_law_is_padded_and_nothing_else(getkey):
    law = StochasticFlow(3, width=16, layers=2, coupling="spline", key=getkey())
    padded = with_padded_widths(law)
    nets = [node for node in jax.tree.leaves(padded, is_leaf=_is_net) if _is_net(node)]
    assert len(nets) == 5
    assert all(net.weights[-1].shape[1] % LANES == 0 for net in nets)
    others = lambda tree: [leaf for leaf in jax.tree.leaves(tree, is_leaf=_is_net) if not _is_net(leaf)]
    assert all((a == b).all() for a, b in zip(others(law), others(padded), strict=True))


def _is_net(node):
    return isinstance(node, MLP)
