"""What covariates that are known ahead do at once, taken off before a law is learnt and put back on what it says."""

import numpy as np
import pandas as pd
import pytest

from stochflow import Forecaster
from stochflow.forecasting.effects import find_effects
from stochflow.io import ModelFileError, read_archive, write_archive

from .worlds import quick_fit

ROWS = 300
DAYS = np.arange(ROWS, dtype=float)
WEEKEND = (DAYS % 7 >= 5).astype(float)
QUICK = {"steps": 20, "folds": 0, "horizon": 14.0, "progress": False}


def found(x, *columns, times=DAYS):
    """Slopes of one series of one channel; covariates as they are."""
    u = np.stack(columns, axis=1)
    return np.asarray(find_effects([times], [np.reshape(x, (-1, 1))], [u], 1.0).slopes)[:, 0]


def walk(seed, rows=ROWS):
    return np.random.default_rng(seed).normal(size=rows).cumsum()


def test_an_effect_on_the_level_is_found_through_holes():
    rng = np.random.default_rng(0)
    kept = np.sort(rng.choice(ROWS, 200, replace=False))
    x = (20 * WEEKEND + 0.3 * walk(1) + rng.normal(size=ROWS))[kept]
    # Some ninety moves in or out of a weekend, each with an error of 1.5 or so.
    assert found(x, WEEKEND[kept], times=DAYS[kept]) == pytest.approx([20.0], abs=4 * 1.5 / np.sqrt(90))


def test_a_pull_on_the_moves_is_left_to_the_law():
    push = np.random.default_rng(0).choice([-1.0, 1.0], ROWS)
    pulled = np.cumsum(push) + walk(1)
    assert np.abs(found(pulled, push)).max() < 0.15  # of moves alone it would be a half
    both = found(pulled + 20 * WEEKEND, WEEKEND, push)
    assert both == pytest.approx([20.0, 0.0], abs=0.6)


def test_a_season_is_an_effect_on_the_level_and_not_a_pull():
    """Sine and cosine can be either, to the last digit."""
    sine, cosine = np.sin(2 * np.pi * DAYS / 7), np.cos(2 * np.pi * DAYS / 7)
    assert found(10 * sine + walk(2), sine, cosine) == pytest.approx([10.0, 0.0], abs=0.5)


def test_what_chance_brings_is_mostly_forgotten():
    columns = np.random.default_rng(5).normal(size=(40, 3, ROWS))
    slopes = np.array([found(walk(seed), *columns[seed]) for seed in range(40)])
    assert (slopes == 0).all(axis=1).mean() > 0.4
    assert np.abs(slopes).mean() < 0.5 / np.sqrt(2 * ROWS)


def test_a_covariate_that_never_moves_and_rows_that_are_few_say_nothing():
    assert found(walk(0), np.ones(ROWS)) == pytest.approx([0.0], abs=1e-6)
    assert (found(walk(0)[:3], WEEKEND[:3], times=DAYS[:3]) == 0).all()


def shop(effect, series=1, sizes=(1.0,)):
    """Sales of which weekends have more, in the units of each shop."""
    rng = np.random.default_rng(3)
    parts = []
    for i, size in zip(range(series), sizes, strict=True):
        sales = size * (0.5 * rng.normal(size=ROWS).cumsum() + rng.normal(size=ROWS) + effect * WEEKEND)
        parts.append(pd.DataFrame({"shop": f"s{i}", "day": DAYS, "sales": sales, "weekend": WEEKEND}))
    return pd.concat(parts, ignore_index=True)


COLUMNS = {"id": "shop", "time": "day", "values": "sales", "future": "weekend"}
AHEAD = pd.DataFrame({"shop": "s0", "day": ROWS + np.arange(30.0)})
AHEAD["weekend"] = (AHEAD["day"] % 7 >= 5).astype(float)


@pytest.fixture(scope="module")
def fitted():
    return Forecaster(**QUICK).fit(shop(20.0), **COLUMNS)


@pytest.fixture(scope="module")
def without():
    return Forecaster(**QUICK).fit(shop(0.0), **COLUMNS)


