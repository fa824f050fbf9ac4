"""Series in units of their own: what is learnt of them must be what can be known when a forecast is made."""

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest

from stochflow import Forecaster
from stochflow.flows import Correction
from stochflow.forecasting import direct
from stochflow.forecasting.correction import _back
from stochflow.forecasting.direct import DirectModel
from stochflow.forecasting.pieces import Piece

from .worlds import quick_fit, unlearnt

SERIES, ROWS, AHEAD = 60, 80, 16


def walks(series=SERIES, rows=ROWS, seed=0):
    """Random walks at levels of their own."""
    return np.cumsum(np.random.default_rng(seed).normal(size=(series, rows)), axis=1)


def as_table(x, levels):
    series, rows = x.shape
    return pd.DataFrame(
        {
            "unique_id": np.repeat(np.arange(series), rows),
            "ds": np.tile(np.arange(rows), series),
            "y": (x + levels[:, None]).ravel(),
        }
    )


@pytest.fixture(scope="module")
def pieces():
    """What is learnt from, of walks."""
    seen = []

    def learn(given, *args, **kwargs):
        seen.extend(given)
        return unlearnt(given, *args, **kwargs)

    patch = pytest.MonkeyPatch()
    patch.setattr(direct, "learn", learn)
    model = Forecaster(progress=False).fit(as_table(walks(), 50.0 * np.arange(SERIES)))
    patch.undo()
    assert model.card_["scaling"] == "series"
    return seen


def test_the_level_of_a_row_is_measured_from_the_rows_up_to_it(pieces):
    for piece in pieces:
        assert piece.centres is not None
        for row in (0, 7, ROWS - 1):
            assert np.allclose(piece.centres[row], piece.values[: row + 1].mean(axis=0))
    # The reading before the last is the state: at the first row of a series there is nothing that it is away from.
    first, later = (np.array([piece.u[row, -2] for piece in pieces]) for row in (0, 40))
    assert np.ptp(first) < 1e-5
    assert np.std(later) > 0.1


def test_series_are_as_wide_as_they_move_whatever_their_length(pieces):
    for piece in pieces:
        assert np.diff(piece.values, axis=0).std() == pytest.approx(
            np.diff(pieces[0].values, axis=0).std(), rel=0.15
        )
    table = as_table(walks(), 50.0 * np.arange(SERIES))
    model = quick_fit(table)
    whole, short = (
        model.model_.past(model._panel(table[table["ds"] >= first])).spread for first in (0, ROWS // 2)
    )
    assert np.median(short / whole) == pytest.approx(
        1, abs=0.1
    )  # of a walk the standard deviation would be half


@pytest.mark.parametrize("series", [2, 20])
def test_walks_that_are_measured_from_their_own_means_are_not_taken_to_return(series):
    x = walks(series)[..., None]
    times = np.arange(ROWS) / 20
    make = lambda x: Piece(times, x - x.mean(axis=0), np.zeros((ROWS, 0)), np.zeros((ROWS, 1)))
    assert _back([make(each) for each in x]).rate[0] == 0
    noise = np.random.default_rng(1).normal(size=(ROWS, series))
    returning = [noise[0]]
    for row in noise[1:]:
        returning.append(0.7 * returning[-1] + row)
    assert _back([make(each[:, None]) for each in np.transpose(returning)]).rate[0] > 0


def test_walks_at_levels_of_their_own_are_forecast_as_walks():
    """Measured from the mean of all their rows they would seem to return to it, in held-out series too."""
    x = walks(rows=ROWS + AHEAD, seed=3)
    table = as_table(x[:, :ROWS], 50.0 * np.arange(SERIES))
    model = Forecaster(progress=False, steps=300).fit(table)
    drawn = model.predict(times=[ROWS - 1 + AHEAD], samples=200)["y"].to_numpy().reshape(SERIES, 200)
    drawn = drawn - 50.0 * np.arange(SERIES)[:, None]
    low, middle, high = np.quantile(drawn, [0.05, 0.5, 0.95], axis=1)
    inside = (low < x[:, -1]) & (x[:, -1] < high)
    assert inside.mean() > 0.9 - 3 * np.sqrt(0.09 / SERIES)
    away = (middle - x[:, ROWS - 1]) / np.sqrt(AHEAD)
    assert np.sqrt(np.mean(away**2)) < 0.35


@pytest.mark.slow
def test_a_log_density_beyond_the_horizon_is_that_of_chained_steps():
    table = as_table(walks(3), np.zeros(3))
    model = quick_fit(table, Forecaster(progress=False, horizon=4.0))
    past = model.past_
    at = past.last[0] + 10.0  # two and a half horizons
    drawn = model.predict(times=[at], samples=4000)["y"].to_numpy()[:4000]
    grid = np.linspace(*(np.median(drawn) + 8 * drawn.std() * np.array([-1, 1])), 161)
    many = jax.tree.map(lambda leaf: np.repeat(leaf[:1], len(grid), axis=0), past._replace(ids=None))
    many = many._replace(ids=past.ids[:1] * len(grid))
    log_prob = model.model_.log_prob(many, grid[:, None], np.full(len(grid), at), np.zeros((len(grid), 0)))
    share = np.exp(log_prob) * (grid[1] - grid[0])
    assert share.sum() == pytest.approx(1, abs=0.02)
    for quantile in (0.1, 0.5, 0.9):
        below = np.interp(np.quantile(drawn, quantile), grid + (grid[1] - grid[0]) / 2, np.cumsum(share))
        assert below == pytest.approx(quantile, abs=4 * np.sqrt(0.25 / 1024))


def test_what_is_filled_in_knows_nothing_of_the_level_of_later_rows():
    """The same series, and its mirror image from the row after the hole on: moves are as large, the mean is another."""
    model = quick_fit(as_table(walks(3), 50.0 * np.arange(3)), Forecaster(scaling="series", progress=False))
    one = lambda value: jnp.full((1, 1), value, jnp.float32)
    pulled = Correction(
        *(jnp.zeros(1, jnp.float32), one(0.0), one(1.0), one(1.0), one(1.0)),
        rate=jnp.full(1, 30.0, jnp.float32), level=jnp.zeros(1, jnp.float32), noise=jnp.ones(1, jnp.float32),
    )  # fmt: skip
    plain = model.model_
    law = DirectModel(
        plain.law.corrected(pulled), plain.history, plain.units, ahead=plain.ahead, own_scale=True
    )
    x, row = walks(1, seed=4), 20
    mirrored = np.where(np.arange(ROWS) > row, 2 * x[:, row : row + 1] - x, x)
    filled = [
        law.impute(
            model._panel(as_table(y, np.zeros(1))),
            0,
            np.array([row - 0.5]),
            samples=50,
            key=jax.random.key(0),
        )
        for y in (x, mirrored)
    ]
    assert np.abs(x.mean() - mirrored.mean()) > 1
    assert np.allclose(*filled, atol=1e-4)
