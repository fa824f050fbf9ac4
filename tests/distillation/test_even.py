"""Starts and noise that fill their space evenly are still starts and noise."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from stochflow.distillation.even import block_increments, number_of_blocks, shifted, sobol_points
from stochflow.distillation.pool import Pool, Simulator
from stochflow.distillation.starts import make_starts
from stochflow.laws import Support
from stochflow.sde import SDE
from stochflow.sde.solvers import find_solver

# Standard errors; of some hundred numbers the largest is beyond them once in ten thousand runs.
FAR = 5.0
TWINS, ROWS, HORIZON = 4096, 16, 2.0


@pytest.mark.parametrize("first", [0, 64, 192])
def test_every_aligned_run_of_points_is_even(first):
    points = np.asarray(shifted(sobol_points(256, 5), key=jr.key(1)))[first : first + 64]
    assert ((points > 0) & (points < 1)).all()
    for column in points.T:
        assert sorted((column * 64).astype(int)) == list(range(64))


def test_a_shift_makes_each_point_uniform():
    one = np.array([shifted(sobol_points(4, 3), key=jr.key(i))[2] for i in range(400)])
    assert (np.abs(one.mean(axis=0) - 0.5) < FAR / np.sqrt(12 * 400)).all()
    assert (np.abs(np.corrcoef(one.T) - np.eye(3)) < FAR / np.sqrt(400)).all()


@pytest.mark.parametrize("bits", [0, 2**32 - 1])
def test_the_outermost_points_have_finite_normal_quantiles(bits):
    pattern = jr.bits(jr.key(5), (1, 3), jnp.uint32)
    with jax.numpy_dtype_promotion("standard"):
        ends = shifted(np.uint32(bits) ^ np.asarray(pattern), key=jr.key(5))
    assert ends.dtype == jnp.float32
    assert ((ends > 0) & (ends < 1)).all()
    assert jnp.isfinite(jax.scipy.special.ndtri(ends)).all()


def test_numbers_that_are_no_power_of_two_are_the_first_ones():
    assert (sobol_points(100, 3) == sobol_points(128, 3)[:100]).all()


@pytest.mark.parametrize("blocks", [1, 2, 8])
def test_blocks_are_increments_of_brownian_motion(blocks):
    points = shifted(sobol_points(TWINS, 2 * blocks), key=jr.key(0))
    found = np.asarray(block_increments(points, 2, blocks, 0.25))
    flat = found.transpose(0, 2, 1).reshape(2 * blocks, TWINS)
    # Chance alone would leave errors of 1/64.
    assert np.allclose(np.cov(flat) / 0.25, np.eye(2 * blocks), atol=0.01)
    assert np.allclose(flat.mean(axis=1), 0, atol=2e-3)


@pytest.fixture(scope="module", params=["euler_maruyama", "additive_runge_kutta"])
def walk(request):
    """Brownian motion itself, by two solvers."""
    system = SDE.autonomous(lambda x: 0 * x, jnp.ones_like, 2, additive=True)
    box = make_starts(([-1.0, -1.0], [1.0, 1.0]), 2, Support(["real"] * 2), key=jr.key(0))
    simulator = Simulator(system, box, find_solver(request.param), HORIZON, rows=ROWS, substeps=3, onward=0.5)
    return np.asarray(jax.jit(lambda key: simulator.paths(2 * TWINS, key=key))(jr.key(0)))


def test_paths_are_brownian_within_blocks_and_beyond_the_horizon_too(walk):
    moves = np.diff(walk[:, :TWINS], axis=0).transpose(0, 2, 1).reshape(-1, TWINS)
    variance = HORIZON / ROWS
    assert (np.abs(moves.mean(axis=1)) < FAR * np.sqrt(variance / TWINS)).all()
    assert (np.abs(moves.var(axis=1) / variance - 1) < FAR * np.sqrt(2 / TWINS)).all()
    assert (np.abs(np.corrcoef(moves) - np.eye(len(moves))) < FAR / np.sqrt(TWINS)).all()


def test_at_the_ends_of_blocks_variances_are_ten_times_as_exact_as_chance_would_have_them(walk):
    length = ROWS // number_of_blocks(ROWS)
    for row in range(length, ROWS + 1, length):
        moved = walk[row] - walk[0]
        assert np.allclose(moved.var(axis=0) / (row * HORIZON / ROWS), 1, atol=np.sqrt(2 / TWINS) / 10)


def test_the_second_half_is_the_mirror_image_of_the_first(walk):
    moved = walk - walk[:1]
    assert np.allclose(moved[:, :TWINS], -moved[:, TWINS:], atol=1e-5)


def test_a_path_has_another_gap_each_time_its_turn_comes():
    paths = jnp.broadcast_to(jnp.arange(73.0)[:, None, None], (73, 128, 1))
    pool = Pool(paths, jnp.zeros(64, int), jnp.arange(64), jnp.asarray(64), jnp.zeros(()), 64, 1.0)
    gaps = np.array([pool.draw(128, turn, key=jr.key(turn)).x_t[::2, 0] for turn in range(200)])
    assert gaps.min() == 1
    assert gaps.max() == 72
    assert (gaps.std(axis=0) > 15).all()
    # Half of the gaps are uniform, half are squares of uniform numbers: their mean is 5/12 of the longest.
    error = gaps.std() / np.sqrt(200)
    assert (np.abs(gaps.mean(axis=0) - 0.5 - 72 * 5 / 12) < FAR * error).all()


def test_a_horizon_is_cut_into_a_power_of_two_that_divides_its_rows():
    assert [number_of_blocks(rows) for rows in (64, 8, 4, 6, 14, 2)] == [8, 8, 4, 2, 2, 2]
