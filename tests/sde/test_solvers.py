"""Solvers: the orders that they promise, and what is true of all of them."""

import sys

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from stochflow.laws import GeometricBrownianMotion, OrnsteinUhlenbeck
from stochflow.sde import (
    SDE,
    SOLVERS,
    EulerMaruyama,
    brownian_increments,
    coarsen,
    cox_ingersoll_ross,
    double_well,
    geometric_brownian_motion,
    lorenz,
    ornstein_uhlenbeck,
    solve,
    solve_driven,
    solve_path,
    solve_path_diffrax,
)

STANDARD_ERRORS = 4.0

DRIFT, VOLATILITY = 0.3, 0.8
GEOMETRIC = geometric_brownian_motion([DRIFT], [VOLATILITY])
# the same process, written in Stratonovich's calculus and with a matrix of noise
GEOMETRIC_STRATONOVICH = SDE.autonomous(
    lambda x: (DRIFT - VOLATILITY**2 / 2) * x, lambda x: VOLATILITY * x, 1, interpretation="stratonovich"
)
GEOMETRIC_FULL = SDE.autonomous(
    lambda x: DRIFT * x, lambda x: VOLATILITY * x[:, None], 1, noise="full", noise_dim=1
)
WELL = double_well(1.0, 0.5)

# name: (SDE, solver, strong order)
ORDERS = {
    "euler_maruyama": (GEOMETRIC, "euler_maruyama", 0.5),
    "euler_maruyama_full": (GEOMETRIC_FULL, "euler_maruyama", 0.5),
    "euler_maruyama_stratonovich": (GEOMETRIC_STRATONOVICH, "euler_maruyama", 0.5),
    "milstein": (GEOMETRIC, "milstein", 1.0),
    "runge_kutta": (GEOMETRIC, "runge_kutta", 1.0),
    "heun": (GEOMETRIC_STRATONOVICH, "heun", 1.0),
    "heun_ito": (GEOMETRIC, "heun", 1.0),
    "heun_full": (GEOMETRIC_FULL, "heun", 1.0),
    "additive_euler_maruyama": (WELL, "euler_maruyama", 1.0),
    "additive_runge_kutta": (WELL, "additive_runge_kutta", 1.5),
}


@pytest.mark.parametrize(("sde", "solver", "order"), ORDERS.values(), ids=ORDERS.keys())
def test_strong_order(sde, solver, order, getkey):
    """Slope of the root mean square error at time 1, on the same Brownian paths at every step size."""
    # Without an exact solution: the same scheme, 16 times finer. The well starts at smaller steps, because at
    # larger ones the drift's own error, of second order, hides the order 1.5 of the noise.
    levels, start, finest = (4, 512, 8192) if sde is WELL else (4, 64, 64)
    x0 = jnp.array([1.0])

    @jax.jit
    @jax.vmap
    def errors(key):
        path = brownian_increments(1.0, finest, 1, key=key)
        if sde is WELL:
            exact = solve_driven(sde, x0, 0.0, 1.0, path, solver=solver)
        else:
            exact = x0 * jnp.exp(DRIFT - VOLATILITY**2 / 2 + VOLATILITY * path.dw.sum())
        while path.dw.shape[0] > start:
            path = coarsen(path)
        out = []
        for _ in range(levels):
            out.append((solve_driven(sde, x0, 0.0, 1.0, path, solver=solver) - exact)[0] ** 2)
            path = coarsen(path)
        return jnp.stack(out)

    rms = jnp.sqrt(errors(jr.split(getkey(), 500)).mean(axis=0))
    slope = np.polyfit(np.arange(levels), np.log2(rms), 1)[0]
    assert abs(slope - order) < 0.15


@pytest.mark.parametrize("solver", ["euler_maruyama", "milstein", "runge_kutta", "heun"])
def test_weak_order_one(solver, getkey):
    """The error of the mean of a linear SDE halves with the step; shared paths keep the noise out of it."""
    sde, x0, key = geometric_brownian_motion([1.0], [0.3]), jnp.array([1.0]), getkey()

    @jax.jit
    @jax.vmap
    def errors(key):
        path = brownian_increments(1.0, 32, 1, key=key)
        exact = x0 * jnp.exp(1.0 - 0.3**2 / 2 + 0.3 * path.dw.sum())
        coarse = coarsen(path)
        coarser = coarsen(coarse)
        return jnp.stack(
            [(solve_driven(sde, x0, 0.0, 1.0, p, solver=solver) - exact)[0] for p in (path, coarse, coarser)]
        )

    bias = jnp.abs(errors(jr.split(key, 4000)).mean(axis=0))
    slope = np.polyfit(np.arange(3), np.log2(bias), 1)[0]
    assert abs(slope - 1.0) < 0.35


