"""The systems with names are what their formulas say."""

import jax.numpy as jnp
import numpy as np
import pytest

from stochflow import SDE, sde


def test_heston_has_correlated_noise_and_no_diffusion_below_zero():
    system = sde.heston(rate=2.0, mean=0.05, volatility=0.4, correlation=-0.6, growth=0.02)
    x = jnp.array([4.0, 0.09])
    assert jnp.allclose(system.drift(0.0, x, None), jnp.array([0.02 - 0.045, 2.0 * (0.05 - 0.09)]))
    matrix = system.diffusion_matrix(0.0, x)
    covariance = 0.09 * jnp.array([[1.0, -0.6 * 0.4], [-0.6 * 0.4, 0.16]])
    assert jnp.allclose(matrix @ matrix.T, covariance)
    assert jnp.all(system.diffusion_matrix(0.0, jnp.array([4.0, -0.01])) == 0)


def test_by_default_the_variance_of_heston_stays_positive():
    rate, mean, volatility = 1.5, 0.04, 0.3
    assert 2 * rate * mean > volatility**2  # Feller
    assert jnp.allclose(sde.heston().drift(0.0, jnp.array([0.0, 0.1]), None)[1], rate * (mean - 0.1))


def test_populations_rest_where_births_and_deaths_balance():
    system = sde.lotka_volterra(birth=1.0, hunt=2.0, feed=3.0, death=1.5, noise=0.1)
    x = jnp.array([0.5, 0.5])
    assert jnp.allclose(system.drift(0.0, x, None), 0)
    assert jnp.allclose(system.diffusion(0.0, x, None), 0.1 * x)


def test_a_neuron_and_a_chain():
    neuron = sde.fitzhugh_nagumo(slowness=0.1, a=0.7, b=0.8, current=0.5, noise=(0.2, 0.1))
    assert jnp.allclose(neuron.drift(0.0, jnp.array([0.0, 0.5]), None), jnp.array([0.0, 0.1 * (0.7 - 0.4)]))
    assert jnp.allclose(neuron.diffusion(0.0, jnp.zeros(2), None), jnp.array([0.2, 0.1]))
    chain = sde.langevin_chain(4, strength=1.0, stiffness=2.0, noise=0.5)
    assert jnp.allclose(chain.drift(0.0, jnp.ones(4), None), 0)  # all in one well: neither force acts
    pulled = chain.drift(0.0, jnp.array([1.0, 0.0, 0.0, 0.0]), None)
    assert jnp.allclose(pulled, jnp.array([-4.0, 2.0, 0.0, 2.0]))


@pytest.mark.parametrize("wrong", ["1", 1.5, 0, -2, True, None, 1.0])
def test_sizes_are_positive_integers(wrong, as_users_have_it):
    with pytest.raises(ValueError, match="`dim` must be a positive integer; got"):
        SDE(jnp.negative, jnp.ones_like, wrong)
    if wrong is not None:
        with pytest.raises(ValueError, match="`noise_dim` must be a positive integer; got"):
            SDE(jnp.negative, jnp.ones_like, 2, noise="full", noise_dim=wrong)


def test_an_integer_of_numpy_is_one(as_users_have_it):
    assert type(SDE(jnp.negative, jnp.ones_like, np.int64(3)).dim) is int
