"""An exact law has no consistency gap, on any sample; a wrong one has, in both directions."""

import jax
import jax.numpy as jnp
import jax.random as jr
import pytest

from stochflow.data import Pairs, Triplets
from stochflow.flows import BridgeFlow, StochasticFlow
from stochflow.laws import (
    AbstractTransition,
    BrownianBridge,
    BrownianMotion,
    OrnsteinUhlenbeck,
    OrnsteinUhlenbeckBridge,
)
from stochflow.objectives import (
    negative_log_likelihood,
    one_to_two_gap,
    one_way_loss,
    stacked_gaps,
    two_to_one_gap,
)

from ..flows.catalogue import shaken

OU = OrnsteinUhlenbeck(jnp.array([0.5, 1.0, 2.0]), jnp.array([0.0, 1.0, -1.0]), jnp.array([0.3, 1.0, 2.0]))
S, R, T = jnp.array([0.1, 0.4, 1.3])
directions = pytest.mark.parametrize("gap", [one_to_two_gap, two_to_one_gap])


class Switch(AbstractTransition):
    """One law for gaps below one, another above: Markov it is not."""

    short: AbstractTransition
    long: AbstractTransition

    @property
    def dim(self):
        return self.short.dim

    def transform_and_log_prob(self, noise, x_s, s, t, u=None):
        both = [law.transform_and_log_prob(noise, x_s, s, t, u) for law in (self.short, self.long)]
        return jax.tree.map(lambda a, b: jnp.where(t - s < 1, a, b), *both)

    def log_prob(self, x_t, x_s, s, t, u=None):
        both = [law.log_prob(x_t, x_s, s, t, u) for law in (self.short, self.long)]
        return jnp.where(t - s < 1, *both)


@directions
def test_exact_ou_has_no_gap(gap, getkey):
    bridge = OrnsteinUhlenbeckBridge(OU)
    each = jax.jit(jax.vmap(lambda x, k: gap(OU, bridge, x, S, R, T, key=k)))
    values = each(jr.normal(getkey(), (100, 3)), jr.split(getkey(), 100))
    assert jnp.abs(values).max() < 1e-10


@directions
def test_a_wrong_bridge_costs_in_both_directions(gap, getkey):
    """With the wrong bridge the gap's mean is a KL divergence: positive by many standard errors."""
    bridge = OrnsteinUhlenbeckBridge(OrnsteinUhlenbeck(jnp.full(3, 4.0), jnp.zeros(3), jnp.ones(3)))
    each = jax.jit(jax.vmap(lambda k: gap(OU, bridge, jnp.ones(3), S, R, T, key=k)))
    values = each(jr.split(getkey(), 2000))
    assert values.mean() > 10 * values.std() / jnp.sqrt(2000)


@directions
def test_a_law_that_is_not_markov_has_a_gap_whatever_the_bridge(gap, getkey):
    """Twice the noise over long gaps: one step is wider than two."""
    law = OrnsteinUhlenbeck(jnp.array([1.0]), jnp.array([0.0]), jnp.array([1.0]))
    other = OrnsteinUhlenbeck(jnp.array([1.0]), jnp.array([0.0]), jnp.array([2.0]))
    bridge = OrnsteinUhlenbeckBridge(law)
    flow = Switch(law, other)
    values = jax.jit(jax.vmap(lambda k: gap(flow, bridge, jnp.ones(1), S, R, T, key=k)))(
        jr.split(getkey(), 2000)
    )
    assert values.mean() > 10 * values.std() / jnp.sqrt(2000)


@pytest.mark.parametrize("cond_dim", [2])
def test_the_stacked_form_gives_the_same_numbers(cond_dim, getkey, monkeypatch):
    flow = shaken(StochasticFlow(2, cond_dim=cond_dim, width=8, layers=1, key=getkey()), getkey())
    bridge = shaken(BridgeFlow(2, cond_dim=cond_dim, width=8, layers=1, key=getkey()), getkey())
    batch, half, key = 5, 2, getkey()
    x_s, x_t = jr.normal(getkey(), (2, batch, 2))
    u = jr.normal(getkey(), (batch, cond_dim)) if cond_dim else None
    s, r, t = jnp.zeros(batch), jnp.linspace(0.2, 0.5, batch), jnp.linspace(0.6, 2.0, batch)
    gaps = stacked_gaps(flow, bridge, Triplets(x_s, s, r, t, u), Pairs(x_s, x_t, s, t, u), key=key)
    assert (gaps.one_to_two.shape, gaps.two_to_one.shape) == ((half,), (batch - half,))

    table = jr.normal(key, (2, batch, 2), jnp.float64)
    noise = iter(())
    monkeypatch.setattr(jr, "normal", lambda *args: next(noise))  # the same noise, in the order of the calls
    for i in range(batch):
        u_i = None if u is None else u[i]
        noise = iter([table[0, i], table[1, i]])
        gap = one_to_two_gap if i < half else two_to_one_gap
        expected = gap(flow, bridge, x_s[i], s[i], r[i], t[i], u_i, key=key)
        found = gaps.one_to_two[i] if i < half else gaps.two_to_one[i - half]
        nll = negative_log_likelihood(flow, x_s[i], x_t[i], s[i], t[i], u_i)
        assert jnp.allclose(found, expected, atol=1e-8)
        assert jnp.allclose(gaps.log_prob[i], -nll, atol=1e-8)


