"""The learnt transition law is a law: identity at no gap, exact density, clear errors."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from stochflow.flows import BridgeFlow, LinearClock, SaturatingClock, StochasticFlow
from stochflow.flows.stack import make_condition

from .catalogue import FLOWS, call, covariates

flows = pytest.mark.parametrize("make", FLOWS.values(), ids=FLOWS.keys())
S, T = jnp.array(0.3), jnp.array(1.1)


def number_of_parameters(model):
    return sum(leaf.size for leaf in jax.tree.leaves(eqx.filter(model, eqx.is_inexact_array)))


@pytest.mark.parametrize(
    ("dim", "width", "paper"), [(3, 64, 25_130), (6, 30, 8_454), (6, 64, 28_820), (10, 64, 33_740)]
)
def test_parameter_counts_are_the_papers(dim, width, paper, getkey):
    flow = StochasticFlow(dim, width=width, clock="linear", key=getkey())
    assert number_of_parameters(flow) == paper
    settled = StochasticFlow(dim, width=width, clock="saturating", key=getkey())
    assert number_of_parameters(settled) == paper + dim  # one rate a dimension


@flows
def test_no_gap_is_the_identity_bit_for_bit(make, getkey):
    flow = make(getkey())
    x = jr.normal(getkey(), (flow.dim,))
    y, log_prob = call(flow, "sample_and_log_prob", x, T, T, covariates(flow), key=getkey())
    assert (y == x).all()
    assert log_prob == jnp.inf
    assert call(flow, "log_prob", x, x, T, T, covariates(flow)) == jnp.inf
    assert call(flow, "log_prob", x + 1, x, T, T, covariates(flow)) == -jnp.inf


@flows
def test_a_sample_has_the_log_density_that_came_with_it(make, getkey):
    flow, u = (flow := make(getkey())), covariates(flow)
    x = jr.normal(getkey(), (flow.dim,))
    noise = jr.normal(getkey(), (flow.dim,))
    y, log_prob = call(flow, "transform_and_log_prob", noise, x, S, T, u)
    back, again = call(flow, "noise_and_log_prob", y, x, S, T, u)
    assert jnp.allclose(log_prob, again, atol=1e-8)
    assert jnp.allclose(back, noise, atol=1e-8)
    assert jnp.allclose(call(flow, "log_prob", y, x, S, T, u), again)


@flows
def test_log_density_is_the_change_of_variables_by_autodiff(make, getkey):
    flow, u = (flow := make(getkey())), covariates(flow)
    x, noise = jr.normal(getkey(), (2, flow.dim))
    _, log_prob = call(flow, "transform_and_log_prob", noise, x, S, T, u)
    jacobian = jax.jit(jax.jacfwd(lambda noise: flow.transform(noise, x, S, T, u)))(noise)
    log_normal = jax.scipy.stats.norm.logpdf(noise).sum()
    assert jnp.allclose(log_prob, log_normal - np.linalg.slogdet(jacobian)[1], atol=1e-9)


@pytest.mark.parametrize("name", ["1 dim", "1 dim, spline"])
def test_density_integrates_to_one(name, getkey):
    flow = FLOWS[name](getkey())
    x = jnp.array([0.4])
    draws = jax.jit(jax.vmap(lambda k: flow.sample(x, S, T, key=k)))(jr.split(getkey(), 4000))
    centre, spread = draws.mean(), draws.std()
    grid = jnp.linspace(centre - 40 * spread, centre + 40 * spread, 80_001)
    density = jnp.exp(jax.jit(jax.vmap(lambda y: flow.log_prob(y[None], x, S, T)))(grid))
    assert jnp.abs(jnp.trapezoid(density, grid) - 1) < 1e-4


@flows
def test_vmap_changes_nothing(make, getkey):
    flow, u = (flow := make(getkey())), covariates(flow)
    xs, ys = jr.normal(getkey(), (2, 5, flow.dim))
    one_by_one = np.stack([call(flow, "log_prob", y, x, S, T, u) for x, y in zip(xs, ys, strict=True)])
    batched = eqx.filter_jit(lambda f: jax.vmap(lambda x, y: f.log_prob(y, x, S, T, u))(xs, ys))(flow)
    assert jnp.allclose(one_by_one, batched, rtol=1e-10)


def test_jit_changes_nothing(getkey):
    flow = FLOWS["1 dim"](getkey())
    x, y = jr.normal(getkey(), (2, 1))
    eager = flow.log_prob(y, x, S, T)
    assert jnp.allclose(eager, call(flow, "log_prob", y, x, S, T), rtol=1e-10)


@flows
def test_time_enters_only_through_the_gap_if_autonomous(make, getkey):
    flow, u = (flow := make(getkey())), covariates(flow)
    x, y = jr.normal(getkey(), (2, flow.dim))
    now, later = call(flow, "log_prob", y, x, S, T, u), call(flow, "log_prob", y, x, S + 5, T + 5, u)
    assert jnp.allclose(now, later) == flow.autonomous


def test_covariates_matter_and_are_required(getkey):
    flow = FLOWS["3 dims, covariates"](getkey())
    x, y = jr.normal(getkey(), (2, 3))
    assert call(flow, "log_prob", y, x, S, T, jnp.ones(2)) != call(flow, "log_prob", y, x, S, T, jnp.zeros(2))
    with pytest.raises(ValueError, match=r"`u` must have shape \(2,\)"):
        call(flow, "log_prob", y, x, S, T)
    with pytest.raises(ValueError, match=r"`u` must have shape \(0,\)"):
        FLOWS["1 dim"](getkey()).log_prob(x[:1], y[:1], S, T, jnp.ones(2))


@pytest.mark.parametrize("transform", [lambda f: f, jax.jit], ids=["eager", "jit"])
def test_going_back_in_time_is_an_error(transform, getkey):
    flow, key = FLOWS["1 dim"](getkey()), getkey()
    with pytest.raises(Exception, match="must not be earlier than"):
        jax.block_until_ready(transform(lambda t: flow.sample(jnp.zeros(1), S, t, key=key))(jnp.array(0.1)))
    with pytest.raises(Exception, match="must not be earlier than"):
        jax.block_until_ready(
            transform(lambda t: flow.log_prob(jnp.zeros(1), jnp.zeros(1), S, t))(jnp.array(0.1))
        )


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"dim": 0}, "`dim` must be an integer of at least 1; got 0"),
        ({"width": 0}, "`width` must be"),
        ({"cond_dim": -1}, "`cond_dim` must be"),
        ({"octaves": -1}, "`octaves` must be"),
        ({"lenses": -1}, "`lenses` must be an integer of at least 0; got -1"),
        ({"order": (0, 0)}, "`order` must hold each of 0 to"),
        ({"spline_layers": 0}, "`spline_layers` must be an integer of at least 1; got 0"),
        ({"periods": (1.0, 0.0)}, "`periods` must be positive"),
        ({"clock": "sundial"}, "`clock` must be one of saturating, linear; got 'sundial'"),
        ({"coupling": "cubic"}, "`coupling` must be one of affine, spline, triangular; got 'cubic'"),
    ],
)
def test_wrong_sizes_and_names_are_refused(wrong, message, getkey):
    with pytest.raises(ValueError, match=message):
        StochasticFlow(**({"dim": 2} | wrong), key=getkey())


def test_sizes_of_numpy_become_plain_ones(getkey, as_users_have_it):
    for make in (StochasticFlow, BridgeFlow):
        law = make(np.int64(3), width=np.int32(4), layers=np.int64(1), key=getkey())
        assert type(law.dim) is int
        with pytest.raises(ValueError, match="`dim` must be an integer of at least 1; got True"):
            make(True, key=getkey())


def test_states_of_another_size_are_refused_in_our_words(getkey, as_users_have_it):
    x, three = jnp.ones(2), jnp.ones(3)
    flow = StochasticFlow(2, width=4, layers=1, key=getkey())
    bridge = BridgeFlow(2, width=4, layers=1, key=getkey())
    for name, act in {
        "x_t": lambda: flow.log_prob(three, x, S, T),
        "x_s": lambda: flow.log_prob(x, three, S, T),
        "noise": lambda: flow.transform(three, x, S, T),
        "x_r": lambda: bridge.log_prob(three, x, x, S, S, T),
    }.items():
        with pytest.raises(ValueError, match=rf"`{name}` must have shape \(2,\); got \(3,\).*`jax.vmap`"):
            act()
    assert flow.sample([1.0, 1.0], S, T, key=jr.key(0)).shape == (2,)


def test_a_batch_without_vmap_is_refused_with_the_way_out():
    with pytest.raises(ValueError, match=r"`x_s` must have shape \(2,\).*jax.vmap"):
        make_condition({"x_s": jnp.zeros((5, 2))}, [], None, dim=2, cond_dim=0)


def test_clocks_start_at_nothing_and_meet_as_the_rate_goes_to_zero():
    slow, linear = SaturatingClock(2, rate=1e-6), LinearClock(2)
    for dt in map(jnp.array, (0.0, 0.5, 3.0)):
        assert jnp.allclose(slow.drift_gate(dt), linear.drift_gate(dt), rtol=1e-5)
        assert jnp.allclose(slow.noise_gate(dt), linear.noise_gate(dt), rtol=1e-5)
    fast = SaturatingClock(2, rate=2.0)
    assert jnp.allclose(fast.drift_gate(jnp.array(1e3)), 0.5)


def test_saturating_clock_contains_ornstein_uhlenbeck(getkey):
    """With a linear network the law is exact: mean x e^{-κΔt} and the stationary variance at long gaps."""
    kappa, dt = jnp.array(1.7), jnp.array(0.8)
    clock, x = SaturatingClock(1, rate=1.7), jnp.array([2.0])
    assert jnp.allclose(x - clock.drift_gate(dt) * kappa * x, x * jnp.exp(-kappa * dt))
    assert jnp.allclose(clock.noise_gate(dt) ** 2, (1 - jnp.exp(-2 * kappa * dt)) / (2 * kappa))


def test_float32_stays_float32(getkey):
    flow = jax.tree.map(
        lambda leaf: leaf.astype(jnp.float32) if eqx.is_inexact_array(leaf) else leaf,
        FLOWS["3 dims, linear clock"](getkey()),
    )
    x = jnp.zeros(3, jnp.float32)
    y, log_prob = call(flow, "sample_and_log_prob", x, jnp.float32(0), jnp.float32(1), key=getkey())
    assert y.dtype == log_prob.dtype == jnp.float32
