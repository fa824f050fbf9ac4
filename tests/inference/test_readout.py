"""Drift and diffusion, read off laws that are known."""

import jax
import jax.numpy as jnp
import jax.random as jr
import pytest

from stochflow.inference import drift_and_diffusion, drift_field
from stochflow.laws import MatrixOrnsteinUhlenbeck, OrnsteinUhlenbeck

RATE = jnp.array([[0.5, -1.0, 0.0], [1.0, 0.5, 0.2], [0.1, 0.0, 0.9]])
SCALE = jnp.array([[0.6, 0.0, 0.0], [0.3, 0.5, 0.0], [0.0, 0.2, 0.7]])
LAW = OrnsteinUhlenbeck([0.7, 2.0], [0.3, -0.2], [0.9, 1.1])


def test_those_of_an_ornstein_uhlenbeck_process(getkey):
    x = jr.normal(getkey(), (5, 2))
    read = lambda x, k: drift_and_diffusion(LAW, x, gap=1e-4, samples=64, key=k)
    found = jax.vmap(read)(x, jr.split(getkey(), 5))
    assert jnp.allclose(found.drift, -LAW.rate[None] * (x - LAW.mean[None]), atol=1e-3)
    assert jnp.allclose(found.covariance_rate, jnp.diag(LAW.std**2)[None], atol=1e-3)


def test_a_grid_over_some_coordinates_with_the_others_where_they_are_told_to_stand(getkey):
    law = MatrixOrnsteinUhlenbeck(RATE, jnp.zeros(3), SCALE)
    at = jnp.array([0.3, 9.0, 9.0])
    found = drift_field(law, [-1, 0], [1, 2], gap=1e-5, points=4, over=(2, 1), at=at, key=getkey())
    assert found.points.shape == (4, 4, 2)
    assert jnp.allclose(found.points[-1, 0], jnp.array([1.0, 0.0]))
    states = jnp.stack([jnp.full((4, 4), 0.3), found.points[..., 1], found.points[..., 0]], axis=-1)
    pick = jnp.array([2, 1])
    assert jnp.allclose(found.drift, (-states @ RATE.T)[..., pick], atol=1e-3)
    truth = (SCALE @ SCALE.T)[pick][:, pick]
    assert jnp.allclose(found.covariance_rate, truth[None, None], atol=1e-3)
    line = drift_field(law, -1.0, 1.0, gap=1e-5, points=3, over=(0,), key=getkey())
    assert line.points.shape == line.drift.shape == (3, 1)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"over": (0, 0)}, r"`over` must name one or two of the 2 coordinates, from 0; got \(0, 0\)"),
        ({"over": (2,)}, "`over` must name one or two"),
        ({"low": [0.0]}, "`low` and `high` must hold 2 numbers each"),
        ({"high": [1.0, -1.0]}, "the first below the second"),
        ({"points": 1}, "`points` must be at least 2; got 1"),
        ({"at": [0.0]}, "`at` must have shape"),
    ],
)
def test_grids_that_cannot_be_are_refused(wrong, message, getkey):
    with pytest.raises(ValueError, match=message):
        drift_field(LAW, **({"low": [0.0, 0.0], "high": [1.0, 1.0], "gap": 0.1, "key": getkey()} | wrong))


def test_wrong_settings_are_refused(getkey):
    with pytest.raises(ValueError, match="`gap` must be positive; got 0"):
        drift_and_diffusion(LAW, jnp.zeros(2), gap=0.0, key=getkey())
    with pytest.raises(ValueError, match="`samples` must be at least 2; got 1"):
        drift_and_diffusion(LAW, jnp.zeros(2), gap=0.1, samples=1, key=getkey())


@pytest.mark.usefixtures("as_users_have_it")
def test_what_is_no_law_is_refused(getkey):
    with pytest.raises(ValueError, match=r"`law` must be a transition law, .*; got str"):
        drift_and_diffusion("law", jnp.zeros(2), gap=0.1, key=getkey())
