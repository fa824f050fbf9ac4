"""A law that has been too narrow, or too wide, for the last stretches of a series is widened, or narrowed."""

import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pandas as pd
import pytest

from stochflow.flows import Correction
from stochflow.forecasting.backtest import Origins, truncated
from stochflow.forecasting.direct import DirectModel
from stochflow.forecasting.recent import Read, _stretches

from .worlds import quick_fit

ROWS, CHECKED = 400, 100


def random_walk(seed):
    rng = np.random.default_rng(seed)
    return pd.DataFrame({"ds": np.arange(ROWS), "y": np.cumsum(rng.normal(size=ROWS))})


@pytest.fixture(scope="module")
def forecaster():
    return quick_fit(random_walk(0), time="ds", values="y")


# Of a horizon: the gap between two rows, and one of a few.
def knots(model) -> np.ndarray:
    return np.array([model.history.gap, 4 * model.history.gap])


def with_spread(model, spread) -> DirectModel:
    """The model, its law's noise so many times as wide as it is, at every gap."""
    table = lambda value: jnp.full((2, 1), value, jnp.float32)
    one = jnp.ones(1, jnp.float32)
    correction = Correction(
        jnp.asarray(np.log(knots(model)), jnp.float32),
        *map(table, (0.0, 0.0, spread, 1.0)),
        rate=0 * one,
        level=0 * one,
        noise=one,
    )
    return DirectModel(
        model.law.corrected(correction),
        model.history,
        model.units,
        ahead=model.ahead,
        own_scale=model.own_scale,
    )


def share_outside(model, panel, past, rows):
    """Of the rows, each forecast from the row before, what lies outside the central 90 %."""
    at = panel.times[0][rows][:, None]
    drawn = model.draw(past, at, np.zeros((len(rows), 1, 0)), samples=400, joint=False, key=jr.key(0))
    low, high = np.quantile(drawn[:, :, 0, 0], [0.05, 0.95], axis=1)
    truth = panel.values[0][rows, 0]
    return ((truth < low) | (truth > high)).mean()


@pytest.fixture(scope="module")
def unit(forecaster):
    """What makes the law, which has learnt nothing, about right: found by trying."""
    plain, panel = forecaster._fitted().model, forecaster._panel(random_walk(1))
    off = lambda unit: abs(float(with_spread(plain, unit).past(panel).wider[0, 0, 0]) - 1)
    return min(np.geomspace(0.3, 3, 13), key=off)


@pytest.mark.parametrize("times", [0.5, 1.0, 2.0])
def test_intervals_come_nearer_to_holding_nine_tenths(forecaster, unit, times):
    plain, panel = forecaster._fitted().model, forecaster._panel(random_walk(1))
    rows = np.arange(ROWS - CHECKED, ROWS)
    known = truncated(panel, Origins(np.zeros(CHECKED, int), rows - 1, rows))
    model = with_spread(plain, times * unit)
    past = model.past(known)
    before = share_outside(model, panel, past._replace(wider=np.ones_like(past.wider)), rows)
    after = share_outside(model, panel, past, rows)
    assert abs(after - 0.1) < abs(before - 0.1) + 0.02
    if times < 1:
        assert (past.wider > 1.2).all()  # at both gaps
        assert abs(after - 0.1) < 0.7 * abs(before - 0.1)
    if times > 1:
        assert (past.wider < 0.85).all()


