"""What is learnt: without folds as with them, covariates at the end of the gap, and channels that are missing."""

import copy
import pickle
import tracemalloc

import jax
import jax.random as jr
import numpy as np
import pandas as pd
import pytest

from stochflow import Forecaster
from stochflow.flows.local import NORMAL_95
from stochflow.forecasting import direct, latent as latent_module, learn as learn_module
from stochflow.forecasting.correction import (
    ENOUGH_FOR_WIDTH,
    _predictive,
    _simple,
    enough_for_width,
    held_pairs,
)
from stochflow.forecasting.learn import LearnConfig, _blocks
from stochflow.forecasting.pieces import Piece
from stochflow.inference import forecast_latent

from .worlds import ou_frame, quick_fit


def pieces(number, rows):
    times = np.arange(rows, dtype=float)
    return [Piece(times, np.full((rows, 1), i * 1.0), np.zeros((rows, 2))) for i in range(number)]


def test_folds_are_stretches_of_few_series_and_whole_ones_of_many():
    few, many = _blocks(pieces(2, 7), 3), _blocks(pieces(12, 7), 3)
    assert [block.tolist() for block in few] == [[0, 0, 0, 1, 1, 2, 2]] * 2
    assert [set(block) for block in many] == [{i % 3} for i in range(12)]
    # Without folds no row is held out from the only law, number 0.
    assert all((block < 0).all() for block in _blocks(pieces(2, 7), 0))


def test_one_long_series_beside_many_short_ones_is_learnt_from_without_padding(monkeypatch):
    """Padding them to one length takes 240 MB."""
    some = [each._replace(times=each.times / 100) for each in pieces(1, 20_000) + pieces(400, 3)]

    def stop(model, problem, *_, **__):
        assert problem.data.times.shape == (20_000 + 400 * 3,)
        raise StopIteration

    monkeypatch.setattr(learn_module, "train", stop)
    tracemalloc.start()
    try:
        with pytest.raises(StopIteration):
            learn_module.learn(some, np.ones(1), 0, LearnConfig(), progress=False, key=jr.key(0))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 30e6


def test_held_out_pairs_have_the_gap_and_the_covariates_of_their_end():
    times = np.array([0.0, 1, 2, 4, 7])
    u = np.stack([10 + times, times], axis=1)
    found = held_pairs([Piece(times, times[:, None], u)], 2.0, ahead=1)
    assert found.gaps.tolist() == [2, 2]
    assert (found.x_t - found.x_s)[:, 0].tolist() == [2, 2]
    assert found.u.tolist() == [[10, 2], [12, 4]]


@pytest.fixture(scope="module")
def driven():
    """A step of y is what `push` says at its end, and noise; learnt without folds."""
    rng = np.random.default_rng(0)
    push = rng.choice([-1.0, 1.0], 400)
    y = np.cumsum(push + rng.normal(size=400))
    frame = pd.DataFrame({"t": np.arange(400), "y": y, "push": push})
    model = Forecaster(steps=800, batch_size=64, folds=0, horizon=2, weight_decay=0.0, progress=False)
    return frame, model.fit(frame, time="t", values="y", future="push")


def test_covariates_known_ahead_are_read_at_the_end_of_the_gap(driven):
    frame, model = driven
    last = frame["y"].iloc[-1]
    ahead = lambda push: pd.DataFrame({"t": [400], "push": [push]})
    down, up = (
        model.predict(times=[400], future=ahead(push), samples=400)["y"] - last for push in (-1.0, 1.0)
    )
    # The truth is -1 and 1.
    assert down.median() < -0.4
    assert up.median() > 0.4


@pytest.mark.parametrize(
    ("future", "words"),
    [
        (None, "`future` must be a frame with push at the times of the forecast"),
        (pd.DataFrame({"t": [401], "push": [1.0]}), "`future` has no complete row of series 'all' at 400"),
        (pd.DataFrame({"t": [400.001], "push": [1.0]}), "where the model was fitted on integers"),
        (pd.DataFrame({"t": [400]}), "there is no column 'push'; the columns are t"),
    ],
)
def test_covariates_ahead_must_be_there(future, words, driven):
    with pytest.raises(ValueError, match=words):
        driven[1].predict(times=[400], future=future)


