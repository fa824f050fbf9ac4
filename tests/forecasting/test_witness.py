"""What rows of the fit say of how wide a law should be, and what a series is measured from."""

import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from stochflow import Forecaster
from stochflow.flows import Correction
from stochflow.forecasting.direct import BELIEVED, PLACES
from stochflow.forecasting.reading import places
from stochflow.forecasting.recent import Said, recent_width, usual_width

from .worlds import ou_frame

GAPS, DIM = 3, 2


def said_of(latest) -> Said:
    latest = jnp.asarray(latest)
    return Said(jnp.zeros((*latest.shape[:2], DIM)), jnp.ones(latest.shape[:2]), latest)


def test_the_usual_width_is_that_of_the_noise_whatever_is_missing(getkey):
    """By the 90 % quantile and the CRPS of 8,000 numbers: both known to two per cent or so."""
    std = jnp.array([[0.5, 1.0], [1.3, 0.8], [2.0, 1.0]])
    sizes = jnp.abs(std[None, :, None] * jr.normal(getkey(), (1000, GAPS, 8, DIM)))
    found = usual_width(said_of(sizes.at[::3, :, 2].set(jnp.nan)))
    assert jnp.allclose(found, jnp.log(std), atol=0.05)


def test_a_gap_that_no_stretch_has_says_nothing(getkey):
    sizes = jnp.abs(jr.normal(getkey(), (64, GAPS, 8, DIM))).at[:, 1].set(jnp.nan)
    found = usual_width(said_of(sizes))
    assert (found[1] == 0).all()
    assert (found[0] != 0).all()


def test_a_law_is_told_a_part_and_the_rest_is_what_series_are_measured_from():
    table = lambda value: jnp.full((GAPS, DIM), value)
    correction = Correction(jnp.arange(3.0), *map(table, (0.5, 0.5, 1.2, 0.25)), *[jnp.ones(DIM)] * 3)
    assert (correction.witness == 0).all()
    said = jnp.log(jnp.array([[0.9, 0.8], [0.7, 1.0], [1.1, 0.6]]))
    share = jnp.array([0.3, 0.2, 0.1])
    told = correction.witnessed(said, share)
    # The noise of the law is `spread` to the power `share` wide, times what neither touches.
    assert jnp.allclose((told.spread / correction.spread) ** told.share, jnp.exp(share[:, None] * said))
    assert jnp.allclose(told.witness, (1 - share[:, None]) * said)
    twice = told.witnessed(said, jnp.zeros(GAPS))
    assert jnp.allclose(twice.witness, (2 - share[:, None]) * said)


def test_places_lie_evenly_over_all_complete_rows_and_after_two_of_their_series():
    whole = [np.ones(90, bool), np.zeros(0, bool), np.ones(1, bool), np.arange(30) % 3 != 0]
    series, rows = places(whole, 50)
    assert set(series) == {0, 3}
    assert (np.diff(rows[series == 0]) > 0).all()
    assert (series == 0).sum() == pytest.approx(50 * 89 / 108, abs=2)
    for i, n in zip(series, rows, strict=True):
        assert whole[i][n - 1]  # the last of them is complete
        assert whole[i][:n].sum() >= 2
    few, _ = places([np.ones(3, bool)], 50)
    assert len(few) == 2
    assert len(places([np.ones(1, bool)], 50)[0]) == 0


def test_places_are_found_in_series_of_two_rows():
    """Every other row ends no transition: places that went by rows alone would be those."""
    series, rows = places([np.ones(2, bool)] * 63 + [np.ones(1, bool)], 64)
    assert series.tolist() == list(range(63))
    assert (rows == 2).all()


@pytest.fixture(scope="module")
def fitted():
    return Forecaster(steps=60, folds=2, progress=False).fit(ou_frame(200))


def test_rows_of_the_fit_say_again_what_they_are_measured_from(fitted):
    """The law is as much narrower as it was told, so they now ask for the rest; and a series that says what is usual is
    forecast as the law says."""
    model, panel = fitted.model_, fitted._panel(ou_frame(200))
    heads = panel.heads(*places([panel.seen(0, partial=False)], PLACES))
    said, witness = model.said(heads), model.law.correction.witness
    assert 0 < BELIEVED < 1
    assert (np.abs(np.asarray(witness)) > 1e-3).any()
    assert jnp.allclose(usual_width(said), witness, atol=0.03)  # the CRPS is tried at widths 5 % apart
    usual = Said(witness, jnp.ones(witness.shape[0]), said.latest[0])
    assert jnp.allclose(recent_width(model.law, usual), 1.0)
