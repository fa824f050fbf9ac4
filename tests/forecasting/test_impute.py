"""What lies between rows, against the exact bridge."""

import numpy as np
import pandas as pd
import pytest

from stochflow import Forecaster
from stochflow.forecasting import between

from .worlds import COLUMNS, ou_frame, quick_fit, two_channels

# Standard errors of a median of so many draws, all of them from 512 particles.
DRAWS, FAR = 400, 4.5


@pytest.fixture(scope="module")
def model():
    return quick_fit(two_channels(), Forecaster(support={"price": "positive"}), **COLUMNS)


@pytest.fixture(scope="module")
def holes():
    frame = two_channels()
    frame.loc[[5, 6, 50], ["price", "x"]] = np.nan
    frame.loc[[0, 119], "price"] = np.nan
    return frame


def test_what_was_seen_stays_and_the_ends_stay_empty(model, holes):
    shuffled = holes.sample(frac=1, random_state=1)  # its index, too
    filled = model.impute(shuffled, samples=50)
    assert list(filled.index) == list(shuffled.index)
    filled = filled.sort_index()
    assert str(filled["when"].dtype) == "datetime64[us, Europe/Berlin]"
    seen = holes[["price", "x"]].notna()
    for name in ("price", "x"):
        for ending in ("", "_lo90", "_hi90"):
            assert np.array_equal(filled[name + ending][seen[name]], holes[name][seen[name]])
    assert filled["price"].isna().to_numpy().nonzero()[0].tolist() == [0, 119]
    inside = filled.loc[[5, 6, 50]]
    assert ((inside["price_lo90"] < inside["price"]) & (inside["price"] < inside["price_hi90"])).all()
    assert (inside["price_lo90"] > 0).all()


def test_at_a_row_the_value_is_the_rows(model):
    frame = two_channels().query("name == 's1'")
    when = frame["when"].iloc[[0, 7, -1]]
    found = model.impute(frame, times=when, samples=20)
    rows = frame[frame["when"].isin(when)]
    for name in ("price", "x"):
        for ending in ("", "_lo90", "_hi90"):
            assert np.array_equal(found[name + ending], rows[name])


@pytest.mark.parametrize("kind", ["flow", pytest.param("latent", marks=pytest.mark.slow)])
def test_of_a_row_half_seen_the_half_that_was_seen_stays(kind):
    """Whatever the law makes of it: of a hidden law each value is seen through noise."""
    frame = two_channels(series=1)
    model = quick_fit(frame, Forecaster(kind=kind, steps=2, folds=0, progress=False), **COLUMNS)
    number = np.arange(len(frame))
    inner = (number > 3) & (number < 30)
    holes = frame.assign(
        price=frame["price"].mask(inner & (number % 2 == 1)), x=frame["x"].mask(inner & (number % 2 == 0))
    )
    found = model.impute(holes, times=holes["when"], samples=20)
    for name in ("price", "x"):
        seen = holes[name].notna().to_numpy()
        for ending in ("", "_lo90", "_hi90"):
            assert np.array_equal(found[name + ending][seen], holes[name][seen])
        assert (found[name + "_lo90"] < found[name + "_hi90"])[~seen].any()


def test_a_hole_longer_than_the_horizon_is_crossed(model):
    frame = two_channels().query("name == 's1'")
    far = pd.concat([frame[:20], frame[20:].assign(when=frame["when"][20:] + pd.Timedelta("90D"))])
    middle = frame["when"].iloc[19] + pd.Timedelta("45D")
    found = model.impute(far, times=[middle], samples=50)
    assert np.isfinite(found[["price", "x", "price_lo90", "x_hi90"]]).all(axis=None)


def test_holes_of_other_lengths_are_filled_by_one_program(model):
    frame = two_channels()
    fill = lambda rows: model.impute(frame.assign(x=frame["x"].mask(frame.index.isin(rows))), samples=50)
    fill([10])
    before = between._between._cached._cache_size()
    fill([5, 6, 7, 50, 51, 90])
    assert between._between._cached._cache_size() == before


def test_one_draw_has_no_interval(model, holes):
    with pytest.raises(ValueError, match="`samples` must be an integer of at least 2; got 1"):
        model.impute(holes, samples=1)


@pytest.mark.parametrize(
    ("times", "words"),
    [
        (
            ["2034-01-01 00:00+00:00"],
            "`times` must lie between the first and the last complete row of a series; none does",
        )
    ],
)
def test_times_outside_say_so(times, words, model):
    with pytest.raises(ValueError, match=words):
        model.impute(two_channels(), times=times)


