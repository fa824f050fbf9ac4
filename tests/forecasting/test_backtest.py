"""Scores in closed form, and origins that look only back."""

import dataclasses
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scoringrules

from stochflow import Forecaster
from stochflow.forecasting import ForecasterConfig, direct, evaluate
from stochflow.forecasting.backtest import Tested as Forecasts, _score, _stretches, backtest, rows_among
from stochflow.forecasting.fitting import with_starts
from stochflow.forecasting.frames import as_frame, find_columns, read_panel
from stochflow.forecasting.origins import find_origins, truncated
from stochflow.forecasting.references import References
from stochflow.forecasting.requests import read_table
from stochflow.metrics import (
    FORECAST_SCORES,
    crps_of_draws,
    crps_of_normal,
    inside_central,
    quantiles_of_draws,
    variogram_score,
)

from .worlds import ou_frame, quick_fit, unlearnt

RNG = np.random.default_rng(0)
TRUTH = RNG.normal(size=(7, 3))
DRAWS = RNG.normal(size=(7, 40, 3))
MEAN, SCALE = RNG.normal(size=7), RNG.uniform(0.5, 2, 7)


def test_the_crps_of_a_normal_law():
    found = crps_of_normal(MEAN, SCALE, TRUTH[:, 0])
    assert np.allclose(found, scoringrules.crps_normal(TRUTH[:, 0], MEAN, SCALE), atol=1e-7)


def test_the_crps_of_many_draws_is_that_of_their_law():
    number = 20_000
    draws = MEAN[:, None] + SCALE[:, None] * RNG.normal(size=(7, number))
    off = crps_of_draws(draws[..., None], TRUTH[:, :1])[:, 0] - crps_of_normal(MEAN, SCALE, TRUTH[:, 0])
    # |X - y| and |X - X'| have standard deviations below that of X.
    assert np.abs(off).max() < 4.5 * SCALE.max() * 1.5 / np.sqrt(number)


def _mean(found: Any) -> float:
    return float(np.mean(found))


def test_scores_are_those_of_scoringrules():
    each: Any = scoringrules.crps_ensemble(TRUTH, DRAWS, m_axis=1, estimator="fair")
    assert FORECAST_SCORES["crps"](DRAWS, TRUTH) == pytest.approx(np.mean(each))
    fair = _mean(scoringrules.es_ensemble(TRUTH, DRAWS, estimator="fair"))
    assert FORECAST_SCORES["energy"](DRAWS, TRUTH) == pytest.approx(fair, rel=1e-5)
    assert variogram_score(DRAWS, TRUTH) == pytest.approx(
        _mean(scoringrules.vs_ensemble(TRUTH, DRAWS, p=0.5))
    )


def test_a_level_far_above_the_moves_changes_no_energy_score():
    score = FORECAST_SCORES["energy"]
    assert score(DRAWS + 1e8, TRUTH + 1e8) == pytest.approx(score(DRAWS, TRUTH), rel=1e-5)


def test_simple_scores():
    truth = np.zeros((2, 1))
    draws = np.array([[-1.0, 0, 3], [1, 2, 3]])[..., None]
    assert FORECAST_SCORES["mae"](draws, truth) == pytest.approx(1)
    assert FORECAST_SCORES["rmse"](draws, truth) == pytest.approx(np.sqrt((4 / 9 + 4) / 2))
    assert FORECAST_SCORES["coverage"](draws, truth) == 0.5


def test_the_distance_of_a_pit_from_uniform_tells_a_law_that_is_too_narrow():
    rng = np.random.default_rng(0)
    truth, draws = rng.normal(size=(2000, 2)), rng.normal(size=(2000, 99, 2))
    score = FORECAST_SCORES["pit"]
    critical = 1.63 / np.sqrt(2000)  # the 1 % point of the Kolmogorov–Smirnov statistic
    assert score(draws, truth) < critical + 0.01  # the places are multiples of a hundredth
    # Of a law half as wide: sup |Φ(2x) - Φ(x)| = 0.1613 at x = sqrt(2 log(2) / 3).
    assert score(0.5 * draws, truth) == pytest.approx(0.161, abs=0.03)
    truth[:, 0] = np.nan
    assert score(draws, truth) == score(draws[..., 1:], truth[:, 1:])


