"""A right law is calibrated and a wrong one is found out."""

import jax
import jax.numpy as jnp
import jax.random as jr
import pytest
import scipy.stats

from stochflow.metrics import (
    central_levels,
    coverage,
    hdr_levels,
    mean_and_se,
    noise_levels,
    pit,
    sample_pit,
    uniformity_test,
)

FALSE_ALARM = 1e-3
Z = 3.3  # the same in standard errors
BATCH = 1500
SAMPLES = 19  # a rank is exact for any number of samples, so few will do


@pytest.fixture
def observations(law, getkey):
    x_s, times = jr.normal(getkey(), (BATCH, 2)), jr.uniform(getkey(), (2, BATCH))
    s, t = times[0], times[0] + 0.05 + times[1]
    x_t = jax.vmap(lambda x, s, t, key: law().sample(x, s, t, key=key))(x_s, s, t, jr.split(getkey(), BATCH))
    return x_t, x_s, s, t


def test_right_law_has_uniform_levels_and_pits(law, observations, getkey):
    levels = hdr_levels(law(), *observations, samples=SAMPLES, key=getkey())
    pits = pit(law(), *observations, samples=SAMPLES, key=getkey())
    assert uniformity_test(levels).p_value > FALSE_ALARM
    for dimension in pits.T:
        assert uniformity_test(dimension).p_value > FALSE_ALARM
        assert uniformity_test(central_levels(dimension)).p_value > FALSE_ALARM


@pytest.mark.parametrize("inflation", [0.8, 1.25])
def test_wrong_spread_is_flagged(inflation, law, observations, getkey):
    wrong = law(inflation=inflation)
    levels = hdr_levels(wrong, *observations, samples=SAMPLES, key=getkey())
    assert uniformity_test(levels).p_value < FALSE_ALARM
    assert (
        uniformity_test(pit(wrong, *observations, samples=SAMPLES, key=getkey())[:, 0]).p_value < FALSE_ALARM
    )
    inside = coverage(levels, 0.8)
    assert (inside.mean - 0.8) * (inflation - 1) > 0  # too wide a law covers too much
    assert jnp.abs(inside.mean - 0.8) > Z * inside.se


def test_coverage_is_nominal_for_a_right_law(law, observations, getkey):
    levels = hdr_levels(law(), *observations, samples=SAMPLES, key=getkey())
    for q in (0.5, 0.8, 0.95):
        inside = coverage(levels, q)
        assert jnp.abs(inside.mean - q) < Z * inside.se


def test_levels_agree_with_those_of_the_noise(law, observations, getkey):
    x_t, x_s, s, t = observations
    mean, std = jax.vmap(law().mean_and_std)(x_s, s, t)
    exact = noise_levels((x_t - mean) / std[:, None])
    levels = hdr_levels(law(), *observations, samples=SAMPLES, key=getkey())
    mean, se = mean_and_se(jnp.square(levels - exact))
    assert (
        jnp.abs(mean - 1 / (6 * (SAMPLES + 1))) < Z * se
    )  # the variance of a randomised rank, in closed form
    assert uniformity_test(exact).p_value > FALSE_ALARM


def test_one_time_for_all_is_one_time_each(law, observations, getkey):
    (x_t, x_s, _, _), key = observations, getkey()
    each = pit(law(), x_t, x_s, jnp.zeros(BATCH), jnp.ones(BATCH), samples=SAMPLES, key=key)
    assert (pit(law(), x_t, x_s, 0.0, 1.0, samples=SAMPLES, key=key) == each).all()


def test_ties_are_broken_at_random(getkey):
    pits = jax.vmap(lambda key: sample_pit(jnp.zeros(7), 0.0, key=key))(jr.split(getkey(), 500))
    assert uniformity_test(pits).p_value > FALSE_ALARM


def test_nan_is_an_error_not_a_level(law, observations, getkey):
    x_t, *rest = observations
    with pytest.raises(RuntimeError, match="is NaN"):
        hdr_levels(law(), x_t.at[3].set(jnp.nan), *rest, samples=SAMPLES, key=getkey())


def test_what_was_not_seen_is_left_out(getkey):
    seen = jr.uniform(getkey(), (40,))
    with_holes = jnp.full(100, jnp.nan).at[::3].set(seen[:34]).at[1:19:3].set(seen[34:])
    for f in (lambda levels: coverage(levels, 0.7), uniformity_test):
        for found in (f(with_holes), jax.jit(f)(with_holes), jax.vmap(f)(with_holes[None])):
            assert all(jnp.allclose(one, other) for one, other in zip(found, f(seen), strict=True))
    assert coverage(jnp.array([0.1, 0.2, 0.3, 0.95, *[jnp.nan] * 4]), 0.9).mean == 0.75


def test_nothing_seen_is_an_error():
    for f in (lambda levels: coverage(levels, 0.9), uniformity_test):
        with pytest.raises(ValueError, match="`levels` must hold at least one number; got none"):
            f(jnp.zeros(0))
        for g in (f, jax.jit(f)):
            with pytest.raises(RuntimeError, match="`levels` must hold a number; all of them are NaN"):
                jax.block_until_ready(g(jnp.full(3, jnp.nan)))


def test_a_rank_among_no_samples_is_an_error(getkey):
    with pytest.raises(ValueError, match="`samples` must hold at least one number; got none"):
        sample_pit(jnp.zeros(0), 0.3, key=getkey())


def test_integers_are_ranked_as_floats_are(getkey):
    samples, key = jnp.arange(9), getkey()
    for observation in (3, 3.5):
        assert sample_pit(samples, observation, key=key) == sample_pit(1.0 * samples, observation, key=key)


@pytest.mark.parametrize("power", [1.0, 1.05, 1.3])
def test_uniformity_test_is_that_of_scipy(power, getkey):
    levels = jr.uniform(getkey(), (400,)) ** power
    ours, scipys = uniformity_test(levels), scipy.stats.kstest(levels, "uniform")
    assert jnp.allclose(ours.statistic, scipys.statistic)
    assert jnp.allclose(ours.p_value, scipys.pvalue, rtol=0.1, atol=1e-3)
