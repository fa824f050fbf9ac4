"""A latent flow that starts from principal components: what its state and its emission are before any training."""

import dataclasses

import jax
import numpy as np
import pytest

from stochflow import LatentConfig, Trajectories, principal_latent_flow
from stochflow.data.batches import compact_series
from stochflow.training.latent import units_of

CONFIG = LatentConfig(common_scale=True, time_unit=1.0)
SIZES = {"width": 8, "layers": 1}


def lines(series=5, rows=20, channels=6, noise=0.0):
    """Straight lines in a plane: two components say all, and their rates of change are constant."""
    rng = np.random.default_rng(0)
    plane = rng.normal(size=(2, channels))
    times = np.arange(rows, dtype=float)
    start, slope = rng.normal(size=(2, series, 1, 2))
    values = (start + 0.3 * slope * times[None, :, None]) @ plane + 3.0
    return Trajectories.from_arrays(times, values + noise * rng.normal(size=values.shape)), slope[:, 0]


def test_state_and_emission_give_back_what_two_components_hold(getkey):
    data, _ = lines()
    model = principal_latent_flow(data, config=CONFIG, components=2, window=4, **SIZES, key=getkey())
    series = compact_series(data, units_of(data, CONFIG))
    states = jax.vmap(model.posterior.marginals)(series).mean[:, model.posterior.context :]
    means = jax.vmap(jax.vmap(model.emission.mean))(states)
    assert np.allclose(means, series.values[:, model.posterior.context :], atol=1e-5)
    assert np.allclose(states.reshape(-1, 4).mean(0), 0, atol=1e-5)
    assert np.allclose(states.reshape(-1, 4).std(0), 1, atol=1e-5)


def test_the_second_half_of_the_state_is_the_rate_of_change(getkey):
    data, slope = lines()
    model = principal_latent_flow(data, config=CONFIG, components=2, window=4, **SIZES, key=getkey())
    series = compact_series(data, units_of(data, CONFIG))
    states = np.asarray(jax.vmap(model.posterior.marginals)(series).mean[:, model.posterior.context :])
    assert np.ptp(states[:, :, 2:], axis=1).max() < 1e-4  # constant along a line
    moved = np.diff(states[:, :, :2], axis=1).mean(axis=1)
    together = np.linalg.lstsq(np.c_[states[:, 0, 2:], np.ones(len(moved))], moved, rcond=None)
    assert np.abs(np.c_[states[:, 0, 2:], np.ones(len(moved))] @ together[0] - moved).max() < 1e-4
    assert np.linalg.matrix_rank(slope) == 2


def test_there_is_a_bridge_if_the_loss_asks_for_one(getkey):
    data, _ = lines(noise=0.1)
    make = lambda config: principal_latent_flow(data, config=config, components=1, **SIZES, key=getkey())
    assert make(CONFIG).bridge is None
    assert make(dataclasses.replace(CONFIG, consistency=0.1)).bridge is not None


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"components": 7}, "`components` must lie between 1 and the 6 channels; got 7"),
        ({"components": 2, "window": 1}, "`window` must be at least 2"),
        ({"components": 2, "window": 30}, "no series has the 30 rows"),
    ],
)
def test_what_cannot_be_read_is_refused(settings, message, getkey):
    with pytest.raises(ValueError, match=message):
        principal_latent_flow(lines()[0], config=CONFIG, **settings, key=getkey())
