"""The forecaster as a whole: what it says is right, and it says the same however it is asked."""

import dataclasses
from typing import Any

import jax
import numpy as np
import pandas as pd
import polars as pl
import pytest
import scoringrules
import sklearn.base
from matplotlib.dates import date2num

from stochflow import Forecaster
from stochflow.forecasting import ForecasterConfig, NotFittedError, direct, draws
from stochflow.forecasting.requests import number_of_draws
from stochflow.metrics import crps_of_normal

from .worlds import COLUMNS, MEAN, RATE, STD, ou_frame, ou_moments, quick_fit, two_channels

ASK = {"horizon": "12h", "every": "6h", "samples": 6}
SUPPORT = {"price": "positive"}


@pytest.fixture(scope="module")
def quick():
    return quick_fit(two_channels(), Forecaster(support=SUPPORT), **COLUMNS)


@pytest.fixture(scope="module")
def learnt():
    """Learnt from 600 rows of an Ornstein–Uhlenbeck process."""
    return Forecaster(steps=300, batch_size=128, folds=2, progress=False).fit(ou_frame(300, series=2))


@pytest.fixture(scope="module")
def unseen():
    return ou_frame(200, seed=5)


def test_the_horizon_of_a_fit_can_be_asked_for(learnt, quick):
    for model in (learnt, quick):
        asked = model.predict(horizon=model.horizon_, every=model.horizon_, samples=2)
        assert len(asked) == 2 * len(model.past_.ids)
    later = learnt.predict(horizon=learnt.horizon_, every=learnt.horizon_)["ds"]
    assert np.allclose(later, learnt.past_.last + learnt.model_.horizon)


# --- manners ------------------------------------------------------------------------------------------------------


def test_the_config_behind_the_commands_flags_has_the_forecasters_defaults():
    params = Forecaster().get_params()
    assert dataclasses.asdict(ForecasterConfig()).items() <= params.items()


def test_parameters_are_those_of_scikit_learn():
    model = Forecaster(steps=7, support=SUPPORT)
    copy: Any = sklearn.base.clone(model)
    assert copy.get_params() == model.get_params()
    assert model.set_params(steps=8) is model
    assert (model.steps, copy.steps) == (8, 7)
    assert repr(copy) == "Forecaster(support={'price': 'positive'}, steps=7)"
    with pytest.raises(ValueError, match="there is no parameter 'colour'; they are kind, horizon"):
        model.set_params(colour="red")


@pytest.mark.parametrize(
    "ask",
    [lambda m: m.predict(horizon=1), lambda m: m.impute(None), lambda m: m.score(None), lambda m: m.plot()],
)
def test_what_was_not_fitted_says_so(ask):
    with pytest.raises(NotFittedError, match="has not been fitted: call `fit` first"):
        ask(Forecaster())


@pytest.mark.parametrize(
    ("params", "words"),
    [
        ({"kind": "psychic"}, "`kind` must be one of auto, flow, latent; got 'psychic'"),
        ({"scaling": "none"}, "`scaling` must be one of auto, global, series"),
        ({"steps": 0}, "`steps` must be a positive integer; got 0"),
        ({"folds": 1}, "`folds` must be 0, or from 2 to 20; got 1"),
        ({"random_state": -1}, "`random_state` must be an integer from 0 to 4294967295, .* or None; got -1"),
        ({"horizon": "7d"}, "`horizon` must be a number, as the times are; got '7d'"),
        ({"support": {"z": "positive"}}, "`support` names 'z', which is no value; they are y"),
        ({"support": {"y": "positive"}}, "column 'y' must lie between 0 and inf, as `support` says; got -"),
    ],
)
def test_a_parameter_that_cannot_be_says_so(params, words):
    with pytest.raises(ValueError, match=words):
        quick_fit(ou_frame(30), Forecaster(**params))


# --- how it is asked changes nothing ------------------------------------------------------------------------------


