"""The noise of each channel after a fit, where the true one is known."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from stochflow import Trajectories, with_channel_noise
from stochflow.latent import BernoulliEmission, GaussianEmission, KalmanPosterior, LatentUnits, ObservedFlow

from ..latent.linear import NOISE, linear_flow, linear_series

STANDARD_ERRORS = 5
UNITS = LatentUnits(np.zeros(3), np.ones(3))


def observed(posterior=None) -> ObservedFlow:
    return ObservedFlow(linear_flow(KalmanPosterior(2) if posterior is None else posterior), UNITS)


def trajectories(getkey, series=200, rows=12, widened=(1.0, 1.0, 1.0)) -> Trajectories:
    """Of the linear model, irregular and with values missing."""
    made = jax.vmap(lambda k: linear_series(rows, key=k))(jr.split(getkey(), series))
    values = np.where(made.mask, made.values, np.nan)
    extra = np.sqrt(np.square(widened) - 1) * NOISE
    values = values + extra * np.asarray(jr.normal(getkey(), values.shape))
    return Trajectories.from_series(list(np.asarray(made.times)), list(values))


def test_the_true_noise_is_found_where_the_posterior_is_exact(getkey):
    """The truth is a fixed point of EM: states of the exact posterior leave just the noise."""
    data = trajectories(getkey)
    found = with_channel_noise(observed(), data, key=getkey()).model.emission.mean_and_std(jnp.zeros(2))[1]
    counts = data.mask.sum(axis=(0, 1))
    assert (np.abs(np.square(found / NOISE) - 1) < STANDARD_ERRORS * np.sqrt(2 / counts)).all()


def test_a_channel_with_more_noise_is_told_from_the_others_and_means_stay(getkey):
    data = trajectories(getkey, widened=(1.0, 3.0, 1.0))
    flow = observed(KalmanPosterior(2, std=NOISE))
    other = with_channel_noise(flow, data, std=NOISE, key=getkey())
    stds = np.asarray(other.model.emission.mean_and_std(jnp.zeros(2))[1])
    assert stds[1] > 1.5 * max(stds[0], stds[2])
    x = jr.normal(getkey(), (2,))
    assert (other.model.emission.mean(x) == flow.model.emission.mean(x)).all()
    series = linear_series(8, key=getkey())
    before, after = (f.model.reader.last(series) for f in (flow, other))
    np.testing.assert_allclose(after.mean, before.mean, atol=1e-12)
    np.testing.assert_allclose(after.scale_tril, before.scale_tril, atol=1e-12)
    freed = with_channel_noise(observed(), data, key=getkey()).model.reader.last(series)
    assert not np.allclose(freed.mean, before.mean, atol=1e-3)


def test_what_cannot_be_is_refused(getkey):
    data = trajectories(getkey, series=4)
    with pytest.raises(ValueError, match="BernoulliEmission has no standard deviation that could be set"):
        BernoulliEmission(2, 3, key=getkey()).with_stds(jnp.ones(3))
    with pytest.raises(ValueError, match="whose std depends on the state"):
        GaussianEmission(2, 3, std="state", key=getkey()).with_stds(jnp.ones(3))
    with pytest.raises(ValueError, match=r"`std` must be positive, or None; got 0\.0"):
        KalmanPosterior(2, std=0.0)
    never = Trajectories.from_series(
        [np.arange(3.0)], [np.array([[1.0, 2.0, np.nan], [1.0, 2.0, np.nan], [1.0, 3.0, np.nan]])]
    )
    with pytest.raises(ValueError, match="channel 2 is never observed: nothing tells of its noise"):
        with_channel_noise(observed(), never, key=getkey())
    narrow = Trajectories.from_series(list(data.times), list(data.values[:, :, :2]))
    with pytest.raises(ValueError, match="`flow` has 3 channels but the trajectories have 2"):
        with_channel_noise(observed(), narrow, key=getkey())
