"""Forecasts, bounds and imputations of latent flows: what is asked wrongly, and how often they are compiled."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from stochflow import latent_flow
from stochflow.inference import (
    LatentDraws,
    forecast_latent,
    impute_latent,
    latent as module,
    likelihood_bound,
)
from stochflow.inference.past import bucket
from stochflow.latent import LatentUnits, ObservedFlow
from stochflow.laws import HorizonWarning

UNITS = LatentUnits(np.zeros(2), np.ones(2), 2.0, horizon=10.0, gap=0.5)
TIMES = 100 + 0.5 * np.arange(9)
VALUES = np.stack([np.sin(TIMES), np.cos(TIMES)], axis=1)
KEY = jr.key(0)


def flow(posterior="filter", **more) -> ObservedFlow:
    model = latent_flow(2, 2, posterior=posterior, width=8, layers=1, hidden=8, **more, key=jr.key(1))
    return ObservedFlow(model, UNITS)


FLOW = flow()
ALL = {
    "forecast": lambda f, t, x, **more: forecast_latent(
        f, t, x, t[-1:] + 1, **{"samples": 2, "key": KEY} | more
    ),
    "bound": lambda f, t, x, **more: likelihood_bound(f, t, x, **{"samples": 2, "key": KEY} | more),
    "impute": lambda f, t, x, **more: impute_latent(f, t, x, **{"samples": 2, "key": KEY} | more),
}


@pytest.mark.usefixtures("as_users_have_it")
@pytest.mark.parametrize("call", ALL.values(), ids=ALL.keys())
def test_a_past_that_cannot_be_read_is_refused(call):
    for wrong, message in [
        (
            (FLOW.model, TIMES, VALUES),
            r"`flow` must be a fitted latent flow .* `fit_latent\(...\).flow`; got Latent",
        ),
        ((FLOW, TIMES, VALUES[:, :1]), "`values` must have 2 channels, as `flow` has; got 1"),
        ((FLOW, np.array(["2020", "2021"], "M8[Y]"), VALUES[:2]), "`times` must hold real numbers.*convert"),
        ((FLOW, np.array([0, 1e9, 1e9 + 1]), VALUES[:3]), "row 2: time 1e\\+09 is too close"),
        ((flow("window"), TIMES[:2], VALUES[:2]), "reads 2 rows before the first state: 3 observed rows"),
    ]:
        if "too close" in message and jnp.result_type(float) == jnp.float64:
            continue  # double precision resolves it
        with pytest.raises(ValueError, match=message):
            call(*wrong)
    with pytest.raises(ValueError, match="`key` must be a JAX key"):
        call(FLOW, TIMES, VALUES, key=3)
    for samples in (0, 2.5, True):
        with pytest.raises(ValueError, match="`samples` must be an integer of at least 1"):
            call(FLOW, TIMES, VALUES, samples=samples)
    u = np.zeros((9, 1))
    with pytest.raises(ValueError, match=r"`u` must have shape \(9, cond_dim\)"):
        call(FLOW, TIMES, VALUES, u=u[:5])
    u[4] = np.nan
    with pytest.raises(ValueError, match="`u` must be finite; row 4 is not"):
        call(FLOW, TIMES, VALUES, u=u)


@pytest.mark.parametrize("call", ALL.values(), ids=ALL.keys())
@pytest.mark.parametrize("unit", [1e-3, 1e3])
def test_times_in_another_unit_draw_a_warning(call, unit, recwarn):
    call(FLOW, unit * TIMES, VALUES)
    assert any("are `times` in another unit?" in str(warning.message) for warning in recwarn)


@pytest.mark.usefixtures("as_users_have_it")
def test_times_that_cannot_be_forecast_are_refused():
    ask = lambda at, **more: forecast_latent(FLOW, TIMES, VALUES, at, samples=2, **more, key=KEY)
    for at, message in [
        (5.0, "`at` must hold numbers in one dimension"),
        (np.array([[105.0]]), "`at` must hold numbers in one dimension"),
        (np.array([106.0, 105.0]), "`at` must hold finite times that do not decrease"),
        (np.array([np.nan]), "`at` must hold finite times"),
        (TIMES[-1:] - 1e-3, "`at` must not lie before the last observation, at 104; got 103.999"),
    ]:
        with pytest.raises(ValueError, match=message):
            ask(at)
    with pytest.raises(ValueError, match="`max_gap` must be positive; got -1"):
        ask(TIMES[-1:] + 1, max_gap=-1.0)


def test_steps_beyond_the_horizon_draw_a_warning_however_they_are_taken():
    ask = lambda at, **more: forecast_latent(FLOW, TIMES, VALUES, at, samples=2, **more, key=KEY)
    far = TIMES[-1] + np.array([1.0, 40.0])
    for more in ({}, {"max_gap": 30.0}, {"joint": True}):
        with pytest.warns(HorizonWarning, match=r"chain shorter steps with `max_gap=10`"):
            ask(far, **more)
    ask(far, max_gap=10.0)
    ask(TIMES[-1] + 8 * np.arange(1.0, 5), joint=True)


@pytest.mark.parametrize("posterior", ["filter", "smooth", "window"])
def test_a_reconstruction_is_at_all_rows_that_have_a_state(posterior):
    values = VALUES.copy()
    values[[0, 8]] = np.nan
    found = impute_latent(flow(posterior), TIMES, values, samples=3, key=KEY)
    assert found.values.shape == (3, 7 if posterior != "window" else 5, 2)


@pytest.mark.parametrize("posterior", ["filter", "smooth", "window"])
def test_padding_changes_no_forecast(posterior, monkeypatch):
    ask = lambda: forecast_latent(
        flow(posterior), TIMES, VALUES, TIMES[-1] + np.arange(1.0, 4), samples=3, key=KEY
    )
    one = ask()
    monkeypatch.setattr("stochflow.inference.past.bucket", lambda number: number + 5)
    monkeypatch.setattr(module, "bucket", lambda number: number)
    for name in LatentDraws._fields:
        np.testing.assert_allclose(getattr(one, name), getattr(ask(), name), atol=1e-12)


def test_one_program_serves_many_lengths_and_times(monkeypatch):
    traced = []
    seen = module._seen
    monkeypatch.setattr(module, "_seen", lambda *given: traced.append(None) or seen(*given))
    model = flow()
    long = np.arange(40.0)
    for rows, number in [(33, 17), (36, 18), (34, 18)]:
        values = np.stack([np.sin(long), np.cos(long)], axis=1)[:rows]
        at = long[rows - 1] + 0.3 * np.arange(1, number + 1)
        found = forecast_latent(model, long[:rows], values, at, samples=2, max_gap=None, key=KEY)
        assert found.values.shape == (2, number, 2)
    assert len(traced) == 1


def test_numbers_are_rounded_up_by_an_eighth_at_most():
    numbers = np.arange(1, 5000)
    rounded = np.array([bucket(int(n)) for n in numbers])
    assert (rounded >= numbers).all()
    assert (rounded <= numbers * 1.125).all()
    assert len(set(rounded)) < 90
    assert [bucket(n) for n in (1, 2, 15, 17, 297)] == [1, 2, 15, 18, 320]


def test_a_bound_of_many_paths_is_worked_out_a_few_at_a_time(monkeypatch):
    whole = likelihood_bound(FLOW, TIMES, VALUES, samples=6, key=KEY)
    monkeypatch.setattr(module, "ROWS_AT_ONCE", 10)
    jax.clear_caches()
    parts = likelihood_bound(FLOW, TIMES, VALUES, samples=6, key=KEY)
    np.testing.assert_allclose(parts, whole)
