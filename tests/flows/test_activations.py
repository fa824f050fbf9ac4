import jax
import jax.numpy as jnp
import numpy as np
import pytest

from stochflow.flows.activations import exp, sigmoid, silu, sine, softplus, tanh


def test_the_sigmoid_is_within_two_parts_in_ten_million():
    x = jnp.linspace(-200.0, 200.0, 400_001, dtype=jnp.float32)
    truth = 1 / (1 + np.exp(-np.asarray(x, np.float64)))
    found = jax.jit(sigmoid)(x)  # compiled: that is where a compiler may undo the rounding
    assert found.dtype == jnp.float32
    assert np.abs(np.asarray(found) - truth).max() < 2e-7
    normal = np.asarray(x) > -80
    assert np.abs(np.asarray(found)[normal] / truth[normal] - 1).max() < 1e-5


def test_extreme_inputs_saturate_and_nan_stays_nan():
    found = jax.jit(sigmoid)(jnp.array([jnp.inf, -jnp.inf, jnp.nan, 1e30, -1e30], jnp.float32))
    assert np.allclose(found[jnp.array([0, 3])], 1.0)
    assert np.allclose(found[jnp.array([1, 4])], 0.0)
    assert np.isnan(found[2])


def test_softplus_is_within_two_parts_in_ten_million():
    x = jnp.linspace(-80.0, 200.0, 400_001, dtype=jnp.float32)
    truth = np.logaddexp(0, np.asarray(x, np.float64))
    found = np.asarray(jax.jit(softplus)(x))
    assert found.dtype == jnp.float32
    assert (np.abs(found - truth) < 2e-7 * np.maximum(1, truth)).all()
    assert np.abs(found / truth - 1).max() < 1e-5
    ends = jax.jit(softplus)(jnp.array([jnp.inf, -jnp.inf, jnp.nan], jnp.float32))
    assert ends[0] == jnp.inf
    assert ends[1] < 1e-37
    assert np.isnan(ends[2])


def test_exponential_and_tanh_are_within_a_few_parts_in_ten_million():
    x = jnp.linspace(-80.0, 80.0, 400_001, dtype=jnp.float32)
    wide = np.asarray(x, np.float64)
    power, bend = np.asarray(jax.jit(exp)(x)), np.asarray(jax.jit(tanh)(x))
    assert power.dtype == bend.dtype == np.float32
    # The argument of a power is rounded, too, by as much as its last digit.
    assert (np.abs(power / np.exp(wide) - 1) < 3e-7 + np.spacing(np.abs(x)) * 1.5).all()
    assert np.abs(bend - np.tanh(wide)).max() < 4e-7
    assert tanh(jnp.zeros((), jnp.float32)) == 0


def test_the_sine_is_within_three_parts_in_ten_million_or_the_rounding_of_its_argument():
    x = np.concatenate([np.linspace(-50, 50, 400_001), np.geomspace(50, 1e6, 100_001)]).astype(np.float32)
    found = np.asarray(jax.jit(sine)(jnp.asarray(x)))
    assert found.dtype == np.float32
    error = np.abs(found - np.sin(x.astype(np.float64)))
    assert (error <= np.maximum(3e-7, np.spacing(np.abs(x)))).all()
    assert found[200_000] == 0.0
    assert np.isnan(jax.jit(sine)(jnp.array([jnp.inf, -jnp.inf, jnp.nan], jnp.float32))).all()


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [(silu, jax.nn.silu), (softplus, jax.nn.softplus), (sine, jnp.sin), (exp, jnp.exp), (tanh, jnp.tanh)],
)
def test_double_precision_is_exact_and_gradients_agree(ours, theirs):
    x = np.linspace(-20, 20, 101)
    assert np.array_equal(ours(jnp.asarray(x)), theirs(jnp.asarray(x)))
    # To a cosine's argument π/2 was added, which rounds it.
    for dtype, tolerance in [(jnp.float32, 2e-6 if ours is sine else 1e-6), (jnp.float64, 1e-14)]:
        slopes = [jax.jit(jax.vmap(jax.grad(f)))(jnp.asarray(x, dtype)) for f in (ours, theirs)]
        assert slopes[0].dtype == dtype
        # Of powers, a share; their argument is rounded by as much as its last digit, up to 20.
        np.testing.assert_allclose(*slopes, atol=tolerance, rtol=2e-6 if ours is exp else 1e-7)
