"""The sampler draws what the law draws, whatever the chunks, the threads and the number of rows."""

import warnings

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from stochflow import StochasticFlow
from stochflow.inference import make_sampler
from stochflow.laws import AbstractTransition, BrownianMotion, HorizonWarning, OrnsteinUhlenbeck, Standardised

S, T = 0.2, 0.9


class Counting(AbstractTransition):
    """Brownian motion that notes each time it is traced."""

    traces: list = eqx.field(static=True)
    dim: int = eqx.field(static=True)

    def transform_and_log_prob(self, noise, x_s, s, t, u=None):
        self.traces.append(x_s.shape)
        return x_s + jnp.sqrt(jnp.asarray(t) - jnp.asarray(s)) * noise, jnp.zeros(())

    def log_prob(self, x_t, x_s, s, t, u=None):
        return jnp.zeros(())


@pytest.fixture
def flow(getkey):
    flow = StochasticFlow(3, width=16, layers=2, key=getkey())
    arrays, treedef = jax.tree.flatten(flow)  # last layers start near zero: move away from there
    keys = jr.split(getkey(), len(arrays))
    return treedef.unflatten([a + 0.1 * jr.normal(k, a.shape, a.dtype) for a, k in zip(arrays, keys)])


def _row_by_row(law, x_s, key, u=None):
    keys = jax.vmap(lambda i: jr.fold_in(key, i))(jnp.arange(len(x_s)))
    axes = (0, 0, None if u is None else 0)
    return jax.vmap(lambda x, k, u: law.sample(x, S, T, u, key=k), in_axes=axes)(x_s, keys, u)


@pytest.mark.parametrize(("chunk", "workers"), [(1, 1), (16, 2), (50, 2), (1024, 2)])
def test_the_same_draws_for_any_chunks_and_number_of_rows(chunk, workers, flow, getkey):
    x_s, key = jr.normal(getkey(), (200, 3)), getkey()
    expected = _row_by_row(flow, x_s, key)
    sampler = make_sampler(flow, chunk=chunk, workers=workers)
    for n in (1, 65, 200):
        draws = sampler(x_s[:n], S, T, key=key)
        assert draws.dtype == x_s.dtype
        assert jnp.allclose(draws, expected[:n], atol=1e-12, rtol=1e-12)


def test_it_is_the_transform_of_the_rows_own_noise(flow, getkey):
    x_s, key = jr.normal(getkey(), (40, 3)), getkey()
    noise = jnp.stack([jr.normal(jr.fold_in(key, i), (3,)) for i in range(40)])
    expected = jax.vmap(lambda z, x: flow.transform(z, x, S, T))(noise, x_s)
    assert jnp.allclose(make_sampler(flow)(x_s, S, T, key=key), expected, atol=1e-12)


def test_covariates_go_with_their_rows(getkey):
    flow = StochasticFlow(2, cond_dim=1, width=8, layers=2, key=getkey())
    x_s, u, key = jr.normal(getkey(), (9, 2)), jr.normal(getkey(), (9, 1)), getkey()
    draws = make_sampler(flow, chunk=4)(x_s, S, T, u, key=key)
    assert jnp.allclose(draws, _row_by_row(flow, x_s, key, u), atol=1e-12)


def test_single_precision_stays_single(flow, getkey):
    x_s = jr.normal(getkey(), (5, 3), jnp.float32)
    single = jax.tree.map(lambda a: a.astype(jnp.float32), flow)
    assert make_sampler(single)(x_s, S, T, key=getkey()).dtype == jnp.float32


def test_double_precision_is_taken_without_a_word_where_jax_is_set_to_single():
    with jax.enable_x64(False), warnings.catch_warnings():
        warnings.simplefilter("error")
        sampler = make_sampler(BrownianMotion([0.3, -0.2], jnp.eye(2)))
        assert sampler(np.ones((3, 2)), 0.0, 1.0, key=jr.key(0)).dtype == jnp.float32


def test_no_gap_is_the_identity(flow, getkey):
    x_s = jr.normal(getkey(), (33, 3))
    assert jnp.all(make_sampler(flow, chunk=8)(x_s, S, S, key=getkey()) == x_s)


def test_no_rows_are_no_draws(flow, getkey):
    assert make_sampler(flow)(np.zeros((0, 3)), S, T, key=getkey()).shape == (0, 3)


def test_a_bounded_number_of_programs(getkey):
    law = Counting(traces=[], dim=2)
    sampler = make_sampler(law, chunk=32, workers=1)
    for n in [*range(1, 100), 1000]:
        sampler(np.zeros((n, 2)), 0.0, 0.1 + n, key=getkey())
    assert len(law.traces) == 6  # 1, 2, 4, …, 32 rows


def test_a_step_beyond_the_horizon_warns(getkey):
    law = Standardised(OrnsteinUhlenbeck([1.0], [0.0], [1.0]), [0.0], [1.0], 1.0, 0.5)
    with pytest.warns(HorizonWarning, match="beyond the horizon of 0.5"):
        make_sampler(law)(np.zeros((4, 1)), S, T, key=getkey())


def test_time_does_not_run_backwards(flow, getkey):
    with pytest.raises(ValueError, match=r"`t` must not be earlier than `s`.*got 0.9, 0.2"):
        make_sampler(flow)(np.zeros((4, 3)), T, S, key=getkey())


@pytest.mark.parametrize("shape", [(3,), (4, 2), (2, 4, 3)])
def test_a_wrong_shape_is_named(shape, flow, getkey):
    with pytest.raises(ValueError, match=r"`x_s` must have shape \(n, 3\)"):
        make_sampler(flow)(np.zeros(shape), S, T, key=getkey())


def test_covariates_of_another_length_are_an_error(flow, getkey):
    with pytest.raises(ValueError, match=r"`u` must have shape \(4, cond_dim\); got \(3, 1\)"):
        make_sampler(flow)(np.zeros((4, 3)), S, T, np.zeros((3, 1)), key=getkey())


@pytest.mark.parametrize("name", ["chunk", "workers"])
@pytest.mark.parametrize("value", [0, -1, True])
def test_sizes_are_positive_integers(name, value, flow):
    with pytest.raises(ValueError, match=f"`{name}` must be an integer of at least 1"):
        make_sampler(flow, **{name: value})
