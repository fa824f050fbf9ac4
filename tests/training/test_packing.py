import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax

from stochflow.training.muon import muon_for_matrices
from stochflow.training.packing import pack, together, unpack


def tree(key):
    a, b, c = jr.split(key, 3)
    return {"a": jr.normal(a, (2, 3)), "b": [jr.normal(b, (4,), jnp.float32), jr.normal(c, ())]}


def test_packing_and_unpacking_is_the_identity_for_mixed_types():
    whole = tree(jr.key(0))
    assert {leaf.dtype for leaf in jax.tree.leaves(whole)} == {jnp.dtype("float32"), jnp.dtype("float64")}
    back = unpack(pack(whole), whole)
    assert jax.tree.all(jax.tree.map(lambda x, y: bool((x == y).all()) and x.dtype == y.dtype, whole, back))


def test_adam_in_one_vector_takes_the_steps_of_adam_leaf_by_leaf():
    one, many = together(optax.adam(0.1)), optax.adam(0.1)
    params = other = tree(jr.key(0))
    state, states = one.init(params), many.init(params)
    for i in range(3):
        grads = tree(jr.key(i + 1))
        update, state = one.update(grads, state, params)
        updates, states = many.update(grads, states, other)
        params, other = optax.apply_updates(params, update), optax.apply_updates(other, updates)
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-6), params, other)


def test_an_empty_tree_is_no_trouble():
    optim = together(optax.adam(0.1))
    assert optim.update({}, optim.init({}))[0] == {}


def test_weight_decay_shrinks_matrices_by_the_rate():
    params = {"w": jr.normal(jr.key(0), (4, 6)), "v": jr.normal(jr.key(1), (6, 4))}
    plain, decayed = (muon_for_matrices(0.1, weight_decay=decay) for decay in (0.0, 0.5))
    without, _ = plain.update(params, plain.init(params), params)
    with_decay, _ = decayed.update(params, decayed.init(params), params)
    expected = jax.tree.map(lambda u, p: u - 0.1 * 0.5 * p, without, params)
    jax.tree.map(np.testing.assert_allclose, with_decay, expected)
