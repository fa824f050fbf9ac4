"""Simple laws against what is known of them in closed form."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from stochflow.baselines import SeasonalNaive, fit_ornstein_uhlenbeck, fit_persistence, log_likelihood
from stochflow.laws import BrownianMotion, OrnsteinUhlenbeck

RATE, MEAN, STD = 0.8, 1.5, 0.6
# In standard errors: one false alarm in some hundred thousand tests.
FAR = 4.5


def walk(rng, rows, rate=RATE, mean=MEAN, std=STD):
    """An exact Ornstein–Uhlenbeck path at irregular times."""
    times = np.cumsum(rng.uniform(0.05, 0.6, rows))
    x = np.empty(rows)
    x[0] = mean + std / np.sqrt(2 * rate) * rng.normal()
    for i, gap in enumerate(np.diff(times)):
        faded = np.exp(-rate * gap)
        x[i + 1] = mean + faded * (x[i] - mean) + std * np.sqrt((1 - faded**2) / (2 * rate)) * rng.normal()
    return times, x[:, None]


@pytest.fixture(scope="module")
def paths():
    rng = np.random.default_rng(0)
    times, values = zip(*(walk(rng, 1000) for _ in range(3)), strict=True)
    return list(times), list(values)


def test_ornstein_uhlenbeck_is_found_again(paths):
    """Standard errors for a path of length T: sqrt(2κ/T) for the rate, σ/(κ sqrt T) for the mean, σ/sqrt(2n)."""
    law = fit_ornstein_uhlenbeck(*paths)
    span, rows = sum(np.ptp(t) for t in paths[0]), sum(len(t) for t in paths[0])
    assert abs(float(law.rate[0]) - RATE) < FAR * np.sqrt(2 * RATE / span)
    assert abs(float(law.mean[0]) - MEAN) < FAR * STD / (RATE * np.sqrt(span))
    assert abs(float(law.std[0]) - STD) < FAR * STD / np.sqrt(2 * rows)


def test_no_parameters_are_likelier_than_those_found(paths):
    law = fit_ornstein_uhlenbeck(*paths)
    best = log_likelihood(law, *paths)
    assert best > log_likelihood(OrnsteinUhlenbeck([RATE], [MEAN], [STD]), *paths)
    rate, mean, std = (np.asarray(each) for each in (law.rate, law.mean, law.std))
    for change in (0.98, 1.02):
        assert best > log_likelihood(OrnsteinUhlenbeck(change * rate, mean, std), *paths)
        assert best > log_likelihood(OrnsteinUhlenbeck(rate, change * mean, std), *paths)
        assert best > log_likelihood(OrnsteinUhlenbeck(rate, mean, change * std), *paths)


@pytest.mark.parametrize("law", [OrnsteinUhlenbeck([RATE], [MEAN], [STD]), BrownianMotion([0.0], [STD])])
def test_the_likelihood_is_the_sum_of_the_laws(law, paths):
    t, x = paths[0][0][:20], paths[1][0][:20]
    each = jax.vmap(law.log_prob)(*map(jnp.asarray, (x[1:], x[:-1], t[:-1], t[1:])))
    assert np.allclose(log_likelihood(law, [t], [x]), each.sum(), atol=1e-5)


def test_a_walk_that_does_not_return_is_brownian():
    rng = np.random.default_rng(1)
    gaps = rng.uniform(0.1, 1.0, 2000)
    x = np.cumsum(0.7 * np.sqrt(gaps) * rng.normal(size=2000))[:, None]
    times = np.cumsum(gaps)
    law = fit_persistence([times], [x])
    assert abs(float(law.scale_tril[0, 0]) - 0.7) < FAR * 0.7 / np.sqrt(4000)
    # Twice the likelihood gained by a return is below the 0.1 % point of its law for a unit root.
    gained = 2 * (
        log_likelihood(fit_ornstein_uhlenbeck([times], [x]), [times], [x]) - log_likelihood(law, [times], [x])
    )
    assert 0 <= gained[0] < 18


def test_rows_with_a_gap_in_them_are_passed_over(paths):
    t, x = paths[0][0], paths[1][0].copy()
    x[7] = np.nan
    kept = np.arange(len(t)) != 7
    for fit in (fit_persistence, fit_ornstein_uhlenbeck):
        with_hole, without = fit([t], [x]), fit([t[kept]], [x[kept]])
        assert np.array_equal(
            log_likelihood(with_hole, [t], [x]), log_likelihood(without, [t[kept]], [x[kept]])
        )


def test_one_row_is_no_transition():
    with pytest.raises(ValueError, match="no series has two complete rows"):
        fit_persistence([np.zeros(1)], [np.zeros((1, 1))])


def test_a_season_is_repeated_and_its_error_grows_with_the_root():
    times = np.arange(40.0)
    rng = np.random.default_rng(2)
    x = np.sin(2 * np.pi * times / 10)[:, None] + 0.1 * rng.normal(size=(40, 1))
    naive = SeasonalNaive.fit([times], [x], 10.0)
    mean, std = naive.predict(times, x, np.array([43.0, 49.0, 55.0]))
    assert np.array_equal(mean, x[[33, 39, 35]])
    assert np.allclose(std[:, 0] / naive.std[0], np.sqrt([1, 1, 2]))
    assert np.allclose(naive.std, np.sqrt(np.mean((x[10:] - x[:-10]) ** 2)))


@pytest.mark.parametrize(
    ("period", "words"), [(0.0, "`period` must be positive"), (50.0, "no series is longer")]
)
def test_a_period_that_cannot_be(period, words):
    with pytest.raises(ValueError, match=words):
        SeasonalNaive.fit([np.arange(40.0)], [np.zeros((40, 1))], period)