@pytest.mark.parametrize("more", [{}, {"paths": True}], ids=["each time", "paths"])
def test_forecasts_leap_with_the_covariate_at_every_gap_and_beyond_the_horizon(more, fitted, without):
    ask = {"times": AHEAD["day"], "future": AHEAD, "samples": 400} | more
    leaps, plain = (
        model.predict(**ask).groupby("day")["sales"].median().to_numpy() for model in (fitted, without)
    )
    weekend = AHEAD["weekend"].to_numpy()
    assert leaps - plain == pytest.approx(20 * weekend, abs=1.5)


@pytest.mark.slow
def test_a_whole_fit_knows_every_weekend():
    """Where a fortnight is a gap of the correction no flag differs between its ends; nothing is lost by that."""
    model = Forecaster(horizon=14.0, progress=False).fit(shop(20.0), **COLUMNS)
    said = model.predict(times=AHEAD["day"], future=AHEAD, interval=0.9)
    leap = 20 * AHEAD["weekend"].to_numpy()
    assert np.abs(np.diff(said["sales"].to_numpy() - leap)).max() < 1.0
    # The exact law of a walk and noise, known to one deviation of the noise: 1.645 sqrt(1 + .25 gap) either way.
    wide = (said["sales_hi90"] - said["sales_lo90"]).to_numpy()[:14] / 3.29
    assert wide == pytest.approx(np.sqrt(1.4 + 0.25 * np.arange(1, 15)), rel=0.35)


@pytest.mark.slow
def test_filling_in_and_densities_know_of_it(fitted, without):
    """A density moves with the level; holes of a week-end are filled in at its height."""
    score = [
        model.score(frame, metric="log") for model, frame in ((fitted, shop(20.0)), (without, shop(0.0)))
    ]
    assert score[0] == pytest.approx(score[1], abs=0.1)
    holes = shop(20.0).assign(sales=lambda rows: rows["sales"].where(~rows["day"].between(100, 110)))
    filled = fitted.impute(holes)["sales"].to_numpy()[100:111] - 20 * WEEKEND[100:111]
    assert np.abs(filled - shop(0.0)["sales"].to_numpy()[100:111]).max() < 6
    assert np.abs(np.diff(filled)).max() < 3


@pytest.mark.slow
def test_series_with_units_of_their_own_leap_by_as_much_of_them():
    sizes = 1.0, 30.0, 5.0
    model = Forecaster(**QUICK, scaling="series").fit(shop(20.0, 3, sizes), **COLUMNS)
    ahead = pd.concat([AHEAD.assign(shop=f"s{i}") for i in range(3)])
    said = model.predict(times=AHEAD["day"][:7], future=ahead, quantiles=[0.5])
    for i, size in enumerate(sizes):
        mine = said[said["shop"] == f"s{i}"]["sales_q0.5"].to_numpy() / size
        weekend = AHEAD["weekend"].to_numpy()[:7] == 1
        assert mine[weekend].mean() - mine[~weekend].mean() == pytest.approx(20.0, abs=2.0)


@pytest.mark.parametrize(
    "kind", [*(pytest.param(kind, marks=pytest.mark.slow) for kind in ("static", "past")), "future"]
)
def test_a_covariate_that_never_changed_counts_for_nothing(kind):
    frame = shop(0.0).assign(closed=0.0)
    with pytest.warns(UserWarning, match="column 'closed' is 0 in all rows: what it does cannot be learnt"):
        model = quick_fit(frame, **{"id": "shop", "time": "day", "values": "sales", kind: "closed"})
    ask = {"times": AHEAD["day"], "samples": 20, "random_state": 0}
    told = [
        model.predict(
            frame.assign(closed=value) if kind != "future" else None,
            **ask,
            **({"future": AHEAD.assign(closed=value)} if kind == "future" else {}),
        )
        for value in (0.0, 1.0)
    ]
    assert told[0].equals(told[1])