def test_what_was_not_seen_is_not_scored():
    truth = TRUTH.copy()
    truth[1:, 0] = np.nan
    for name in ("crps", "coverage", "mae", "rmse"):
        score = FORECAST_SCORES[name]
        rest = np.mean([score(DRAWS[:, :, [c]], TRUTH[:, [c]]) ** (1 + (name == "rmse")) for c in (1, 2)])
        first = score(DRAWS[:1, :, :1], TRUTH[:1, :1]) ** (1 + (name == "rmse"))
        expected = ((14 * rest + first) / 15) ** (0.5 if name == "rmse" else 1)
        assert score(DRAWS, truth) == pytest.approx(expected)
    assert FORECAST_SCORES["energy"](DRAWS, truth) == pytest.approx(
        FORECAST_SCORES["energy"](DRAWS[:1], TRUTH[:1])
    )
    truth[0, 0] = np.nan
    with pytest.raises(ValueError, match="no row has all of them"):
        FORECAST_SCORES["variogram"](DRAWS, truth)


def _panel(frame):
    frame = as_frame(frame)
    return read_panel(frame, find_columns(frame))[0]


def test_baselines_are_those_of_each_series_where_series_differ():
    frame = ou_frame(300, series=3)
    level = 50.0 * frame["unique_id"].str[1:].astype(int)
    alike, apart = _panel(frame), _panel(frame.assign(y=frame["y"] + level))
    assert not References.fit(alike, None).series
    references = References.fit(apart, None)
    means = [float(references.series[name][1].mean[0]) for name in apart.ids]
    assert np.allclose(means, [50.0 * i + 0.5 for i in range(3)], atol=0.5)  # within five standard errors
    origins = find_origins(apart, 4.0, 0.2, [0] * 3, [300] * 3, 100)
    ours = references.crps(apart, origins, 1.0)["ornstein_uhlenbeck"].mean()
    pooled = dataclasses.replace(references, series={}).crps(apart, origins, 1.0)["ornstein_uhlenbeck"].mean()
    assert ours < 0.8 * pooled


def test_baselines_of_channels_that_are_seen_in_turn_start_where_each_was_seen():
    frame = ou_frame(100).assign(z=0.0)
    frame["z"] = frame["y"] + 1.0
    frame.loc[::2, "y"], frame.loc[1::2, "z"] = np.nan, np.nan
    frame = as_frame(frame)
    panel = read_panel(frame, find_columns(frame, values=["y", "z"]))[0]
    origins = find_origins(panel, 0.4, 0.4, [10], [90], 20, partial=True)
    assert len(origins.series)
    assert not len(find_origins(panel, 0.4, 0.4, [10], [90], 20).series)
    scores = References.fit(panel, None).crps(panel, origins, 1.0)["persistence"]
    seen = ~np.isnan(panel.values[0][origins.end])
    assert (np.isfinite(scores) == seen).all()
    assert seen.any(axis=0).all()


@pytest.fixture
def panel():
    frame = as_frame(ou_frame(50, series=2))
    return read_panel(frame, find_columns(frame))[0]


def test_an_origin_knows_nothing_of_what_comes_after(panel):
    panel.values[0][10] = np.nan
    origins = find_origins(panel, 1.0, 0.2, [5, 5], [30, 30], 100)
    known = truncated(panel, origins)
    assert len(set(known.ids)) == len(origins.series)
    for i, start, end, times in zip(*origins, known.times, strict=True):
        assert times[-1] == panel.times[i][start]
        assert 5 <= start < 30
        assert 1.0 - 1e-6 <= panel.times[i][end] - panel.times[i][start] <= 1.1 + 0.4
        assert not np.isnan(panel.values[i][[start, end]]).any()
    assert not ((origins.series == 0) & (origins.start == 10)).any()


@pytest.mark.parametrize(("width", "known"), [(0.0, False), (0.5, True), (10.0, False)])
def test_a_share_of_all_or_none_has_no_known_error(width, known):
    nothing, truth = np.zeros((60, 1)), np.linspace(-1, 1, 60)[:, None]
    scores = dict.fromkeys(("crps", "persistence", "random_walk", "ornstein_uhlenbeck"), nothing + 1)
    at, low, high = nothing[:, 0], nothing - width, nothing + width
    stretch = np.arange(60) // 3
    tested = Forecasts(np.zeros(60, int), at, at, stretch, stretch, truth, nothing, low, high, scores)
    found = _score("x", 0, "1d", tested)
    assert found.coverage == pytest.approx(width if known else min(width, 1.0))
    assert np.isfinite(found.coverage_error) == known
    assert found.relative_error == pytest.approx(0.0)


