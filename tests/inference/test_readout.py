"""Drift and diffusion, read off laws that are known."""

import jax
import jax.numpy as jnp
import jax.random as jr
import pytest

from stochflow.inference import drift_and_diffusion
from stochflow.laws import OrnsteinUhlenbeck

LAW = OrnsteinUhlenbeck([0.7, 2.0], [0.3, -0.2], [0.9, 1.1])


def test_those_of_an_ornstein_uhlenbeck_process(getkey):
    x = jr.normal(getkey(), (5, 2))
    read = lambda x, k: drift_and_diffusion(LAW, x, gap=1e-4, samples=20_000, key=k)
    found = jax.vmap(read)(x, jr.split(getkey(), 5))
    assert jnp.allclose(found.drift, -LAW.rate[None] * (x - LAW.mean[None]), atol=1e-3)
    error = found.covariance_rate - jnp.diag(LAW.std**2)[None]
    assert jnp.abs(error).max() < 5 * 1.21 * jnp.sqrt(2 / 10_000)


def test_wrong_settings_are_refused(getkey):
    with pytest.raises(ValueError, match="`gap` must be positive; got 0"):
        drift_and_diffusion(LAW, jnp.zeros(2), gap=0.0, key=getkey())
    with pytest.raises(ValueError, match="`samples` must be at least 2; got 1"):
        drift_and_diffusion(LAW, jnp.zeros(2), gap=0.1, samples=1, key=getkey())