@pytest.fixture(scope="module")
def partly_seen():
    frame = ou_frame(60, series=2)
    rng = np.random.default_rng(3)
    return frame.assign(z=np.where(rng.random(len(frame)) < 0.3, np.nan, rng.normal(size=len(frame))))


@pytest.fixture(scope="module")
def latent(partly_seen):
    return Forecaster(steps=20, horizon=2.0, progress=False).fit(partly_seen, values=["y", "z"])


def test_many_missing_channels_ask_for_a_latent_flow_and_the_card_says_why(latent):
    assert latent.kind_ == latent.card_["kind"] == "latent"
    assert "of the rows lack a channel" in latent.card_["why"]
    assert latent.model_.horizon == 2.0


@pytest.mark.parametrize("every", [2.0, 1.0])
def test_a_latent_flow_plots_a_fan_that_does_not_open_from_a_noisy_reading(latent, every):
    for ax in latent.plot(horizon=2.0, every=every):
        corners = [path.vertices for band in ax.collections for path in band.get_paths()]
        assert np.isclose(min(each[:, 0].min() for each in corners), latent.past_.last[0] + every)
        assert all(np.ptp(each[:, 1]) > 0 for each in corners)


def test_a_latent_flow_forecasts_and_fills_in(latent, partly_seen, tmp_path):
    ask = {"horizon": 4.0, "every": 2.0, "samples": 5}
    said = latent.predict(**ask)
    assert said.shape == (2 * 2 * 5, 5)
    assert np.isfinite(said[["y", "z"]]).all(axis=None)
    filled = latent.impute(partly_seen, samples=20)
    seen = partly_seen["z"].notna()
    assert np.array_equal(filled["z"][seen], partly_seen["z"][seen])
    assert filled["z"].isna().sum() < (~seen).sum() / 4
    latent.save(tmp_path / "it")
    again = Forecaster.load(tmp_path / "it")
    assert again.predict(partly_seen, **ask).equals(said)
    assert again.predict(**ask).equals(said)


@pytest.mark.parametrize("copied", [lambda it: pickle.loads(pickle.dumps(it)), copy.deepcopy])
def test_a_latent_flow_can_be_pickled_and_copied(copied, latent):
    """As joblib does it, to bring a fitted forecaster home from another process."""
    ask = {"horizon": 1.0, "every": 0.5, "samples": 3, "random_state": 4}
    pd.testing.assert_frame_equal(copied(latent).predict(**ask), latent.predict(**ask), check_exact=True)


def test_a_longer_series_does_not_change_what_a_latent_flow_says_of_others(latent, partly_seen):
    ask = {"horizon": 4.0, "every": 2.0, "samples": 5}
    longer = ou_frame(150, seed=4).assign(unique_id="a longer one", z=0.1)
    together = latent.predict(pd.concat([longer, partly_seen]), **ask)
    others = together[together["unique_id"] != "a longer one"].reset_index(drop=True)
    pd.testing.assert_frame_equal(others, latent.predict(**ask), check_exact=True)


@pytest.mark.parametrize("seen", ["y", "z"])
def test_the_log_density_of_a_latent_flow_is_one_of_the_channels_that_were_seen(latent, seen):
    """It integrates to one over a channel by itself, and its mean is that of the draws."""
    model, grid = latent.model_, np.linspace(-12, 12, 512)
    past = jax.tree.map(
        lambda leaf: np.repeat(leaf[:1], len(grid), axis=0), latent.past_._replace(ids=None)
    )._replace(ids=latent.past_.ids[:1] * len(grid))
    at = np.full(len(grid), latent.past_.last[0] + 1.0)
    values = np.full((len(grid), 2), np.nan)
    values[:, ["y", "z"].index(seen)] = grid
    density = np.exp(model.log_prob(past, values, at, np.zeros((len(grid), 0))))
    share = density * (grid[1] - grid[0])
    assert abs(share.sum() - 1) < 1e-3
    draws = latent.predict(times=[at[0]], samples=4000).query("unique_id == 's0'")[seen]
    assert abs(share @ grid - draws.mean()) < 5 * draws.std() * np.sqrt(1 / 4000 + 1 / 1024)