@pytest.mark.parametrize("size", [pytest.param(1e-12, marks=pytest.mark.slow), 1e12])
def test_what_a_covariate_is_counted_in_does_not_matter(size, fitted):
    frame = shop(20.0).assign(weekend=lambda rows: size * rows["weekend"])
    model = Forecaster(**QUICK).fit(frame, **COLUMNS)
    assert model.card_["at_once"]["sales"]["weekend"] * size == pytest.approx(
        fitted.card_["at_once"]["sales"]["weekend"], rel=1e-3
    )


def test_the_card_says_what_a_covariate_does(fitted, without):
    assert fitted.card_["at_once"]["sales"]["weekend"] == pytest.approx(20.0, abs=1.0)
    assert without.card_["at_once"]["sales"]["weekend"] == pytest.approx(0.0, abs=0.5)


INSIDE = {
    "positive": ("positive", np.exp),
    "below": ((-np.inf, 7.0), lambda y: 7.0 - np.exp(-y)),
    "between": ((2.0, 5.0), lambda y: 2.0 + 3.0 / (1 + np.exp(-y))),
}


@pytest.mark.parametrize(("support", "bend"), INSIDE.values(), ids=INSIDE.keys())
def test_what_it_does_to_a_bounded_channel_is_said_in_logarithms(support, bend):
    """Whatever the size of the largest values, which say where a half-line is bent: here they are far off."""
    y = 0.1 * np.random.default_rng(4).normal(size=ROWS) + 0.6 * WEEKEND
    furthest = bend(np.full(ROWS, -5.0 if support == (-np.inf, 7.0) else 5.0))
    frame = shop(0.0).assign(sales=np.where(DAYS == 3, furthest, bend(y)))
    model = quick_fit(frame, Forecaster(support={"sales": support}, progress=False), **COLUMNS)
    assert model.card_["at_once"]["sales"]["weekend"] == pytest.approx(0.6, abs=0.1)


DAMAGED = {
    "another shape": lambda t: t.update({"effects.slopes": np.zeros((2, 1), np.float32)}),
    "moves of none": lambda t: t.update({"effects.moves": np.zeros(1, np.float32)}),
    "one without the other": lambda t: t.pop("effects.moves"),
}


@pytest.mark.parametrize("damage", DAMAGED.values(), ids=DAMAGED.keys())
def test_a_file_has_them_whole_or_is_refused(damage, fitted, tmp_path):
    fitted.save(tmp_path / "it")
    ask = {"times": AHEAD["day"][:5], "future": AHEAD, "random_state": 0}
    assert Forecaster.load(tmp_path / "it").predict(**ask).equals(fitted.predict(**ask))
    manifest, tensors = read_archive(tmp_path / "it")
    for name in ("format", "format_version", "stochflow", "weights"):
        manifest.pop(name, None)
    tensors = dict(tensors)
    damage(tensors)
    write_archive(tmp_path / "it", manifest, tensors)
    with pytest.raises(ModelFileError, match="does not hold a whole forecaster"):
        Forecaster.load(tmp_path / "it")


def test_what_was_on_once_is_mostly_forgotten_if_it_did_nothing():
    """By chance alone its square lies above twice its variance in 16 cases of 100, and its moves leave no rest."""
    found = []
    for seed in range(200):
        rng = np.random.default_rng(seed)
        x = np.cumsum(0.3 * rng.normal(size=300)) + rng.normal(size=300)
        once = np.zeros((300, 1))
        once[rng.integers(20, 280)] = 1
        found.append(float(find_effects([np.arange(300.0)], [x[:, None]], [once], 1.0).slopes[0, 0]))
    kept = np.mean(np.array(found) != 0)
    assert kept < 0.16 + 4 * np.sqrt(0.16 * 0.84 / 200)
    assert np.std(found) < 1


def test_what_was_on_once_and_did_much_is_kept():
    rng = np.random.default_rng(3)
    once = np.zeros((300, 1))
    once[100] = 1
    x = np.cumsum(0.3 * rng.normal(size=300))[:, None] + 30 * once
    slope = float(find_effects([np.arange(300.0)], [x], [once], 1.0).slopes[0, 0])
    assert slope == pytest.approx(30, abs=1.5)
