"""The correction of a local flow: at one end the flow itself, at the other a process that is known exactly."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from stochflow.flows import Correction, LocalFlow, StochasticFlow
from stochflow.flows.local import NORMAL_95
from stochflow.flows.stack import Base
from stochflow.laws import OrnsteinUhlenbeck

from .catalogue import call, shaken

RATE, LEVEL, NOISE = jnp.array([1.5, 0.4]), jnp.array([0.3, -1.0]), jnp.array([0.7, 2.0])


def correction(trust, pull, spread, share, dim=2):
    table = lambda value: jnp.full((2, dim), value)
    return Correction(
        jnp.log(jnp.array([0.1, 1.0])),
        *map(table, (trust, pull, spread, share)),
        rate=RATE[:dim],
        level=LEVEL[:dim],
        noise=NOISE[:dim],
    )


@pytest.fixture
def flow(getkey):
    key = getkey()
    law = StochasticFlow(
        2, cond_dim=3, layers=0, coupling="spline", tails=True, scales=(0.3,), width=8, key=key
    )
    return LocalFlow(shaken(law, key), jnp.ones(2))


@pytest.mark.parametrize("gap", [0.03, 0.4, 2.5])
def test_a_flow_that_is_not_believed_is_the_simple_process(flow, gap, getkey):
    law = flow.corrected(correction(0.0, 1.0, 1.7, 0.0))
    exact = OrnsteinUhlenbeck(RATE, LEVEL, NOISE)
    x_s, x_t, u = (jr.normal(getkey(), (n,)) for n in (2, 2, 5))
    assert jnp.allclose(
        call(law, "log_prob", x_t, x_s, 0.0, gap, u), exact.log_prob(x_t, x_s, 0.0, gap), rtol=1e-5, atol=1e-5
    )


def test_a_flow_that_is_believed_is_itself(flow, getkey):
    law = flow.corrected(correction(1.0, 0.0, 1.0, 1.0))
    x_s, x_t, u = (jr.normal(getkey(), (n,)) for n in (2, 2, 5))
    assert jnp.allclose(
        call(law, "log_prob", x_t, x_s, 0.0, 0.4, u), call(flow, "log_prob", x_t, x_s, 0.0, 0.4, u), atol=1e-6
    )


def test_channels_that_go_together_are_as_wide_as_the_simple_process(getkey):
    """Where nothing of the noise is the flow's, each channel by itself is that of the process, correlated or not."""
    key = getkey()
    law = StochasticFlow(2, cond_dim=3, layers=0, correlated=True, width=8, key=key)
    flow = LocalFlow(shaken(law, key), jnp.ones(2)).corrected(correction(0.0, 0.0, 1.0, 0.0))
    x_s, u, keys = jr.normal(getkey(), (2,)), jr.normal(getkey(), (5,)), jr.split(getkey(), 20_000)
    draws = eqx.filter_jit(jax.vmap(lambda key: flow.sample(x_s, 0.0, 0.4, u, key=key)))(keys)
    assert abs(np.corrcoef(np.transpose(draws))[0, 1]) > 0.3
    exact = NOISE * jnp.sqrt((1 - jnp.exp(-2 * RATE * 0.4)) / (2 * RATE))
    assert np.allclose(draws.std(axis=0), exact, rtol=4 / np.sqrt(2 * 20_000))


def test_in_one_dimension_the_width_is_between_that_of_both(getkey):
    key = getkey()
    law = StochasticFlow(1, cond_dim=2, layers=0, coupling="spline", tails=True, width=8, key=key)
    flow = LocalFlow(shaken(law, key), jnp.ones(1))
    x_s, u, keys = jr.normal(getkey(), (1,)), jr.normal(getkey(), (3,)), jr.split(getkey(), 20_000)

    def width(share):
        corrected = flow.corrected(correction(1.0, 0.0, 1.0, share, dim=1))
        draws = eqx.filter_jit(jax.vmap(lambda key: corrected.sample(x_s, 0.0, 0.4, u, key=key)))(keys)
        low, high = np.quantile(draws, [0.05, 0.95])
        return high - low

    own, simple, half = width(1.0), width(0.0), width(0.5)
    exact = 3.29 * float(NOISE[0] * jnp.sqrt((1 - jnp.exp(-2 * RATE[0] * 0.4)) / (2 * RATE[0])))
    # Of 20,000 draws the 90 % width of a normal law has a standard error of 0.7 %.
    assert simple == pytest.approx(exact, rel=0.03)
    assert min(own, simple) * 0.97 < half < max(own, simple) * 1.03


