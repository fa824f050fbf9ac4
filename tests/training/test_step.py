"""The guard, the optimiser and the loop, on problems small enough to see through."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
import pytest

from stochflow.training import FitConfig, Problem, train
from stochflow.training.muon import muon, orthogonalise
from stochflow.training.step import GUARD_WARMUP, make_optimiser, make_schedule


class Point(eqx.Module):
    x: jax.Array


def _config(**kwargs):
    return FitConfig(**({"steps": 400, "log_every": 100, "learning_rate": 0.05, "warmup_steps": 10} | kwargs))


def _quadratic(spoil=lambda step: 1.0):
    """|x - 3|² times whatever `spoil` says at a step."""
    return Problem(
        loss=lambda model, data, step, key: (spoil(step) * ((model.x - data) ** 2).sum(), {}),
        data=jnp.array(3.0),
    )


def test_a_quadratic_is_minimised(getkey):
    trained = train(Point(jnp.zeros(2)), _quadratic(), _config(ema=0.0), key=getkey())
    assert jnp.allclose(trained.model.x, 3.0, atol=1e-2)
    assert [row["step"] for row in trained.history] == [100, 200, 300, 400]
    assert trained.history[-1]["loss"] < trained.history[0]["loss"]


@pytest.mark.parametrize(
    ("factor", "counter"), [(jnp.nan, "skipped"), (jnp.inf, "skipped"), (1e6, "outlying")], ids=str
)
def test_bad_updates_are_skipped_and_counted(factor, counter, getkey):
    bad = lambda step: jnp.where((step > GUARD_WARMUP) & (step % 50 == 7), factor, 1.0)
    trained = train(Point(jnp.zeros(2)), _quadratic(bad), _config(ema=0.0), key=getkey())
    assert jnp.allclose(trained.model.x, 3.0, atol=1e-2)
    assert trained.history[-1][counter] == 6  # steps 107, 157, …, 357


def test_long_gradients_are_clipped_not_skipped(getkey):
    """Just under the outlier limit a gradient still moves the weights, by no more than a usual step."""
    long = lambda step: jnp.where(step == 200, 20.0, 1.0)
    config = _config(ema=0.0, optimiser="adamw")
    trained = train(Point(jnp.zeros(2)), _quadratic(long), config, key=getkey())
    assert trained.history[-1]["outlying"] == trained.history[-1]["skipped"] == 0
    assert jnp.allclose(trained.model.x, 3.0, atol=0.05)


def test_a_run_that_only_diverges_says_so(getkey):
    with pytest.raises(FloatingPointError, match="400 of 400 updates were refused"):
        train(Point(jnp.zeros(2)), _quadratic(lambda step: jnp.nan), _config(), key=getkey())


def test_early_stop_returns_the_best(getkey):
    """Validation prefers x = 1; training goes on to 3."""
    problem = Problem(
        loss=lambda model, data, step, key: (((model.x - data) ** 2).sum(), {}),
        data=jnp.array(3.0),
        validate=lambda model: {"loss": float(((model.x - 1) ** 2).sum())},
    )
    config = _config(ema=0.0, log_every=5, patience=3, learning_rate=0.02, decay="constant")
    trained = train(Point(jnp.zeros(1)), problem, config, key=getkey())
    assert trained.stopped_early
    assert abs(float(trained.model.x[0]) - 1) < 0.1
    assert len(trained.history) < 80


def test_the_average_is_of_the_weights(getkey):
    config = _config(ema=0.9, steps=3, log_every=1, decay="constant")
    trained = train(Point(jnp.zeros(1)), _quadratic(), config, key=getkey())
    raw = train(Point(jnp.zeros(1)), _quadratic(), FitConfig(**(vars(config) | {"ema": 0.0})), key=getkey())
    assert 0 < float(trained.model.x[0]) < float(raw.model.x[0])


@pytest.mark.parametrize("start", [lambda: jnp.zeros(2), lambda: jnp.full(2, 0.5)], ids=["strong", "weak"])
def test_one_trace_for_the_whole_run(start, getkey):
    traces = []

    def loss(model, data, step, key):
        traces.append(1)
        return ((model.x - data) ** 2).sum(), {}

    train(Point(start()), Problem(loss=loss, data=jnp.array(3.0)), _config(), key=getkey())
    assert len(traces) == 1


@pytest.mark.parametrize("shape", [(64, 64), (7, 64), (64, 6)])
def test_orthogonalise_flattens_the_singular_values(shape, getkey):
    stack = jr.normal(getkey(), (3, *shape)) * 10 ** jnp.arange(-3.0, 3.0, 2.0)[:, None, None]
    singular = jnp.linalg.svd(orthogonalise(stack), compute_uv=False)
    assert (singular < 1.35).all()
    assert jnp.median(singular) > 0.6


def test_orthogonalise_keeps_the_singular_vectors(getkey):
    matrix = jr.normal(getkey(), (5, 9))
    left, _, right = jnp.linalg.svd(matrix, full_matrices=False)
    middle = left.T @ orthogonalise(matrix[None])[0] @ right.T
    assert jnp.abs(middle - jnp.diag(jnp.diag(middle))).max() < 1e-8


def test_stacking_and_padding_change_no_update(getkey):
    shapes = {"a": (4, 26), "b": (4, 26), "tall": (26, 2), "square": (26, 26)}
    params = {name: jr.normal(getkey(), shape) for name, shape in shapes.items()}
    together, _ = muon(0.1).update(params, muon(0.1).init(params), params)
    for name, value in params.items():
        rows, cols = value.shape
        alone = orthogonalise(value[None])[0] * max(1.0, cols / rows) ** 0.5
        assert jnp.allclose(together[name], -0.1 * alone, atol=1e-6)


@pytest.mark.parametrize("decay", ["cosine", "linear", "constant"])
def test_the_schedule_warms_up_and_decays(decay):
    config = FitConfig(optimiser="adamw", steps=1000, warmup_steps=100, decay=decay, learning_rate=0.1)
    schedule = make_schedule(config)
    sizes = [float(schedule(jnp.asarray(step))) for step in range(1000)]
    assert sizes[0] < 0.002
    assert np.isclose(max(sizes), 0.1, rtol=1e-3)
    assert np.argmax(sizes) <= 101
    assert (sizes[-1] > 0.099) if decay == "constant" else (sizes[-1] < 0.001)


def test_weight_decay_is_of_matrices_only():
    for name in ("muon", "adamw"):
        optim = make_optimiser(FitConfig(optimiser=name, weight_decay=0.5, warmup_steps=0, decay="constant"))
        params = {"matrix": jnp.ones((2, 2)), "vector": jnp.ones(2)}
        updates, _ = optim.update(optax.tree.zeros_like(params), optim.init(params), params)
        assert (updates["matrix"] < 0).all()
        assert (updates["vector"] == 0).all()


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (
            {"consistency": 1.0, "one_way": 8, "consistency_growth": 5},
            "`consistency_growth` must be 0 when `one_way` is set",
        ),
        ({"steps": 0}, "`steps` must be a positive integer; got 0"),
        ({"steps": 1000, "log_every": 300}, "`log_every` must divide `steps`; got 300, 1000"),
        ({"learning_rate": -1.0}, "`learning_rate` must be positive"),
        ({"standardise": "no"}, "`standardise` must be True or False; got 'no'"),
        ({"learning_rate": float("nan")}, "`learning_rate` must be positive and finite; got nan"),
        ({"ema": 1.0}, r"`ema` must be in \[0, 1\)"),
        ({"optimiser": "sgd"}, "`optimiser` must be one of muon, adamw; got 'sgd'"),
        ({"triplets": "x"}, "`triplets` must be one of"),
        ({"horizon": 0.0}, "`horizon` must be positive, or None"),
        ({"learning_rate": float("inf")}, "`learning_rate` must be positive and finite; got inf"),
        ({"learning_rate": "a"}, "`learning_rate` must be positive; got 'a'"),
        ({"learning_rate": None}, "`learning_rate` must be positive; got None"),
        ({"patience": 0.5}, "`patience` must be a positive integer, or None; got 0.5"),
        ({"batch_size": True}, "`batch_size` must be a positive integer; got True"),
        ({"consistency_batch": 2.5}, "`consistency_batch` must be a positive integer, or None; got 2.5"),
    ],
)
def test_a_wrong_config_is_refused(wrong, message, as_users_have_it):
    with pytest.raises(ValueError, match=message):
        FitConfig(**wrong)


def test_numbers_of_numpy_become_plain_ones(as_users_have_it):
    config = FitConfig(steps=np.int64(500), learning_rate=np.float32(0.5), patience=np.int32(3))
    assert type(config.steps) is type(config.patience) is int
    assert FitConfig.from_json(config.to_json()) == config


def test_a_config_survives_json_and_refuses_strangers():
    config = FitConfig(steps=1000, consistency=0.4)
    assert FitConfig.from_json(config.to_json()) == config
    with pytest.raises(ValueError, match="unknown settings stepz; known are batch_size"):
        FitConfig.from_json('{"stepz": 3}')


class Pair(eqx.Module):
    outer: Point
    inner: Point


def test_what_the_inner_steps_train_the_outer_ones_leave_alone(getkey):
    """The outer loss would have the inner point at 5, its own loss at 3; the outer point follows it."""
    far = lambda model, data, step, key: (
        ((model.outer.x - model.inner.x) ** 2 + (model.inner.x - 5) ** 2).sum(),
        {},
    )
    near = lambda model, data, step, key: (((model.inner.x - data) ** 2).sum(), {})
    problem = Problem(loss=far, data=jnp.array(3.0), inner_loss=near, inner=lambda model: model.inner)
    config = _config(ema=0.0, consistency=1.0, bridge_steps=2)
    trained = train(Pair(Point(jnp.zeros(2)), Point(jnp.zeros(2))), problem, config, key=getkey())
    assert jnp.allclose(trained.model.inner.x, 3.0, atol=1e-2)
    assert jnp.allclose(trained.model.outer.x, 3.0, atol=1e-2)


def _spoilt_inside(spoil):
    """Both points are to be at 3; `spoil` multiplies the inner loss at a step."""
    far = lambda model, data, step, key: (((model.outer.x - data) ** 2).sum(), {})
    near = lambda model, data, step, key: (spoil(step) * ((model.inner.x - data) ** 2).sum(), {})
    return Problem(loss=far, data=jnp.array(3.0), inner_loss=near, inner=lambda model: model.inner)


def test_bad_inner_updates_are_skipped_and_counted(getkey):
    bad = lambda step: jnp.where(step % 50 == 7, jnp.nan, 1.0)
    config = _config(ema=0.0, consistency=1.0, bridge_steps=2)
    start = Pair(Point(jnp.zeros(2)), Point(jnp.zeros(2)))
    trained = train(start, _spoilt_inside(bad), config, key=getkey())
    assert jnp.allclose(trained.model.inner.x, 3.0, atol=1e-2)
    assert trained.history[-1]["skipped_inner"] == 16  # two each at steps 7, 57, …, 357
    assert trained.history[-1]["skipped"] == 0


def test_a_run_whose_inner_steps_diverge_says_so(getkey):
    config = _config(consistency=1.0, bridge_steps=2)
    with pytest.raises(FloatingPointError, match="800 of 800 inner updates of the bridge were not finite"):
        train(
            Pair(Point(jnp.zeros(2)), Point(jnp.zeros(2))),
            _spoilt_inside(lambda step: jnp.nan),
            config,
            key=getkey(),
        )
