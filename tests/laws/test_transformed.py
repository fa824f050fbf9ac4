"""Laws on a support, and laws that move with their start."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from stochflow.laws import (
    BrownianMotion,
    GeometricBrownianMotion,
    Relative,
    Standardised,
    Support,
    Transformed,
    horizon_of,
    latest_of,
)
from stochflow.laws.transformed import off_line, on_line

INF = float("inf")
SUPPORT = Support(["real", "positive", (-1.0, 2.0), (-INF, 3.0), (0.5, INF)], [1.0, 0.3, 1.0, 2.0, 0.1])


def test_the_line_and_the_support_are_one_to_one(getkey):
    y = 3 * SUPPORT.scale[None] * jr.normal(getkey(), (200, 5))
    x, log_slope = jax.vmap(SUPPORT.from_line)(y)
    assert jax.vmap(SUPPORT.contains)(x).all()
    assert jnp.allclose(jax.vmap(SUPPORT.to_line)(x), y, atol=1e-7)
    jacobian = jax.vmap(jax.jacfwd(lambda y: SUPPORT.from_line(y)[0]))(y)
    assert jnp.allclose(log_slope, jnp.linalg.slogdet(jacobian)[1], atol=1e-9)


def test_draws_stay_inside_even_where_rounding_would_not():
    x, _ = SUPPORT.from_line(jnp.array([0.0, -1e4, 1e4, 1e4, -1e4], jnp.float32))
    assert SUPPORT.contains(x)


def test_what_a_step_carried_over_a_bound_is_mirrored_back():
    folded = SUPPORT.fold(jnp.array([-7.0, -0.2, 2.5, 3.25, 0.4]))
    assert jnp.allclose(folded, jnp.array([-7.0, 0.2, 1.5, 2.75, 0.6]))


def test_a_transformed_density_integrates_to_one_and_is_zero_outside():
    law = Transformed(BrownianMotion([0.2], [[1.5]]), [(-1.0, 2.0)])
    grid = jnp.linspace(-1, 2, 20_001)[1:-1]
    density = jnp.exp(jax.vmap(lambda x: law.log_prob(x[None], jnp.array([0.3]), 0.0, 1.0))(grid))
    assert jnp.allclose(density.sum() * (grid[1] - grid[0]), 1, atol=1e-6)
    assert law.log_prob(jnp.array([2.5]), jnp.array([0.3]), 0.0, 1.0) == -jnp.inf


def test_the_gradient_of_a_log_density_is_finite_outside_the_support():
    law = Transformed(BrownianMotion([0.0], [[1.0]]), ["positive"])
    slope = jax.grad(lambda x: law.log_prob(jnp.array([0.5]), x, 0.0, 1.0))(jnp.array([0.7]))
    assert jnp.isfinite(slope).all()


def test_a_relative_law_is_the_same_wherever_it_starts(getkey):
    law = Relative(
        Standardised(BrownianMotion([0.1, 0.4], [[1.0, 0.0], [0.5, 1.0]]), [0.0, 0.0], [2.0, 1.0]), (0,)
    )
    x_s, shift = jnp.array([0.3, 0.8]), jnp.array([50.0, 0.0])
    noise = jr.normal(getkey(), (2,))
    near, far = law.transform(noise, x_s, 0.0, 1.0), law.transform(noise, x_s + shift, 0.0, 1.0)
    assert jnp.allclose(near + shift, far)
    assert jnp.allclose(law.log_prob(near, x_s, 0.0, 1.0), law.log_prob(far, x_s + shift, 0.0, 1.0))
    with pytest.raises(ValueError, match="`coordinates` must lie between 0 and 1; got"):
        Relative(law, (2,))
    bounded = Transformed(BrownianMotion([0.0, 0.0], jnp.eye(2)), ["real", "positive"])
    assert Relative(bounded, (0,)).dim == 2
    with pytest.raises(ValueError, match="`coordinates` must be some that may lie anywhere; coordinate 1 of"):
        Relative(bounded, (0, 1))


def test_a_transformed_law_has_the_latest_time_of_what_it_wraps():
    inner = Standardised(GeometricBrownianMotion([0.1], [0.2]), [0.0], [1.0], latest=5.0)
    assert latest_of(Transformed(inner, ["positive"])) == 5.0
    assert latest_of(GeometricBrownianMotion([0.1], [0.2])) is None


def test_a_transformed_law_has_the_horizon_of_what_it_wraps():
    inner = Standardised(BrownianMotion([0.0], [[1.0]]), [0.0], [1.0], 1.0, 3.0)
    assert horizon_of(Transformed(inner, ["positive"])) == 3.0
    assert horizon_of(GeometricBrownianMotion([0.1], [0.2])) is None


@pytest.mark.parametrize(
    ("support", "message"),
    [
        (["half"], "`support` must be real, positive or a pair"),
        ([(2.0, 1.0)], "`support` must have `low` below `high`; got 2, 1"),
        (["real", "real"], "`support` must have 1 coordinates; got 2"),
    ],
)
def test_a_wrong_support_is_an_error(support, message):
    with pytest.raises(ValueError, match=message):
        Transformed(BrownianMotion([0.0], [[1.0]]), support)


def test_double_precision_has_the_same_maps():
    y = np.random.default_rng(0).normal(size=(200, 5)) * 3 * np.asarray(SUPPORT.scale)
    x, line = off_line(SUPPORT, y), on_line(SUPPORT, off_line(SUPPORT, y))
    assert np.allclose(x, jax.vmap(SUPPORT.from_line)(jnp.asarray(y))[0], rtol=1e-12, atol=1e-14)
    assert np.allclose(line, jax.vmap(SUPPORT.to_line)(jnp.asarray(x)), rtol=1e-12, atol=1e-12)


# Bounds, and the one that values come near.
NEAR = {
    "one": ((0.0, 1.0), 1.0),
    "zero from above": ((0.0, 1.0), 0.0),
    "zero from below": ((-1.0, 0.0), 0.0),
    "a half-line": ((0.0, INF), 0.0),
    "a half-line at a level": ((1e4, INF), 1e4),
    "a half-line below a level": ((-INF, 1e4), 1e4),
    "an interval at a level": ((1e4, 1e4 + 1), 1e4),
}


@pytest.mark.parametrize(("interval", "bound"), NEAR.values(), ids=NEAR.keys())
def test_what_is_near_a_bound_comes_back(interval, bound):
    """At a bound of zero to as many digits as anywhere else."""
    support = Support([interval], jnp.array([3.0], jnp.float32))
    side = 1 if bound == interval[0] else -1
    x = bound + side * 10.0 ** -np.arange(0.5, 11.5)[:, None]
    assert np.isfinite(on_line(support, x)).all()
    assert np.allclose(off_line(support, on_line(support, x)), x, rtol=1e-12, atol=0)


@pytest.mark.parametrize(("interval", "bound"), NEAR.values(), ids=NEAR.keys())
def test_no_point_of_the_line_is_on_a_bound(interval, bound):
    support = Support([interval])
    x = off_line(support, np.array([[-1e300], [-1e4], [-800.0], [-40.0], [40.0], [800.0], [1e4], [1e300]]))
    assert np.isfinite(x).all()
    assert ((x > interval[0]) & (x < interval[1])).all()
