"""Errors of means and of ratios of means, of values that go together."""

import numpy as np

from stochflow.metrics import error_of_mean, ratio_of_means


def test_values_of_one_group_count_as_one():
    values = np.random.default_rng(0).normal(size=50)
    alone = error_of_mean(values, np.arange(50))
    assert np.isclose(alone, values.std(ddof=1) / np.sqrt(50))
    assert np.isclose(error_of_mean(np.repeat(values, 7), np.repeat(np.arange(50), 7)), alone)
    assert np.isnan(error_of_mean(values, np.zeros(50, int)))


def test_the_error_of_a_ratio_is_that_of_many_samples():
    rng = np.random.default_rng(1)
    samples, groups, size = 2000, 60, 5
    group = np.repeat(np.arange(groups), size)
    found = []
    for _ in range(samples):
        common = rng.gamma(2.0, size=groups)[group]
        below = common * rng.uniform(0.5, 1.5, groups * size)
        found.append(ratio_of_means(1.1 * below + 0.3 * rng.normal(size=groups)[group], below, group))
    ratios, errors = np.transpose(found)
    assert abs(ratios.mean() - 1.1) < 0.003
    # The spread of 2,000 numbers is known to 1.6 %; that of 60 groups is taken a little too small.
    assert 0.94 < errors.mean() / ratios.std() < 1.05


def test_what_two_scores_have_in_common_drops_out_of_their_ratio():
    score = np.random.default_rng(2).gamma(1.0, size=100)
    ratio, error = ratio_of_means(1.25 * score, score, np.arange(100))
    assert np.isclose(ratio, 1.25)
    assert error < 1e-12