def test_weak_order_two_of_additive_runge_kutta(getkey):
    """A path and its mirror image cancel in the mean of a linear SDE: what is left is the error of the mean."""
    sde, x0 = ornstein_uhlenbeck([2.0], [0.0], [0.5]), jnp.array([1.0])
    run = lambda path: solve_driven(sde, x0, 0.0, 1.0, path, solver="additive_runge_kutta")[0]
    both = jax.jit(lambda path: (run(path) + run(jax.tree.map(jnp.negative, path))) / 2)
    fine = brownian_increments(1.0, 64, 1, key=getkey())
    paths = [fine, coarsen(fine), coarsen(coarsen(fine))]
    bias = jnp.abs(jnp.stack([both(path) for path in paths]) - jnp.exp(-2.0))
    slope = np.polyfit(np.arange(3), np.log2(bias), 1)[0]
    assert abs(slope - 2.0) < 0.15


def test_coarse_increments_are_those_of_the_same_path(getkey):
    fine = brownian_increments(2.0, 4096, 2, key=getkey())

    @jax.jit
    def coarsest(path):
        while path.dw.shape[0] > 1:
            path = coarsen(path)
        return path

    coarse = coarsest(fine)
    h = 2.0 / 4096
    path = jnp.concatenate([jnp.zeros((1, 2)), jnp.cumsum(fine.dw, axis=0)])
    assert jnp.allclose(coarse.dw[0], path[-1])
    assert jnp.allclose(coarse.average[0], (path[:-1] + fine.average).mean(axis=0), atol=1e-12)
    moments = jnp.stack([fine.dw.var(), fine.average.var(), (fine.dw * fine.average).mean()]) / h
    assert jnp.allclose(moments, jnp.array([1.0, 1 / 3, 1 / 2]), rtol=0.1)


@pytest.mark.parametrize("name", SOLVERS)
def test_zero_gap_is_the_identity_and_a_negative_gap_an_error(name, getkey):
    x0 = jnp.array([0.3, 1.7, 20.0])
    run = eqx.filter_jit(lambda t1, key: solve(lorenz(), x0, 0.5, t1, steps=3, solver=name, key=key))
    assert jnp.all(run(jnp.array(0.5), getkey()) == x0)
    with pytest.raises((ValueError, eqx.EquinoxRuntimeError), match="earlier"):
        run(jnp.array(0.4), getkey())


@pytest.mark.parametrize("name", SOLVERS)
def test_every_solver_samples_the_law_of_ornstein_uhlenbeck(name, getkey):
    parameters = [1.5, 0.5], [1.0, -1.0], [0.8, 0.3]
    law, x0 = OrnsteinUhlenbeck(*parameters), jnp.array([0.0, 2.0])
    sde = ornstein_uhlenbeck(*parameters)
    draw = jax.jit(jax.vmap(lambda key: solve(sde, x0, 0.2, 1.2, steps=100, solver=name, key=key)))
    x, step = draw(jr.split(getkey(), 4000)), law.moments(jnp.array(1.0), None)
    std = jnp.diagonal(step.scale_tril)
    bias = 0.01  # a hundred steps of Euler–Maruyama
    assert jnp.all(
        jnp.abs(x.mean(axis=0) - step.given(x0).mean) < STANDARD_ERRORS * std / np.sqrt(4000) + bias
    )
    assert jnp.all(jnp.abs(x.std(axis=0) / std - 1) < STANDARD_ERRORS / np.sqrt(2 * 4000) + bias)