def test_a_stretch_is_of_one_series_and_as_long_as_the_gap(panel):
    origins = find_origins(panel, 1.0, 0.2, [0, 0], [50, 50], 100)
    stretch = _stretches(panel, origins, 1.0)
    starts = np.array([panel.times[i][s] for i, s in zip(origins.series, origins.start, strict=True)])
    for number in np.unique(stretch):
        assert len(set(origins.series[stretch == number])) == 1
        assert np.ptp(starts[stretch == number]) <= 1.0
    assert 16 <= len(np.unique(stretch)) <= 26  # two series of about nine gaps each
    # Neighbours in number are neighbours in time, and of one series.
    assert stretch[origins.series == 1].min() - stretch[origins.series == 0].max() > 1
    for i in range(2):
        mine = origins.series == i
        assert np.array_equal(np.floor(starts[mine] - panel.times[i][0]), stretch[mine] - stretch[mine].min())


def test_no_gap_so_long_no_origin(panel):
    assert len(find_origins(panel, 1e3, 0.2, [0, 0], [50, 50], 10).series) == 0


@pytest.mark.slow
def test_a_back_test_stands_beside_simple_laws():
    model = Forecaster(steps=300, batch_size=128, folds=2, progress=False)
    table = model.backtest(ou_frame(300, series=2), gaps=[0.2, 1.0], folds=2, samples=100, period=2.0)
    assert table["gap"].tolist() == ["0.2", "1"]
    assert (table["relative"] < 1.08).all()
    assert ((table["coverage"] - 0.9).abs() < 0.08).all()
    assert (table["seasonal"] > table["crps"]).all()
    assert not hasattr(model, "fitted_")


@pytest.mark.parametrize(
    ("ask", "words"),
    [
        ({"gaps": [1.0], "start": 1.0}, "`start` must lie between 0 and 1"),
        ({"gaps": [1.0], "folds": 0}, "`folds` must be a positive integer"),
        ({"gaps": ["1d"]}, "`gaps` must be a number"),
        ({"gaps": [1.0, 1]}, "`gaps` must differ; got"),
    ],
)
def test_a_back_test_that_cannot_be_says_so(ask, words):
    with pytest.raises(ValueError, match=words):
        Forecaster().backtest(ou_frame(20), **ask)


def test_a_column_that_a_back_test_does_not_know_is_named():
    with pytest.raises(TypeError, match=r"backtest\(\) has no argument 'target'; .* id, time, values"):
        Forecaster().backtest(ou_frame(20), gaps=[1.0], target="y")


def _forecasts_of(panel, among=None):
    """Of a back-test with a stand-in for the law: time of each origin, what is forecast, and the last time of each
    fit."""
    fits = []

    def fit(known):
        fits.append([t[-1] for t in known.times])
        return None

    draw = lambda model, known, panel, at: RNG.normal(size=(len(at.series), 20, panel.values[0].shape[1]))
    found = backtest(
        fit,
        draw,
        panel,
        gaps=[0.6, 2.0],
        show=str,
        folds=3,
        start=0.5,
        most=17,
        period=None,
        among=among,
    )
    return {
        gap: list(zip(some.series, some.origin, some.at, strict=True)) for gap, some in found.items()
    }, fits


def test_a_table_and_a_part_of_it_are_tested_on_the_same_forecasts():
    frame = ou_frame(400, series=2)
    part = frame.sample(frac=0.5, random_state=1).sort_index()
    whole, few = _panel(frame), _panel(part)
    among = rows_among(whole, few, str)
    assert [mask.sum() for mask in among.marked] == [len(t) for t in few.times]
    (all_rows, fits), (some_rows, fits_of_few) = _forecasts_of(whole, among), _forecasts_of(few)
    assert all_rows == some_rows
    assert all(len(rows) > 40 for rows in all_rows.values())
    # What is known before each stretch reaches as far, but for rows that are not in the part.
    for with_all, with_few in zip(fits, fits_of_few, strict=True):
        for i, (last, last_of_few) in enumerate(zip(with_all, with_few, strict=True)):
            following = few.times[i][few.times[i] > last_of_few][0]
            assert last_of_few <= last < following


def test_a_back_test_without_a_part_is_one_among_all_rows(panel):
    assert _forecasts_of(panel) == _forecasts_of(panel, rows_among(panel, panel, str))


