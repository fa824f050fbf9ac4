"""Stretches of series, rows and lags that latent flows are trained on."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from stochflow.data import Trajectories
from stochflow.data.batches import compact_series, draw_lags, draw_rows, draw_rows_with_room, draw_series
from stochflow.latent import LatentUnits

STANDARD_ERRORS = 5


def plain_units(channels):
    return LatentUnits(np.zeros(channels), np.ones(channels))


def test_rows_of_nothing_are_dropped_and_padding_stands_still():
    nan = np.nan
    data = Trajectories.from_series(
        [np.array([0.0, 1.0, 2.0, 4.0]), np.array([5.0, 7.0])],
        [np.array([[1.0, nan], [nan, nan], [nan, 3.0], [4.0, 4.0]]), np.array([[1.0, 1.0], [2.0, nan]])],
    )
    series = compact_series(data, plain_units(2))
    assert series.times.tolist() == [[0.0, 2.0, 4.0], [0.0, 2.0, 2.0]]
    assert series.present.tolist() == [[True, True, True], [True, True, False]]
    assert series.mask[0].tolist() == [[True, False], [False, True], [True, True]]
    assert series.values[0].tolist() == [[1.0, 0.0], [0.0, 3.0], [4.0, 4.0]]


def test_stretches_are_consecutive_rows_and_every_start_is_drawn(getkey):
    values = np.arange(10.0)[None, :, None] + 100 * np.arange(3)[:, None, None]
    series = compact_series(Trajectories.from_arrays(np.arange(10.0), values), plain_units(1))
    draw = jax.jit(lambda key: draw_series(series, 2, 4, key=key))
    firsts = set()
    for i in range(200):
        batch = draw(jr.fold_in(getkey(), i))
        assert batch.values.shape == (2, 4, 1)
        assert jnp.array_equal(jnp.diff(batch.values[:, :, 0], axis=1), jnp.ones((2, 3)))
        assert len({int(v) // 100 for v in batch.values[:, 0, 0]}) == 2  # no series twice
        firsts |= {int(v) for v in batch.values[:, 0, 0]}
    assert firsts == {100 * i + j for i in range(3) for j in range(7)}


def test_rows_are_drawn_uniformly_over_series_of_all_lengths(getkey):
    counts, number = jnp.array([3, 0, 5, 2]), 40_000
    series, row = draw_rows(counts, number, key=getkey())
    assert bool((row < counts[series]).all())
    assert bool((row >= 0).all())
    seen = np.bincount(np.asarray(series) * 5 + np.asarray(row), minlength=20).reshape(4, 5)
    there = np.arange(5)[None] < np.asarray(counts)[:, None]
    assert (seen[~there] == 0).all()
    spread = np.sqrt(number * 0.1 * 0.9)
    assert np.abs(seen[there] - number / 10).max() < STANDARD_ERRORS * spread


@pytest.mark.parametrize("scheme", ["uniform", "log"])
def test_lags_lie_in_their_range_and_follow_their_scheme(scheme, getkey):
    number, longest = 40_000, 9
    lags = np.asarray(draw_lags(jnp.full(number, longest), shortest=2, scheme=scheme, key=getkey()))
    assert set(lags) == set(range(2, longest + 1))
    edges = np.arange(2, longest + 2)
    share = np.diff(np.log(edges)) / np.log((longest + 1) / 2) if scheme == "log" else np.full(8, 1 / 8)
    seen = np.bincount(lags, minlength=longest + 1)[2:] / number
    assert (np.abs(seen - share) < STANDARD_ERRORS * np.sqrt(share / number)).all()


def test_a_lag_that_there_is_not_room_for_is_the_shortest(getkey):
    assert draw_lags(jnp.array([1, 0]), shortest=2, scheme="uniform", key=getkey()).tolist() == [2, 2]


def test_rows_with_room_are_drawn_uniformly(getkey):
    counts, number = jnp.array([3, 6, 1]), 30_000
    series, row = draw_rows_with_room(counts, jnp.full(number, 2), key=getkey())
    pairs, seen = np.unique(np.stack([series, row]), axis=1, return_counts=True)
    assert pairs.T.tolist() == [[0, 0], [1, 0], [1, 1], [1, 2], [1, 3]]
    assert np.abs(seen - number / 5).max() < STANDARD_ERRORS * np.sqrt(number * 0.16)