def test_a_latent_flow_has_a_log_score(latent, partly_seen):
    assert np.isfinite(latent.score(partly_seen, metric="log"))


def test_draws_of_a_series_do_not_depend_on_how_long_the_others_are(latent, partly_seen):
    ask = {"horizon": 4.0, "every": 2.0, "samples": 5}
    short = partly_seen[
        ~((partly_seen["unique_id"] == "s1") & (partly_seen.groupby("unique_id").cumcount() > 9))
    ]
    alone = short[short["unique_id"] == "s1"]
    together = latent.predict(short, **ask).query("unique_id == 's1'").reset_index(drop=True)
    # Padded to other lengths, sums are in another order: equal up to rounding.
    assert np.allclose(together[["y", "z"]], latent.predict(alone, **ask)[["y", "z"]], atol=1e-4)


def test_a_latent_forecast_is_that_of_the_latent_flow_itself(latent, partly_seen):
    """One time, many draws: mean and spread of either within standard errors."""
    last = partly_seen.query("unique_id == 's0'")
    at, number = float(last["ds"].iloc[-1]) + 1.0, 2000
    said = latent.predict(last, times=[at], samples=number)[["y", "z"]].to_numpy()
    drawn = forecast_latent(
        latent.model_.flow, last["ds"].to_numpy(), last[["y", "z"]].to_numpy(), np.array([at]),
        samples=number, key=jr.key(1),
    )  # fmt: skip
    values = np.asarray(drawn.values)[:, 0]
    error = values.std(axis=0) * np.sqrt(2 / number)
    assert (np.abs(said.mean(axis=0) - values.mean(axis=0)) < 4.5 * error).all()
    assert np.allclose(said.std(axis=0), values.std(axis=0), rtol=4.5 / np.sqrt(number))


def test_a_kind_that_was_chosen_by_hand_is_said_to_be(partly_seen):
    model = quick_fit(partly_seen, Forecaster(kind="flow", progress=False), values=["y", "z"])
    assert model.kind_ == "flow"
    assert model.card_["why"].startswith("chosen by hand; ")


def test_a_latent_flow_has_no_covariates(partly_seen):
    with pytest.raises(ValueError, match="covariates are for `kind='flow'`"):
        Forecaster(kind="latent").fit(
            partly_seen.assign(p=np.arange(len(partly_seen))), values=["y", "z"], past="p"
        )


@pytest.mark.parametrize(
    ("settings", "change", "words"),
    [
        ({"horizon": 1e4}, {}, "`horizon` must be no longer than the longest series"),
        ({"progress": 3}, {}, "`progress` must be True, False or None; got 3"),
        ({}, {"folder": 3}, "`folder` must be a path; got 3"),
        ({}, {"future": "push"}, "there is no column 'push'; the columns are unique_id, ds, y.$"),
    ],
)
def test_what_cannot_be_fitted_says_so(settings, change, words, as_users_have_it):
    with pytest.raises(ValueError, match=words):
        quick_fit(ou_frame(40), Forecaster(**settings), **change)


def test_no_covariates_may_be_said_with_none(as_users_have_it):
    assert quick_fit(ou_frame(40), static=None, past=None, future=None).columns_.future == ()


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("flow", "has no complete row to start from: leave it out, or fill in"),
        ("latent", "has no value to start"),
    ],
)
def test_a_series_that_no_forecast_can_start_from_is_refused_before_anything_is_learnt(
    kind, words, monkeypatch
):
    for module, learn in ((direct, "learn"), (latent_module, "fit_latent")):
        monkeypatch.setattr(module, learn, lambda *_, **__: pytest.fail("it was learnt"))
    frame = ou_frame(30, series=10).assign(z=lambda frame: np.sin(frame["y"]))
    never = frame["unique_id"] == "s4"
    frame = frame.assign(z=frame["z"].mask(never), y=frame["y"].mask(never & (kind == "latent")))
    with pytest.raises(ValueError, match=f"series 's4' {words}"):
        Forecaster(kind=kind).fit(frame, values=["y", "z"])


def test_integers_that_double_precision_merges_are_called_that():
    frame = ou_frame(40).assign(ds=2**60 + np.arange(40))
    with pytest.raises(
        ValueError, match=r"integers beyond 2\*\*53, which double precision cannot tell apart"
    ):
        quick_fit(frame)