def test_a_part_may_lack_channels_and_series():
    frame = ou_frame(200, series=2)
    frame["z"] = frame["y"] + 1.0
    part = frame[frame["unique_id"] == "s0"].copy()
    part.loc[part.index % 4 == 1, "y"] = np.nan
    read = lambda df: read_panel(as_frame(df), find_columns(as_frame(df), values=["y", "z"]))[0]
    whole, few = read(frame), read(part)
    (all_rows, fits), (some_rows, _) = _forecasts_of(whole, rows_among(whole, few, str)), _forecasts_of(few)
    assert all_rows == some_rows
    # Nothing is known of the other series beyond the share that each fit sees.
    shares = [np.searchsorted(whole.times[1], last[1], side="right") / 200 for last in fits]
    assert np.allclose(shares, [0.5, 2 / 3, 5 / 6], atol=0.01)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"unique_id": "s7"}, r"it has series 's7', which `df` has not"),
        ({"ds": lambda df: df["ds"] + 1e-3}, r"its row of series 's0' at .* is not there"),
        ({"y": lambda df: 100 * df["y"]}, r"its row of series 's0' at .* has other values"),
        ({"ds": pd.Timestamp("2024-01-01")}, "time"),
    ],
)
def test_a_part_that_is_none_is_named(change, words, monkeypatch):
    monkeypatch.setattr(Forecaster, "_fit_table", lambda *_: pytest.fail("it was fitted"))
    frame = ou_frame(40, series=2)
    some = frame.iloc[[3]] if "ds" in change and not callable(change["ds"]) else frame.iloc[::2]
    with pytest.raises(ValueError, match=words):
        Forecaster().backtest(frame, gaps=[1.0], among=some.assign(**change))


def test_a_row_a_forecast_tells_what_the_table_sums_up():
    frame = ou_frame(120, series=2)
    frame["ds"] = pd.Timestamp("2024-01-01") + pd.to_timedelta(frame["ds"], "h").dt.round("s")
    model = Forecaster(steps=30, batch_size=64, folds=0, progress=False)
    ask = {"gaps": ["12min", "1h"], "folds": 2, "origins": 12, "samples": 50}
    table, rows = model.backtest(frame, **ask, return_forecasts=True)
    assert rows.groupby("gap", sort=False).size().tolist() == table["forecasts"].tolist()
    for gap, some in rows.groupby("gap"):
        row = table[table["gap"] == gap].iloc[0]
        for name in ("crps", "persistence", "random_walk", "ornstein_uhlenbeck"):
            assert some[name].mean() == pytest.approx(row[name])
        assert some["value"].between(some["lo90"], some["hi90"]).mean() == pytest.approx(row["coverage"])
    truth = frame.set_index(["unique_id", "ds"])["y"]
    assert np.allclose(truth.loc[list(zip(rows["unique_id"], rows["ds"], strict=True))], rows["value"])
    assert (rows["origin"] < rows["ds"]).all()
    assert (rows["lo90"] <= rows["median"]).all()
    assert (rows["median"] <= rows["hi90"]).all()
    assert (table["relative_error"] > 0).all()
    with pytest.raises(ValueError, match="two columns of the result would be named 'crps': rename"):
        model.backtest(frame.rename(columns={"ds": "crps"}), time="crps", **ask, return_forecasts=True)


def test_an_interval_holds_the_next_draw_as_often_as_it_says():
    """Ranks of one more draw are uniform: exact for every number of draws, where the usual interpolation holds less."""
    rng = np.random.default_rng(3)
    number, draws = 40_000, 39
    inside = inside_central(rng.normal(size=(number, draws, 1)), rng.normal(size=(number, 1)))
    assert abs(inside.mean() - 0.9) < 4.5 * np.sqrt(0.09 / number)
    low, high = quantiles_of_draws(np.arange(1.0, 100.0), [0.05, 0.95], axis=0)
    assert (low, high) == (5.0, 95.0)


def test_a_gap_that_never_comes_is_refused_before_anything_is_learnt(monkeypatch):
    monkeypatch.setattr(Forecaster, "_fit_table", lambda *_: pytest.fail("it was fitted"))
    with pytest.raises(
        ValueError, match="no row after the first 60% comes 900 after another: leave that gap"
    ):
        Forecaster().backtest(ou_frame(60), gaps=[1.0, 900.0])
    with pytest.raises(ValueError, match="no series has two rows: there is nothing to test"):
        Forecaster().backtest(ou_frame(1), gaps=[1.0])


