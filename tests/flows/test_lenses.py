"""Lenses: steep where they are placed, logarithmic around it, and seen by every network of a flow."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from stochflow import StochasticFlow
from stochflow.flows.lenses import STRONGEST, WEAKEST, Lenses


def test_slope_at_its_place_and_log_growth_around_it(getkey):
    lenses = eqx.tree_at(lambda lens: lens.places, Lenses(3, 5, key=getkey()), jnp.linspace(-1.0, 1.0, 5))
    directions, powers = jnp.stack(lenses.directions, axis=1), np.exp(lenses.log_powers)
    np.testing.assert_allclose(jnp.linalg.norm(directions, axis=1), 1.0, rtol=1e-6)
    assert powers[0] == pytest.approx(WEAKEST, rel=1e-5)
    assert powers[-1] == pytest.approx(STRONGEST, rel=1e-5)
    for i, (w, b, k) in enumerate(zip(directions, lenses.places, powers, strict=True)):
        at = b * w  # where the lens is placed, as w is of length one
        assert abs(lenses(at)[i]) < 1e-3
        np.testing.assert_allclose(jax.jacobian(lenses)(at)[i], k / np.arcsinh(k) * w, rtol=1e-3)
        far = [float(lenses((b + distance) * w)[i]) for distance in (10.0, 100.0, 1000.0)]
        assert far[2] - far[1] == pytest.approx(far[1] - far[0], rel=0.02)


def test_gradients_reach_every_lens_and_no_lens_is_a_matrix(getkey):
    """Matrices are what Muon makes orthogonal."""
    flow = StochasticFlow(3, width=8, layers=2, lenses=4, key=getkey())
    assert all(leaf.ndim == 1 for leaf in jax.tree.leaves(flow.lenses))
    x, y = jr.normal(getkey(), (2, 3))
    grads = eqx.filter_grad(lambda flow: flow.log_prob(y, x, 0.0, 0.5))(flow)
    assert all((leaf != 0).all() for leaf in jax.tree.leaves(grads.lenses))


def test_without_lenses_a_flow_is_what_it_was(getkey):
    flow = StochasticFlow(3, key=getkey())
    assert flow.lenses is None
    assert flow.net.weights[0].shape[0] == 4