def test_what_is_filled_in_is_as_wide_as_the_rows_before_it_say(forecaster):
    """Of a walk that has settled down: wide between early rows, narrow between late ones."""
    model = with_spread(forecaster._fitted().model, 1.0)
    rng = np.random.default_rng(5)
    size = np.where(np.arange(ROWS) < ROWS // 2, 3.0, 0.3)
    frame = pd.DataFrame({"ds": np.arange(ROWS), "y": np.cumsum(size * rng.normal(size=ROWS))})
    panel, at = forecaster._panel(frame), np.array([ROWS // 2 - 1.5, ROWS - 1.5])
    wide = lambda model: model.impute(panel, 0, at, samples=400, key=jr.key(0))[:, :, 0].std(axis=0)
    plain = DirectModel(
        model.law.corrected(None), model.history, model.units, ahead=model.ahead, own_scale=model.own_scale
    )
    (early, late), (early_plain, late_plain) = wide(model), wide(plain)
    assert early / late > 1.2 * early_plain / late_plain


def test_of_few_rows_little_is_concluded(forecaster):
    model = with_spread(forecaster._fitted().model, 0.2)
    wider = lambda rows: model.past(forecaster._panel(random_walk(1).head(rows))).wider[0, :, 0]
    assert (wider(1) == 1).all()
    two = wider(2)
    assert 0.99 < two[0] < 1.01  # one stretch of one row
    assert two[1] == 1  # none of four
    assert wider(200)[0] > 2 > wider(10)[0]


def test_each_gap_is_widened_by_its_own_stretches(forecaster):
    """A walk that turns back at each step: over a row it moves as a walk does, over four it stays where it is."""
    model = with_spread(forecaster._fitted().model, 1.0)
    rng = np.random.default_rng(3)
    step = np.abs(rng.normal(size=ROWS)) * (-1.0) ** np.arange(ROWS)
    frames = {"walk": random_walk(3), "back": pd.DataFrame({"ds": np.arange(ROWS), "y": np.cumsum(step)})}
    walk, back = (model.past(forecaster._panel(frames[name])).wider[0, :, 0] for name in ("walk", "back"))
    assert back[1] / back[0] < 0.85 * walk[1] / walk[0]


def test_stretches_are_those_of_about_the_gap_and_each_is_looked_at_once():
    times = np.array([0.0, 1.0, 2.0, 3.0, 10.0, 11.0, 12.5, 13.0], np.float32)
    nothing = jnp.zeros((8, 0))
    gaps = jnp.asarray(np.diff(times, prepend=0))
    rows = Read(jnp.zeros((8, 1)), gaps, jnp.asarray(7), nothing, nothing)
    start, end, dt, real, new = map(np.asarray, _stretches(rows, jnp.float32(1.0)))
    assert np.allclose(dt[real], 1, atol=1e-6)
    assert np.allclose(new[real], 1)  # none shares anything with another
    # From 12.5 the next row is half a gap away; from 3.0 it is seven of them.
    assert list(zip(times[start[real]], times[end[real]], strict=True)) == [(10, 11), (2, 3), (1, 2), (0, 1)]


def test_a_hole_in_the_data_hides_nothing_that_lies_before_it():
    """Ten years in a series of minutes, in single precision."""
    gaps = jnp.full(200, 1.0).at[150].set(5e6).at[0].set(0.0)
    nothing = jnp.zeros((200, 0))
    rows = Read(jnp.zeros((200, 1)), gaps.astype(jnp.float32), jnp.asarray(199), nothing, nothing)
    start, _, dt, real, _ = map(np.asarray, _stretches(rows, jnp.float32(1.0)))
    assert real.sum() >= 61  # of 64 gaps
    assert (start[real] < 150).any()
    assert np.allclose(dt[real], 1, atol=1e-3)


def test_stretches_of_several_rows_overlap_by_half_and_what_they_share_counts_once():
    nothing = jnp.zeros((200, 0))
    gaps = jnp.full(200, 1.0, jnp.float32).at[0].set(0.0)
    rows = Read(jnp.zeros((200, 1)), gaps, jnp.asarray(199), nothing, nothing)
    start, end, dt, real, new = map(np.asarray, _stretches(rows, jnp.float32(8.0)))
    number = real.sum()
    assert real[:number].all()
    assert (dt[real] == 8).all()
    assert (start[:number] == np.maximum(191 - 4 * np.arange(number), 0)).all()
    assert (end[:number] == start[:number] + 8).all()
    # All rows from the first stretch on, in gaps.
    assert new[real].sum() == (199 - start[number - 1]) / 8


def test_what_was_long_ago_fades(forecaster):
    """Of two walks that were wild and calm in turn, the one that has calmed down is narrower."""
    model = with_spread(forecaster._fitted().model, 1.0)
    rng = np.random.default_rng(7)
    steps = rng.normal(size=ROWS)
    size = np.where(np.arange(ROWS) < ROWS - 40, 1.5, 0.5)
    walks = (np.cumsum(steps * each) for each in (size, size[::-1]))
    calm, wild = (
        model.past(forecaster._panel(pd.DataFrame({"ds": np.arange(ROWS), "y": y}))).wider[0, 0, 0]
        for y in walks
    )
    assert calm < 0.9 * wild
