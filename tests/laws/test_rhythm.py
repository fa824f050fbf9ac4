"""The closed form of a rhythm, against the matrix exponential, and its words for wrong parameters."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from stochflow.laws import LinearBridge, LinearSDE, Rhythm
from stochflow.objectives import one_to_two_gap

RATES, SWAYS, PACE, STD = [0.3, 2.0, 1e-3], [0.4, -0.2, 0.1], 1.1, 0.05


def as_linear_sde() -> LinearSDE:
    matrix = np.zeros((4, 4))
    matrix[:3, :3] = -np.diag(RATES)
    matrix[3, :3] = SWAYS
    scale = np.diag([*np.sqrt(2 * np.array(RATES)), STD])
    return LinearSDE(matrix, [0.0, 0.0, 0.0, PACE], scale)


@pytest.mark.parametrize("gap", [1e-4, 0.01, 0.3, 5.0, 200.0])
def test_a_step_is_that_of_the_linear_sde(gap):
    found, exact = (
        law.moments(jnp.array(gap), None) for law in (Rhythm(RATES, SWAYS, PACE, STD), as_linear_sde())
    )
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(exact), strict=True):
        assert jnp.allclose(one, other, rtol=1e-9, atol=1e-12)


def test_the_density_is_that_of_the_linear_sde(getkey):
    x_s, x_t = jr.normal(getkey(), (2, 4))
    laws = Rhythm(RATES, SWAYS, PACE, STD), as_linear_sde()
    found, exact = (law.log_prob(x_t, x_s, 0.5, 1.9) for law in laws)
    assert jnp.allclose(found, exact, rtol=1e-10)


def test_there_is_no_consistency_gap_at_any_sample(getkey):
    law = Rhythm(RATES, SWAYS, PACE, STD)
    gap = one_to_two_gap(law, LinearBridge(law), jr.normal(getkey(), (4,)), 0.1, 0.4, 2.3, key=getkey())
    assert jnp.abs(gap) < 1e-9


def test_single_precision_has_a_small_error_at_short_gaps():
    exact = Rhythm(RATES, SWAYS, PACE, STD).moments(jnp.array(1e-3), None)
    single = jax.tree.map(lambda leaf: leaf.astype(jnp.float32), Rhythm(RATES, SWAYS, PACE, STD))
    found = single.moments(jnp.array(1e-3, jnp.float32), None)
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(exact), strict=True):
        assert one.dtype == jnp.float32
        assert jnp.allclose(one, other, rtol=1e-4, atol=1e-9)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"rate": [0.3, 0.0, 1.0]}, "`rate` must be positive"),
        ({"sway": [0.3]}, "`sway` must be a vector of length 3"),
        ({"pace": np.nan}, "`pace` must be finite"),
        ({"std": 0.0}, "`std` must be positive"),
        ({"std": np.array([0.1])}, "`pace` and `std` must be numbers"),
    ],
)
def test_wrong_parameters_are_refused(change, message):
    good = {"rate": RATES, "sway": SWAYS, "pace": PACE, "std": STD}
    with pytest.raises(ValueError, match=message):
        Rhythm(**good | change)
