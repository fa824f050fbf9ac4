"""KL by density estimates: against closed forms, and against SciPy's estimate at one bandwidth."""

import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
import scipy.stats

from stochflow.metrics import (
    cv_bandwidth,
    kde_floor,
    kde_kl,
    kde_kl_kfold,
    kde_kls,
    kde_log_density,
    pooled_kl,
)

Z = 3.3  # bounds in standard errors: one false alarm in a thousand
SMOOTHING = 0.04  # what is left of the estimate's bias with thousands of points of a smooth law


def test_density_is_that_of_scipy_at_the_same_bandwidth(getkey):
    centres, points, h = jr.normal(getkey(), (50, 3)), 2 * jr.normal(getkey(), (70, 3)), 0.4
    scipy_kde = scipy.stats.gaussian_kde(centres.T, lambda kde: h)
    scipy_kde.covariance, scipy_kde.cho_cov = h**2 * np.eye(3), h * np.eye(3)
    scipy_kde.log_det = 3 * np.log(2 * np.pi * h**2)
    assert jnp.allclose(kde_log_density(points, centres, h), scipy_kde.logpdf(points.T), atol=1e-10)


def test_density_integrates_to_one(getkey):
    grid = jnp.linspace(-12, 12, 4001)
    density = jnp.exp(kde_log_density(grid[:, None], jr.normal(getkey(), (40, 1)), 0.3))
    assert jnp.allclose(jnp.trapezoid(density, grid), 1, atol=1e-6)


def test_far_away_the_log_density_is_low_but_finite(getkey):
    value = kde_log_density(jnp.full((1, 3), 1e3), jr.normal(getkey(), (20, 3)), 1e-2)
    assert jnp.isfinite(value).all()
    assert (value < -1e8).all()


def test_bandwidth_is_near_that_of_scott_for_a_gaussian(getkey):
    n = 600
    bandwidth = cv_bandwidth(7 * jr.normal(getkey(), (n, 3)), key=getkey())
    scott = 7 * n ** (-1 / 7)
    assert 0.6 < bandwidth / scott < 1.6


def test_bandwidth_has_the_units_of_the_sample(getkey):
    sample, key = jr.normal(getkey(), (600, 3)), getkey()
    assert jnp.allclose(cv_bandwidth(1000 * sample, key=key), 1000 * cv_bandwidth(sample, key=key))


@pytest.mark.parametrize("estimate", [kde_kl, kde_kl_kfold])
def test_kl_of_two_gaussians_is_the_closed_form(estimate, getkey):
    n = 10_000 if estimate is kde_kl else 1_000
    truth, model = jr.normal(getkey(), (n, 1)), 0.5 + 1.5 * jr.normal(getkey(), (n, 1))
    exact = np.log(1.5) + (1 + 0.25) / (2 * 1.5**2) - 0.5
    kl = estimate(truth, model, key=getkey())
    assert abs(kl.mean - exact) < Z * kl.std / np.sqrt(8) + SMOOTHING


def test_kl_does_not_change_with_the_units(getkey):
    truth, model, key = jr.normal(getkey(), (400, 1)), 2 * jr.normal(getkey(), (400, 1)), getkey()
    shifted = kde_kl(1e3 * truth + 1e5, 1e3 * model + 1e5, key=key)
    assert np.allclose(shifted.values, kde_kl(truth, model, key=key).values, atol=1e-6)


def test_floor_is_zero_within_its_error(getkey):
    floor = kde_floor(jr.normal(getkey(), (5000, 3)), jr.normal(getkey(), (5000, 3)), key=getkey())
    assert abs(floor.mean) < Z * floor.std / np.sqrt(8)


def test_extreme_folds_are_dropped(getkey):
    kl = kde_kl(jr.normal(getkey(), (400, 1)), jr.normal(getkey(), (400, 1)), key=getkey())
    kept = np.sort(kl.values)[1:-1]
    assert kl.values.shape == (10,)
    assert np.allclose((kl.mean, kl.std), (kept.mean(), kept.std()))


def test_bad_samples_are_named(getkey):
    good = jr.normal(getkey(), (200, 2))
    with pytest.raises(ValueError, match=r"`model` must be finite; got 1 bad rows"):
        kde_kl(good, good.at[3, 0].set(jnp.nan), key=getkey())
    with pytest.raises(ValueError, match="all of its 200 points are the same"):
        kde_kl(good, jnp.ones((200, 2)), key=getkey())
    with pytest.raises(ValueError, match="more samples or fewer `folds`"):
        kde_kl(good[:30], good[:30], key=getkey())


def test_stray_model_points_cost_less_with_a_shared_bandwidth(getkey):
    """Three per cent far from a tight cluster widen the model's own bandwidth; the truth's is not touched."""
    truth, model = 0.1 * jr.normal(getkey(), (2, 3000, 2))
    model = jnp.where(jnp.arange(3000)[:, None] % 33 == 0, 5 * jr.normal(getkey(), (3000, 2)), model)
    key = getkey()
    own, shared = (kde_kl(truth, model, shared=shared, key=key).mean for shared in (False, True))
    assert shared < 0.15
    assert own > shared + 0.1


def test_several_models_at_once_are_each_as_alone(getkey):
    key = getkey()
    truth, near, far = (shift + jr.normal(getkey(), (400, 2)) for shift in (0.0, 0.1, 1.0))
    for model, both in zip((near, far), kde_kls(truth, [near, far], key=key), strict=True):
        assert np.allclose(both.own.values, kde_kl(truth, model, key=key).values, atol=1e-6)
        assert np.allclose(both.shared.values, kde_kl(truth, model, shared=True, key=key).values, atol=1e-6)


def test_pooled_runs_have_the_mean_of_means_and_the_spread_of_one(getkey):
    runs = [kde_kl(*jr.normal(getkey(), (2, 200, 1)), key=getkey()) for _ in range(3)]
    pooled = pooled_kl(runs)
    assert np.isclose(pooled.mean, np.mean([run.mean for run in runs]))
    assert min(run.std for run in runs) <= pooled.std <= max(run.std for run in runs)
    assert pooled.values.shape == (30,)
