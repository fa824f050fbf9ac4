"""Scores against closed forms of the Gaussian, and the energy distance against its own error."""

import jax
import jax.numpy as jnp
import jax.random as jr
import jax.scipy.stats as jst
import numpy as np
import pytest

from stochflow.metrics import crps, crps_of_draws, energy_distance, energy_score, mean_and_se

Z = 3.3  # bounds in standard errors: one false alarm in a thousand


def test_crps_is_that_of_the_gaussian(getkey):
    observations, samples = jnp.array([-2.0, 0.0, 0.7]), jr.normal(getkey(), (2000, 20))
    scores = jax.vmap(jax.vmap(crps, in_axes=(0, None)), in_axes=(None, 0))(samples, observations)
    for observation, values in zip(observations, scores):
        cdf, pdf = jst.norm.cdf(observation), jst.norm.pdf(observation)
        exact = observation * (2 * cdf - 1) + 2 * pdf - 1 / jnp.sqrt(jnp.pi)
        mean, se = mean_and_se(values)
        assert jnp.abs(mean - exact) < Z * se


def test_crps_is_the_energy_score_of_one_dimension(getkey):
    samples = 100 + jr.normal(getkey(), (101,))
    assert jnp.allclose(crps(samples, 99.0), energy_score(samples[:, None], jnp.array([99.0])), atol=1e-12)


def test_energy_score_is_best_for_the_right_law(getkey):
    def score(scale, key):
        sample_key, observation_key = jr.split(key)
        return energy_score(scale * jr.normal(sample_key, (50, 3)), jr.normal(observation_key, (3,)))

    keys = jr.split(getkey(), 2000)
    right, narrow, wide = (
        jax.vmap(lambda key, scale=scale: score(scale, key))(keys) for scale in (1, 0.5, 2)
    )
    for wrong in (narrow, wide):
        mean, se = mean_and_se(wrong - right)
        assert mean > Z * se


def test_energy_distance_of_equal_laws_is_zero(getkey):
    x, y = jr.normal(getkey(), (100, 80, 3)), jr.normal(getkey(), (100, 80, 3))
    distances = jax.vmap(energy_distance)(x, y)
    assert (jnp.abs(distances.mean) < Z * distances.se).all()
    mean, se = mean_and_se(distances.mean)
    assert jnp.abs(mean) < Z * se


@pytest.mark.parametrize("scale", [1.0, 1.5])
def test_error_of_the_energy_distance_is_its_spread(scale, getkey):
    x, y = jr.normal(getkey(), (400, 100, 2)), scale * jr.normal(getkey(), (400, 100, 2))
    distances = jax.vmap(energy_distance)(x, y)
    assert 0.8 < distances.se.mean() / distances.mean.std() < 1.5


def test_energy_distance_is_unbiased_for_coupled_samples(getkey):
    x = jr.normal(getkey(), (300, 40, 2))
    mean, se = mean_and_se(jax.vmap(energy_distance)(x, 1 + x).mean)
    independent = jax.vmap(energy_distance)(x, 1 + jr.normal(getkey(), (300, 40, 2))).mean
    other, other_se = mean_and_se(independent)
    assert jnp.abs(mean - other) < Z * jnp.hypot(se, other_se)


def test_too_few_samples_are_an_error():
    with pytest.raises(ValueError, match="at least 2; got 1"):
        crps(jnp.zeros(1), 0.0)
    with pytest.raises(ValueError, match="at least 2 draws of each forecast; got 1"):
        crps_of_draws(np.zeros((3, 1, 2)), np.zeros((3, 2)))
    with pytest.raises(ValueError, match="at least two numbers; got 1"):
        mean_and_se(jnp.zeros(1))
