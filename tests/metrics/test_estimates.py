"""Errors of means and of ratios of means, of values that go together."""

import numpy as np
import pytest

from stochflow.metrics import Place, error_of_mean, ratio_of_means


def test_values_of_one_group_count_as_one():
    values = np.random.default_rng(0).normal(size=50)
    apart = 2 * np.arange(50)  # none is next to another
    alone = error_of_mean(values, apart)
    assert np.isclose(alone, values.std(ddof=1) / np.sqrt(50))
    assert np.isclose(error_of_mean(np.repeat(values, 7), np.repeat(apart, 7)), alone)
    assert np.isnan(error_of_mean(values, np.zeros(50, int)))


def test_the_error_of_a_ratio_is_that_of_many_samples():
    rng = np.random.default_rng(1)
    samples, groups, size = 2000, 60, 5
    group = np.repeat(2 * np.arange(groups), size)
    found = []
    for _ in range(samples):
        common = rng.gamma(2.0, size=groups)[group // 2]
        below = common * rng.uniform(0.5, 1.5, groups * size)
        found.append(ratio_of_means(1.1 * below + 0.3 * rng.normal(size=groups)[group // 2], below, group))
    ratios, errors = np.transpose(found)
    assert abs(ratios.mean() - 1.1) < 0.003
    # The spread of 2,000 numbers is known to 1.6 %; that of 60 groups is taken a little too small.
    assert 0.94 < errors.mean() / ratios.std() < 1.05


def test_what_two_scores_have_in_common_drops_out_of_their_ratio():
    score = np.random.default_rng(2).gamma(1.0, size=100)
    ratio, error = ratio_of_means(1.25 * score, score, np.arange(100))
    assert np.isclose(ratio, 1.25)
    assert error < 1e-12


def test_the_error_of_forecasts_that_overlap_is_that_of_many_samples():
    """Moves of a walk over a gap, from every row: neighbours of a stretch overlap with it too."""
    rng = np.random.default_rng(3)
    samples, gap, stretches = 600, 20, 40
    walks = np.cumsum(rng.normal(size=(samples, gap * (stretches + 1))), axis=1)
    inside = np.abs(walks[:, gap:] - walks[:, :-gap]) < 1.645 * np.sqrt(gap)
    group = np.arange(inside.shape[1]) // gap
    errors = [error_of_mean(each.astype(float), group) for each in inside]
    # The spread of 600 numbers is known to 3 %; of stretches by themselves errors would be 15 % too small.
    assert 0.92 < np.sqrt(np.mean(np.square(errors))) / inside.mean(axis=1).std() < 1.06


def test_copies_of_a_series_say_no_more_than_it_does():
    """Sixteen nearly alike have the error of one; sixteen that have nothing in common a quarter of it."""
    rng = np.random.default_rng(0)
    period = np.repeat(np.arange(40), 5)
    one = np.repeat(rng.normal(size=40), 5) + 0.1 * rng.normal(size=200)
    alone = error_of_mean(one, period)
    series = np.repeat(np.arange(16), 200)
    place = Place(series, np.tile(period, 16))
    group = 50 * series + np.tile(period, 16)
    copies = np.tile(one, 16) + 0.01 * rng.normal(size=3200)
    assert error_of_mean(copies, group, place) == pytest.approx(alone, rel=0.15)
    assert error_of_mean(copies, group) < 0.4 * alone
    apart = np.repeat(rng.normal(size=(16, 40)), 5, axis=1).ravel()
    assert error_of_mean(apart, group, place) == pytest.approx(error_of_mean(apart, group), rel=0.3)
    assert error_of_mean(one, period, Place(np.zeros(200, int), period)) == alone
