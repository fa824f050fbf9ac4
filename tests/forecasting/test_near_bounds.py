"""Values so near a bound that single precision has them on it."""

import jax.numpy as jnp
import numpy as np
import pytest

from stochflow import Forecaster
from stochflow.forecasting.units import Units, make_support, off_line, on_line

from .worlds import ou_frame, quick_fit

NEAR = {"an interval": ((0.0, 1.0), 1 - 1e-9), "a half-line": ((0.0, np.inf), 1e-40)}
NEAR |= {"a half-line at a level": ((1e4, np.inf), 1e4 + 1e-5)}


@pytest.mark.parametrize(("interval", "value"), NEAR.values(), ids=NEAR.keys())
def test_they_have_units_and_come_back(interval, value):
    low, high = interval
    y = ou_frame(60)["y"].to_numpy()
    x = (low + np.exp(y) if np.isinf(high) else low + (high - low) / (1 + np.exp(y)))[:, None]
    x[-1] = value
    support = make_support(x, ("y",), [interval], finest=1e-12)
    line = on_line(support, x)
    single = [jnp.asarray(each, jnp.float32) for each in (line.mean(0), line.std(0), np.ones(0), np.ones(0))]
    units = Units(support, *single, horizon=1.0)
    assert np.isfinite(units.values(x).astype(np.float32)).all()
    assert np.allclose(units.restore(units.values(x)), x, rtol=1e-12, atol=0)
    drawn = off_line(support, np.linspace(-1e4, 1e4, 21)[:, None])
    assert ((drawn > low) & (drawn < high)).all()


def test_forecasts_from_one_are_numbers():
    frame = ou_frame(60)
    frame["y"] = 1 / (1 + np.exp(frame["y"]))
    frame.loc[59, "y"] = 1 - 1e-9
    model = quick_fit(frame, Forecaster(support={"y": (0.0, 1.0)}, progress=False))
    drawn = model.predict(horizon=0.4, samples=20)["y"]
    assert ((drawn > 0) & (drawn < 1)).all()