def test_the_frame_that_comes_out_is_of_the_kind_that_went_in(quick):
    draws = quick.predict(**ASK)
    assert list(draws.columns) == ["name", "when", "sample", "price", "x"]
    assert str(draws["when"].dtype) == "datetime64[us, Europe/Berlin]"
    assert len(draws) == 3 * 6 * 2
    last = two_channels().groupby("name")["when"].max()
    first = draws.groupby("name")["when"].min()
    assert (first - last == pd.Timedelta("6h")).all()
    assert (draws["price"] > 0).all()


def test_polars_is_told_the_same_as_pandas(quick):
    frame = pl.from_pandas(two_channels())
    told = quick.predict(frame, **ASK)
    assert isinstance(told, pl.DataFrame)
    assert told["when"].dtype == pl.Datetime("us", "Europe/Berlin")
    pd.testing.assert_frame_equal(told.to_pandas(), quick.predict(**ASK), check_dtype=False)


def test_the_order_of_rows_does_not_matter(quick):
    shuffled = two_channels().sample(frac=1, random_state=0)
    assert quick.predict(shuffled, **ASK).equals(quick.predict(**ASK))
    again = quick_fit(shuffled, Forecaster(support=SUPPORT), **COLUMNS)
    assert again.predict(**ASK).equals(quick.predict(**ASK))


def test_other_series_do_not_matter(quick):
    together = quick.predict(**ASK)
    for name in ("s0", "s2"):
        alone = quick.predict(two_channels().query("name == @name"), **ASK)
        same = together[together["name"] == name].reset_index(drop=True)
        pd.testing.assert_frame_equal(alone, same, check_exact=True)


def test_series_of_other_lengths_that_end_elsewhere_do_not_matter(learnt):
    # Of 20 to 44 rows, of which some end so far from the time asked for that it is gone to in steps.
    rng = np.random.default_rng(0)
    frame = pd.concat(
        [ou_frame(20 + 4 * i, seed=i).assign(unique_id=f"n{i}") for i in range(7)], ignore_index=True
    )
    last = frame.groupby("unique_id")["ds"].max()
    far = last.min() + 1.3 * learnt.model_.horizon
    assert last.max() < far < last.max() + learnt.model_.horizon
    ask = {"times": [far], "samples": 7}
    together = learnt.predict(frame, **ask)
    for number in (1, 2, 5):
        names = rng.choice(last.index, number, replace=False)
        some = learnt.predict(frame[frame["unique_id"].isin(names)].sample(frac=1, random_state=1), **ask)
        same = together[together["unique_id"].isin(names)]
        order = ["unique_id", "ds", "sample"]
        pd.testing.assert_frame_equal(
            *(each.sort_values(order, ignore_index=True) for each in (some, same)), check_exact=True
        )


def test_chunks_do_not_matter_and_are_one_program(quick, monkeypatch):
    whole = quick.predict(**ASK)
    for at_once in (12, 24):
        monkeypatch.setattr(draws, "AT_ONCE", at_once)
        pd.testing.assert_frame_equal(quick.predict(**ASK), whole, check_exact=True)
    before = direct._draw._cached._cache_size()
    quick.predict(**ASK, random_state=4)
    quick.predict(two_channels(series=7), **ASK)
    assert direct._draw._cached._cache_size() == before


@pytest.mark.parametrize(
    ("make", "kind"),
    [
        (lambda names: names.astype("category"), "category"),
        (lambda names: names.str[1:].astype("int16"), "int16"),
        (lambda names: pl.Series(names, dtype=pl.Enum(["s0", "s1", "s2"])), pl.Enum(["s0", "s1", "s2"])),
        (lambda names: pl.Series(names, dtype=pl.Categorical), pl.Categorical),
    ],
)
def test_ids_come_back_as_the_type_they_had(make, kind):
    plain = two_channels()
    names = make(plain["name"])
    polars = isinstance(names, pl.Series)
    frame: Any = pl.from_pandas(plain).with_columns(name=names) if polars else plain.assign(name=names)
    model = quick_fit(frame, **COLUMNS)
    for found in (
        model.predict(**ASK),
        model.predict(frame, horizon="6h", every="6h", interval=0.5),
        model.impute(frame, times=[plain["when"].iloc[3]], samples=4),
    ):
        assert found["name"].dtype == kind
        assert set(found["name"].to_list()) <= set(frame["name"].to_list())


