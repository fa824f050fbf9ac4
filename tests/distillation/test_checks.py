"""What an SDE is refused for before anything is learnt, what is told of its paths, and what is not refused."""

import dataclasses

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from scipy.stats import norm

import stochflow
from stochflow import SDE, distill
from stochflow.distillation.checks import check_density
from stochflow.distillation.distill import _prepare, _warn_of
from stochflow.distillation.pool import Pool, Simulator, Units
from stochflow.distillation.starts import make_starts
from stochflow.laws import Support
from stochflow.sde import EulerMaruyama

from .test_distill import BOX, TINY

PLAIN = SDE.autonomous(lambda x: -x, lambda x: 0 * x + 0.3, 2)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"horizon": 0.0}, "`horizon` must be positive and finite; got 0"),
        ({"horizon": "a"}, "`horizon` must be positive and finite; got 'a'"),
        ({"horizon": True}, "`horizon` must be positive and finite; got True"),
        ({"sde": 3}, "`sde` must be of `stochflow.SDE`; got 3"),
        ({"config": None}, "`config` must be of `stochflow.DistillConfig`; got None"),
        ({"support": "positive"}, "`support` must have an entry for each coordinate, in a list"),
        ({"starts": (["a", "b"], ["c", "d"])}, "`starts` must have corners of numbers"),
        ({"starts": lambda: 1}, "`starts` could not be called with a key"),
        ({"key": 0}, "`key` must be a key of JAX's"),
        ({"folder": 3}, "`folder` must be a path; got 3"),
        ({"progress": "a"}, "`progress` must be True, False or None; got 'a'"),
        ({"starts": ([0.0, 1.0], [1.0, 1.0])}, "`starts` must have `low` below `high`; got"),
        ({"starts": ([0.0], [1.0])}, r"`starts` must have corners of shape \(2,\); got \(1,\)"),
        ({"starts": np.zeros((5, 3))}, r"states of shape \(n, 2\)"),
        ({"starts": [[0.0, 0.0], [1.0, 1.0]]}, "a list of two may be a box or two states: pass a tuple"),
        ({"starts": np.full((5, 2), np.nan)}, "`starts` must be finite; got 5"),
        ({"starts": lambda key: jnp.zeros(3)}, r"`starts` must return one state of shape \(2,\); got \(3,\)"),
        ({"support": ["positive"]}, "`support` must have 2 coordinates, as `dim` says; got 1"),
        ({"support": ["positive", "real"]}, r"`starts` must lie within `support`; got \[-1, 1\]"),
        ({"sde": SDE.autonomous(lambda x: x[:1], lambda x: x, 2)}, r"`drift` must return shape \(2,\)"),
        (
            {"sde": SDE.autonomous(lambda x: x, lambda x: jnp.eye(2), 2)},
            r"`diffusion` must return shape \(2,\)",
        ),
        (
            {"sde": SDE.autonomous(lambda x: x, lambda x: x, 2, noise="full")},
            r"`diffusion` must return shape \(2, 2\)",
        ),
        (
            {"sde": SDE.autonomous(lambda x: {}["rate"] * x, lambda x: x, 2)},
            r"`drift` failed at a state of shape \(2,\): KeyError: 'rate'.$",
        ),
        ({"starts": lambda key: {}["here"]}, "`starts` could not be called with a key: KeyError: 'here'.$"),
        (
            {"sde": SDE.autonomous(lambda x: -x, lambda x: 0 * x, 2)},
            "`diffusion` must not be zero everywhere; it is at all states that were probed",
        ),
        (
            {"sde": SDE.autonomous(lambda x: x**5 * 1e3, lambda x: x, 2)},
            "paths are not finite with `dt` 0.03125",
        ),
        (
            {"sde": SDE.autonomous(lambda x: jnp.nan * x, lambda x: x, 2)},
            r"`drift` is not finite at 256 of 256 starts that were tried, such as \(.*\): mend it there",
        ),
        (
            {"sde": SDE.autonomous(lambda x: x.astype(int), lambda x: x, 2)},
            "`drift` must return real numbers of a floating type; got int",
        ),
        (
            {"sde": SDE.autonomous(lambda x: -x, lambda x: x + 0j, 2)},
            "`diffusion` must return real numbers of a floating type; got complex",
        ),
        ({"horizon": 1e30}, "`dt` of 0.03125 makes 3.2e\\+31 steps of the horizon 1e\\+30"),
        (
            {"sde": SDE.autonomous(lambda x: -x, lambda x: jnp.stack([0.3, 0.0]), 2)},
            "coordinate 1 has no noise that single precision can tell, so that there is no density to learn: leave",
        ),
        (
            {
                "sde": SDE.autonomous(
                    lambda x: -x, lambda x: jnp.full((2, 1), 0.3), 2, noise="full", noise_dim=1
                )
            },
            "coordinates 0, 1 determine each other, so that there is no density",
        ),
        (
            {
                "sde": SDE.autonomous(lambda x: -x, lambda x: jnp.stack([1.0, 2 + x[0]]), 2),
                "config": dataclasses.replace(TINY, solver="milstein"),
            },
            "`solver` must not be milstein where the noise of a coordinate depends on another one",
        ),
    ],
)
def test_what_cannot_be_distilled_says_why_in_a_sentence(change, message, as_users_have_it):
    given = {"sde": PLAIN, "starts": ([-1.0, -1.0], [1.0, 1.0]), "horizon": 1.0, "config": TINY} | change
    with pytest.raises(ValueError, match=message):
        distill(given.pop("sde"), **({"key": jr.key(0)} | given))


