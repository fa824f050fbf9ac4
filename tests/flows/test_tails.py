import jax
import jax.numpy as jnp
import numpy as np
import pytest

from stochflow.flows.tails import LEAST_TAIL, lambert_w, stretch_tails, tail_weight, unstretch_tails


def test_lambert_w_solves_its_equation_over_forty_decades():
    v = jnp.concatenate([jnp.zeros(1), 10.0 ** jnp.linspace(-20, 20, 401)])
    w = lambert_w(v)
    assert w[0] == 0
    np.testing.assert_allclose(w * jnp.exp(w), v, rtol=1e-9)
    slopes = jax.vmap(jax.grad(lambert_w))(v)
    np.testing.assert_allclose(slopes, 1 / (jnp.exp(w) * (1 + w)), rtol=1e-9)


@pytest.mark.parametrize("weight", [0.0, LEAST_TAIL, 0.25])
def test_stretching_is_undone_and_the_slopes_are_autodiffs(weight):
    x, weights = jnp.linspace(-8, 8, 33), jnp.full(33, weight)
    y, log_slope = stretch_tails(x, weights)
    back, inverse_log_slope = unstretch_tails(y, weights)
    np.testing.assert_allclose(back, x, atol=1e-10)
    np.testing.assert_allclose(log_slope, -inverse_log_slope, atol=1e-10)
    slope = jax.grad(lambda x: stretch_tails(x, weights)[0].sum())(x)  # each y depends on its own x alone
    np.testing.assert_allclose(log_slope, jnp.log(slope), atol=1e-10)


def test_a_surprise_costs_a_logarithm():
    def cost(y):
        x, log_slope = unstretch_tails(y, tail_weight(jnp.zeros(1)))
        return float((0.5 * x**2 - log_slope)[0])

    assert 0.5 * 30**2 == 450
    assert cost(jnp.array([30.0])) < 60
    assert cost(jnp.array([3000.0])) < 400


def test_the_least_tail_is_all_but_normal():
    x = jnp.linspace(-12, 12, 20_001)
    noise, log_slope = unstretch_tails(x, jnp.full_like(x, LEAST_TAIL))
    log_normal = lambda x: -0.5 * x**2 - 0.5 * np.log(2 * np.pi)
    log_tailed = log_normal(noise) + log_slope
    scale = jnp.exp(0.75 * LEAST_TAIL)  # about the best normal scale for it
    truth = log_normal(x / scale) - jnp.log(scale)
    kl = jnp.trapezoid(jnp.exp(truth) * (truth - log_tailed), x)
    assert 0 < kl < 2e-3