def test_the_seed_is_that_of_the_call_or_of_the_model(quick):
    one = quick.predict(**ASK)
    assert quick.predict(**ASK, random_state=0).equals(one)
    assert not quick.predict(**ASK, random_state=1).equals(one)


def test_seeds_are_numbers_or_generators_or_none(quick):
    draw = lambda state: quick.predict(**ASK, random_state=state)["x"].to_numpy()
    for make in (np.random.default_rng, np.random.RandomState):
        one, other = make(3), make(3)
        first = draw(one)
        assert (first == draw(other)).all()
        assert (first != draw(one)).any()  # a generator moves on
    unseeded = Forecaster(random_state=None)
    unseeded._set(quick.fitted_, quick.panel_)
    assert (unseeded.predict(**ASK)["x"] != unseeded.predict(**ASK)["x"]).any()


def test_a_level_far_above_the_moves_is_not_lost():
    """Single precision knows 4.5 million to half a unit; these move by a tenth."""
    near = ou_frame(60)
    far = near.assign(y=4.5e6 + 0.1 * near["y"])
    low = near.assign(y=0.1 * near["y"])
    close, high = (quick_fit(frame, Forecaster()) for frame in (low, far))
    ask = {"times": [near["ds"].max() + 1.0], "samples": 200}
    low_draws, high_draws = close.predict(**ask)["y"], high.predict(**ask)["y"]
    assert high_draws.nunique() == len(high_draws)
    assert np.allclose(high_draws - 4.5e6, low_draws, atol=1e-3)
    assert high.score(far, metric="log") == pytest.approx(close.score(low, metric="log"), abs=1e-2)


@pytest.mark.parametrize(
    ("frame", "words"),
    [
        (lambda y: 1e45 * y, "column 'y' has values up to .* beyond single precision"),
        (lambda y: 1e-45 * y, "column 'y' has values up to .* beyond single precision"),
        (lambda y: 1e20 + y, "column 'y' (is constant|moves by .* lost in rounding)"),
    ],
)
def test_numbers_that_cannot_be_held_are_refused(frame, words):
    data = ou_frame(20)
    with pytest.raises(ValueError, match=words):
        Forecaster(steps=1).fit(data.assign(y=frame(data["y"])))


@pytest.mark.parametrize(
    ("names", "ask"),
    [({"x": "sample"}, {"samples": 2}), ({"name": "sample"}, {"samples": 2}), ({"x": "price_lo90"}, {})],
)
def test_no_column_of_a_forecast_hides_another(names, ask):
    columns = {key: [names.get(v, v) for v in value] if isinstance(value, list) else names.get(value, value)
               for key, value in COLUMNS.items()}  # fmt: skip
    model = quick_fit(two_channels().rename(columns=names), Forecaster(), **columns)
    with pytest.raises(ValueError, match="two columns of the result would be named"):
        model.predict(horizon="1d", **ask)


def test_a_model_of_rows_of_one_channel_reads_frames_with_a_column_for_each():
    wide = two_channels()
    long = wide.melt(id_vars=["name", "when"], var_name="what", value_name="value")
    model = quick_fit(long, Forecaster(), id="name", time="when", channel="what", values="value")
    assert model.predict(wide, **ASK).equals(model.predict(long, **ASK))
    holes = wide.assign(x=wide["x"].where(wide.index % 7 != 3))
    assert holes["x"].notna().mean() < 0.9
    assert model.impute(holes, samples=5)["x"].notna().mean() > 0.98  # all but for ends of series
    assert len(model.impute(long, samples=5)) == len(long)


def test_quantiles_that_look_alike_have_columns_of_their_own(quick, as_users_have_it):
    found = quick.predict(horizon="12h", quantiles=[0.1234567, 0.1234568])
    assert {"x_q0.1234567", "x_q0.1234568"} <= set(found.columns)
    assert "x_lo90" in quick.predict(horizon="12h", interval=np.float32(0.9)).columns