@pytest.mark.parametrize("named", [str, ["price", "x"].index])
def test_a_frame_of_one_channel_a_row_comes_back_as_one(named, holes):
    """Filled in as the same frame with a column for each channel is; rows that are not there are not made up."""
    long = holes.melt(["name", "when"], var_name="what").sample(frac=1, random_state=2)
    long = long.assign(what=long["what"].map(named))
    made = quick_fit(long, id="name", time="when", values="value", channel="what")
    assert made.predict(long, horizon="12h", every="6h", samples=6).columns.tolist()[3:] == list(
        made.fitted_.names
    )
    wide = holes.rename(columns={name: str(named(name)) for name in ("price", "x")})
    ask = {"samples": 30}
    filled, expected = made.impute(long, **ask), made.impute(wide, **ask)
    assert list(filled.columns) == ["name", "when", "what", "value", "value_lo90", "value_hi90"]
    pd.testing.assert_frame_equal(filled[["name", "when", "what"]], long[["name", "when", "what"]])
    for what, some in filled.groupby("what"):
        of = some.merge(expected, on=["name", "when"])
        for ending in ("", "_lo90", "_hi90"):
            assert np.array_equal(of[f"value{ending}"], of[f"{what}{ending}"], equal_nan=True)
    assert filled["value"].isna().sum() == 2  # at the ends
    few = long[long["value"].notna()]
    assert len(made.impute(few, **ask)) == len(few)


def test_rows_of_one_channel_each_at_other_times():
    long = two_channels().melt(["name", "when"], var_name="what")
    made = quick_fit(long, id="name", time="when", values="value", channel="what")
    ask = {"times": list(two_channels().query("name == 's1'")["when"].iloc[[7, 9]]), "samples": 20}
    rows, expected = made.impute(long, **ask), made.impute(two_channels(), **ask)
    assert list(rows.columns) == ["name", "when", "what", "value", "value_lo90", "value_hi90"]
    assert len(rows) == 2 * len(expected)
    for what, some in rows.groupby("what"):
        for ending in ("", "_lo90", "_hi90"):
            assert np.array_equal(some[f"value{ending}"], expected[f"{what}{ending}"])
        assert np.array_equal(some["when"], expected["when"])


def test_the_middle_is_that_of_the_laws_own_bridge():
    """Of the law as it is: p(r|s) p(t|r), on a grid, against the median and the spread of draws."""
    frame = ou_frame(60)
    model = quick_fit(frame)
    middle = float(frame["ds"].iloc[30:32].mean())
    found = model.impute(frame, times=[middle], samples=DRAWS)
    head = frame[:31]
    grid = np.linspace(-6, 6, 400)
    ahead = model._panel(head)
    forward = _density(model, [ahead] * len(grid), grid, middle)
    onward = [
        model._panel(pd.concat([head, pd.DataFrame({"unique_id": "s0", "ds": [middle], "y": [y]})]))
        for y in grid
    ]
    weight = forward * _density(model, onward, np.full(len(grid), frame["y"].iloc[31]), frame["ds"].iloc[31])
    share = np.cumsum(weight) / weight.sum()
    median, low, high = np.interp([0.5, 0.05, 0.95], share, grid)
    spread = (high - low) / 3.29
    # Of a normal law the standard error of a median is 1.25, and of a 5 % quantile 2.1, of that of a mean.
    error = spread * np.sqrt(1 / DRAWS + 1 / 200)
    assert abs(found["y"][0] - median) < FAR * 1.25 * error
    assert abs(found["y_lo90"][0] - low) < FAR * 2.1 * error
    assert abs(found["y_hi90"][0] - high) < FAR * 2.1 * error


@pytest.mark.parametrize("before", [pytest.param(0.1, marks=pytest.mark.slow), 0.001])
def test_near_the_next_row_the_middle_is_as_wide_as_the_law_is_over_what_is_left(before):
    """Four channels, of which a draw that does not know of the next row meets all as good as never."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(np.cumsum(rng.normal(size=(200, 4)), axis=0), columns=list("abcd"))
    frame = frame.assign(t=np.arange(200.0))
    model = quick_fit(frame, time="t", values=list("abcd"))
    found = model.impute(frame, times=[100 - before], samples=DRAWS)
    law = model.predict(frame[:100], times=[99 + before], samples=2000)
    for name in "abcd":
        wide = float((found[f"{name}_hi90"] - found[f"{name}_lo90"]).iloc[0])
        low, high = np.quantile(law[name], [0.05, 0.95])
        assert 0.6 < wide / (high - low) < 1.6
        assert abs(found[name][0] - frame[name][100]) < 1.5 * (high - low)


def _density(model, panels, x, at):
    import jax

    pasts = [model.model_.past(panel) for panel in panels]
    joined = pasts[0]._replace(
        memory=jax.tree.map(lambda *leaves: np.concatenate(leaves), *[p.memory for p in pasts]),
        **{
            name: np.concatenate([getattr(p, name) for p in pasts])
            for name in ("last", "known", "centre", "spread")
        },
        wider=np.ones((len(x), *pasts[0].wider.shape[1:])),  # between two rows the law is taken as it is
        ids=list(range(len(x))),
    )
    times = np.full(len(x), at)
    return np.exp(model.model_.log_prob(joined, np.asarray(x)[:, None], times, np.zeros((len(x), 0))))
