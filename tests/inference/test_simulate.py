"""Simulated series are those of the law, whatever their times."""

import jax.numpy as jnp
import numpy as np
import pytest

from stochflow import StochasticFlow
from stochflow.data import Trajectories
from stochflow.inference import series_starts, simulate
from stochflow.laws import GeometricBrownianMotion, OrnsteinUhlenbeck, Standardised

OU = OrnsteinUhlenbeck(jnp.array([1.0]), jnp.array([0.5]), jnp.array([0.8]))


def _data(starts):
    starts = np.asarray(starts, float)
    return Trajectories.from_arrays(np.array([0.0, 0.2]), np.stack([starts, starts + 0.1], axis=1)[..., None])


def test_series_span_the_interval_in_steps_of_the_asked_size(getkey):
    made = simulate(OU, _data([1.0, 3.0]), 500, span=2.0, steps=(0.3, 0.6), key=getkey())
    assert len(made) == 500
    assert set(np.unique(made.values[:, 0])) == {1.0, 3.0}
    lasts = made.times.max(axis=1)
    np.testing.assert_allclose(lasts, 2.0, rtol=1e-6)
    gaps = made.gaps
    assert gaps.max() <= 0.6 + 1e-6
    assert (gaps < 0.3 - 1e-6).sum() <= 500  # only the last step of a series may be cut short


def test_the_end_has_the_exact_law(getkey):
    """Mean and variance at the span, whatever the steps, within four standard errors."""
    number = 20_000
    made = simulate(OU, _data([2.0, 2.0]), number, span=1.5, steps=(0.2, 0.7), key=getkey())
    ends = made.values[np.arange(number), made.present.sum(axis=1) - 1, 0]
    mean, variance = 0.5 + 1.5 * np.exp(-1.5), 0.8**2 * (1 - np.exp(-3.0)) / 2
    assert abs(ends.mean() - mean) < 4 * np.sqrt(variance / number)
    assert abs(ends.var() - variance) < 4 * variance * np.sqrt(2 / number)


def test_smoothing_keeps_mean_and_variance_of_the_starts(getkey):
    data = _data(np.random.default_rng(0).normal(3.0, 2.0, 200))
    made = simulate(OU, data, 20_000, span=0.2, steps=(0.1, 0.2), smoothing=0.5, key=getkey())
    starts, firsts = made.values[:, 0, 0], data.values[:, 0, 0]
    assert len(np.unique(starts)) > 19_000
    assert abs(starts.mean() - firsts.mean()) < 4 * firsts.std() / np.sqrt(20_000)
    assert abs(starts.var() / firsts.var() - 1) < 4 * np.sqrt(2 / 20_000)


def test_residuals_replace_the_laws_own_noise(getkey):
    """A law with twice the noise of its data: with residuals its paths are as wide as the data says."""
    flow = StochasticFlow(
        1, layers=0, width=4, key=getkey()
    )  # a Brownian motion of std about softplus(0) = 0.69
    law = Standardised(flow, [0.0], [1.0])
    rng = np.random.default_rng(0)
    paths = np.cumsum(rng.normal(0, 0.1, (400, 20)), axis=1)  # std 0.1 over a gap of 0.1
    data = Trajectories.from_arrays(np.arange(20) * 0.1, paths[..., None])
    step_std = {}
    for residuals in (False, True):
        made = simulate(law, data, 2000, span=0.1, steps=(0.095, 0.1), residuals=residuals, key=getkey())
        step_std[residuals] = float((made.values[:, 1] - made.values[:, 0]).std())
    assert step_std[False] > 0.19
    assert step_std[True] == pytest.approx(0.1, rel=0.1)


