"""Every gated bijection is one: invertible, with the right Jacobian, and gone when its gate is."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from stochflow.flows.couplings import alternating_mask
from stochflow.flows.splines import rational_quadratic, rational_quadratic_of_one
from stochflow.laws.joins import joined

from .catalogue import COND, LAYERS

FORWARD = eqx.filter_jit(lambda layer, *args: layer.forward(*args))
INVERSE = eqx.filter_jit(lambda layer, *args: layer.inverse(*args))
layers = pytest.mark.parametrize("make", LAYERS.values(), ids=LAYERS.keys())


def _case(make, getkey):
    layer = make(getkey())
    dim = len(layer.mask)
    gate = jnp.linspace(0.3, 0.9, dim)
    return layer, 1.5 * jr.normal(getkey(), (dim,)), gate, jr.normal(getkey(), (COND,))


@layers
def test_log_det_is_that_of_the_autodiff_jacobian(make, getkey):
    layer, x, gate, c = _case(make, getkey)
    _, log_det = FORWARD(layer, x, gate, c)
    jacobian = eqx.filter_jit(jax.jacfwd(lambda x: layer.forward(x, gate, c)[0]))(x)
    assert np.allclose(log_det, np.linalg.slogdet(jacobian)[1], atol=1e-10)


@layers
def test_inverse_undoes_forward_and_negates_the_log_det(make, getkey):
    layer, x, gate, c = _case(make, getkey)
    y, log_det = FORWARD(layer, x, gate, c)
    back, inverse_log_det = INVERSE(layer, y, gate, c)
    assert jnp.allclose(back, x, atol=1e-9)
    assert jnp.allclose(inverse_log_det, -log_det, atol=1e-9)
    assert not jnp.allclose(y, x, atol=1e-3)


@layers
def test_a_gate_of_zero_is_the_identity_bit_for_bit(make, getkey):
    layer, x, gate, c = _case(make, getkey)
    y, log_det = FORWARD(layer, x, 0 * gate, c)
    assert (y == x).all()
    assert jnp.abs(log_det) < 1e-12


@layers
def test_kept_dimensions_are_kept(make, getkey):
    layer, x, gate, c = _case(make, getkey)
    y, _ = FORWARD(layer, x, gate, c)
    kept = jnp.array(layer.mask)
    assert (jnp.where(kept, y, 0) == jnp.where(kept, x, 0)).all()


@layers
def test_gradients_are_finite_far_out_and_at_the_edges(make, getkey):
    layer, x, gate, c = _case(make, getkey)
    gradient = eqx.filter_jit(jax.grad(lambda layer, point: layer.inverse(point, gate, c)[1]))
    for value in (-100.0, -5.0, 0.0, 5.0, 100.0):
        grads = gradient(layer, np.full(x.shape, value))
        assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(grads))


def test_a_spline_is_monotone_and_the_identity_outside(getkey):
    layer = LAYERS["spline, 1 dim"](getkey())
    c, gate = jr.normal(getkey(), (COND,)), jnp.ones(1)
    x = jnp.linspace(-7, 7, 2001)
    y = jax.jit(jax.vmap(lambda v: layer.forward(v[None], gate, c)[0][0]))(x)
    assert (jnp.diff(y) > 0).all()
    outside = jnp.abs(x) >= layer.half_width
    assert (jnp.where(outside, y - x, 0) == 0).all()


@pytest.mark.parametrize("dim", [2, 3, 6, 7])
def test_two_masks_in_a_row_leave_no_dimension_out(dim):
    first, second = alternating_mask(dim, 0), alternating_mask(dim, 1)
    assert all(a != b for a, b in zip(first, second, strict=True))


def test_one_dimension_has_nothing_to_keep():
    assert alternating_mask(1, 0) == alternating_mask(1, 1) == (False,)


def test_a_spline_of_one_number_is_that_of_several(getkey):
    bins, x = 5, jnp.linspace(-5.5, 5.5, 23)
    raw = jr.normal(getkey(), (len(x), 3 * bins - 1))
    found = jax.vmap(lambda x, raw: rational_quadratic_of_one(x, list(raw), 5.0))(x, raw)
    expected = rational_quadratic(x, *jnp.split(raw, [bins, 2 * bins], axis=1), 5.0)
    for ours, theirs in zip(found, expected, strict=True):
        assert jnp.allclose(ours, theirs, atol=1e-12)


def test_joined_is_stacked(getkey):
    parts = list(jr.normal(getkey(), (4,)))
    assert (joined(parts) == jnp.stack(parts)).all()
    slopes = jax.grad(lambda parts: (joined(parts) * jnp.arange(4.0)).sum())(parts)
    assert jnp.allclose(jnp.stack(slopes), jnp.arange(4.0))
