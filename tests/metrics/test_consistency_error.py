"""A process has no consistency error; a law whose spread is wrong by the gap has one that grows with it."""

import jax.numpy as jnp
import jax.random as jr
import pytest

from stochflow.metrics import consistency_bound, consistency_error

Z = 3.3  # bounds in standard errors: one false alarm in a thousand
GAPS = jnp.array([0.2, 0.5, 1.0])


@pytest.mark.parametrize("steps", [2, 4])
def test_exact_law_agrees_with_itself(steps, law, getkey):
    error = consistency_error(
        law(), jr.normal(getkey(), (30, 2)), 0.1, GAPS, steps=steps, samples=128, key=getkey()
    )
    assert error.steps == steps
    assert (jnp.abs(error.mean) < Z * error.se).all()


def test_starts_may_be_of_another_precision_than_the_law(law, getkey):
    x_s = jr.normal(getkey(), (4, 2), jnp.float32)
    error = consistency_error(law(), x_s, 0.1, GAPS, steps=2, samples=64, key=getkey())
    assert error.mean.shape == GAPS.shape


@pytest.mark.parametrize("steps", [2, 4])
def test_inconsistent_law_is_flagged(steps, law, getkey):
    x_s = jr.normal(getkey(), (30, 2))
    error = consistency_error(law(drift_with_gap=1.0), x_s, 0.1, GAPS, steps=steps, samples=128, key=getkey())
    assert (error.mean[1:] > Z * error.se[1:]).all()
    assert (jnp.diff(error.mean) > 0).all()


def test_bound_of_exact_law_and_bridge_is_zero_at_every_sample(law, bridge, getkey):
    x_s = jr.normal(getkey(), (100, 2))
    bound = consistency_bound(law(), bridge(), x_s, 0.1, GAPS, key=getkey())
    assert jnp.allclose(bound.mean, 0, atol=1e-10)
    assert jnp.allclose(bound.se, 0, atol=1e-10)


def test_bound_of_inconsistent_law_is_positive(law, bridge, getkey):
    x_s = jr.normal(getkey(), (100, 2))
    bound = consistency_bound(law(drift_with_gap=1.0), bridge(), x_s, 0.1, GAPS, key=getkey())
    assert (bound.mean > Z * bound.se).all()


def test_one_step_is_no_walk(law, getkey):
    with pytest.raises(ValueError, match="`steps` must be at least two; got 1"):
        consistency_error(law(), jnp.zeros((2, 2)), 0.0, GAPS, steps=1, key=getkey())