def test_quantiles_and_intervals_are_those_of_the_draws(quick):
    draws = quick.predict(**ASK)
    ask = ASK | {"samples": 6}
    with pytest.warns(
        UserWarning, match="level 0.1, .* beyond the outermost of 6 draws .* pass `samples=200`"
    ):
        levels = quick.predict(**ask, quantiles=[0.1, 0.5])
    with pytest.warns(UserWarning, match="is cut off there"):
        central = quick.predict(**ask, interval=0.8)
    assert list(levels.columns[2:]) == ["price_q0.1", "price_q0.5", "x_q0.1", "x_q0.5"]
    drawn = draws.groupby(["name", "when"])["price"]
    assert np.allclose(
        levels["price_q0.1"], drawn.min()
    )  # of six draws: the next lies below it once in seven
    assert np.allclose(levels["price_q0.5"], drawn.median())
    assert np.array_equal(central["price_lo80"], levels["price_q0.1"])
    assert np.array_equal(central["price"], levels["price_q0.5"])


def test_far_quantiles_have_enough_draws_behind_them_and_near_ones_as_many_as_ever(quick):
    one = two_channels().query("name == 's1'")
    ask = {"df": one, "horizon": "6h", "every": "6h"}
    draws = quick.predict(**ask, samples=200_000)["x"]
    far = quick.predict(**ask, interval=0.999)
    width = float((far["x_hi99.9"] - far["x_lo99.9"]).iloc[0])
    assert width == pytest.approx(np.diff(np.quantile(draws, [0.0005, 0.9995]))[0], rel=0.1)
    for level, number in ((0.9, 400), (0.5, 400), (0.95, 800), (0.999, 40_000)):
        assert quick.predict(**ask, interval=level).equals(
            quick.predict(**ask, interval=level, samples=number)
        )
    assert number_of_draws(None, 0.0005, np.zeros((5, 1000)), 2) == 2**20 // 1000
    assert number_of_draws(None, 0.0005, np.zeros((20, 1000)), 2) == 2**25 // 40_000
    assert number_of_draws(None, 0.0005, np.zeros((1000, 1000)), 2) == 400
    assert number_of_draws(None, 1e-300, np.zeros((1, 1)), 1) == 100_000


def test_times_are_those_asked_for(quick):
    times = ["2024-04-01 00:00+02:00", "2024-03-28 12:00+01:00"]
    found = quick.predict(times=times, samples=6)
    assert sorted(set(found["when"])) == sorted(pd.Timestamp(time) for time in times)
    assert len(found) == len(quick.predict(**ASK))


def test_at_the_last_time_the_value_is_the_last(quick):
    one = two_channels().query("name == 's1'")
    said = quick.predict(one, times=one["when"].max(), samples=6)
    assert np.allclose(said[["price", "x"]], one[["price", "x"]].iloc[-1].to_numpy()[None], rtol=1e-5)


@pytest.mark.parametrize("paths", [-1, 1.5, "three"])
@pytest.mark.usefixtures("as_users_have_it")
def test_a_plot_of_so_many_paths_cannot_be(quick, paths):
    with pytest.raises(ValueError, match="`paths` must be an integer of at least 0"):
        quick.plot(paths=paths)


@pytest.mark.parametrize("every", ["12h", "4h"])
def test_the_fan_of_a_plot_opens_from_the_last_row(quick, every):
    one = two_channels().query("name == 's1'")
    start = date2num(one["when"].iloc[-1].tz_localize(None))
    for ax, name in zip(quick.plot(one, horizon="12h", every=every), ["price", "x"], strict=True):
        for band in ax.collections:
            corners = band.get_paths()[0].vertices
            days = corners[:, 0] - start
            assert np.allclose([days.min(), days.max()], [0, 0.5])
            assert np.allclose(corners[days == days.min(), 1], one[name].iloc[-1])


def test_paths_go_on_beyond_the_horizon(quick):
    long = {"horizon": "40d", "every": "10d", "samples": 6}
    for paths in (False, True):
        said = quick.predict(**long, paths=paths)
        assert np.isfinite(said[["price", "x"]]).all(axis=None)
        assert said["when"].nunique() == 12


