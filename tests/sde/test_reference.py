"""Reference likelihoods against laws that are known exactly, and against each other where none is."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import pytest

from stochflow.laws import GeometricBrownianMotion, LinearSDE, OrnsteinUhlenbeck
from stochflow.sde import (
    SDE,
    GridLaw,
    double_well,
    geometric_brownian_motion,
    grid_log_prob,
    guided_log_prob,
    linear_noise_log_prob,
    lorenz,
    ornstein_uhlenbeck,
    simulated_log_prob,
    solve,
)

STANDARD_ERRORS = 4.0
MATRIX, OFFSET, SCALE = (
    jnp.array([[-0.5, 2.0], [-1.0, -0.2]]),
    jnp.array([0.1, 0.4]),
    jnp.array([[0.6], [0.3]]),
)
OU = [1.5], [0.5], [0.7]


def test_linear_noise_is_exact_for_a_linear_sde(getkey):
    law = LinearSDE(MATRIX, OFFSET, SCALE)
    sde = SDE.autonomous(
        lambda x: MATRIX @ x + OFFSET, lambda x: SCALE, 2, noise="full", noise_dim=1, additive=True
    )
    x_s = jr.normal(getkey(), (2,))
    x_t = law.sample(x_s, 0.3, 1.5, key=getkey())
    ours = jax.jit(lambda t: linear_noise_log_prob(sde, x_t, x_s, 0.3, t, steps=200))
    assert jnp.allclose(ours(1.5), law.log_prob(x_t, x_s, 0.3, 1.5), atol=1e-7)
    assert linear_noise_log_prob(sde, x_s, x_s, 0.3, 0.3, steps=2) == jnp.inf
    with pytest.raises((ValueError, eqx.EquinoxRuntimeError), match="earlier"):
        linear_noise_log_prob(sde, x_s, x_s, 0.3, 0.2, steps=2)


def agrees(estimate, truth, bias=0.0):
    return jnp.abs(estimate.log_prob - truth) < STANDARD_ERRORS * estimate.standard_error + bias


@pytest.mark.parametrize("x_t", [0.5, 2.0])
def test_simulated_likelihoods_of_ornstein_uhlenbeck(x_t, getkey):
    law, sde, x_s, x_t = OrnsteinUhlenbeck(*OU), ornstein_uhlenbeck(*OU), jnp.array([1.0]), jnp.array([x_t])
    truth = law.log_prob(x_t, x_s, 0.0, 1.0)
    free = lambda key: simulated_log_prob(
        sde, x_t, x_s, 0.0, 1.0, steps=50, samples=2000, solver="additive_runge_kutta", key=key
    )
    guided = lambda key: guided_log_prob(sde, x_t, x_s, 0.0, 1.0, steps=50, samples=50, key=key)
    assert agrees(jax.jit(free)(getkey()), truth, 1e-3)
    exact = jax.jit(guided)(getkey())  # the guide is the law itself: no variance at all
    assert jnp.allclose(exact.log_prob, truth, atol=1e-6)
    assert exact.standard_error < 1e-6


@pytest.mark.parametrize("x_t", [1.1, 3.0])
def test_simulated_likelihoods_of_geometric_brownian_motion(x_t, getkey):
    law, sde = GeometricBrownianMotion([0.2], [0.4]), geometric_brownian_motion([0.2], [0.4])
    x_s, x_t = jnp.array([1.0]), jnp.array([x_t])
    truth = law.log_prob(x_t, x_s, 0.0, 1.0)
    free = lambda key: simulated_log_prob(
        sde, x_t, x_s, 0.0, 1.0, steps=64, samples=10_000, last=0.02, solver="milstein", key=key
    )
    guided = lambda key: guided_log_prob(
        sde, x_t, x_s, 0.0, 1.0, steps=64, samples=10_000, inflation=2.0, key=key
    )
    assert agrees(jax.jit(free)(getkey()), truth, 0.01)
    assert agrees(jax.jit(guided)(getkey()), truth, 0.02)


def test_grid_agrees_with_ornstein_uhlenbeck(getkey):
    law, sde = OrnsteinUhlenbeck(*OU), ornstein_uhlenbeck(*OU)
    grid = GridLaw(sde, 1.0, low=-3.0, high=4.0, points=300, doublings=8)
    x_s, x_t = jnp.array([1.0]), jnp.linspace(-0.5, 2.0, 7)[:, None]
    ours = jax.vmap(lambda x: grid.log_prob(x, x_s))(x_t)
    truth = jax.vmap(lambda x: law.log_prob(x, x_s, 0.0, 1.0))(x_t)
    assert jnp.allclose(ours, truth, atol=1e-4)
    assert jnp.allclose(grid.mass(x_s), 1.0, atol=1e-6)


def test_grid_agrees_with_geometric_brownian_motion():
    law, sde = GeometricBrownianMotion([0.2], [0.4]), geometric_brownian_motion([0.2], [0.4])
    x_s, x_t = jnp.array([1.0]), jnp.array([1.3])
    truth = law.log_prob(x_t, x_s, 0.0, 0.25)
    errors = [
        grid_log_prob(sde, x_t, x_s, 0.0, 0.25, low=0.3, high=2.5, points=500, doublings=k) - truth
        for k in (4, 5)
    ]
    assert jnp.abs(errors[1]) < 0.01
    assert 1.5 < errors[0] / errors[1] < 2.5  # first order, as multiplicative noise has it


@pytest.mark.slow
def test_grid_of_the_double_well(getkey):
    sde, x_s = double_well(1.0, 0.7), jnp.array([0.3])
    options = {"low": -2.6, "high": 2.6, "points": 360}
    # settled: the stationary density is known, and the error falls by four when the step is halved
    x = jnp.linspace(-2.6, 2.6, 360)
    log_density = 2 * (x**2 / 2 - x**4 / 4) / 0.7**2
    log_density -= jnp.log(jnp.exp(log_density).sum() * (x[1] - x[0]))
    errors = []
    for doublings in (13, 14):
        settled = GridLaw(sde, 80.0, **options, doublings=doublings)
        ours = jax.vmap(lambda x, law=settled: law.log_prob(x[None], x_s))(x[60:300:40])
        errors.append(jnp.abs(ours - log_density[60:300:40]).max())
    assert errors[1] < 1e-3
    assert 3.5 < errors[0] / errors[1] < 4.5
    # on the way: second order in the step
    x_t = jnp.array([-0.8])
    values = jnp.stack([GridLaw(sde, 1.0, **options, doublings=k).log_prob(x_t, x_s) for k in (6, 7, 8)])
    first, second = jnp.abs(jnp.diff(values))
    assert second < 2e-3
    assert first / second > 3
    # and what simulation says
    run = lambda key: simulated_log_prob(
        sde, x_t, x_s, 0.0, 1.0, steps=50, samples=10_000, last=0.04, solver="additive_runge_kutta", key=key
    )
    assert agrees(jax.jit(run)(getkey()), values[-1], 5e-3)


def test_lorenz_references_agree(getkey):
    """Free and guided simulation of a chaotic system with small noise; linear noise at a short gap."""
    sde, x_s = lorenz(), jnp.array([1.0, -0.5, 0.3])
    draw = jax.jit(lambda t, key: solve(sde, x_s, 0.0, t, steps=400, solver="additive_runge_kutta", key=key))
    free = jax.jit(
        lambda x_t, t, key: simulated_log_prob(
            sde, x_t, x_s, 0.0, t, steps=80, samples=4000, last=0.2, solver="additive_runge_kutta", key=key
        )
    )
    guided = jax.jit(
        lambda x_t, t, key: guided_log_prob(
            sde, x_t, x_s, 0.0, t, steps=100, samples=400, inflation=1.2, key=key
        )
    )
    linear = jax.jit(lambda x_t, t: linear_noise_log_prob(sde, x_t, x_s, 0.0, t, steps=200))
    for t in (0.1, 0.5):
        x_t = draw(t, getkey())
        one, other = free(x_t, t, getkey()), guided(x_t, t, getkey())
        error = jnp.hypot(one.standard_error, other.standard_error)
        assert jnp.abs(one.log_prob - other.log_prob) < STANDARD_ERRORS * error + 0.02
    x_t = draw(0.1, getkey())
    assert agrees(guided(x_t, 0.1, getkey()), linear(x_t, 0.1), 0.02)


BAD = {
    "last": (
        lambda x, key: simulated_log_prob(
            double_well(), x, x, 0.0, 1.0, steps=2, samples=2, last=1.0, key=key
        )
    ),
    "steps": (lambda x, key: guided_log_prob(double_well(), x, x, 0.0, 1.0, steps=1, samples=2, key=key)),
    "low": (lambda x, key: GridLaw(double_well(), 1.0, low=1.0, high=0.0)),
    "sde": (lambda x, key: GridLaw(lorenz(), 1.0, low=0.0, high=1.0)),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_an_error(name, getkey):
    with pytest.raises(ValueError, match=f"`{name}` must"):
        BAD[name](jnp.array([1.0]), getkey())


def test_grid_with_a_drift_too_stiff_at_its_edge_is_an_error():
    with pytest.raises(eqx.EquinoxRuntimeError, match="`doublings` must be larger"):
        GridLaw(double_well(1.0, 0.7), 40.0, low=-2.6, high=2.6, points=360, doublings=11)


def test_grid_that_does_not_resolve_a_step_is_an_error():
    with pytest.raises(eqx.EquinoxRuntimeError, match="`points` must be larger"):
        GridLaw(double_well(), 1.0, low=-3.0, high=3.0, points=50, doublings=10)
