"""Roll-outs, forecasts and interpolation, on laws whose answer is known."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from stochflow import BridgeFlow, StochasticFlow, forecast, interpolate, rollout
from stochflow.laws import (
    BrownianBridge,
    BrownianMotion,
    HorizonWarning,
    OrnsteinUhlenbeck,
    Standardised,
    StandardisedBridge,
)

OU = OrnsteinUhlenbeck(jnp.array([1.0]), jnp.array([0.5]), jnp.array([0.8]))
TIMES = np.array([0.0, 0.4, 1.0, 2.5])
DRAWS = 20_000


def _moments_agree(draws, x0, times):
    """Means and variances of the exact law, within four standard errors."""
    mean = 0.5 + (x0 - 0.5) * np.exp(-times)
    variance = 0.8**2 * (1 - np.exp(-2 * times)) / 2
    assert (np.abs(draws.mean(0) - mean) <= 4 * np.sqrt(variance / DRAWS)).all()
    assert (np.abs(draws.var(0) - variance) <= 4 * variance * np.sqrt(2 / DRAWS)).all()


@pytest.mark.parametrize("max_gap", [None, 0.3, 10.0])
def test_rollout_and_forecast_have_the_exact_moments(max_gap, getkey):
    x0, keys = jnp.array([2.0]), jr.split(getkey(), DRAWS)
    paths = jax.jit(jax.vmap(lambda k: rollout(OU, x0, TIMES, max_gap=max_gap, key=k)))(keys)
    _moments_agree(np.asarray(paths)[:, 1:, 0], 2.0, TIMES[1:])
    assert (paths[:, 0] == 2.0).all()
    ahead = jax.jit(jax.vmap(lambda k: forecast(OU, x0, 0.0, TIMES[1:], max_gap=max_gap, key=k)))(keys)
    _moments_agree(np.asarray(ahead)[..., 0], 2.0, TIMES[1:])


def test_rollout_is_joint_and_forecast_is_not(getkey):
    """Neighbouring times of one path are correlated by e^{-Δt} times the ratio of stds; of forecasts, not."""
    times, keys = np.array([0.0, 3.0, 3.2]), jr.split(getkey(), DRAWS)
    path = jax.jit(jax.vmap(lambda k: rollout(OU, jnp.zeros(1), times, key=k)))(keys)[..., 0]
    ahead = jax.jit(jax.vmap(lambda k: forecast(OU, jnp.zeros(1), 0.0, times[1:], key=k)))(keys)[..., 0]
    assert abs(np.corrcoef(path[:, 1], path[:, 2])[0, 1] - np.exp(-0.2)) < 0.01
    assert abs(np.corrcoef(ahead[:, 0], ahead[:, 1])[0, 1]) < 0.03


def test_a_forecast_does_not_depend_on_the_times_that_follow(getkey):
    key = getkey()
    few, many = (forecast(OU, jnp.zeros(1), 0.0, TIMES[1:n], key=key) for n in (3, None))
    assert (many[:2] == few).all()
    assert forecast(OU, jnp.zeros(1), 0.0, [], key=key).shape == (0, 1)


def test_no_gap_is_no_change(getkey):
    path = rollout(OU, jnp.array([2.0]), np.array([1.0, 1.0, 1.0]), key=getkey())
    assert (path == 2.0).all()


def test_a_step_beyond_the_horizon_warns_and_chaining_does_not(getkey):
    law = Standardised(OU, jnp.zeros(1), jnp.ones(1), 1.0, horizon=0.5)
    with pytest.warns(HorizonWarning, match=r"a step of 1.5 is beyond the horizon of 0.5 .*max_gap=0.5"):
        rollout(law, jnp.zeros(1), TIMES, key=getkey())
    with pytest.warns(HorizonWarning, match="beyond the horizon of 0.5"):
        forecast(law, jnp.zeros(1), 0.0, TIMES[1:], key=getkey())
    with pytest.warns(HorizonWarning, match="beyond the horizon of 0.5"):
        law.sample(jnp.zeros(1), 0.0, 2.0, key=getkey())
    with pytest.warns(HorizonWarning, match="beyond the horizon of 0.5"):
        law.log_prob(jnp.zeros(1), jnp.zeros(1), 0.0, 2.0)
    rollout(law, jnp.zeros(1), TIMES, max_gap=0.5, key=getkey())
    forecast(law, jnp.zeros(1), 0.0, TIMES[1:], max_gap=0.5, key=getkey())


def test_ends_further_apart_than_the_horizon_of_the_bridge_draw_a_warning(getkey):
    exact = BrownianBridge(BrownianMotion([0.0], [1.0]))
    bridge, x = StandardisedBridge(exact, [0.0], [1.0], 1.0, horizon=0.5), jnp.zeros(1)
    with pytest.warns(HorizonWarning, match=r"a step of 2 is beyond the horizon of 0.5 .*closer together"):
        interpolate(bridge, x, x, 0.0, 2.0, [1.0], key=getkey())
    with pytest.warns(HorizonWarning, match="closer together"):
        bridge.sample(x, x, 0.0, 1.0, 2.0, key=getkey())
    interpolate(bridge, x, x, 0.0, 0.5, [0.2], key=getkey())


def test_the_warning_points_at_the_users_line(getkey):
    law, x, key = Standardised(OU, [0.0], [1.0], 1.0, horizon=0.5), jnp.zeros(1), getkey()
    for act in (
        lambda: rollout(law, x, TIMES, key=key),
        lambda: law.sample(x, 0.0, 2.0, key=key),
        lambda: law.log_prob(x, x, 0.0, 2.0),
        lambda: jax.vmap(lambda x: law.sample(x, 0.0, 2.0, key=key))(x[None]),
    ):
        with pytest.warns(HorizonWarning) as caught:
            act()
        assert {warning.filename for warning in caught} == {__file__}


def test_interpolation_has_the_moments_of_the_brownian_bridge(getkey):
    law = BrownianMotion(jnp.zeros(1), jnp.ones(1))
    times, keys = np.array([0.25, 0.5, 0.9]), jr.split(getkey(), DRAWS)
    one = lambda k: interpolate(BrownianBridge(law), jnp.zeros(1), jnp.ones(1), 0.0, 1.0, times, key=k)
    paths = np.asarray(jax.jit(jax.vmap(one))(keys))[..., 0]
    variance = times * (1 - times)
    assert (np.abs(paths.mean(0) - times) < 4 * np.sqrt(variance / DRAWS)).all()
    assert (np.abs(paths.var(0) - variance) < 4 * variance * np.sqrt(2 / DRAWS)).all()
    assert abs(np.cov(paths[:, 0], paths[:, 1])[0, 1] - 0.25 * 0.5) < 0.01


@pytest.mark.parametrize(
    ("times", "message"),
    [
        (np.array([0.0, 2.0, 1.0]), "must not decrease; got 2 before 1"),
        (np.array([0.0, np.nan]), "must be finite"),
        (np.zeros(0), r"must have shape \(n,\)"),
    ],
)
def test_bad_times_are_refused(times, message, getkey):
    with pytest.raises(ValueError, match=message):
        rollout(OU, jnp.zeros(1), times, key=getkey())


def test_a_bad_max_gap_is_refused(getkey):
    with pytest.raises(ValueError, match="`max_gap` must be positive; got -1"):
        rollout(OU, jnp.zeros(1), TIMES, max_gap=-1.0, key=getkey())
    for go, *when in [(rollout, TIMES), (forecast, 0.0, TIMES)]:
        with pytest.raises(
            ValueError, match=r"`max_gap` of 1e-09 would take .* steps, .*; choose a longer one"
        ):
            go(OU, jnp.zeros(1), *when, max_gap=1e-9, key=getkey())


def test_traced_times_are_refused_with_the_way_out(getkey):
    key = getkey()
    with pytest.raises(ValueError, match="close over it"):
        jax.jit(lambda times: rollout(OU, jnp.zeros(1), times, key=key))(jnp.asarray(TIMES))


def test_integer_states_and_lists_are_states_too(getkey):
    key, floats = getkey(), jnp.array([2.0])
    bridge = BrownianBridge(BrownianMotion([0.0], [1.0]))
    for whole in (np.array([2]), jnp.array([2]), [2]):
        assert (rollout(OU, whole, TIMES, key=key) == rollout(OU, floats, TIMES, key=key)).all()
        ahead = forecast(OU, whole, 0.0, [0.3, 0.6], key=key)
        assert (ahead == forecast(OU, floats, 0.0, [0.3, 0.6], key=key)).all()
        assert (ahead != 2).all()
        between = interpolate(bridge, whole, whole, 0.0, 1.0, [0.5], key=key)
        assert (between == interpolate(bridge, floats, floats, 0.0, 1.0, [0.5], key=key)).all()


SINCE = 60.0 * np.arange(5)
UNIX = 1.7e9 + SINCE


def _single(model):
    """As a user has it: states and weights of float32."""
    return jax.tree.map(lambda x: x.astype(jnp.float32) if jnp.issubdtype(x.dtype, jnp.inexact) else x, model)


def test_unix_times_are_as_good_as_times_from_the_origin(getkey):
    law = _single(Standardised(StochasticFlow(1, width=4, layers=1, key=getkey()), [0.0], [1.0], 60.0))
    bridge = _single(StandardisedBridge(BridgeFlow(1, width=4, layers=1, key=getkey()), [0.0], [1.0], 60.0))
    x, key = jnp.ones(1, jnp.float32), getkey()
    assert (rollout(law, x, UNIX, key=key) == rollout(law, x, SINCE, key=key)).all()
    for max_gap in (None, 25.0):
        both = [forecast(law, x, t[0], t[1:], max_gap=max_gap, key=key) for t in (UNIX, SINCE)]
        assert jnp.allclose(*both, rtol=1e-6)
    both = [interpolate(bridge, x, 2 * x, t[0], t[-1], t[1:-1], key=key) for t in (UNIX, SINCE)]
    assert (both[0] == both[1]).all()
    assert len(np.unique(both[0])) == len(SINCE) - 2


def test_a_law_of_the_time_itself_refuses_times_that_float32_merges(getkey):
    law = _single(StochasticFlow(1, autonomous=False, width=4, layers=1, key=getkey()))
    bridge = _single(BridgeFlow(1, autonomous=False, width=4, layers=1, key=getkey()))
    x, key = jnp.ones(1, jnp.float32), getkey()
    for draw in (
        lambda times: rollout(law, x, times, key=key),
        lambda times: forecast(law, x, times[0], times[1:], key=key),
        lambda times: interpolate(bridge, x, x, times[0], times[-1], times[1:-1], key=key),
    ):
        with pytest.raises(
            ValueError, match=r"too close .* for float32: .*count times from the series' origin"
        ):
            draw(UNIX)
        assert jnp.isfinite(draw(SINCE)).all()


def test_states_of_the_wrong_size_are_refused(getkey, as_users_have_it):
    two = BrownianMotion([0.0, 0.0], [1.0, 1.0])
    with pytest.raises(ValueError, match=r"`x0` must have shape \(2,\); got \(3,\).*`jax.vmap`"):
        rollout(two, jnp.ones(3), TIMES, key=getkey())
    with pytest.raises(ValueError, match=r"`x0` must have shape \(2,\); got \(5, 2\)"):
        forecast(two, jnp.ones((5, 2)), 0.0, TIMES, key=getkey())
