"""A latent flow that starts from a rhythm, on walks that were made with one."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from stochflow import LatentConfig, Trajectories, fit_latent, latent_flow, rhythmic_latent_flow
from stochflow.inference import forecast_latent
from stochflow.latent import GaussianEmission
from stochflow.laws import Gaussian, OrnsteinUhlenbeck
from stochflow.objectives import forecast_energy

PACE = 1.3
CONFIG = LatentConfig(
    steps=20, log_every=10, batch_size=8, learning_rate=3e-3, skip_starts=32, skip_samples=1, forecast=1.0
)


def walks(series=8, rows=60, seed=0):
    """A closed curve of two harmonics in six channels, each walk at a pace of its own and from anywhere."""
    rng = np.random.default_rng(seed)
    loadings = rng.normal(size=(4, 6)) * np.array([1.0, 1.0, 0.3, 0.3])[:, None]
    times, values = [], []
    for _ in range(series):
        t = np.cumsum(rng.uniform(0.1, 0.3, rows))
        phase = rng.uniform(0, 6) + PACE * (1 + 0.03 * rng.normal()) * t
        curve = np.stack([np.cos(phase), np.sin(phase), np.cos(2 * phase), np.sin(2 * phase)], axis=1)
        times.append(t)
        values.append(curve @ loadings + 0.05 * rng.normal(size=(rows, 6)))
    return Trajectories.from_series(times, values)


def test_the_start_knows_pace_and_curve():
    data = walks()
    model = rhythmic_latent_flow(data, config=CONFIG, styles=2, harmonics=2, key=jr.key(0))
    unit = np.sqrt(np.ptp(data.times[0]) * np.median(np.diff(data.times[0])))  # that of time, about
    assert abs(abs(float(model.transition.pace)) / unit / PACE - 1) < 0.1
    assert model.dim == 2 + 2 + 1
    assert model.emission.channels == 6


@pytest.mark.slow
def test_it_trains_and_forecasts_what_comes():
    data = walks(9)
    train = Trajectories.from_series(list(data.times[:8]), list(data.values[:8]))
    config = LatentConfig(
        **{
            **{name: getattr(CONFIG, name) for name in ("batch_size", "learning_rate", "skip_starts")},
            "steps": 60,
            "log_every": 30,
            "skip_samples": 1,
            "forecast": 5.0,
        }
    )
    model = rhythmic_latent_flow(train, config=config, styles=2, harmonics=2, key=jr.key(0))
    result = fit_latent(model, train, config=config, progress=False, key=jr.key(1))
    assert np.isfinite(result.history[-1]["forecast"])
    times, values = data.times[8].astype(np.float64), data.values[8]
    found = forecast_latent(result.flow, times[:30], values[:30], times[30:], samples=64, key=jr.key(2))
    error = np.square(np.asarray(found.means).mean(axis=0) - values[30:]).mean()
    assert error < 0.1 * values.var()


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"styles": 0}, "`styles`"),
        ({"styles": 7}, "`styles`"),
        ({"styles": 2, "harmonics": 0}, "`harmonics`"),
    ],
)
def test_wrong_sizes_are_refused(wrong, message):
    with pytest.raises(ValueError, match=message):
        rhythmic_latent_flow(walks(2), config=CONFIG, key=jr.key(0), **wrong)


def test_one_channel_has_no_phase():
    data = Trajectories.from_series([np.arange(5.0)], [np.arange(5.0)[:, None]])
    with pytest.raises(ValueError, match="two channels"):
        rhythmic_latent_flow(data, config=CONFIG, styles=1, key=jr.key(0))


def test_what_stands_still_has_no_phase_and_few_channels_have_few_styles():
    still = Trajectories.from_series([np.arange(5.0)], [np.ones((5, 3))])
    with pytest.raises(ValueError, match="two channels that move"):
        rhythmic_latent_flow(still, config=CONFIG, key=jr.key(0))
    assert rhythmic_latent_flow(walks(2), config=CONFIG, harmonics=1, key=jr.key(0)).dim == 2 + 6 + 1


def test_a_smoothing_posterior_cannot_be_scored_by_its_forecasts():
    model = latent_flow(6, 2, posterior="smooth", key=jr.key(0))
    with pytest.raises(ValueError, match=r"`config\.forecast` must be 0"):
        fit_latent(model, walks(2), config=CONFIG, progress=False, key=jr.key(1))


def seen_as_it_is(key):
    """An emission that shows a state with hardly any noise."""
    emission = GaussianEmission(1, 1, depth=0, initial_std=0.002, key=key)
    layer = lambda e: (e.net.layers[0].weight, e.net.layers[0].bias)
    return eqx.tree_at(layer, emission, (jnp.ones((1, 1)), jnp.zeros(1)))


def test_the_energy_score_is_smallest_for_the_true_start(getkey):
    """A law that hardly moves: the score of N(0, 1) at draws of N(0, 1) is 1/√π; starts that are off score worse."""
    emission = seen_as_it_is(getkey())
    law, mask = OrnsteinUhlenbeck([1e-6], [0.0], [1e-4]), jnp.ones(1, bool)
    truth, keys = jr.normal(getkey(), (20_000, 1)), jr.split(getkey(), 20_000)

    def mean_score(start):
        one = lambda value, key: forecast_energy(law, emission, start, value, mask, 0.0, 1.0, key=key)
        found = jax.vmap(one)(truth, keys)
        return found.mean(), found.std() / jnp.sqrt(len(found))

    right, error = mean_score(Gaussian(jnp.zeros(1), jnp.eye(1)))
    assert abs(right - 1 / np.sqrt(np.pi)) < 5 * error
    for mean, std in ((0.5, 1.0), (0.0, 0.5), (0.0, 2.0)):
        worse, _ = mean_score(Gaussian(jnp.full(1, mean), std * jnp.eye(1)))
        assert worse > right + 3 * error
