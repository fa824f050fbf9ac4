"""Memories against their closed form."""

import jax.numpy as jnp
import numpy as np
import pytest

from stochflow.forecasting.history import HALF_LIVES, LEAST_SIZE, SIZE_HALF_LIFE, History

GAP = 0.3


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    return np.cumsum(rng.uniform(0.05, 0.9, 50)), np.cumsum(rng.normal(size=(50, 2)), axis=0)


@pytest.fixture(scope="module")
def history(rows):
    return History.fit([rows], GAP)


def last(history, times, values, padding=0):
    gaps = np.diff(times, prepend=times[:1])
    pad = lambda array: jnp.asarray(
        np.concatenate([array, np.repeat(array[-1:], padding, axis=0)]), jnp.float32
    )
    return history.scan(pad(values), pad(gaps), jnp.arange(len(times) + padding) < len(times))[0]


def faded(first, gaps, news, life):
    """2^{-(t_n - t_0)/h} of the first value, and of each later one its share, faded by what came after."""
    keep = 0.5 ** (gaps / (life * GAP))
    after = np.append(np.cumprod(keep[::-1])[::-1][1:], 1.0)
    return np.prod(keep) * first + (((1 - keep) * after)[:, None] * news).sum(axis=0)


def test_memories_are_fading_means_at_irregular_times(history, rows):
    times, x = rows
    memory = last(history, times, x)
    gaps = np.diff(times)
    moves = np.diff(x, axis=0) ** 2 / (gaps + GAP)[:, None]
    usual = np.asarray(history.usual)
    assert np.allclose(usual, moves.mean(axis=0), rtol=1e-5)
    for i, life in enumerate(HALF_LIVES):
        assert np.allclose(memory.means[i], faded(x[0], gaps, x[1:], life), rtol=1e-4, atol=1e-4)
        assert np.allclose(memory.variances[i], faded(usual, gaps, moves, life), rtol=1e-4)
    assert np.allclose(memory.size, faded(usual, gaps, moves, SIZE_HALF_LIFE), rtol=1e-4)
    assert np.array_equal(memory.x, x[-1].astype(np.float32))


def test_how_far_a_series_roams_is_its_variance_around_the_fading_mean(history, rows):
    """The weighted variance of all rows, weights as those of the mean; and a little of what was there at first."""
    times, x = rows
    memory = last(history, times, x)
    for i, life in enumerate(HALF_LIVES):
        keep = 0.5 ** (np.diff(times) / (life * GAP))
        weight = np.append(np.cumprod(keep[::-1])[::-1], 1.0) * np.append(1.0, 1 - keep)
        assert weight.sum() == pytest.approx(1)
        around = (weight[:, None] * (x - weight @ x) ** 2).sum(axis=0)
        first = np.prod(keep) * np.asarray(history.start(jnp.asarray(x[0], jnp.float32)).roams)[i]
        assert np.allclose(memory.roams[i], around + first, rtol=1e-3)


def test_errors_of_measurement_do_not_hide_whether_a_series_travels():
    """Moves from row to row are as large on the way as at rest; how far the series roams is not."""
    rng = np.random.default_rng(1)
    times, error = np.arange(400.0), rng.normal(size=(400, 1))
    rest, travel = error, error + 0.5 * times[:, None]
    history = History.fit([(times, rest), (times, travel)], 1.0)
    at_rest, on_the_way = (last(history, times, x) for x in (rest, travel))
    assert np.allclose(at_rest.size, on_the_way.size, rtol=0.3)
    assert on_the_way.roams[-1] > 100 * at_rest.roams[-1]


def test_row_by_row_is_the_same_as_all_at_once(history, rows):
    times, x = rows
    memory = history.start(jnp.asarray(x[0], jnp.float32))
    seen = [history.read(memory)]
    for gap, row in zip(np.diff(times), x[1:], strict=True):
        memory = history.update(memory, jnp.asarray(row, jnp.float32), jnp.float32(gap))
        seen.append(history.read(memory))
    assert np.allclose(history.along(times, x), np.stack(seen), atol=1e-5)
    for a, b in zip(memory, last(history, times, x), strict=True):
        assert np.allclose(a, b, rtol=1e-5, atol=1e-6)


def test_padding_changes_nothing(history, rows):
    for a, b in zip(last(history, *rows), last(history, *rows, padding=14), strict=True):
        assert np.array_equal(a, b)


def test_what_is_read_is_centred_scaled_and_cut_off(history, rows):
    seen = history.along(*rows)
    assert seen.shape == (50, history.size)
    assert np.abs(seen[:, 2:]).max() <= 2.5
    size = np.exp(seen[-1, :2])
    assert np.allclose(size**2, last(history, *rows).size + LEAST_SIZE * history.usual, rtol=1e-4)


def test_a_level_and_a_unit_change_only_the_state_that_is_read(rows):
    """Of a series that is moved and stretched all readings but the state and the size are the same."""
    times, x = rows
    one, two = (History.fit([(times, y)], GAP).along(times, y) for y in (x, 7 + 3 * x))
    relative = slice(2, 2 + 3 * len(HALF_LIVES) * 2)
    assert np.allclose(one[:, relative], two[:, relative], atol=1e-3)
    assert np.allclose(two[:, :2] - one[:, :2], np.log(3), atol=1e-4)