def test_persistence_has_the_noise_of_moves_over_the_gap():
    """Fixes in bursts: two in a row within a hundredth of a gap, each with an error as large as a day's move."""
    rng = np.random.default_rng(2)
    days, error, drift = 400, 1.0, 1.0
    times = np.sort(np.concatenate([np.arange(days), np.arange(days) + 0.01]))
    place = np.cumsum(drift * np.sqrt(np.diff(times, prepend=0)) * rng.normal(size=2 * days))
    frame = as_frame(pd.DataFrame({"ds": times, "y": place + error * rng.normal(size=2 * days)}))
    panel = read_panel(frame, find_columns(frame))[0]
    origins = find_origins(panel, 1.0, 0.5, [0], [2 * days], 2 * days)
    found = References.fit(panel, None).crps(panel, origins, 1.0)
    exact = np.sqrt(drift**2 + 2 * error**2) / np.sqrt(np.pi)  # the CRPS of a normal law that is right
    assert found["persistence"].mean() == pytest.approx(exact, rel=0.1)
    assert found["random_walk"].mean() > 2 * exact  # which takes errors for moves


def _late_series():
    """Eight series by the hour, of which "b" begins with empty cells."""
    frame = pd.concat([ou_frame(40, seed=i).assign(unique_id=name) for i, name in enumerate("abcdefgh")])
    row = frame.groupby("unique_id").cumcount()
    empty = (frame["unique_id"] == "b") & (row < 30)
    when = pd.Timestamp("2024-01-01") + pd.to_timedelta(row, "h")
    return frame.assign(ds=when, y=frame["y"].mask(empty)), empty


def test_a_series_that_begins_with_empty_cells_is_left_out_until_it_has_begun(monkeypatch):
    monkeypatch.setattr(direct, "learn", unlearnt)
    ask = {"gaps": ["2h"], "folds": 1, "origins": 4, "samples": 20, "return_forecasts": True}
    table, rows = Forecaster(folds=0, progress=False).backtest(_late_series()[0], **ask)
    assert set(rows["unique_id"]) == set("abcdefgh")
    assert (rows.query("unique_id == 'b'")["origin"] >= pd.Timestamp("2024-01-02 06:00")).all()
    assert np.isfinite(rows["crps"]).all()
    assert table["forecasts"].tolist() == [len(rows)]


@pytest.mark.filterwarnings("ignore:column .* is what it was the row before")
@pytest.mark.parametrize(("kind", "left"), [("flow", "acdefgh"), ("latent", "abcdefgh")])
def test_a_latent_flow_starts_from_rows_of_which_channels_are_missing(kind, left):
    frame, empty = _late_series()
    frame = frame.assign(z=np.where(empty, 1.0, 2.0), y=frame["y"].mask(frame["unique_id"] == "b"))
    table = with_starts(read_table(frame, values=["y", "z"]), ForecasterConfig(kind=kind))
    assert table.panel.ids == list(left)


@pytest.mark.filterwarnings("ignore:column .* is what it was the row before")
def test_values_beyond_the_support_are_refused_before_anything_is_fitted(monkeypatch):
    monkeypatch.setattr(Forecaster, "_fit_table", lambda *_: pytest.fail("it was fitted"))
    frame = pd.DataFrame({"t": np.arange(120), "v": np.where(np.arange(120) < 100, 1.0, -1.0)})
    with pytest.raises(ValueError, match="column 'v' must lie between 0 and inf, as `support` says; got -1"):
        Forecaster(support={"v": "positive"}).backtest(frame, gaps=[2], folds=1, time="t", values="v")


def test_forecasts_that_are_not_finite_are_not_left_out(monkeypatch):
    def draw(fitted, known, panel, origins, *, samples, seed):
        lost = np.where(np.arange(len(origins.series)) < 2, np.nan, 0.0)
        return lost[:, None, None] + RNG.normal(size=(len(lost), samples, 1))

    monkeypatch.setattr(direct, "learn", unlearnt)
    monkeypatch.setattr(evaluate, "draw_origins", draw)
    frame = ou_frame(60).assign(ds=pd.date_range("2024-01-01", periods=60, freq="h"))
    words = r"^2 of \d+ forecasts have draws that are not finite, the first of them from 2024-01-02 11:00:00"
    with pytest.raises(ValueError, match=words):
        Forecaster(progress=False).backtest(frame, gaps=["2h"], folds=1)
    with pytest.raises(ValueError, match="2 of 59 forecasts have draws that are not finite"):
        quick_fit(frame).score(frame)