def test_noise_may_come_by_way_of_other_coordinates(getkey):
    """A chain of four, of which the last alone is driven, has a density (Hörmander)."""
    drift = lambda x: jnp.stack([x[1], x[2], x[3], -x[3]])
    system = SDE.autonomous(drift, lambda x: jnp.eye(4)[:, 3:], 4, noise="full", noise_dim=1)
    check_density(system, EulerMaruyama(), jr.normal(getkey(), (4, 4)), 1.0, 64, key=getkey())


@pytest.mark.parametrize(
    ("system", "starts", "horizon"),
    [
        pytest.param(
            SDE.autonomous(
                lambda x: jnp.stack([x[1], -x[0] - 10 * x[1]]),
                lambda x: jnp.array([[0.0], [3.0]]),
                2,
                noise="full",
                noise_dim=1,
                additive=True,
            ),
            ([-1.0, -1.0], [1.0, 1.0]),
            20.0,
            marks=pytest.mark.slow,
        ),
        (
            SDE.autonomous(lambda x: jnp.stack([-200 * (x[0] - x[1]), x[0] - x[1]]), jnp.ones_like, 2),
            ([-1.0, -1.0], [1.0, 1.0]),
            1.0,
        ),
        (
            SDE.autonomous(lambda x: 0 * x, lambda x: jnp.full(2, 50.0), 2, additive=True),
            ([500e3, 5.8e6], [501e3, 5.801e6]),
            1.0,
        ),
        (SDE.autonomous(lambda x: 1e6 - x, lambda x: jnp.full(1, 5.0), 1), ([1e6 - 5], [1e6 + 5]), 1.0),
    ],
    ids=["stiff, by way of another", "stiff", "metres on a map", "far from zero"],
)
def test_stiff_systems_and_those_far_from_zero_have_a_density(system, starts, horizon, getkey):
    with jax.enable_x64(False):
        _prepare(system, starts, horizon, None, dataclasses.replace(TINY, dt=None), jr.key(7))


def test_what_is_lost_in_the_last_digit_is_refused(getkey):
    """Around 1e6 a number of single precision has steps of a sixteenth; a step of the solver has twice that."""
    far = SDE.autonomous(lambda x: -(x - 1e6), lambda x: 1.0 + 0 * x, 1)
    prepare = lambda: _prepare(
        far, ([1e6 - 1], [1e6 + 1]), 1.0, None, dataclasses.replace(TINY, dt=1 / 64), jr.key(0)
    )
    with (
        jax.enable_x64(False),
        pytest.raises(ValueError, match=r"coordinate 0 is about 1e\+06 and .* origin"),
    ):
        prepare()
    prepare()  # in double precision


def test_far_from_zero_so_many_steps_are_no_truth_to_choose_by(getkey):
    """Each is rounded, and what a thousand of them add is more than what longer steps get wrong."""
    far = SDE.autonomous(lambda x: -(x - 1e5), lambda x: 1.0 + 0 * x, 1)
    with jax.enable_x64(False):
        simulator = _prepare(
            far, ([1e5 - 1], [1e5 + 1]), 1.0, None, dataclasses.replace(TINY, dt=None), getkey()
        )[0]
        ends = simulator.paths(4096, key=getkey())[simulator.rows, :, 0] - 1e5
    assert simulator.dt > 1 / 600
    assert abs(float(ends.std()) / np.sqrt((1 - np.exp(-2)) / 2 + np.exp(-2) * 1.25**2 / 2) - 1) < 0.04


LATE = {
    "a step after the horizon": SDE(
        lambda t, x, u: -x + jnp.where(t > 1.1, 20.0, 0.0), lambda t, x, u: 0.5 + 0 * x, 1, additive=True
    ),
    "beside a coordinate a million times as large": SDE(
        lambda t, x, u: jnp.stack([-x[0], jnp.where(t > 0.5, 3.0, -3.0) - x[-1]])[-x.shape[0] :],
        lambda t, x, u: jnp.array([1e6, 0.3])[-x.shape[0] :],
        2,
        additive=True,
    ),
}


