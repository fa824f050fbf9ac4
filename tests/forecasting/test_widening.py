"""A law that has been too narrow, or too wide, for the last rows of a series is widened, or narrowed, for the next."""

import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pandas as pd
import pytest

from stochflow.flows import Correction
from stochflow.forecasting.backtest import Origins, truncated
from stochflow.forecasting.direct import DirectModel

from .worlds import quick_fit

ROWS, CHECKED = 400, 100


def random_walk(seed):
    rng = np.random.default_rng(seed)
    return pd.DataFrame({"ds": np.arange(ROWS), "y": np.cumsum(rng.normal(size=ROWS))})


@pytest.fixture(scope="module")
def forecaster():
    return quick_fit(random_walk(0), time="ds", values="y")


def with_spread(model, spread) -> DirectModel:
    """The model, its law's noise so many times as wide as it is, at every gap."""
    table = lambda value: jnp.full((2, 1), value, jnp.float32)
    one = jnp.ones(1, jnp.float32)
    correction = Correction(
        jnp.log(jnp.array([1e-3, 1.0], jnp.float32)),
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
    off = lambda unit: abs(float(with_spread(plain, unit).past(panel).wider[0, 0]) - 1)
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
        assert (past.wider > 1.2).all()
        assert abs(after - 0.1) < 0.7 * abs(before - 0.1)
    if times > 1:
        assert (past.wider < 0.85).all()


def test_of_few_rows_nothing_is_concluded(forecaster):
    model = with_spread(forecaster._fitted().model, 0.2)
    panel = forecaster._panel(random_walk(1).head(2))
    assert abs(float(model.past(panel).wider[0, 0]) - 1) < 0.05
    one = forecaster._panel(random_walk(1).head(1))
    assert float(model.past(one).wider[0, 0]) == pytest.approx(1.0, abs=1e-3)  # 1.645 is rounded