def test_more_numbers_than_fit_in_memory_are_refused(as_users_have_it):
    model = quick_fit(ou_frame(40))
    with pytest.raises(ValueError, match="ask for fewer `samples`, times or series at once"):
        model.predict(times=[100.0], samples=10**12)
    with pytest.raises(ValueError, match="`paths` must be True or False; got 5"):
        model.predict(times=[100.0], paths=5)


@pytest.mark.parametrize("path", [None, 3])
def test_a_path_must_be_one(path, as_users_have_it):
    model = quick_fit(ou_frame(40))
    with pytest.raises(ValueError, match="`path` must be a path; got"):
        model.save(path)
    with pytest.raises(ValueError, match="`path` must be a path; got"):
        Forecaster.load(path)


def test_the_simple_law_is_set_by_pairs_of_the_gap():
    """Where rows next to each other make a return look twice as fast as it is, and noise three times as wide."""
    rng = np.random.default_rng(0)
    back, plain = rng.normal(size=4000), np.full(4000, 3.0)
    share, width = _simple(0.5 * back + rng.normal(size=4000), back, plain, apart=4000.0)
    assert share == pytest.approx(0.5, abs=0.1)
    assert width == pytest.approx(1 / 3, rel=0.05)
    # Of two stretches next to nothing is concluded.
    assert _simple(0.5 * back + rng.normal(size=4000), back, plain, apart=1.0)[1] > 0.85


def test_few_stretches_are_in_doubt_and_many_are_not():
    assert _predictive(1e6) == pytest.approx(1.0, abs=1e-3)
    assert _predictive(2.0) > _predictive(5.0) > _predictive(25.0) > 1.05


@pytest.mark.parametrize("number", [2, 5, 20, 60])
def test_doubt_is_that_of_a_mean_and_a_width_by_few_stretches(number):
    """The mean is anywhere; the width lies about as far from what rows next to each other say as ten stretches would
    leave it in doubt, and is believed by as much."""
    rng = np.random.default_rng(0)
    std = np.exp(rng.normal(size=40_000) / np.sqrt(2 * ENOUGH_FOR_WIDTH))
    seen, new = std[:, None] * rng.normal(size=(40_000, number)), std * rng.normal(size=40_000)
    width = seen.std(axis=1) ** enough_for_width(float(number)) * _predictive(float(number))
    held = np.abs(new - seen.mean(axis=1)) <= NORMAL_95 * width
    assert 0.89 < held.mean() < 0.92


@pytest.mark.parametrize(
    "rows", [pytest.param(2, marks=pytest.mark.slow), 3, pytest.param(5, marks=pytest.mark.slow)]
)
def test_of_a_few_rows_a_forecast_is_the_last_value_and_as_wide_as_their_moves(rows):
    values = np.array([1.0, 1.1, 0.95, 1.05, 1.0])[:rows]
    frame = pd.DataFrame({"ds": np.arange(rows), "y": values})
    model = Forecaster(steps=20, progress=False).fit(frame)
    said = model.predict(horizon=1, samples=400, interval=0.9)
    size = np.sqrt(np.mean(np.diff(values) ** 2))
    assert said["y"].iloc[0] == pytest.approx(values[-1], abs=0.3 * size)
    assert 2.5 * size < (said["y_hi90"] - said["y_lo90"]).iloc[0] < 4.5 * size
    assert model.card_["held_out"] == []
    assert "too few rows to hold any out" in model.card_["doubt"]


def test_a_horizon_within_the_usual_gap_is_forecast_by_itself():
    model = quick_fit(pd.DataFrame({"ds": 7.0 * np.arange(40), "y": np.sin(np.arange(40))}))
    assert model.predict(horizon=3.0, interval=0.9)["ds"].tolist() == [7.0 * 39 + 3.0]


def test_a_horizon_longer_than_all_series_is_refused_by_both_kinds():
    for kind in ("flow", "latent"):
        with pytest.raises(ValueError, match="`horizon` must be no longer than the longest series"):
            Forecaster(kind=kind, horizon=1e3, progress=False, steps=20).fit(ou_frame(20))
