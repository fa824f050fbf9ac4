"""What comes through the door is sound; what does not is named, with series and row."""

import numpy as np
import pytest

from stochflow.data import Trajectories

TIMES = np.array([0.0, 0.5, 2.0])
VALUES = np.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.5]])


def test_ragged_series_are_padded_and_masked():
    data = Trajectories.from_series([TIMES, TIMES[:2] + 7], [VALUES, VALUES[:2]])
    assert data.times.shape == (2, 3)
    assert data.values.shape == (2, 3, 2)
    assert data.mask.sum() == 10
    assert (data.times[1, :2] == [0.0, 0.5]).all()
    assert (data.origins == [0.0, 7.0]).all()
    assert data.longest_gap == 2.0
    assert len(data) == 2
    assert data.dim == 2
    assert "2 series, 5 rows, dim 2" in repr(data)


@pytest.mark.parametrize("origin", [1.7e9, 1_700_000_000])
def test_unix_seconds_keep_their_steps(origin):
    """In float32 unix seconds are 128 s apart; the origin must go first."""
    times = origin + np.arange(4).astype(type(origin))
    data = Trajectories.from_arrays(times, np.arange(4.0).reshape(1, 4, 1))
    assert data.times.dtype == np.float32
    assert (data.times[0] == np.arange(4)).all()


def test_nan_values_are_missing():
    values = VALUES.copy()
    values[1, 0] = np.nan
    data = Trajectories.from_arrays(TIMES, values[None])
    assert (data.complete[0] == [True, False, True]).all()
    assert data.present.all()
    assert data.values[0, 1, 0] == 0


@pytest.mark.parametrize(
    ("times", "values", "message"),
    [
        (
            [0.0, np.nan, 2.0],
            VALUES,
            "series 'b', row 1: time nan is not allowed: drop the row, or give it its time",
        ),
        ([0.0, 1.0, np.inf], VALUES, "series 'b', row 2: time inf is not allowed: drop the row"),
        (
            np.array(["2024-01-01"] * 3, "M8[s]"),
            VALUES,
            "series 'b': `times` must .* seconds since the first",
        ),
        (
            TIMES,
            np.zeros((3, 2), "m8[s]"),
            "series 'b': `values` must hold real numbers; .* convert to numbers",
        ),
        ([0.0, 2.0, 1.0], VALUES, "series 'b', row 2: time 1.0 .*sort the rows"),
        ([0.0, 1.0, 1.0], VALUES, "series 'b', row 2: time 1.0 .*row before"),
        (TIMES, np.where(VALUES == 6.5, np.inf, VALUES), r"series 'b', row 2: value \[ *5. +inf\]"),
        (TIMES, VALUES * 1e300, "series 'b', row 0: value .*too large"),
        (TIMES, VALUES[:2], r"series 'b': `times` must have shape \(rows,\)"),
        (TIMES[:0], VALUES[:0], "series 'b' is empty"),
        (TIMES, VALUES[:, :0], "series 'b' is empty"),
        (TIMES, VALUES.astype(str), "series 'b': `values` must hold real numbers"),
        (TIMES, VALUES[:, :1], "series 'b': `values` has 1 columns where series 'a' has 2"),
        ([0.0, 1e9, 1e9 + 1e-3], VALUES, "series 'b', row 2: .*too close"),
    ],
)
def test_bad_series_are_refused_by_name_and_row(times, values, message):
    with pytest.raises(ValueError, match=message):
        Trajectories.from_series([TIMES, np.asarray(times)], [VALUES, values], names=["a", "b"])


def test_wrong_shapes_are_refused_with_the_way_out():
    with pytest.raises(ValueError, match=r"becomes `values\[None\]`"):
        Trajectories.from_arrays(TIMES, VALUES)
    with pytest.raises(ValueError, match=r"`times` must have shape \(3,\) or \(1, 3\)"):
        Trajectories.from_arrays(TIMES[:2], VALUES[None])
    with pytest.raises(ValueError, match="at least one series"):
        Trajectories.from_series([], [])
    with pytest.raises(ValueError, match="`u` must have one entry a series"):
        Trajectories.from_series([TIMES], [VALUES], u=[])


