"""Operations and run times."""

import time

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import pytest

from stochflow import StochasticFlow
from stochflow.metrics import flops, flops_per_sample, interleave


def test_flops_of_a_matrix_product():
    count = flops(lambda a, b: a @ b, jnp.ones((32, 64)), jnp.ones((64, 16)))
    assert count == pytest.approx(2 * 32 * 64 * 16, rel=0.05)


def test_flops_count_what_lies_in_the_weights_of_a_module(getkey):
    net = eqx.nn.MLP(8, 8, 32, 2, key=getkey())
    weights = 8 * 32 + 32 * 32 + 32 * 8
    assert 2 * weights <= flops(net, jnp.ones(8)) < 3 * weights


def test_a_key_costs_more_than_given_noise(law):
    cost = flops_per_sample(law())
    assert 0 < cost.transform <= cost.sample


def test_a_draw_of_the_papers_flow_costs_what_the_paper_says_in_either_precision(getkey):
    with jax.enable_x64(False):
        single = flops_per_sample(StochasticFlow(3, key=getkey()))
    double = flops_per_sample(StochasticFlow(3, key=getkey()))
    assert single == double
    assert 50_000 < single.transform <= 53_000


def test_interleaved_times_are_ordered_and_compiled_once():
    traces = []

    @eqx.filter_jit
    def jitted(x):
        traces.append(None)
        return x + 1

    times = interleave(
        {"fast": lambda: jitted(jnp.ones(2)), "slow": lambda: time.sleep(0.004)}, repeats=3, min_time=0.002
    )
    assert list(times) == ["fast", "slow"]
    assert len(traces) == 1
    assert times["fast"].min <= times["fast"].median < times["slow"].min
    assert times["slow"].min >= 0.004


def test_no_repeats_is_an_error():
    with pytest.raises(ValueError, match="`repeats` must be at least one; got 0"):
        interleave({"f": lambda: jr.key(0)}, repeats=0)
