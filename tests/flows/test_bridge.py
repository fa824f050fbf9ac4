"""The learnt bridge meets both ends and knows its density."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from stochflow.flows import BridgeFlow

from .catalogue import BRIDGES, call, covariates

bridges = pytest.mark.parametrize("make", BRIDGES.values(), ids=BRIDGES.keys())
S, R, T = jnp.array(0.3), jnp.array(0.5), jnp.array(1.1)


@pytest.mark.parametrize(
    ("dim", "width", "paper"), [(3, 64, 26_410), (6, 30, 9_504), (6, 32, 10_452), (10, 64, 37_260)]
)
def test_parameter_counts_are_the_papers(dim, width, paper, getkey):
    leaves = jax.tree.leaves(eqx.filter(BridgeFlow(dim, width=width, key=getkey()), eqx.is_inexact_array))
    assert sum(leaf.size for leaf in leaves) == paper


@bridges
def test_both_ends_are_met_bit_for_bit(make, getkey):
    bridge, u = (bridge := make(getkey())), covariates(bridge)
    x_s, x_t = jr.normal(getkey(), (2, bridge.dim))
    assert (call(bridge, "sample", x_s, x_t, S, S, T, u, key=getkey()) == x_s).all()
    assert (call(bridge, "sample", x_s, x_t, S, T, T, u, key=getkey()) == x_t).all()


@bridges
def test_a_sample_has_the_log_density_that_came_with_it(make, getkey):
    bridge, u = (bridge := make(getkey())), covariates(bridge)
    x_s, x_t, noise = jr.normal(getkey(), (3, bridge.dim))
    x_r, log_prob = call(bridge, "transform_and_log_prob", noise, x_s, x_t, S, R, T, u)
    assert jnp.allclose(log_prob, call(bridge, "log_prob", x_r, x_s, x_t, S, R, T, u), atol=1e-8)
    jacobian = jax.jit(jax.jacfwd(lambda n: bridge.transform(n, x_s, x_t, S, R, T, u)))(noise)
    log_normal = jax.scipy.stats.norm.logpdf(noise).sum()
    assert jnp.allclose(log_prob, log_normal - np.linalg.slogdet(jacobian)[1], atol=1e-9)


@pytest.mark.parametrize("r", [0.1, 1.3])
def test_a_time_outside_is_an_error(r, getkey):
    bridge = BRIDGES["1 dim"](getkey())
    with pytest.raises(Exception, match="`r` must lie between"):
        call(bridge, "sample", jnp.zeros(1), jnp.ones(1), S, jnp.array(r), T, key=getkey())


@bridges
def test_at_an_end_the_density_is_that_of_a_point_and_gradients_are_finite(make, getkey):
    bridge, u = (bridge := make(getkey())), covariates(bridge)
    x_s, x_t = jr.normal(getkey(), (2, bridge.dim))
    for r, end in ((S, x_s), (T, x_t)):
        assert call(bridge, "log_prob", end, x_s, x_t, S, r, T, u) == jnp.inf
        assert call(bridge, "log_prob", end + 1, x_s, x_t, S, r, T, u) == -jnp.inf
        draw = lambda x_s, r=r: bridge.transform(jnp.ones(bridge.dim), x_s, x_t, S, r, T, u).sum()
        assert jnp.isfinite(jax.jit(jax.grad(draw))(x_s)).all()