@pytest.mark.parametrize("system", LATE.values(), ids=LATE.keys())
def test_an_sde_that_changes_at_some_time_is_not_taken_for_autonomous(system, getkey):
    size = jnp.array([1e7, 1.0])[-system.dim :]
    _, _, symmetries = _prepare(system, (-size, size), 1.0, None, TINY, getkey())
    assert not symmetries.autonomous


def test_an_sde_that_leaves_its_support_is_told_of(getkey):
    """Of a walk from 0.2 with variance one, what lies below zero: $\\Phi(-0.2/\\sqrt t)$, on the way to $t = 1$."""
    walk = SDE.autonomous(lambda x: 0 * x, lambda x: 1 + 0 * x, 1, additive=True)
    units = Units(Support(["positive"]), jnp.zeros(1), jnp.ones(1))
    starts = make_starts(np.full((1, 1), 0.2), 1, units.support, key=getkey())
    simulator = Simulator(walk, starts, EulerMaruyama(), 1.0, rows=64, substeps=1, onward=0.0)
    pool = simulator.pool(4096, units, 1.0, key=getkey())
    rows = np.arange(1, simulator.length + 1) / 64
    truth = norm.cdf(-0.2 / np.sqrt(rows)).sum() / (len(rows) + 1)
    assert abs(float(pool.folded) - truth) < 0.01
    with pytest.warns(UserWarning, match=r"\d% of the states lie beyond `support` and are mirrored back"):
        _warn_of(pool)


def test_paths_that_are_lost_are_told_of(getkey):
    pool = Pool(jnp.zeros((3, 8, 1)), jnp.zeros(4, int), jnp.arange(4), jnp.asarray(3), jnp.zeros(()), 2, 1.0)
    with pytest.warns(UserWarning, match=r"25.0% of the paths are not finite, and the law will be"):
        _warn_of(pool)


def test_a_law_that_depends_on_time_knows_the_latest_that_it_has_seen(getkey):
    pull = SDE(lambda t, x, u: jnp.sin(t) - x, lambda t, x, u: 0.3 + 0 * x, 1, additive=True)
    config = dataclasses.replace(TINY, steps=20, log_every=10, warmup_steps=2, onward=0.5)
    law = distill(pull, starts=([-0.5], [0.5]), horizon=2.0, config=config, key=getkey()).flow
    assert law.latest == 3.0
    law.sample(jnp.zeros(1), 1.5, 3.0, key=getkey())
    with pytest.warns(
        stochflow.laws.HorizonWarning, match=r"time 4 is later than 3, the latest that this law"
    ):
        stochflow.rollout(law, jnp.zeros(1), [0.0, 2.0, 4.0], max_gap=2.0, key=getkey())
    with pytest.warns(stochflow.laws.HorizonWarning, match="later than 3"):
        law.log_prob(jnp.zeros(1), jnp.zeros(1), 2.5, 3.5)


def test_what_a_drift_raised_is_kept():
    system = SDE.autonomous(lambda x: {}["rate"] * x, lambda x: x, 2)
    with pytest.raises(ValueError, match="`drift` failed") as caught:
        distill(system, starts=BOX, horizon=1.0, config=TINY, key=jr.key(0))
    assert isinstance(caught.value.__cause__, KeyError)


NOT_ADDITIVE = {
    "own": SDE.autonomous(
        lambda x: -x, lambda x: jnp.stack([1e3, 0.2]) * x ** jnp.arange(2), 2, additive=True
    ),
    "full": SDE.autonomous(
        lambda x: -x, lambda x: jnp.eye(2).at[1, 0].set(x[0]), 2, noise="full", additive=True
    ),
    "a step": SDE.autonomous(
        lambda x: -x, lambda x: jnp.stack([1.0, jnp.where(x[0] > 0, 1.0, 2.0)]), 2, additive=True
    ),
}


@pytest.mark.parametrize("system", NOT_ADDITIVE.values(), ids=NOT_ADDITIVE.keys())
def test_noise_that_depends_on_the_state_is_not_taken_for_additive(system, getkey):
    with pytest.raises(ValueError, match=r"`additive` must not be True .* coordinate 1 does: leave .* out"):
        _prepare(system, BOX, 1.0, None, TINY, getkey())


def test_additive_noise_may_depend_on_time_and_be_missing_from_a_coordinate(getkey):
    noise = lambda t, x, u: jnp.stack([jnp.zeros(()), 1 + t])
    system = SDE(lambda t, x, u: jnp.stack([x[1], -x[0]]), noise, 2, additive=True)
    assert not _prepare(system, BOX, 1.0, None, TINY, getkey())[2].autonomous
