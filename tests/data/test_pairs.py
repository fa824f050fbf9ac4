"""Pairs are pairs of one series, forwards, within the horizon, and drawn as the scheme says."""

import dataclasses
import tracemalloc

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from stochflow.data import (
    CompleteRows,
    PairSampler,
    Trajectories,
    Triplets,
    draw_pairs_and_triplets,
    draw_triplets,
    long_gaps,
)
from stochflow.data.pairs import below, unit


def _clock_data(lengths, dim=1):
    """Series whose value *is* (series + time), so that a pair shows where it came from."""
    times = [np.arange(n, dtype=float) for n in lengths]
    values = [np.repeat(1000.0 * i + t[:, None], dim, axis=1) for i, t in enumerate(times)]
    return Trajectories.from_series(times, values)


@pytest.mark.parametrize("scheme", ["lag", "root", "log", "pair"])
@pytest.mark.parametrize("start_fraction", [0.0, 0.4])
def test_pairs_are_of_one_series_forwards_and_within_the_horizon(scheme, start_fraction, getkey):
    sampler = PairSampler(
        _clock_data([5, 1, 9, 2]), horizon=4.0, scheme=scheme, start_fraction=start_fraction
    )
    pairs = sampler.draw(4000, key=getkey())
    gap = pairs.t - pairs.s
    assert (gap > 0).all()
    assert (gap <= 4).all()
    assert jnp.allclose((pairs.x_t - pairs.x_s)[:, 0], gap)
    assert set(np.unique(pairs.x_s // 1000)) == {0, 2, 3}


def test_incomplete_rows_are_never_drawn(getkey):
    data = _clock_data([8], dim=2)
    values = data.values.copy()
    values[0, 3, 1] = np.nan
    sampler = PairSampler(Trajectories.from_arrays(data.times, values))
    pairs = sampler.draw(1000, key=getkey())
    assert not ((pairs.s == 3) | (pairs.t == 3)).any()
    assert sampler.number == 7 * 6 // 2


def test_lags_are_drawn_as_the_scheme_says(getkey):
    """41 rows: each of 40 lags has 1/40, or lag l has (41-l)/820, or a share as the root of that, or as 1/l.
    Chi-square, false-alarm rate 1e-4."""
    data, draws, lags = _clock_data([41]), 40_000, np.arange(1, 41)
    expected = {"lag": np.full(40, 1 / 40), "pair": (41 - lags) / 820}
    expected["root"] = np.sqrt(expected["pair"]) / np.sqrt(expected["pair"]).sum()
    expected["log"] = 1 / lags / (1 / lags).sum()
    for scheme, share in expected.items():
        pairs = PairSampler(data, scheme=scheme).draw(draws, key=getkey())
        counts = np.bincount(np.asarray(pairs.t - pairs.s).round().astype(int), minlength=41)[1:]
        chi2 = ((counts - draws * share) ** 2 / (draws * share)).sum()
        assert chi2 < 80.1  # 0.9999 quantile of chi-square with 39 degrees of freedom


def test_start_fraction_is_the_share_of_first_rows(getkey):
    sampler = PairSampler(_clock_data([41, 41]), start_fraction=0.3)
    pairs = sampler.draw(20_000, key=getkey())
    first = (pairs.s == 0).mean()
    expected = 0.3 + 0.7 * np.mean(1 / np.arange(1, 41))  # rows drawn by lag start at 0 now and then
    assert abs(first - expected) < 4 * np.sqrt(expected * (1 - expected) / 20_000)


def _uneven(lengths):
    """Times, values of two channels with holes, and three covariates of each series."""
    rng = np.random.default_rng(0)
    times = [1e6 * i + np.cumsum(rng.exponential(size=n)) for i, n in enumerate(lengths)]
    values = [np.where(rng.random((n, 2)) < 0.2, np.nan, rng.normal(size=(n, 2))) for n in lengths]
    values[1][:, 0] = np.nan  # no row of this series is complete
    return times, values, [rng.normal(size=(n, 3)) for n in lengths]


OPTIONS = [
    {"horizon": 5.0, "scheme": scheme, "start_fraction": fraction}
    for scheme in ("lag", "root", "log", "pair")
    for fraction in (0.0, 0.4)
]


@pytest.mark.parametrize("options", [*OPTIONS, {}], ids=str)
def test_flat_and_padded_rows_give_the_same_draws_bit_for_bit(options, getkey):
    times, values, u = _uneven([60, 3, 1, 9, 2, 25])
    padded = dataclasses.replace(Trajectories.from_series(times, values, u=u), ahead=2)
    flat = CompleteRows.from_series(times, values, u=u, ahead=2)
    key = getkey()
    one, other = (PairSampler(data, **options).draw(2000, key=key) for data in (padded, flat))
    for a, b in zip(one, other, strict=True):
        assert a.dtype == b.dtype
        assert (a == b).all()


def test_flat_rows_are_those_of_their_series(getkey):
    """A row is known by its values, which no other has: so are its series, time and covariates."""
    times, values, u = _uneven([60, 3, 1, 9, 2, 25])
    rows = CompleteRows.from_series(times, values, u=u, ahead=2)
    assert rows.lengths.tolist() == [(~np.isnan(x).any(1)).sum() for x in values]
    known = {
        x.astype(np.float32).tobytes(): (i, np.float32(when - t[0]), w.astype(np.float32))
        for i, (t, xs, ws) in enumerate(zip(times, values, u, strict=True))
        for when, x, w in zip(t, xs, ws, strict=True)
    }
    pairs = PairSampler(rows).draw(500, key=getkey())
    for x_s, x_t, s, t, found in zip(*map(np.asarray, pairs), strict=True):
        (i, first, u_s), (j, last, u_t) = known[x_s.tobytes()], known[x_t.tobytes()]
        assert (i, s, t) == (j, first, last)
        assert found.tolist() == [u_s[0], *u_t[1:]]


def test_memory_is_that_of_the_rows_however_uneven_the_series():
    """One long series beside 400 short ones. Padded to one length they take 6 kB a row."""
    lengths = [20_000, *[3] * 400]
    times = [np.arange(n, dtype=float) for n in lengths]
    columns = [t[:, None] for t in times]
    tracemalloc.start()
    try:
        rows = CompleteRows.from_series(times, columns, u=columns)
        sampler = PairSampler(rows, horizon=100.0, scheme="log")
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert sum(leaf.nbytes for leaf in jax.tree.leaves(sampler)) < 40 * sum(lengths)
    assert peak < 300 * sum(lengths)


def test_two_points_are_one_pair(getkey):
    pairs = PairSampler(_clock_data([2])).draw(10, key=getkey())
    assert (pairs.s == 0).all()
    assert (pairs.t == 1).all()


def test_nothing_to_pair_is_an_error():
    with pytest.raises(ValueError, match="two complete rows"):
        PairSampler(_clock_data([1, 1]))
    with pytest.raises(ValueError, match=r"within the horizon of 0\.5"):
        PairSampler(_clock_data([5]), horizon=0.5)
    with pytest.raises(ValueError, match="`scheme` must be one of lag, root, log, pair"):
        PairSampler(_clock_data([5]), scheme="gap")
    with pytest.raises(ValueError, match="`start_fraction`"):
        PairSampler(_clock_data([5]), start_fraction=1.5)


@pytest.mark.parametrize(("scheme", "inner"), [("paper", 1e-3), ("balanced", 0.2)])
def test_triplets_are_ordered_within_the_horizon_and_half_at_data_times(scheme, inner, getkey):
    sampler = PairSampler(_clock_data([9, 9]), horizon=3.0)
    x_s, s, r, t, _ = draw_triplets(sampler, 4000, horizon=6.0, scheme=scheme, key=getkey())
    assert ((s < r) & (r < t)).all()
    assert (t - s <= 6.0 + 1e-6).all()
    tau = (r - s) / (t - s)
    assert ((tau >= inner - 1e-6) & (tau <= 1 - inner + 1e-6)).all()
    assert jnp.allclose(x_s[:, 0] % 1000, s)
    at_data = (t == jnp.round(t)).mean()
    assert abs(at_data - 0.5) < 0.01
    assert ((t - s) > 3).mean() > 0.2  # uniform end times go beyond the data


def test_the_same_key_draws_the_same_pairs(getkey):
    sampler, key = PairSampler(_clock_data([41])), jr.key(3)
    a, b = sampler.draw(64, key=key), sampler.draw(64, key=key)
    assert (a.x_s == b.x_s).all()
    assert not (a.x_s == sampler.draw(64, key=getkey()).x_s).all()


def test_the_steps_of_a_long_gap_are_shorter_than_any_long_gap(getkey):
    s, steps, horizon = jr.uniform(getkey(), (5000,)), 5, 3.0
    old = Triplets(jnp.ones((5000, 2)), s, s + 0.01, s + 0.02, None)
    new = long_gaps(old, horizon=horizon, steps=steps, key=getkey())
    gaps = new.t - new.s
    assert (gaps / steps).max() < gaps.min()
    assert gaps.min() >= 2 * horizon / steps - 1e-9
    assert 0.99 * horizon < gaps.max() <= horizon + 1e-9
    assert (new.x_s == old.x_s).all()
    assert (new.s == old.s).all()


@pytest.mark.parametrize("number", [1, 2, 3, 1000, 2**16, 2**16 + 1, 12_345_678, 2**31 - 1])
def test_random_words_become_integers_below_a_number_without_a_rounding_error(number):
    words = np.concatenate(
        [[0, 1, 2**16 - 1, 2**16, 2**31, 2**32 - 1], np.random.default_rng(0).integers(0, 2**32, 1000)]
    )
    found = np.asarray(below(jnp.asarray(words, jnp.uint32), number))
    assert [int(word) * number >> 32 for word in words] == found.tolist()


def test_random_words_become_numbers_from_zero_to_just_below_one():
    found = unit(jnp.array([0, 2**31, 2**32 - 1], jnp.uint32))
    assert found.dtype == jnp.float32
    assert found[0] == 0
    assert found[1] == 0.5
    assert 1 - 2e-7 < found[2] < 1


def test_pairs_and_triplets_are_drawn_from_the_same_rows_at_once(getkey):
    sampler = PairSampler(_clock_data([5, 9]), scheme="lag")
    pairs, triplets = draw_pairs_and_triplets(sampler, 300, 200, horizon=6.0, scheme="paper", key=getkey())
    assert pairs.x_s.shape[0] == 300
    assert (pairs.x_t[:, 0] - pairs.x_s[:, 0] == pairs.t - pairs.s).all()  # the state is the clock
    assert triplets.x_s.shape[0] == 200
    assert ((triplets.s < triplets.r) & (triplets.r < triplets.t)).all()