def test_a_channel_that_float32_does_not_resolve_is_refused():
    noise = np.random.default_rng(0).normal(size=(2, 50, 2))
    times = np.arange(50.0)
    with pytest.raises(ValueError, match=r"channel 1 varies by only .* about 1\d{8}.*: subtract a constant"):
        Trajectories.from_arrays(times, 5 * noise + np.array([0.0, 1e8]))
    data = Trajectories.from_arrays(times, 1000 * noise + np.array([0.0, 1e8]))
    assert len(data.window(stop=20.0)) == 2
    for constant in (
        1e8,
        0.0,
        0.3 + np.array([0.0, 1e-17]),
        1e-5 + 1e-14 * noise,
    ):  # that is for `scale` to say
        Trajectories.from_arrays(times, np.zeros((2, 50, 2)) + constant)


def test_series_that_are_not_there_and_parts_that_do_not_match_are_refused():
    data = Trajectories.from_arrays(TIMES, VALUES[None])
    with pytest.raises(ValueError, match=r"`index` must be a list of numbers from 0 to 0; got \[9\]"):
        data.select([9])
    assert data.select([-1]).names == data.names
    with pytest.raises(ValueError, match="at least one part to join"):
        Trajectories.joined()
    with_u = Trajectories.from_arrays(TIMES, VALUES[None], u=np.ones((1, 3, 1)))
    for parts in ((data, with_u), (with_u, data)):
        with pytest.raises(ValueError, match="either all parts must have covariates"):
            Trajectories.joined(*parts)


def test_constant_and_unseen_channels_are_refused():
    flat = VALUES.copy()
    flat[:, 1] = 3.0
    with pytest.raises(ValueError, match="channel 1 is constant"):
        Trajectories.from_arrays(TIMES, flat[None]).scale()
    flat[:, 1] = np.nan
    with pytest.raises(ValueError, match="channel 1 is never observed"):
        Trajectories.from_arrays(TIMES, flat[None]).scale()


def test_scale_is_that_of_what_was_observed():
    values = VALUES.copy()
    values[1, 0] = np.nan
    loc, scale = Trajectories.from_arrays(TIMES, values[None]).scale()
    assert np.allclose(loc, np.nanmean(values, 0))
    assert np.allclose(scale, np.nanstd(values, 0))


def test_split_is_a_partition_by_series_and_repeats_itself():
    data = Trajectories.from_arrays(TIMES, np.random.default_rng(0).normal(size=(10, 3, 2)))
    parts = data.split(0.6, 0.2, 0.2, seed=1)
    assert [len(part) for part in parts] == [6, 2, 2]
    assert sorted(name for part in parts for name in part.names) == sorted(data.names)
    assert data.split(0.6, 0.2, 0.2, seed=1)[0].names == parts[0].names
    assert data.split(0.6, 0.2, 0.2, seed=2)[0].names != parts[0].names
    with pytest.raises(ValueError, match="add up to 1"):
        data.split(0.5, 0.2, seed=0)
    with pytest.raises(ValueError, match="1 series cannot be split 2 ways"):
        data.select([0]).split(0.5, 0.5, seed=0)


def test_window_cuts_by_time():
    data = Trajectories.from_arrays(TIMES + 100, VALUES[None])
    early, late = data.window(stop=1.0), data.window(start=0.5)
    assert early.present.sum() == 2
    assert late.origins[0] == 100.5
    with pytest.raises(ValueError, match="no series has a row"):
        data.window(start=50.0)


def test_covariates_travel_with_their_rows():
    u = np.arange(3.0)[:, None]
    data = Trajectories.from_series([TIMES], [VALUES], u=[u])
    assert data.cond_dim == 1
    assert (data.window(start=0.5).u[0, :, 0] == [1, 2]).all()
    with pytest.raises(ValueError, match="series '0', row 1: covariate"):
        Trajectories.from_series([TIMES], [VALUES], u=[np.array([[0.0], [np.nan], [1.0]])])


def test_unsigned_and_short_times_do_not_wrap_around():
    data = Trajectories.from_arrays(np.array([-100, 100], np.int8), np.ones((1, 2, 1)))
    assert data.longest_gap == 200
    with pytest.raises(ValueError, match="series '0'"):
        Trajectories.from_arrays(np.array([3, 1], np.uint64), np.ones((1, 2, 1)))
    data = Trajectories.from_arrays(np.array([1, 3], np.uint64), np.ones((1, 2, 1)))
    assert data.times.tolist() == [[0.0, 2.0]]
