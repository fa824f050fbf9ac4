"""A law that is right over short gaps teaches itself the long ones."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from stochflow import FitConfig, Trajectories
from stochflow.inference import teach_latent
from stochflow.latent import GaussianEmission, LatentFlow, LatentUnits, ObservedFlow, WindowPosterior
from stochflow.laws import AbstractTransition, OrnsteinUhlenbeck

CONFIG = FitConfig(steps=400, log_every=400, learning_rate=0.02, warmup_steps=10, ema=0.9)


class Switch(AbstractTransition):
    """One law for gaps up to .5, another for longer ones."""

    short: AbstractTransition
    long: AbstractTransition

    @property
    def dim(self):
        return 1

    def transform_and_log_prob(self, noise, x_s, s, t, u=None):
        both = [law.transform_and_log_prob(noise, x_s, s, t, u) for law in (self.short, self.long)]
        return jax.tree.map(lambda a, b: jnp.where(t - s <= 0.5, a, b), *both)

    def log_prob(self, x_t, x_s, s, t, u=None):
        return jnp.where(t - s <= 0.5, *[law.log_prob(x_t, x_s, s, t, u) for law in (self.short, self.long)])


def seen_flow(law, key, time_scale=1.0):
    """A latent flow whose state is what is observed."""
    posterior = WindowPosterior(1, 1, window=1, depth=0, key=key)
    layer = posterior.net.layers[0]
    posterior = eqx.tree_at(
        lambda p: (p.net.layers[0].weight, p.net.layers[0].bias),
        posterior,
        (jnp.array([[1.0], [0.0]], layer.weight.dtype), jnp.array([0.0, -10.0], layer.bias.dtype)),
    )
    model = LatentFlow(law, GaussianEmission(1, 1, key=key), posterior)
    return ObservedFlow(model, LatentUnits(np.zeros(1), np.ones(1), time_scale, 4.0 * time_scale))


@pytest.fixture(scope="module")
def data():
    """Ten short series of an Ornstein–Uhlenbeck process, rate 1, std 1."""
    rng = np.random.default_rng(0)
    x = [rng.normal(size=(10, 1))]
    for _ in range(39):
        x.append(np.exp(-0.1) * x[-1] + np.sqrt(1 - np.exp(-0.2)) * rng.normal(size=(10, 1)))
    return Trajectories.from_arrays(0.1 * np.arange(40), np.stack(x, axis=1))


def test_the_long_gaps_of_a_law_come_to_agree_with_its_short_ones(data, getkey):
    right, wrong = (OrnsteinUhlenbeck(rate, [0.0], [2.0**0.5]) for rate in ([1.0], [0.2]))
    flow = seen_flow(Switch(right, wrong), getkey())
    taught = teach_latent(
        flow, data, config=CONFIG, steps=(0.1, 0.5), paths=2048, rows=6, progress=False, key=getkey()
    )
    law = taught.flow.model.transition
    assert _std(flow.model.transition, 4.0) > 1.5  # 2.0 instead of 1.0
    assert _std(law, 4.0) == pytest.approx(1.0, abs=0.15)
    assert _std(law, 0.3) == pytest.approx(_std(right, 0.3), rel=0.15)
    assert taught.stray < 0.5


def _std(law, t):
    """By the noise that one and no std away from the mean stand for: both laws are normal."""
    at = lambda noise: law.transform_and_log_prob(jnp.full(1, noise), jnp.zeros(1), 0.0, t)[0]
    return float((at(1.0) - at(0.0))[0])


def test_posterior_and_emission_stay_as_they_are(data, getkey):
    flow = seen_flow(OrnsteinUhlenbeck([1.0], [0.0], [2.0**0.5]), getkey())
    config = FitConfig(steps=2, log_every=2)
    taught = teach_latent(
        flow, data, config=config, steps=(0.1, 0.5), paths=64, rows=6, progress=False, key=getkey()
    ).flow
    assert eqx.tree_equal(taught.model.posterior, flow.model.posterior)
    assert eqx.tree_equal(taught.model.emission, flow.model.emission)
    assert not eqx.tree_equal(taught.model.transition, flow.model.transition)


def test_what_cannot_be_taught_says_why(data, getkey):
    flow = seen_flow(OrnsteinUhlenbeck([1.0], [0.0], [2.0**0.5]), getkey())
    teach = lambda **more: teach_latent(
        flow, data, config=CONFIG, **({"steps": (0.1, 0.5)} | more), key=getkey()
    )
    with pytest.raises(ValueError, match="`rows` must be at least 2"):
        teach(rows=1)
    with pytest.raises(ValueError, match="no series has the 60 rows"):
        teach(rows=60)
    with pytest.raises(ValueError, match="`steps` must satisfy"):
        teach(steps=(0.5, 0.1))
    wild = seen_flow(OrnsteinUhlenbeck([1.0], [0.0], [1e4]), getkey())
    with pytest.raises(FloatingPointError, match="every path strays"):
        teach_latent(wild, data, config=CONFIG, steps=(0.1, 0.5), paths=8, rows=6, key=getkey())
