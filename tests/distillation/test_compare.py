"""The comparison of a law with its solver: the law itself passes, a wrong one does not."""

import dataclasses
import json

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from stochflow import distill, sde
from stochflow.distillation import compare
from stochflow.distillation.compare import MOST_STEPS, _Bench
from stochflow.laws import OrnsteinUhlenbeck
from stochflow.metrics import energy_distance, projected_energy_distance

from .test_distill import TINY

OU = sde.ornstein_uhlenbeck([1.0], [0.3], [0.7])
FAST = {"groups": 4, "samples": 500, "batch": 500}


@pytest.fixture(scope="module")
def distilled():
    config = dataclasses.replace(TINY, steps=100)
    return distill(OU, starts=([-1.0], [1.5]), horizon=1.0, config=config, key=jr.key(0))


@pytest.fixture(scope="module")
def right(distilled):
    exact = dataclasses.replace(distilled, flow=OrnsteinUhlenbeck([1.0], [0.3], [0.7]))
    return compare(exact, gaps=[1.0], **FAST, key=jr.key(1))


def test_the_exact_law_is_as_good_as_the_solver_and_a_shifted_one_is_not(distilled, right):
    shifted = dataclasses.replace(distilled, flow=OrnsteinUhlenbeck([1.0], [0.9], [0.7]))
    good, wrong = right.gaps[0], compare(shifted, gaps=[1.0], **FAST, key=jr.key(1)).gaps[0]
    assert abs(good.energy) < 4 * good.energy_se
    assert wrong.energy > 4 * wrong.energy_se
    assert min(good.pit_p) > 1e-3 > max(wrong.pit_p)
    assert wrong.solver_steps < good.solver_steps
    assert wrong.kl > 0.05 > good.kl


def test_it_prints_and_goes_to_json(right):
    assert "break-even" in str(right)
    content = json.loads(json.dumps(right.as_dict()))
    assert [gap["gap"] for gap in content["gaps"]] == [1.0]
    assert content["gaps"][0]["speedup"] == right.gaps[0].speedup
    last = right.gaps[-1]
    free = dataclasses.replace(right, train_seconds=0.0)
    assert free.break_even == (0.0 if last.solver_seconds > last.flow_seconds else np.inf)


def test_training_has_paid_at_the_longest_gap_whatever_the_order(right):
    short, long = (dataclasses.replace(right.gaps[0], gap=gap, solver_seconds=gap) for gap in (0.1, 1.0))
    both = [dataclasses.replace(right, gaps=gaps) for gaps in ((short, long), (long, short))]
    assert both[0].break_even == both[1].break_even == right.train_seconds / (1 - long.flow_seconds)


def test_the_solver_that_is_named_is_no_worse(distilled):
    """Of errors that do not fall as the square does, too."""
    bench = _Bench(distilled, 2, 64, 64)
    for errors in ({4: 1.0, 8: 0.9, 9: 0.9, 10: 0.4}, {4: 4.0, 8: 3.0, 13: 0.5}, {}):
        error_of = lambda ends, errors=errors: (float(ends), 0.0)
        steps_of = lambda steps, errors=errors: next(
            (errors[k] for k in sorted(errors, reverse=True) if k <= steps), 0.1
        )
        bench.solve = lambda scheme, x0, over, steps, key, steps_of=steps_of: steps_of(steps)
        steps, energy = bench._match(None, None, 0.5, error_of, jr.key(0))
        assert energy <= 0.5
        assert energy == steps_of(steps)
    bench.solve = lambda scheme, x0, over, steps, key: 1.0
    steps, energy = bench._match(None, None, 0.5, lambda ends: (float(ends), 0.0), jr.key(0))
    assert (steps, energy) == (MOST_STEPS, 1.0)


def test_steps_that_were_not_enough_are_marked(right):
    assert "2048+" in str(
        dataclasses.replace(
            right, gaps=(dataclasses.replace(right.gaps[0], solver_steps=2048, matched=False),)
        )
    )


def test_a_law_whose_draws_are_not_finite_is_not_compared(distilled):
    flow = eqx.tree_at(lambda law: law.std, OrnsteinUhlenbeck([1.0], [0.3], [0.7]), jnp.array([jnp.nan]))
    with pytest.raises(ValueError, match=r"100.00% of the law's draws over 1 are not finite: distil"):
        compare(dataclasses.replace(distilled, flow=flow), gaps=[1.0], **FAST, key=jr.key(1))


def test_a_start_that_explodes_is_named_and_what_was_left_out_is_told(distilled, right):
    boom = sde.SDE.autonomous(lambda x: jnp.where(x > 0.5, 90 * x**3, -x), lambda x: 0.7 + 0 * x, 1)
    simulator = dataclasses.replace(distilled.simulator, sde=boom)
    with pytest.raises(ValueError, match=r"% of the solver's paths from \(.*\) are not finite after 1"):
        compare(dataclasses.replace(distilled, simulator=simulator), gaps=[1.0], **FAST, key=jr.key(1))
    partly = dataclasses.replace(right, lost=0.02, folded=0.1)
    assert "2.0% of the paths were not finite and left out; 10.0% of the states lay beyond" in str(partly)
    assert "finite" not in str(right)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"gaps": [2.0]}, "`gaps` must be numbers between 0 and the horizon 1, in a list; got"),
        ({"gaps": [0.5, 0.5]}, r"`gaps` must differ; got \[0.5, 0.5\]"),
        ({"since": [-1.0]}, r"`since` must be times of at least 0, in a list; got \[-1.0\]"),
        ({"gaps": 1.0}, "`gaps` must be numbers between 0 and the horizon 1, in a list; got 1.0"),
        ({"groups": 1}, "`groups` must be an integer of at least 2; got 1"),
        ({"samples": 10.5}, "`samples` must be an integer of at least 64; got 10.5"),
        ({"batch": 0}, "`batch` must be an integer of at least 1; got 0"),
    ],
)
def test_a_wrong_question_is_an_error(distilled, options, message, as_users_have_it):
    with pytest.raises(ValueError, match=message):
        compare(distilled, **options, key=jr.key(0))


@pytest.mark.parametrize("dim", [1, 2, 5])
def test_the_energy_distance_by_projections_is_the_energy_distance(dim, getkey):
    x = jr.normal(getkey(), (24, 400, dim))
    y = 0.4 + 1.2 * jr.normal(getkey(), (24, 400, dim))
    plain = jnp.stack([energy_distance(a, b).mean for a, b in zip(x, y)]).mean()
    projected = projected_energy_distance(x, y, directions=200, key=getkey())
    assert jnp.allclose(projected.mean, plain, rtol=0.1)
    same = projected_energy_distance(x, jr.normal(getkey(), x.shape), key=getkey())
    assert abs(same.mean) < 4 * same.se


def test_samples_may_differ_in_size_and_the_distance_is_without_bias(getkey):
    """Of one law: zero, in the mean over many groups, whatever the sizes; of two, what two of one size have."""
    x, y = jr.normal(getkey(), (400, 12, 2)), jr.normal(getkey(), (400, 40, 2))
    same = projected_energy_distance(x, y, directions=8, key=getkey())
    assert abs(same.mean) < 4 * same.se
    far = projected_energy_distance(x, y + 1, directions=8, key=getkey())
    like = projected_energy_distance(x, y[:, :12] + 1, directions=8, key=getkey())
    assert abs(far.mean - like.mean) < 4 * np.hypot(far.se, like.se)
    assert far.mean > 20 * far.se
