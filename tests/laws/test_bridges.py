"""What is true of every bridge."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import pytest

from stochflow.laws import (
    BrownianBridge,
    BrownianMotion,
    LinearBridge,
    OrnsteinUhlenbeck,
    OrnsteinUhlenbeckBridge,
)

from .law_catalogue import BRIDGES, OU, X_S, U

S, R, T = 0.4, 0.7, 1.3

over_bridges = pytest.mark.parametrize(("law", "bridge"), BRIDGES.values(), ids=BRIDGES.keys())


@over_bridges
def test_chapman_kolmogorov_holds_at_every_sample(law, bridge, getkey):
    def gap(key):
        end_key, middle_key = jr.split(key)
        x_t = law.sample(X_S, S, T, U, key=end_key)
        x_r, log_bridge = bridge.sample_and_log_prob(X_S, x_t, S, R, T, U, key=middle_key)
        one_step = law.log_prob(x_t, X_S, S, T, U) + log_bridge
        return one_step - law.log_prob(x_r, X_S, S, R, U) - law.log_prob(x_t, x_r, R, T, U)

    assert jnp.all(jnp.abs(jax.jit(jax.vmap(gap))(jr.split(getkey(), 50))) < 1e-10)


@over_bridges
def test_ends_are_exact(law, bridge, getkey):
    x_t = law.sample(X_S, S, T, U, key=getkey())
    for r, end in ((S, X_S), (T, x_t)):
        x_r, log_prob = bridge.sample_and_log_prob(X_S, x_t, S, r, T, U, key=getkey())
        assert jnp.all(x_r == end)
        assert log_prob == jnp.inf
        assert bridge.log_prob(end, X_S, x_t, S, r, T, U) == jnp.inf
        assert bridge.log_prob(end + 1e-9, X_S, x_t, S, r, T, U) == -jnp.inf


@over_bridges
def test_transform_gives_the_log_prob_of_its_output(law, bridge, getkey):
    x_r, log_prob = bridge.sample_and_log_prob(X_S, X_S + 0.2, S, R, T, U, key=getkey())
    assert jnp.allclose(log_prob, bridge.log_prob(x_r, X_S, X_S + 0.2, S, R, T, U), rtol=0, atol=1e-10)


@over_bridges
def test_gradients_are_finite(law, bridge, getkey):
    noise = jr.normal(getkey(), (2,))

    @eqx.filter_jit
    @jax.grad
    def grads(inputs):
        noise, *ends_and_times = inputs
        x_r = bridge.transform(noise, *ends_and_times, U)
        return x_r.sum() + bridge.log_prob(jax.lax.stop_gradient(x_r), *ends_and_times, U)

    for r in (S, R, T):
        inputs = [noise, X_S, X_S + 0.2, jnp.array(S), jnp.array(r), jnp.array(T)]
        assert all(jnp.all(jnp.isfinite(g)) for g in grads(inputs))


@over_bridges
@pytest.mark.parametrize("r", [0.3, 1.4])
def test_middle_outside_the_ends_is_an_error(law, bridge, r, getkey):
    with pytest.raises((ValueError, eqx.EquinoxRuntimeError), match=r"between|earlier"):
        bridge.log_prob(X_S, X_S, X_S, S, r, T, U)
    with pytest.raises((ValueError, eqx.EquinoxRuntimeError), match=r"between|earlier"):
        eqx.filter_jit(bridge.sample)(X_S, X_S, S, jnp.array(r), T, U, key=getkey())


@over_bridges
def test_states_of_another_size_are_refused_in_our_words(law, bridge, getkey, as_users_have_it):
    with pytest.raises(ValueError, match=r"`x_s` must have shape \(2,\); got \(3,\).*`jax.vmap` for a batch"):
        bridge.sample(jnp.ones(3), X_S, S, R, T, U, key=getkey())
    for name, states in {"x_r": (1, 0, 0), "x_s": (0, 1, 0), "x_t": (0, 0, 1)}.items():
        with pytest.raises(ValueError, match=rf"`{name}` must have shape \(2,\); got \(3,\)"):
            bridge.log_prob(*[jnp.ones(3) if wrong else X_S for wrong in states], S, R, T, U)


def test_closed_forms_agree_with_conditioning(getkey):
    for law, closed in (
        (OU, OrnsteinUhlenbeckBridge(OU)),
        (motion := BrownianMotion([0.3, 1.0], [0.5, 2.0]), BrownianBridge(motion)),
    ):
        noise = jr.normal(getkey(), (2,))
        args = noise, X_S, X_S - 1.0, S, R, T
        assert jnp.allclose(closed.transform(*args), LinearBridge(law).transform(*args), rtol=1e-12)


def test_slow_ornstein_uhlenbeck_bridge_is_brownian_in_float32():
    f32 = lambda x: jnp.asarray(x, jnp.float32)
    slow = OrnsteinUhlenbeck(f32([1e-7, 0.0]), f32([0.0, 0.0]), f32([0.5, 2.0]))
    motion = BrownianMotion(f32([0.0, 0.0]), f32([0.5, 2.0]))
    args = f32([0.3, -1.2]), f32([1.0, 2.0]), f32([1.5, 0.0]), f32(S), f32(R), f32(T)
    bridges = OrnsteinUhlenbeckBridge(slow), BrownianBridge(motion)
    assert jnp.allclose(bridges[0].transform(*args), bridges[1].transform(*args), rtol=1e-5)
