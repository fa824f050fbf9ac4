"""`fit` on laws that are known: quickly here, to the bound in the slow tests."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

import stochflow
from stochflow import BridgeFlow, FitConfig, StochasticFlow, Trajectories, fit
from stochflow.data import PairSampler
from stochflow.laws import Standardised
from stochflow.training.fit import _Objective, _Source

QUICK = {"steps": 300, "log_every": 100, "batch_size": 64}


def _walk(series=16, rows=12, dim=2, seed=0):
    rng = np.random.default_rng(seed)
    times = np.cumsum(rng.uniform(0.5, 1.5, (series, rows)), axis=1)
    values = 100 + 5 * np.cumsum(rng.normal(size=(series, rows, dim)), axis=1)
    return Trajectories.from_arrays(times, values)


def test_fit_returns_a_law_in_the_users_units(getkey):
    data = _walk()
    result = fit(
        StochasticFlow(2, width=8, layers=1, key=getkey()), data, config=FitConfig(**QUICK), key=getkey()
    )
    draws = jax.vmap(lambda k: result.flow.sample(jnp.array([100.0, 100.0]), 0.0, 4.0, key=k))(
        jr.split(getkey(), 500)
    )
    assert 7 < draws.std() < 14  # 5 √4 = 10, roughly, after so little training; 4 before it
    assert abs(draws.mean() - 100) < 10
    assert result.flow.horizon == pytest.approx(data.longest_gap)
    x = jnp.array([103.0, 99.0])
    assert (result.flow.sample(x, 7.0, 7.0, key=getkey()) == x).all()
    assert result.history[-1]["nll"] < result.history[0]["nll"]


@pytest.mark.parametrize(
    "settings",
    [
        {"bridge_steps": 1, "consistency_start": 50},
        pytest.param({"consistency_jitter": 0.1}, marks=pytest.mark.slow),
        pytest.param({"one_to_two": 0.0}, marks=pytest.mark.slow),
        pytest.param({"triplets": "paper"}, marks=pytest.mark.slow),
    ],
    ids=str,
)
def test_consistency_trains_flow_and_bridge(settings, getkey):
    bridge = BridgeFlow(2, width=8, layers=1, key=getkey())
    config = FitConfig(**QUICK, consistency=0.4, consistency_warmup=50, **settings)
    result = fit(
        StochasticFlow(2, width=8, layers=1, key=getkey()),
        _walk(),
        bridge=bridge,
        config=config,
        key=getkey(),
    )
    last = result.history[-1]
    assert [name for name in ("one_to_two", "two_to_one") if name in last] == list(config.directions)
    assert np.isfinite([last[name] for name in config.directions]).all()
    assert last["two_to_one"] < 1.0
    assert result.bridge.horizon == result.flow.horizon
    trained = jax.tree.leaves(result.bridge.bridge)
    assert any(not jnp.array_equal(a, b) for a, b in zip(trained, jax.tree.leaves(bridge), strict=True))


def test_the_gaps_of_triplets_grow_from_those_of_the_data_to_the_horizon(getkey):
    sampler = PairSampler(_walk(), horizon=2.0)
    config = FitConfig(consistency=1.0, consistency_batch=512, consistency_start=100, consistency_growth=50)
    objective = _Objective(config, horizon=4.0, known=2.0)
    for step, longest in [(0, 2.0), (100, 2.0), (125, 3.0), (150, 4.0), (500, 4.0)]:
        _, triplets = objective._draw(_Source(sampler), 0, jnp.array(step), getkey())
        gaps = triplets.t - triplets.s
        assert 0.95 * longest < gaps.max() <= longest * (1 + 1e-6)
        assert ((triplets.s < triplets.r) & (triplets.r < triplets.t)).all()


def test_one_way_long_gaps_are_taught_by_short_ones(getkey):
    """Mean reversion over four times the longest gap of the data, from starts that the data has none of."""
    rng, rows = np.random.default_rng(0), 6
    values = np.empty((400, rows, 1))
    values[:, 0] = rng.normal(size=(400, 1))
    for i in range(1, rows):
        values[:, i] = np.exp(-0.1) * values[:, i - 1] + np.sqrt(-np.expm1(-0.2)) * rng.normal(size=(400, 1))
    data = Trajectories.from_arrays(0.1 * np.arange(rows), values)
    config = FitConfig(
        **(QUICK | {"steps": 1000, "log_every": 500, "ema": 0.98}),
        consistency=1.0,
        consistency_horizon=2.0,
        one_way=8,
    )
    starts = rng.uniform(-3, 3, (1000, 1))
    result = fit(
        StochasticFlow(1, width=16, layers=2, key=getkey()), data, config=config, starts=starts, key=getkey()
    )
    assert np.isfinite(result.history[-1]["taught_nll"])
    assert result.flow.horizon == 2.0
    draw = jax.jit(jax.vmap(lambda key: result.flow.sample(jnp.array([2.0]), 0.0, 2.0, key=key)))
    draws = draw(jr.split(getkey(), 2000))
    assert abs(draws.mean() - 2 * np.exp(-2)) < 0.2
    assert abs(draws.std() - np.sqrt(-np.expm1(-4))) < 0.15


def test_validation_reports_by_gap_and_keeps_the_best(getkey):
    train, held_out = _walk().split(0.75, 0.25, seed=0)
    config = FitConfig(**QUICK, patience=50)
    result = fit(
        StochasticFlow(2, width=8, layers=1, key=getkey()),
        train,
        config=config,
        validation=held_out,
        key=getkey(),
    )
    assert {"validation_loss", "validation_gap_1_of_4", "validation_gap_4_of_4"} <= result.history[-1].keys()


def test_the_weights_of_the_best_validation_are_returned(getkey):
    """Four series are soon learnt by heart; what is returned is what a run that ended at the best report returns."""
    train, held_out = _walk(series=8).split(0.5, 0.5, seed=0)
    settings = {"log_every": 50, "warmup_steps": 0, "decay": "constant", "learning_rate": 0.05, "ema": 0.0}
    flow, key = StochasticFlow(2, width=16, layers=2, key=getkey()), getkey()
    run = lambda steps, **more: fit(flow, train, config=FitConfig(steps=steps, **settings), key=key, **more)
    result = run(600, validation=held_out)
    best = min(result.history, key=lambda row: row["validation_loss"])["step"]
    assert best < 600
    weights = lambda found: jax.tree.leaves(eqx.filter(found.flow, eqx.is_array))
    assert all((a == b).all() for a, b in zip(weights(result), weights(run(best)), strict=True))


def test_float64_and_integer_input_are_taken(getkey):
    data = Trajectories.from_arrays(np.arange(6), np.arange(12).reshape(1, 6, 2) ** 2 % 7)
    config = FitConfig(**(QUICK | {"steps": 100}))
    result = fit(StochasticFlow(2, width=8, layers=1, key=getkey()), data, config=config, key=getkey())
    assert np.isfinite(result.flow.log_prob(jnp.array([1.0, 2.0]), jnp.array([0.0, 1.0]), 0.0, 1.0))


def test_one_pair_is_enough_to_run(getkey):
    data = Trajectories.from_arrays(np.array([0.0, 1.0]), np.array([[[0.0], [1.0]]]))
    config = FitConfig(**(QUICK | {"steps": 100}), learning_rate=1e-3)
    flow = StochasticFlow(1, width=8, layers=1, key=getkey())
    law = fit(flow, data, config=config, key=getkey()).flow
    before = Standardised(flow, law.loc, law.scale, law.time_scale)
    pair = jnp.array([1.0]), jnp.array([0.0]), 0.0, 1.0
    assert law.log_prob(*pair) > before.log_prob(*pair)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: dict(trajectories=_walk(dim=3)), "`flow` has dim 2 but the trajectories have 3 channels"),
        (lambda: dict(config=FitConfig(consistency=0.4)), "`bridge` must be given"),
        (
            lambda: dict(bridge=BridgeFlow(3, key=jr.key(0)), config=FitConfig(consistency=0.4)),
            "`bridge` has dim 3 but `flow` has 2",
        ),
        (lambda: dict(bridge=BridgeFlow(2, key=jr.key(0))), "`bridge` would not be trained"),
        (
            lambda: dict(bridge=BridgeFlow(2, key=jr.key(0)), config=FitConfig(consistency=0.4, one_way=8)),
            "`bridge` would not be trained with `config.one_way`",
        ),
        (lambda: dict(starts=np.zeros((4, 2))), "`starts` would not be used"),
        (
            lambda: dict(starts=np.zeros((4, 3)), config=FitConfig(consistency=0.4, one_way=8)),
            r"`starts` must be an array of states, \(number, 2\); got shape \(4, 3\)",
        ),
        (lambda: dict(validation=_walk(dim=1)), "`validation` has 1 channels"),
        (lambda: dict(config=FitConfig(patience=3)), "`validation` must be given"),
        (lambda: dict(trajectories=_walk(rows=1)), "no series has two complete rows"),
        (
            lambda: dict(trajectories=Trajectories.from_arrays(np.arange(3.0), np.ones((1, 3, 2)))),
            "channel 0 is constant",
        ),
    ],
)
def test_what_does_not_fit_together_is_refused(make, message, getkey):
    arguments = {"trajectories": _walk(), "config": FitConfig(**QUICK)} | make()
    with pytest.raises(ValueError, match=message):
        fit(StochasticFlow(2, width=8, layers=1, key=getkey()), key=getkey(), **arguments)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: dict(trajectories=np.zeros((3, 4, 2))),
            r"`Trajectories.from_arrays\(times, values\)`.*ndarray",
        ),
        (lambda: dict(validation=np.zeros((3, 4, 2))), "`validation` must be `Trajectories`"),
        (lambda: dict(config=None), "`config` must be a `FitConfig`.*got NoneType"),
        (lambda: dict(flow="flow"), "`flow` must be a transition law, such as .*; got str"),
        (lambda: dict(bridge="bridge"), "`bridge` must be a bridge, such as .*; got str"),
        (
            lambda: dict(config=FitConfig(horizon=0.01)),
            r"within the horizon of 0.01: the shortest gap is 0\.5",
        ),
        (
            lambda: dict(validation=Trajectories.from_arrays([0.0, 99.0], np.ones((1, 2, 2)))),
            "of `validation` lie within the horizon of .*: the shortest gap is 99",
        ),
    ],
)
def test_what_is_expected_is_said_in_the_users_words(make, message, getkey, as_users_have_it):
    flow = StochasticFlow(2, width=8, layers=1, key=getkey())
    arguments = {"flow": flow, "trajectories": _walk(), "config": FitConfig(**QUICK)} | make()
    with pytest.raises(ValueError, match=message):
        fit(key=getkey(), **arguments)


def test_a_horizon_beyond_the_data_is_cut_with_a_warning(getkey):
    config = FitConfig(steps=2, log_every=1, batch_size=4, horizon=50.0)
    data = Trajectories.from_arrays(np.array([0.0, 1.0]), np.array([[[0.0], [1.0]]]))
    with pytest.warns(
        UserWarning, match="`config.horizon` is 50, but the longest gap of the trajectories is 1,"
    ):
        result = fit(StochasticFlow(1, width=4, layers=1, key=getkey()), data, config=config, key=getkey())
    assert result.flow.horizon == 1.0


def test_covariates_reach_the_law(getkey):
    data = _walk()
    rows = data.times.shape
    data = Trajectories.from_arrays(data.times, data.values, u=np.ones((*rows, 1)))
    config = FitConfig(**(QUICK | {"steps": 100}), consistency=0.1)
    flow, bridge = (
        StochasticFlow(2, cond_dim=1, width=8, layers=1, key=getkey()),
        BridgeFlow(2, cond_dim=1, width=8, layers=1, key=getkey()),
    )
    result = fit(flow, data, bridge=bridge, config=config, key=getkey())
    x = jnp.array([100.0, 100.0])
    assert np.isfinite(result.flow.log_prob(x, x, 0.0, 1.0, jnp.ones(1)))
    with pytest.raises(ValueError, match="`u` must have shape"):
        result.flow.log_prob(x, x, 0.0, 1.0)


def test_the_progress_bar_shows_when_asked_and_is_silent_when_piped(capfd, getkey):
    config = FitConfig(**(QUICK | {"steps": 100}))
    fit(StochasticFlow(2, width=4, layers=1, key=jr.key(0)), _walk(), config=config, key=jr.key(1))
    assert capfd.readouterr() == ("", "")
    fit(
        StochasticFlow(2, width=4, layers=1, key=jr.key(0)),
        _walk(),
        config=config,
        progress=True,
        key=jr.key(1),
    )
    assert "steps/s" in capfd.readouterr().err


def test_public_names_are_all_there():
    for name in stochflow.__all__:
        assert hasattr(stochflow, name)


def test_a_fitted_law_goes_on_in_its_own_units(getkey):
    data = _walk(dim=1)
    first = fit(
        StochasticFlow(1, width=8, layers=1, key=getkey()), data, config=FitConfig(**QUICK), key=getkey()
    )
    wider = _walk(series=8, dim=1, seed=1)
    second = fit(first.flow, wider, config=FitConfig(**QUICK, learning_rate=1e-9), key=getkey())
    assert (second.flow.loc == first.flow.loc).all()
    assert (second.flow.scale == first.flow.scale).all()
    assert second.flow.time_scale == first.flow.time_scale
    x, y = jnp.array([103.0]), jnp.array([105.0])
    assert jnp.allclose(second.flow.log_prob(y, x, 0.0, 2.0), first.flow.log_prob(y, x, 0.0, 2.0), atol=1e-3)


def test_a_fitted_bridge_goes_on_beside_its_law_and_not_without_it(getkey):
    data, config = _walk(), FitConfig(**QUICK, consistency=0.4, consistency_batch=8)
    flow, bridge = (
        StochasticFlow(2, width=4, layers=1, key=getkey()),
        BridgeFlow(2, width=4, layers=1, key=getkey()),
    )
    first = fit(flow, data, bridge=bridge, config=config, key=getkey())
    second = fit(first.flow, data, bridge=first.bridge, config=config, key=getkey())
    assert type(second.bridge.bridge) is BridgeFlow
    assert jax.tree.structure(second.bridge) == jax.tree.structure(first.bridge)
    other = _walk(seed=1)
    with pytest.raises(
        ValueError, match="`bridge` is in the units of an earlier fit: give the `flow` of the same"
    ):
        fit(flow, other, bridge=first.bridge, config=config, key=getkey())


def test_a_horizon_that_nothing_was_trained_for_is_not_claimed(getkey):
    """`consistency_horizon` sets the unit of time; without the loss it teaches nothing."""
    data = Trajectories.from_arrays(np.arange(5.0), np.random.default_rng(0).normal(size=(8, 5, 1)))
    config = FitConfig(steps=2, log_every=1, horizon=2.0, consistency_horizon=8.0)
    result = fit(StochasticFlow(1, width=4, layers=1, key=getkey()), data, config=config, key=getkey())
    assert result.flow.horizon == 2.0
    assert result.flow.time_scale == 8.0
