import numpy as np
import pytest

from stochflow.data import Trajectories, at_speeds, thinned


def wave(period):
    times = np.cumsum(np.random.default_rng(0).uniform(0.01, 0.03, 400)) + 5.0
    return Trajectories.from_series([times], [np.sin(2 * np.pi * (times - times[0]) / period)[:, None]])


def test_a_slower_wave_has_a_longer_period_and_the_same_rows():
    slow = at_speeds(wave(1.0), [0.8])
    assert np.array_equal(slow.times, wave(1.0).times)
    assert slow.origins[0] == wave(1.0).origins[0]
    np.testing.assert_allclose(slow.values, wave(1.25).values, atol=5e-3)


def test_speed_one_changes_nothing_and_a_faster_series_ends_sooner():
    data = wave(1.0)
    same, fast = at_speeds(data, [1.0]), at_speeds(data, [1.0, 2.0])
    assert np.array_equal(same.values, data.values)
    assert len(fast) == 2
    assert fast.times[1][fast.present[1]].max() <= data.times.max() / 2
    assert fast.names == ("0", "0 at speed 2")


def test_what_is_missing_stays_missing_and_does_not_spread_to_rows_that_are_met():
    values = np.array([[0.0, 0.0], [np.nan, 1.0], [2.0, 2.0], [3.0, 3.0], [4.0, 4.0]])
    data = Trajectories.from_series([np.arange(5.0)], [values])
    same, half = at_speeds(data, [1.0]), at_speeds(data, [0.5])
    assert np.array_equal(same.mask, data.mask)
    assert half.mask[0, :, 0].tolist() == [True, False, False, False, True]  # at 0, .5, 1 (missing), 1.5, 2
    assert half.values[0, :, 1].tolist() == [0.0, 0.5, 1.0, 1.5, 2.0]


@pytest.mark.parametrize("speeds", [[], [0.0], [-1.0], [np.nan]])
def test_speeds_must_be_positive(speeds):
    with pytest.raises(ValueError, match="`speeds` must hold positive numbers"):
        at_speeds(wave(1.0), speeds)


def test_a_thinned_series_is_told_in_parts_and_no_row_is_lost():
    values = np.arange(14.0).reshape(7, 2)
    values[3, 0] = np.nan
    data = Trajectories.from_series([np.arange(7.0) + 5, np.arange(2.0)], [values, values[:2]])
    parts = thinned(data, 3)
    assert len(parts) == 3 + 2
    assert parts.names[:2] == ("0 from row 0", "0 from row 1")
    assert parts.origins[1] + parts.times[1][parts.present[1]].tolist() == pytest.approx([6.0, 9.0])
    assert parts.present.sum() == data.present.sum()
    assert np.nansum(np.where(parts.mask, parts.values, np.nan)) == np.nansum(
        np.where(data.mask, data.values, np.nan)
    )
    assert thinned(data, 1) is data
    with pytest.raises(ValueError, match="`every` must be at least 1; got 0"):
        thinned(data, 0)