def test_contested_starts_are_those_from_which_paths_part(getkey):
    """Of a geometric Brownian motion two paths part in proportion to the start; the law given the start stays."""
    law = GeometricBrownianMotion(jnp.zeros(1), jnp.array([0.3]))
    data = _data([1.0] * 9 + [10.0])  # of which one in ten starts at 10
    found = {}
    for contested in (0.0, 0.5, 1.0):
        made = simulate(law, data, 4000, span=1.0, steps=(0.5, 1.0), contested=contested, key=getkey())
        assert len(made) == 4000
        found[contested] = (made.values[:, 0, 0] == 10.0).mean()
    # Of four candidates a place, .4 start at 10 and weigh ten times as much, but none is taken twice.
    assert found[0.0] == pytest.approx(0.1, abs=4 * 0.3 / np.sqrt(4000))
    assert 0.25 < found[1.0] < 0.4
    assert found[0.5] == pytest.approx((found[0.0] + found[1.0]) / 2, abs=0.04)
    ends = np.log(made.values[np.arange(4000), made.present.sum(axis=1) - 1, 0] / made.values[:, 0, 0])
    for start in (1.0, 10.0):
        chosen = ends[made.values[:, 0, 0] == start]
        assert abs(chosen.mean() + 0.3**2 / 2) < 4 * 0.3 / np.sqrt(len(chosen))
        assert abs(chosen.var() / 0.3**2 - 1) < 4 * np.sqrt(2 / len(chosen))


def test_starts_alone_are_chosen_as_those_of_series_are(getkey):
    law = GeometricBrownianMotion(jnp.zeros(1), jnp.array([0.3]))
    data = _data([1.0] * 9 + [10.0])
    share = lambda **options: (
        series_starts(law, data, 4000, span=1.0, step=0.5, key=getkey(), **options) == 10.0
    ).mean()
    assert share() == pytest.approx(0.1, abs=4 * 0.3 / np.sqrt(4000))
    assert 0.25 < share(contested=1.0) < 0.4
    spread = series_starts(law, data, 4000, span=1.0, step=0.5, smoothing=0.5, key=getkey())
    assert len(np.unique(spread)) == 4000


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"contested": -0.1}, r"`contested` must lie in \[0, 1\]; got -0.1"),
        ({"step": 2.0}, "`step` must be positive and no longer than `span`; got 2.0 and 1.0"),
        ({"step": 0.0}, "`step` must be positive"),
        ({"number": 0}, "`number` must be at least 1; got 0"),
    ],
)
def test_wrong_arguments_of_starts_are_refused(wrong, message, getkey):
    arguments = {"number": 3, "span": 1.0, "step": 0.2} | wrong
    with pytest.raises(ValueError, match=message):
        series_starts(OU, _data([1.0, 2.0]), key=getkey(), **arguments)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"contested": 1.5}, r"`contested` must lie in \[0, 1\]; got 1.5"),
        ({"steps": (0.0, 0.1)}, "`steps` must satisfy"),
        ({"steps": (0.2, 5.0)}, "`steps` must satisfy"),
        ({"number": 0}, "`number` must be at least 1"),
        ({"residuals": True}, "has no inverse from states to noise"),
    ],
)
def test_wrong_arguments_are_refused(wrong, message, getkey):
    arguments = {"number": 3, "span": 1.0, "steps": (0.1, 0.2)} | wrong
    with pytest.raises((ValueError, NotImplementedError), match=message):
        simulate(OU, _data([1.0, 2.0]), key=getkey(), **arguments)


def test_joined_series_keep_their_times_and_gaps_in_the_data(getkey):
    values = np.arange(8.0).reshape(1, 4, 2)
    values[0, 1, 0] = np.nan
    one = Trajectories.from_arrays(np.array([5.0, 6, 8, 9]), values)
    both = Trajectories.joined(one, simulate(OU2, one, 3, span=1.0, steps=(0.5, 1.0), key=getkey()))
    assert len(both) == 4
    assert both.origins[0] == 5.0
    assert both.mask[0].sum() == 7
    np.testing.assert_array_equal(both.times[0, :4], one.times[0])


OU2 = OrnsteinUhlenbeck(jnp.ones(2), jnp.zeros(2), jnp.ones(2))
