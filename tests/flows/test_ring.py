"""In a ring all places are alike, and each sees its neighbours."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from stochflow import StochasticFlow
from stochflow.flows.nets import FIRST_REACH, REACH, RingNet

from .catalogue import call

DIM = 11


def net_of(depth, key):
    net = RingNet(DIM, 2, 3, 4, width=6, depth=depth, key=key)
    biases = tuple(jr.normal(jr.fold_in(key, i), b.shape) for i, b in enumerate(net.biases))
    return eqx.tree_at(lambda net: net.biases, net, biases)


def turned(x, fields, by):
    """Each of the fields turned; what holds for all places stays."""
    size = fields * DIM
    return jnp.concatenate([jnp.roll(x[:size].reshape(fields, DIM), by, axis=1).ravel(), x[size:]])


@pytest.mark.parametrize("depth", [0, 1, 2])
def test_what_is_turned_comes_out_turned(depth, getkey):
    net, x = net_of(depth, getkey()), jr.normal(getkey(), (2 * DIM + 3,))
    assert jnp.allclose(net(turned(x, 2, 3)), turned(net(x), 4, 3), atol=1e-12)


@pytest.mark.parametrize("depth", [0, 1, 2, 3])
def test_a_place_sees_its_neighbours_and_what_holds_for_all(depth, getkey):
    net = net_of(depth, getkey())
    slopes = jax.jacobian(net)(jr.normal(getkey(), (2 * DIM + 3,))).reshape(4, DIM, -1)
    seen = np.abs(slopes[:, :, : 2 * DIM]).reshape(4, DIM, 2, DIM).max(axis=(0, 2)) > 0
    away = np.abs(np.subtract.outer(np.arange(DIM), np.arange(DIM)))
    reach = FIRST_REACH + REACH * max(depth - 1, 0)
    assert (seen == (np.minimum(away, DIM - away) <= reach)).all()
    assert (np.abs(slopes[:, :, 2 * DIM :]).max(axis=0) > 0).all()


@pytest.mark.parametrize("coupling", ["affine", "spline"])
def test_the_law_of_a_ring_turns_with_it(coupling, getkey):
    """By two places: couplings move every other one in turn."""
    flow = StochasticFlow(8, ring=True, coupling=coupling, bins=4, layers=2, width=8, key=getkey())
    flow = jax.tree.map(lambda leaf: 10 * leaf if eqx.is_inexact_array(leaf) else leaf, flow)
    x_s, x_t = jr.normal(getkey(), (2, 8))
    here = call(flow, "log_prob", x_t, x_s, 0.0, 0.7)
    there = call(flow, "log_prob", jnp.roll(x_t, 2), jnp.roll(x_s, 2), 0.0, 0.7)
    assert jnp.allclose(here, there, atol=1e-9)
    assert not jnp.allclose(here, call(flow, "log_prob", x_t[::-1], x_s, 0.0, 0.7), atol=1e-3)


@pytest.mark.parametrize(
    "options", [{"tails": True}, {"correlated": True}, {"lenses": 2}, {"coupling": "triangular"}]
)
def test_what_does_not_go_with_a_ring_is_refused(options):
    with pytest.raises(ValueError, match="`ring` does not go with"):
        StochasticFlow(6, ring=True, **options, key=jr.key(0))