def test_between_two_gaps_noise_is_between_theirs():
    """Whatever small shares make of spreads: where the flow's noise and the simple law's are one walk's, the logarithm
    of how many times as wide theirs is goes evenly from the one gap to the other."""
    gaps, shares = jnp.array([0.1, 1.0]), jnp.array([0.3, 0.05])
    wider = jnp.array([1.2, 1.1])
    told = correction(1.0, 0.0, 1.0, 1.0, dim=1)
    tables = (wider ** (1 / shares))[:, None], shares[:, None], jnp.zeros(1)
    told = eqx.tree_at(lambda c: (c.spread, c.share, c.rate), told, tables)
    nothing = jnp.zeros(1)
    for along in (0.0, 0.3, 0.5, 0.8, 1.0):
        gap = gaps[0] ** (1 - along) * gaps[1] ** along
        walk = NOISE[:1] * jnp.sqrt(gap)
        base = Base(nothing, walk, nothing, nothing)
        found = told.apply(base, nothing, jnp.ones(1), gap, lambda base: base.std).std
        assert jnp.allclose(found / walk, wider[0] ** (1 - along) * wider[1] ** along, rtol=1e-4)


def test_a_law_that_is_widened_is_so_gap_by_gap(flow, getkey):
    """The noise of each channel over the same noise before: as told at the knots, and between them in between."""
    law = flow.corrected(correction(1.0, 0.0, 1.0, 0.5))
    gaps = jnp.array([0.1, 0.4])
    law = eqx.tree_at(lambda f: f.correction.log_gaps, law, jnp.log(gaps))
    by, u, x_s = jnp.array([[1.5, 0.8], [0.5, 1.0]]), jr.normal(getkey(), (5,)), jnp.zeros(2)
    at = eqx.filter_jit(
        lambda one, gap: (
            one.transform(jnp.ones(2), x_s, 0.0, gap, u) - one.transform(jnp.zeros(2), x_s, 0.0, gap, u)
        )
    )
    for gap, wanted in [(0.01, by[0]), (0.1, by[0]), (0.2, by.mean(0)), (0.4, by[1]), (2.0, by[1])]:
        ratio = at(law.widened(by), jnp.asarray(gap)) / at(law, jnp.asarray(gap))
        assert jnp.allclose(ratio, wanted, rtol=1e-4)
    same = law.widened(jnp.ones((2, 2)))
    assert (
        call(same, "transform", jnp.ones(2), x_s, 0.0, 0.4, u)
        == call(law, "transform", jnp.ones(2), x_s, 0.0, 0.4, u)
    ).all()
    assert flow.widened(by) is flow


@pytest.mark.parametrize("coupling", ["affine", "spline"])
def test_the_noise_of_a_channel_by_itself_does_not_depend_on_the_others(coupling, getkey):
    """It is standard normal at draws of the law, and still so if channels are those of different draws."""
    key = getkey()
    options, close = ({"tails": True, "depth": 0}, 0.03) if coupling == "spline" else ({}, 0.0)
    law = StochasticFlow(
        3, cond_dim=2, layers=0, coupling=coupling, correlated=True, width=8, key=key, **options
    )
    flow = LocalFlow(shaken(law, key), jnp.ones(3))
    number = 4000
    x_s, u, keys = jr.normal(getkey(), (3,)), jr.normal(getkey(), (5,)), jr.split(getkey(), number)
    noise = lambda x_t: flow.channel_noise(x_t, x_s, 0.0, 0.4, u)
    given = lambda x_t: flow.noise_and_log_prob(x_t, x_s, 0.0, 0.4, u)[0]
    slope, slope_given = (jax.jit(jax.jacfwd(each))(x_s) for each in (noise, given))
    off = lambda matrix: jnp.abs(matrix - jnp.diag(jnp.diag(matrix))).max()
    assert off(slope) == 0
    assert off(slope_given) > 0.01
    x_t = jax.jit(jax.vmap(lambda key: flow.sample(x_s, 0.0, 0.4, u, key=key)))(keys)
    apart = jnp.stack([jnp.roll(x_t[:, i], i) for i in range(3)], axis=1)
    for drawn in (x_t, apart):
        found = jax.jit(jax.vmap(noise))(drawn)
        # Exact of a normal law but for chance, which has four errors; of splines and tails three per cent more.
        share = (jnp.abs(found) < NORMAL_95).mean(axis=0)
        assert (jnp.abs(share - 0.9) < close + 4 * np.sqrt(0.09 / number)).all()
        if coupling == "affine":
            assert (jnp.abs((found > 0).mean(axis=0) - 0.5) < 4 * np.sqrt(0.25 / number)).all()
