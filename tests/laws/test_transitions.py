"""What is true of every transition law."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from stochflow.laws import (
    BrownianBridge,
    BrownianMotion,
    Standardised,
    StandardisedBridge,
    bridge_gaps,
    time_gap,
    times_in_order,
)

from .law_catalogue import LAWS, X_S, U

S, T = 0.4, 1.3
# Monte-Carlo bounds, in standard errors: a false alarm in about 1 of 15,000 comparisons.
STANDARD_ERRORS = 4.0

over_laws = pytest.mark.parametrize("law", LAWS.values(), ids=LAWS.keys())


@eqx.filter_jit
def sensitivity(function, law, *args):
    """Gradients of a function of the law and its arguments with respect to all of them, as one vector."""
    grads = eqx.filter_grad(lambda inputs: function(*inputs))((law, *args))
    return jnp.concatenate([jnp.ravel(g) for g in jax.tree.leaves(grads)])


@over_laws
def test_zero_gap_is_the_identity(law, getkey):
    x_t, log_prob = law.transform_and_log_prob(jr.normal(getkey(), (2,)), X_S, T, T, U)
    assert jnp.all(x_t == X_S)
    assert log_prob == jnp.inf
    assert law.log_prob(X_S, X_S, T, T, U) == jnp.inf
    assert law.log_prob(X_S + 1e-9, X_S, T, T, U) == -jnp.inf


@over_laws
def test_negative_gap_is_an_error(law, getkey):
    noise = jr.normal(getkey(), (2,))
    with pytest.raises((ValueError, eqx.EquinoxRuntimeError), match="earlier"):
        law.log_prob(X_S, X_S, T, S, U)
    with pytest.raises((ValueError, eqx.EquinoxRuntimeError), match="earlier"):
        eqx.filter_jit(law.transform)(noise, X_S, jnp.array(T), jnp.array(S), U)


def test_times_that_are_not_finite_are_an_error():
    gap, gaps = eqx.filter_jit(time_gap), eqx.filter_jit(bridge_gaps)
    for s, t in [(0.0, np.nan), (np.nan, 1.0), (0.0, np.inf), (-np.inf, 0.0), (np.inf, np.inf)]:
        for r in (s, 0.5, t):
            with pytest.raises(ValueError, match="all must be finite"):
                bridge_gaps(s, r, t)
        with pytest.raises(ValueError, match="both must be finite"):
            time_gap(s, t)
        with pytest.raises(eqx.EquinoxRuntimeError, match="both must be finite"):
            gap(jnp.array(s), jnp.array(t))
        with pytest.raises(eqx.EquinoxRuntimeError, match="all must be finite"):
            gaps(jnp.array(s), jnp.array(0.5), jnp.array(t))


def test_known_times_out_of_order_are_a_value_error_and_order_that_is_promised_costs_nothing():
    with pytest.raises(ValueError, match=r"`r` must lie between `s` and `t`.*got a gap of -1 and then 2"):
        bridge_gaps(1.0, 0.0, 2.0)
    with times_in_order():
        steps = jax.make_jaxpr(lambda s, r, t: (time_gap(s, t), bridge_gaps(s, r, t)))(0.0, 1.0, 2.0)
    assert [equation.primitive.name for equation in steps.eqns] == ["sub"] * 3


@over_laws
def test_states_of_another_size_are_refused_in_our_words(law, getkey, as_users_have_it):
    three, key = jnp.ones(3), getkey()
    with pytest.raises(ValueError, match=r"`x_s` must have shape \(2,\); got \(3,\).*`jax.vmap` for a batch"):
        law.sample(three, S, T, U, key=key)
    with pytest.raises(ValueError, match=r"`x_s` must have shape \(2,\); got \(5, 2\)"):
        law.log_prob(X_S, jnp.ones((5, 2)), S, T, U)
    with pytest.raises(ValueError, match=r"`x_t` must have shape \(2,\); got \(3,\)"):
        law.log_prob(three, X_S, S, T, U)
    with pytest.raises(ValueError, match=r"`noise` must have shape \(2,\); got \(3,\)"):
        law.transform(three, X_S, S, T, U)
    x_s = X_S.tolist()
    assert (law.sample(x_s, S, T, U, key=key) == law.sample(X_S, S, T, U, key=key)).all()
    assert law.log_prob(x_s, x_s, S, T, U) == law.log_prob(X_S, X_S, S, T, U)


@over_laws
def test_transform_gives_the_log_prob_of_its_output_and_jit_and_vmap_change_nothing(law, getkey):
    noise = jr.normal(getkey(), (20, 2))

    @jax.jit
    @jax.vmap
    def batch(noise):
        x_t, log_prob = law.transform_and_log_prob(noise, X_S, S, T, U)
        return x_t, log_prob, law.log_prob(x_t, X_S, S, T, U)

    x_t, log_prob, expected = batch(noise)
    assert jnp.allclose(log_prob, expected, rtol=0, atol=1e-10)
    alone, log_prob_alone = law.transform_and_log_prob(noise[0], X_S, S, T, U)
    assert jnp.allclose(alone, x_t[0], rtol=1e-12)
    assert jnp.allclose(log_prob_alone, log_prob[0], rtol=1e-12)


@over_laws
def test_density_is_that_of_the_transform(law, getkey):  # change of variables, at single points
    noise = jr.normal(getkey(), (2,))
    _, log_prob = law.transform_and_log_prob(noise, X_S, S, T, U)
    jacobian = jax.jacfwd(lambda noise: law.transform(noise, X_S, S, T, U))(noise)
    base = -0.5 * (noise @ noise) - jnp.log(2 * jnp.pi)
    assert jnp.allclose(log_prob, base - jnp.linalg.slogdet(jacobian)[1], atol=1e-9)


@over_laws
def test_density_integrates_to_one(law):
    corners = jnp.array([[-5.0, -5.0], [5.0, 5.0], [-5.0, 5.0], [5.0, -5.0]])
    x = jax.jit(jax.vmap(lambda n: law.transform(n, X_S, S, T, U)))(corners)
    low, high = x.min(axis=0), x.max(axis=0)
    if jnp.all(low > 0):  # the fourth root makes a density that is infinite at 0 tame
        grids = [jnp.linspace(0, b**0.25, 500)[1:] for b in high]
        points, weight = [g**4 for g in grids], lambda x: 16 * x.prod() ** 0.75
    else:
        grids = [jnp.linspace(a - 0.3 * (b - a), b + 0.3 * (b - a), 400) for a, b in zip(low, high)]
        points, weight = grids, lambda x: jnp.ones(())
    mesh = jnp.stack(jnp.meshgrid(*points), axis=-1).reshape(-1, 2)
    density = jax.jit(jax.vmap(lambda x: jnp.exp(law.log_prob(x, X_S, S, T, U)) * weight(x)))(mesh)
    total = density.sum() * (grids[0][1] - grids[0][0]) * (grids[1][1] - grids[1][0])
    assert jnp.abs(total - 1) < 1e-3


@over_laws
def test_samples_agree_with_the_density(law, getkey):
    # importance weights of draws over a longer gap, whose law is wider, against draws over the gap itself
    sample = jax.jit(jax.vmap(lambda t, key: law.sample_and_log_prob(X_S, S, t, U, key=key), (None, 0)))
    x_t, log_wide = sample(T + 0.5, jr.split(getkey(), 1000))
    direct, _ = sample(T, jr.split(getkey(), 1000))
    weight = jnp.exp(jax.jit(jax.vmap(lambda x: law.log_prob(x, X_S, S, T, U)))(x_t) - log_wide)
    for statistic in (
        lambda x: jnp.ones(x.shape[0]),
        lambda x: jnp.tanh(x[:, 0]),
        lambda x: jnp.cos(x[:, 1]),
    ):
        weighted, plain = weight * statistic(x_t), statistic(direct)
        error = jnp.sqrt(weighted.var() / weighted.size + plain.var() / plain.size)
        assert jnp.abs(weighted.mean() - plain.mean()) < STANDARD_ERRORS * error


@over_laws
def test_two_short_steps_are_one_long_step(law, getkey):  # Chapman–Kolmogorov in expectation
    r, x_t = 0.9, law.sample(X_S, S, T, U, key=getkey())

    def density(key):
        x_r = law.sample(X_S, S, r, U, key=key)
        return jnp.exp(law.log_prob(x_t, x_r, r, T, U))

    density = jax.jit(jax.vmap(density))(jr.split(getkey(), 1000))
    error = density.std() / np.sqrt(density.size)
    assert jnp.abs(density.mean() - jnp.exp(law.log_prob(x_t, X_S, S, T, U))) < STANDARD_ERRORS * error


@over_laws
def test_gradients_are_finite(law, getkey):
    noise, s = jr.normal(getkey(), (2,)), jnp.array(S)
    of_sample = lambda law, noise, x_s, s, t: law.transform(noise, x_s, s, t, U).sum()
    of_density = lambda law, x_t, x_s, s, t: law.log_prob(x_t, x_s, s, t, U)
    for gap in (0.0, 1e-6, 0.9, 20.0):
        t = jnp.array(S + gap)
        x_t = law.transform(noise, X_S, s, t, U)
        assert jnp.all(jnp.isfinite(sensitivity(of_sample, law, noise, X_S, s, t)))
        assert jnp.all(jnp.isfinite(sensitivity(of_density, law, x_t, X_S, s, t)))


@over_laws
def test_gradients_agree_with_differences(law, getkey):
    noise, eps = jr.normal(getkey(), (2,)), 1e-5
    direction = jr.normal(getkey(), (2,))
    for function in (
        lambda x_s: law.transform(noise, x_s, S, T, U) @ jnp.array([1.0, -0.6]),
        lambda x_s: law.log_prob(X_S + 0.1, x_s, S, T, U),
    ):
        difference = (function(X_S + eps * direction) - function(X_S - eps * direction)) / (2 * eps)
        assert jnp.allclose(jax.grad(function)(X_S) @ direction, difference, rtol=1e-5, atol=1e-7)


@over_laws
def test_float32_in_float32_out(law, getkey):
    law32 = jax.tree.map(lambda x: x.astype(jnp.float32) if eqx.is_inexact_array(x) else x, law)
    noise = jr.normal(getkey(), (2,))
    args = X_S.astype(jnp.float32), jnp.float32(S), jnp.float32(T), U.astype(jnp.float32)
    x_t, log_prob = law32.transform_and_log_prob(noise.astype(jnp.float32), *args)
    assert x_t.dtype == log_prob.dtype == jnp.float32
    expected, expected_log_prob = law.transform_and_log_prob(noise, X_S, S, T, U)
    assert jnp.allclose(x_t, expected, rtol=1e-4, atol=1e-4)
    assert jnp.allclose(log_prob, expected_log_prob, atol=1e-3)


def test_times_of_unix_seconds_keep_their_gaps_in_single_precision():
    """Which tells such times apart by two minutes at best: known ones are subtracted before they are rounded."""
    with jax.enable_x64(False):
        law = BrownianMotion([0.3, -0.2], [[0.6, 0.3], [-0.2, 0.9]])
        for known in (law, Standardised(law, [1.0, -2.0], [3.1, 0.7], 2.5)):
            x_s, x_t, now = jnp.zeros(2), jnp.ones(2), 1.7e9
            assert known.log_prob(x_t, x_s, now, now + 60) == known.log_prob(x_t, x_s, 0.0, 60.0)
            assert (known.sample(x_s, now, now + 60, key=jr.key(0)) != x_s).all()
            later = np.float64(now) + 60
            assert known.log_prob(x_t, x_s, np.float64(now), later) == known.log_prob(x_t, x_s, 0.0, 60.0)
        bridge = BrownianBridge(law)
        for tied in (bridge, StandardisedBridge(bridge, [1.0, -2.0], [3.1, 0.7], 2.5)):
            found = tied.log_prob(x_t, x_s, x_s, now, now + 20, now + 60)
            assert found == tied.log_prob(x_t, x_s, x_s, 0.0, 20.0, 60.0)