def test_a_single_triplet_goes_both_ways(getkey):
    bridge, x, key = OrnsteinUhlenbeckBridge(OU), jnp.ones((1, 3)), getkey()
    s, r, t = (jnp.full(1, time) for time in (S, R, T))
    gaps = stacked_gaps(OU, bridge, Triplets(x, s, r, t, None), Pairs(x, x, s, t, None), key=key)
    assert gaps.one_to_two.shape == gaps.two_to_one.shape == (1,)


def test_the_brownian_pair_is_consistent_too(getkey):
    law = BrownianMotion(jnp.array([0.2, -0.1]), jnp.array([1.0, 0.5]))
    value = one_to_two_gap(law, BrownianBridge(law), jnp.zeros(2), S, R, T, key=getkey())
    assert jnp.abs(value) < 1e-10


def _triplets(batch):
    return Triplets(jnp.ones((batch, 3)), *(jnp.full(batch, time) for time in (S, R, T)), None)


def test_one_way_an_exact_law_pays_its_own_entropy(getkey):
    """Two steps of an exact law are one step: its likelihood there is that at its own one-step samples."""
    batch = 20_000
    entropy = 0.5 * jnp.log(
        2 * jnp.pi * jnp.e * OU.std**2 * -jnp.expm1(-2 * OU.rate * (T - S)) / (2 * OU.rate)
    )
    loss = jax.jit(one_way_loss, static_argnames="steps")(OU, _triplets(batch), steps=3, key=getkey())
    # The log-density of a normal law in three dimensions has variance 3/2.
    assert jnp.abs(loss - entropy.sum()) < 4 * jnp.sqrt(1.5 / batch)


def test_one_way_the_short_steps_learn_nothing(getkey):
    short, long = (OrnsteinUhlenbeck(jnp.ones(3), jnp.zeros(3), jnp.full(3, std)) for std in (1.0, 2.0))
    grads = jax.grad(lambda law: one_way_loss(law, _triplets(8), steps=3, key=jr.key(0)))(Switch(short, long))
    assert all((leaf == 0).all() for leaf in jax.tree.leaves(grads.short))
    assert all((leaf != 0).any() for leaf in jax.tree.leaves(grads.long))


def test_a_direction_that_is_not_asked_for_cannot_spoil_the_gradient(getkey):
    flow, wild = StochasticFlow(1, key=getkey()), WildBridge(BrownianMotion(jnp.zeros(1), jnp.ones(1)))
    x, key = jnp.zeros((4, 1)), getkey()
    s, r, t = jnp.zeros(4), jnp.full(4, 0.5), jnp.ones(4)

    def loss(x, **wanted):
        gaps = stacked_gaps(
            flow, wild, Triplets(x, s, r, t, None), Pairs(x, x, s, t, None), **wanted, key=key
        )
        return sum(gaps.means().values()) - gaps.log_prob.mean()

    assert jnp.isnan(jax.grad(loss)(x)).any()  # of the rows that went through it
    assert jnp.isfinite(jax.grad(lambda x: loss(x, directions=("two_to_one",)))(x)).all()


class WildBridge(BrownianBridge):
    """Its samples are nowhere; its densities are right."""

    def transform_and_log_prob(self, noise, x_s, x_t, s, r, t, u=None):
        x, log_prob = super().transform_and_log_prob(noise, x_s, x_t, s, r, t, u)
        return x / 0.0, log_prob


def test_a_chain_that_has_left_all_bounds_teaches_nothing(getkey):
    """Starts beyond 1 run away; what is learnt is what the others teach."""

    class Runaway(BrownianMotion):
        def transform_and_log_prob(self, noise, x_s, s, t, u=None):
            x, log_prob = super().transform_and_log_prob(noise, x_s, s, t, u)
            return jnp.where(x_s > 1, x * 1e30, x), log_prob

    law, wild, key = BrownianMotion([0.0], [0.1]), Runaway([0.0], [0.1]), getkey()
    x_s = jnp.array([[0.0], [0.5], [2.0]])
    times = jnp.zeros(3), jnp.full(3, 0.5), jnp.ones(3)
    within = jnp.array([-5.0]), jnp.array([5.0])
    loss = lambda law, x_s, **more: one_way_loss(law, Triplets(x_s, *times, None), steps=4, key=key, **more)
    found = loss(wild, x_s, within=within)
    assert jnp.isclose(found, loss(law, x_s, within=(jnp.array([-5.0]), jnp.array([1.5]))))
    gradient = jax.grad(lambda x: loss(wild, x, within=within))(x_s)
    assert jnp.isfinite(gradient).all()
    assert gradient[2] == 0