@pytest.mark.parametrize("rows", [1, 2])
def test_a_new_series_in_units_of_its_own_may_have_one_row(rows):
    frame = two_channels()
    model = quick_fit(frame, Forecaster(scaling="series"), **COLUMNS)
    new = frame[:rows].assign(name="new", x=1000.0)
    said = model.predict(new, **ASK)
    assert (said["x"] - 1000).abs().max() < 50


@pytest.mark.parametrize(
    ("ask", "words"),
    [
        ({}, "pass either `horizon` .and `every`., or `times`"),
        ({"horizon": "1d", "times": ["2024-06-01"]}, "pass either `horizon`"),
        ({"times": ["2024-06-01+00:00"], "every": "1h"}, "`every` goes with `horizon`"),
        ({"times": ["2024-03-02 00:00+01:00"]}, "must not lie before the last row.*series 's0' ends at.*use `impute`"),
        ({"times": ["2024-06-01"]}, "must have a time zone, such as Europe/Berlin"),
        ({"horizon": "1d", "every": "2d"}, "`every` must go between once and 100000 times into `horizon`; 2d goes 0"),
        ({"horizon": "1d", "samples": 0}, "`samples` must be a positive integer; got 0"),
        ({"horizon": "1d", "quantiles": [0.5, 1.0]}, "`quantiles` must be numbers between 0 and 1 that differ"),
        ({"horizon": "1d", "quantiles": "all"}, "`quantiles` must be numbers .* got 'all'"),
        ({"horizon": "1d", "quantiles": [[0.1, 0.9]]}, "`quantiles` must be numbers .* got ..0.1, 0.9.."),
        ({"horizon": "1d", "quantiles": [0.5, 0.5]}, "that differ"),
        ({"horizon": "1d", "interval": True}, "`interval` must be a probability between 0 and 1; got True"),
        ({"times": [pd.Timestamp("2024-06-01", tz="UTC"), pd.NaT]}, "`times` must not be missing; got NaT"),
        ({"times": ["2024-06-01 00:00+00:00", None]}, "`times` must not be missing; got None"),
        ({"horizon": "1e9d", "every": "1e8d"}, "`horizon` must reach no further than 1000 times the .*: fit with"),
        ({"times": ["9000-01-01 00:00+00:00"]}, "`times` must reach no further than 1000 times"),
        ({"horizon": "1d", "interval": 90.0}, "`interval` must be a probability between 0 and 1; got 90.0"),
        ({"horizon": "1d", "interval": 0.5, "quantiles": [0.5]}, "`quantiles` or `interval`, not both"),
        ({"horizon": "1d", "future": two_channels()}, "without covariates that are known ahead"),
        ({"horizon": "1d", "random_state": -1}, "`random_state` must be an integer"),
        ({"horizon": "1d", "random_state": 2**32}, "`random_state` must be an integer from 0 to 4294967295"),
    ],
)  # fmt: skip
def test_a_question_that_cannot_be_answered_says_so(ask, words, quick, as_users_have_it):
    with pytest.raises(ValueError, match=words):
        quick.predict(**ask)


def test_new_data_must_be_like_the_old(quick):
    frame = two_channels()
    for change, words in {
        "naive": (
            frame.assign(when=frame["when"].dt.tz_localize(None)),
            "is without a time zone, unlike the data",
        ),
        "numbers": (
            frame.assign(when=np.arange(len(frame))),
            "holds integers where the model was fitted on datetimes",
        ),
        "negative": (
            frame.assign(price=-1.0),
            "column 'price' must lie between 0 and inf, as `support` says; got -1",
        ),
        "no column": (frame.drop(columns="x"), "there is no column 'x'; the columns are name, when, price"),
        "no row": (frame.assign(x=np.nan), "series 's0' has no complete row to start from"),
    }.values():
        with pytest.raises(ValueError, match=words):
            quick.predict(change, **ASK)


# --- what it says is right ----------------------------------------------------------------------------------------


