"""Frames whose law is known, and forecasters that are made in no time."""

import functools

import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pandas as pd

from stochflow import Forecaster
from stochflow.flows import LocalFlow, StochasticFlow
from stochflow.forecasting import direct

RATE, MEAN, STD = 1.0, 0.5, 1.0
GAP = 0.2
START = pd.Timestamp("2024-03-01", tz="Europe/Berlin")


def ou_path(rng, rows, gap=GAP):
    """An exact path at irregular times."""
    times = np.cumsum(rng.uniform(0.5 * gap, 1.5 * gap, rows))
    x = np.empty(rows)
    x[0] = MEAN + STD / np.sqrt(2 * RATE) * rng.normal()
    for i, step in enumerate(np.diff(times)):
        mean, std = ou_moments(x[i], step)
        x[i + 1] = mean + std * rng.normal()
    return times, x


def ou_moments(x, gap):
    """Mean and standard deviation after a gap."""
    faded = np.exp(-RATE * gap)
    return MEAN + faded * (x - MEAN), STD * np.sqrt((1 - faded**2) / (2 * RATE))


def ou_frame(rows, series=1, seed=0, **more):
    """Times are numbers, one path a series."""
    rng = np.random.default_rng(seed)
    parts = []
    for i in range(series):
        times, x = ou_path(rng, rows)
        parts.append(pd.DataFrame({"unique_id": f"s{i}", "ds": times, "y": x}))
    return pd.concat(parts, ignore_index=True).assign(**more)


def two_channels(rows=40, series=3, seed=1):
    """A positive channel and one of any sign, at datetimes in a zone."""
    rng = np.random.default_rng(seed)
    parts = []
    for i in range(series):
        when = START + pd.to_timedelta(np.sort(rng.choice(10 * rows, rows, replace=False)), "h")
        price = np.exp(0.1 * np.cumsum(rng.normal(size=rows)))
        parts.append(
            pd.DataFrame({"name": f"s{i}", "when": when, "price": price, "x": rng.normal(size=rows)})
        )
    return pd.concat(parts, ignore_index=True)


COLUMNS = {"id": "name", "time": "when", "values": ["price", "x"]}


@functools.cache
def _law(dim, cond, depth):
    flow = StochasticFlow(
        dim, cond_dim=cond, width=8, depth=depth, layers=0, clock="saturating", coupling="spline",
        correlated=dim > 1, tails=True, scales=(0.1, 1.0), key=jr.key(3),
    )  # fmt: skip
    return LocalFlow(flow, jnp.ones(dim, jnp.float32))


def unlearnt(pieces, usual, ahead, config, *, folder, progress, key):
    """In the place of `learn`: some law of the right shape."""
    dim = pieces[0].values.shape[1]
    return _law(dim, pieces[0].u.shape[1] - dim, config.depth), []


def quick_fit(df, forecaster=None, **columns):
    """A forecaster that has learnt nothing, but stands in the right units: for all that is not about learning."""
    learn = direct.learn
    direct.learn = unlearnt
    try:
        return (forecaster or Forecaster(progress=False)).fit(df, **columns)
    finally:
        direct.learn = learn
