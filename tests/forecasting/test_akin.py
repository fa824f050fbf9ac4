"""Series that move together at equal times say less than as many that do not."""

import numpy as np
import pandas as pd
import pytest

from stochflow import Forecaster
from stochflow.forecasting.akin import Series, move_together, worth_of
from stochflow.forecasting.correction import stretches
from stochflow.forecasting.direct import _horizon
from stochflow.forecasting.learn import _blocks
from stochflow.forecasting.pieces import Piece

ROWS = 200


def walks(correlation, number, rows=ROWS, seed=0):
    """Random walks whose moves have this correlation: (rows, number)."""
    rng = np.random.default_rng(seed)
    common, own = rng.normal(size=(rows, 1)), rng.normal(size=(rows, number))
    return np.cumsum(np.sqrt(correlation) * common + np.sqrt(1 - correlation) * own, axis=0)


def as_series(x, began=0.0):
    return [Series(began + np.arange(len(x), dtype=float), column[:, None]) for column in x.T]


def as_pieces(x, began):
    return [
        Piece(np.arange(len(x), dtype=float), column[:, None], np.zeros((len(x), 1)), None, start)
        for column, start in zip(x.T, began, strict=True)
    ]


@pytest.mark.parametrize("correlation", [0.2, 0.5, 0.95])
@pytest.mark.parametrize("gap", [1.0, 5.0])
def test_the_correlation_of_moves_is_found(correlation, gap):
    found = move_together(as_series(walks(correlation, 15)), gap)
    assert found.correlation == pytest.approx(correlation, abs=0.12)
    assert found.beside == 14
    assert found.worth == pytest.approx(1 / (1 + 14 * found.correlation**2))


def test_series_that_move_by_themselves_are_worth_one_each():
    for seed in range(50):
        assert (worth_of(as_series(walks(0.0, 12, seed=seed)), np.array([1.0, 4.0, 9.0])) == 1).all()


def test_a_few_series_count_each_for_itself():
    assert (worth_of(as_series(walks(0.95, 11)), np.array([1.0, 4.0])) == 1).all()


def test_series_that_were_seen_at_other_times_do_not_move_together():
    x = walks(0.95, 12)
    apart = [Series(500 * i + each.times, each.values) for i, each in enumerate(as_series(x))]
    assert not move_together(apart, 1.0).known
    assert (worth_of(apart, np.array([1.0, 50.0])) == 1).all()


def test_a_gap_too_long_to_tell_is_as_the_next_shorter():
    worth = worth_of(as_series(walks(0.9, 12)), np.array([1.0, 8.0, 60.0, 150.0]))
    assert worth[0] < 0.2
    assert worth[2] == worth[3] == worth[1]


def test_copies_of_a_series_have_as_many_stretches_as_it_has():
    one, gaps = walks(0.0, 1), np.array([1.0, 5.0, 25.0])
    alone = stretches(as_pieces(one, [0.0]), gaps)
    copied = stretches(as_pieces(np.repeat(one, 16, axis=1), [0.0] * 16), gaps)
    apart = stretches(as_pieces(walks(0.0, 16), [0.0] * 16), gaps)
    assert np.allclose(copied, alone, rtol=0.01)
    assert np.allclose(apart, 16 * alone)
    frames = lambda x: [(np.arange(ROWS, dtype=float), column[:, None], None) for column in x.T]
    assert _horizon(frames(np.repeat(one, 16, axis=1))) == pytest.approx(_horizon(frames(one)), rel=0.01)
    assert _horizon(frames(walks(0.0, 16))) == (ROWS - 1) / 2


def test_of_series_that_move_together_no_time_is_held_out_that_others_were_seen_at():
    """Whole series are, of many that do not."""
    began = np.linspace(0, 60, 16).round()
    blocks = _blocks(as_pieces(_staggered(walks(0.9, 16, ROWS + 60), began), began), 3)
    of_time = {}
    for block, start in zip(blocks, began, strict=True):
        assert (np.diff(block) >= 0).all()
        for row, fold in enumerate(block):
            of_time.setdefault(start + row, set()).add(int(fold))
    assert all(len(folds) == 1 for folds in of_time.values())
    assert set(np.concatenate(blocks)) == {0, 1, 2}
    whole = _blocks(as_pieces(walks(0.0, 16), [0.0] * 16), 3)
    assert [set(block) for block in whole] == [{i % 3} for i in range(16)]


def _staggered(x, began):
    return np.stack([x[int(start) : int(start) + ROWS, i] for i, start in enumerate(began)], axis=1)


@pytest.mark.slow
@pytest.mark.parametrize(("correlation", "least", "most"), [(0.95, 0.8, 1.5), (0.0, 0.85, 1.15)])
def test_intervals_of_walks_that_share_their_shocks_are_as_wide_as_those_of_walks(correlation, least, most):
    """Held out whole, they had told of each other: widths were .57 of the exact over 90 rows, and the card saw none of
    it. Two stretches of 90 rows are all there is of them, so that they are wider than of walks that move by themselves.
    """
    x = walks(correlation, 15, seed=101)
    frame = pd.DataFrame(
        {"id": np.repeat(np.arange(15), ROWS), "t": np.tile(np.arange(ROWS), 15), "x": x.T.ravel()}
    )
    model = Forecaster(steps=400, horizon=99, progress=False).fit(frame, id="id", time="t", values="x")
    for ahead in (10, 50, 90):
        said = model.predict(times=[ROWS - 1 + ahead], interval=0.9, samples=2000)
        width = (said["x_hi90"] - said["x_lo90"]).mean() / (2 * 1.645 * np.sqrt(ahead))
        assert least < width < most, ahead