def test_it_comes_near_the_exact_law(learnt, unseen):
    """The CRPS within a few per cent of that of the law itself, and nine tenths within the central 90 %."""
    t, x = unseen["ds"].to_numpy(), unseen["y"].to_numpy()
    mean, std = ou_moments(x[:-1], np.diff(t))
    exact = crps_of_normal(mean, std, x[1:]).mean()
    assert learnt.score(unseen) < 1.06 * exact
    # Three standard errors of a share of 0.9 among 199.
    assert abs(learnt.score(unseen, metric="coverage") - 0.9) < 3 * np.sqrt(0.09 / 199)
    log = 0.5 * np.log(2 * np.pi * std**2) + 0.5 * ((x[1:] - mean) / std) ** 2
    assert learnt.score(unseen, metric="log") < log.mean() + 0.06


def test_far_ahead_it_comes_near_the_law_that_stays(learnt, unseen):
    said = learnt.predict(unseen, times=[float(unseen["ds"].max()) + 3 / RATE], samples=2000)["y"]
    assert abs(said.mean() - MEAN) < 0.4 * STD
    assert abs(said.std() / (STD / np.sqrt(2 * RATE)) - 1) < 0.3


def test_the_card_says_what_was_done(learnt):
    card = learnt.card_
    assert (card["kind"], card["series"], card["rows"], card["channels"]) == ("flow", 2, 600, ["y"])
    assert next(set(each) for each in card["held_out"]) == {"gap", "pairs", "coverage_of_90", "relative_crps"}
    assert all(0.8 < each["coverage_of_90"]["y"] <= 1 for each in card["held_out"])


def test_scores_are_those_of_scoringrules(learnt, unseen):
    part = unseen[:12]
    panel = learnt._panel(part)
    from stochflow.forecasting.evaluate import draw_origins
    from stochflow.forecasting.origins import find_origins, truncated

    origins = find_origins(panel, 0.0, np.inf, [0], [12], 50)
    draws = draw_origins(learnt.fitted_, truncated(panel, origins), panel, origins, samples=30, seed=0)[
        ..., 0
    ]
    truth = part["y"].to_numpy()[1:]
    ask = {"samples": 30, "random_state": 0}
    found = np.mean(scoringrules.crps_ensemble(truth, draws.astype(float), estimator="fair"))  # type: ignore[arg-type]
    assert learnt.score(part, metric="crps", **ask) == pytest.approx(found, rel=1e-5)
    assert learnt.score(part, metric="mae", **ask) == pytest.approx(
        np.abs(np.median(draws, 1) - truth).mean(), rel=1e-5
    )
    assert learnt.score(part, metric="energy", **ask) == pytest.approx(found, rel=1e-4)
    with pytest.raises(ValueError, match="there is only one"):
        learnt.score(part, metric="variogram", **ask)


@pytest.mark.parametrize(
    ("ask", "words"),
    [
        (
            {"metric": "beauty"},
            "`metric` must be one of log, crps, energy, variogram, coverage, pit, mae, rmse; got 'beauty'",
        ),
        ({"gap": 1e6}, "no row of `df` comes so long after another"),
        ({"samples": 1}, "`samples` must be an integer of at least 2; got 1"),
    ],
)
def test_a_score_that_cannot_be_says_so(ask, words, learnt, unseen):
    with pytest.raises(ValueError, match=words):
        learnt.score(unseen, **ask)


def test_the_log_score_is_that_of_a_density_of_a_positive_channel(quick):
    """The density of price and x, in their own units, integrates to one."""
    one = two_channels().query("name == 's1'")
    past = quick.model_.past(quick._panel(one))
    price = np.exp(np.linspace(-7, 5, 400))
    x = np.linspace(-15, 15, 201)
    grid = np.stack(np.meshgrid(price, x, indexing="ij"), axis=-1).reshape(-1, 2)
    repeated = jax.tree.map(lambda leaf: np.repeat(leaf, len(grid), axis=0), past._replace(ids=[]))
    repeated = repeated._replace(ids=past.ids * len(grid))
    at = np.repeat(past.last + 6 * 3600.0, len(grid))
    density = np.exp(quick.model_.log_prob(repeated, grid, at, np.zeros((len(grid), 0)))).reshape(400, 201)
    total = np.trapezoid(np.trapezoid(density, x, axis=1), price)
    assert total == pytest.approx(1, abs=0.01)