def test_path_has_the_law_of_geometric_brownian_motion_at_each_time(getkey):
    law, times = GeometricBrownianMotion([0.1], [0.4]), jnp.array([0.0, 0.3, 0.3, 1.0])
    sde, x0 = geometric_brownian_motion([0.1], [0.4]), jnp.array([2.0])
    run = lambda key: solve_path(sde, x0, times, substeps=20, solver="milstein", key=key)
    paths = jax.jit(jax.vmap(run))(jr.split(getkey(), 4000))
    assert jnp.all(paths[:, 0] == x0[None])
    assert jnp.all(paths[:, 1] == paths[:, 2])
    log_end = jnp.log(paths[:, 3, 0])
    step = law.log_motion.moments(jnp.array(1.0), None).given(jnp.log(x0))
    error = step.scale_tril[0, 0] / np.sqrt(4000)
    assert jnp.abs(log_end.mean() - step.mean[0]) < STANDARD_ERRORS * error + 1e-3


def test_time_and_covariates_reach_the_functions(getkey):
    sde = SDE(lambda t, x, u: u * t, lambda t, x, u: 0 * x, 2, additive=True)
    u, x0 = jnp.array([1.0, -2.0]), jnp.zeros(2)
    x = solve(sde, x0, 1.0, 3.0, u, steps=100, solver="heun", key=getkey())
    assert jnp.allclose(x, u * (3.0**2 - 1.0**2) / 2)


def test_solutions_are_differentiable(getkey):
    sde, key = cox_ingersoll_ross([1.0], [0.5], [0.4]), getkey()
    for name in ("euler_maruyama", "milstein", "runge_kutta", "heun"):
        end = lambda x0, name=name: solve(sde, x0, 0.0, 1.0, steps=20, solver=name, key=key).sum()
        assert jnp.all(jnp.isfinite(jax.jit(jax.grad(end))(jnp.array([0.0]))))


@pytest.mark.parametrize(
    "sde", [GEOMETRIC, GEOMETRIC_STRATONOVICH, GEOMETRIC_FULL], ids=["ito", "strat", "full"]
)
def test_diffrax_samples_the_same_law(sde, getkey):
    times, x0 = jnp.array([0.0, 0.5, 1.0]), jnp.array([1.0])
    run = lambda key: solve_path_diffrax(sde, x0, times, step=1 / 32, key=key)
    log_end = jnp.log(jax.jit(jax.vmap(run))(jr.split(getkey(), 1000))[:, -1, 0])
    error = VOLATILITY / np.sqrt(1000)
    assert jnp.abs(log_end.mean() - (DRIFT - VOLATILITY**2 / 2)) < STANDARD_ERRORS * error + 0.02


def test_without_diffrax_the_error_says_what_to_install(monkeypatch, getkey):
    monkeypatch.setitem(sys.modules, "diffrax", None)
    with pytest.raises(ImportError, match=r"pip install stochflow\[diffrax\]"):
        solve_path_diffrax(WELL, jnp.array([1.0]), jnp.array([0.0, 1.0]), step=0.1, key=getkey())


KEY, X = jr.key(0), jnp.array([1.0])
BAD = {
    "noise": (
        lambda: SDE(abs, abs, 1, noise="scalar"),
        "`noise` must be one of diagonal, full; got 'scalar'",
    ),
    "interpretation": (lambda: SDE(abs, abs, 1, interpretation="Ito"), "`interpretation` must be one of"),
    "dim": (lambda: SDE(abs, abs, 0), "`dim` must be a positive integer; got 0"),
    "noise_dim": (lambda: SDE(abs, abs, 2, noise_dim=3), "`noise_dim` must be `dim`"),
    "solver": (
        lambda: solve(WELL, X, 0.0, 1.0, steps=2, solver="euler", key=KEY),
        "euler_maruyama, milstein",
    ),
    "steps": (
        lambda: solve(WELL, X, 0.0, 1.0, steps=0, solver=EulerMaruyama(), key=KEY),
        "`steps` must be at least",
    ),
    "x0": (lambda: solve(lorenz(), X, 0.0, 1.0, steps=2, key=KEY), r"`x0` must have shape \(3,\)"),
    "full": (lambda: solve(GEOMETRIC_FULL, X, 0.0, 1.0, steps=2, solver="milstein", key=KEY), "diagonal"),
    "multiplicative": (
        lambda: solve(GEOMETRIC, X, 0.0, 1.0, steps=2, solver="additive_runge_kutta", key=KEY),
        "additive=True",
    ),
}


@pytest.mark.parametrize(("make", "message"), BAD.values(), ids=BAD.keys())
def test_bad_input_is_an_error(make, message):
    with pytest.raises(ValueError, match=message):
        make()
