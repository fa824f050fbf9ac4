"""The benchmarks run, add up and say what was reached. What they measure is for a quiet machine to tell."""

import json

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from rich.console import Console

from benchmarks import forecasts, hardware, known, rivals, run, sampling, training
from benchmarks.report import Effort, Section, Target, show, summarise
from stochflow.data import PairSampler
from stochflow.data.lorenz import lorenz_trajectories
from stochflow.latent.model import number_of_parameters

TINY = Effort(repeats=1, min_time=1e-5, batches=(1, 8), many=20, solver_batches=(3,))
count = lambda tree: sum(leaf.size for leaf in jax.tree.leaves(tree))


def test_the_flow_is_the_papers():
    assert count(sampling.paper_flow()) == 25_130


def test_the_latent_sde_has_the_papers_sizes(getkey):
    rival = rivals.LatentSDE(key=getkey())
    assert count((rival.drift_weights, rival.drift_biases)) == 17_668
    assert count((rival.diffusion_in, rival.diffusion_out, rival.diffusion_bias)) == 1_540
    assert count((rival.decoder, rival.decoder_bias)) == 15


def test_the_latent_sde_of_motion_capture_has_the_papers_sizes(getkey):
    rival = forecasts.MocapLatentSDE(key=getkey())
    assert number_of_parameters(rival.drift_net) == 426
    assert count((rival.diffusion_in, rival.diffusion_out, rival.diffusion_bias)) == 726
    assert number_of_parameters(rival.decoder) == 4_240


def test_euler_maruyama_of_constant_coefficients_is_exact(getkey):
    x = rivals.euler_maruyama(lambda x: 2 + 0 * x, lambda x: 0 * x, jnp.zeros((4, 3)), 0.01, getkey())
    assert jnp.allclose(x, 2.0)
    noise = rivals.euler_maruyama(lambda x: 0 * x, lambda x: 1 + 0 * x, jnp.zeros((4000, 1)), 0.1, getkey())
    assert noise.var() == pytest.approx(1.0, abs=5 * (2 / 4000) ** 0.5)


def test_a_bare_product_is_all_of_itself():
    section = hardware.against_matmul(TINY)
    assert section.rows["matmul, 8"]["% of matmul"] == pytest.approx(100)
    assert {"sampler, 8", "one jit, 8", "sampler, 20", "one jit, 20"} < set(section.rows)
    assert section.key_figures["share"] == section.rows["one jit, wide vectors, 8"]["% of matmul"]


def test_targets_know_their_side():
    section = Section("a", {}, {"fast": 2.0, "large": 60.0})
    targets = [Target("fast", "f", 1.0), Target("large", "l", 55, at_least=True), Target("absent", "a", 1)]
    summary = summarise(targets, [section])
    assert [(row["figure"], row["target"], row["met"]) for row in summary] == [
        ("f", "≤ 1", False),
        ("l", "≥ 55", True),
    ]


def test_rows_may_lack_columns():
    console = Console(record=True, width=80)
    show(console, "title", {"a": {"x": 1.0}, "b": {"y": True}})
    assert "yes" in console.export_text()


def test_the_command_writes_its_file(tmp_path, monkeypatch):
    monkeypatch.setattr(run, "QUICK", TINY)
    out = tmp_path / "new" / "bench.json"
    run.main(["--quick", "--only", "single", "--out", str(out)])
    content = json.loads(out.read_text())
    assert content["machine"]["cores"] >= 1
    assert content["sections"]["A single call"]["empty jit"]["over empty"] == 1
    assert [row["figure"] for row in content["summary"]] == ["one draw through jit over an empty jit"]


@pytest.mark.slow
def test_every_benchmark_runs():
    for benchmark in (
        sampling.draws_and_densities,
        sampling.gaps_and_chains,
        rivals.against_solvers,
        forecasts.whole_forecasts,
    ):
        section = benchmark(TINY)
        assert all(row["min ms"] > 0 for row in section.rows.values())
    sampler = PairSampler(lorenz_trajectories(4, key=jr.key(0)), horizon=1.0)
    program = training.compile_step(sampler, 8, 0.4)
    state, metrics = program.run()
    assert int(state.step) == training.STEPS
    assert jnp.isfinite(metrics["loss"]).all()


def test_known_laws_are_those_that_intervals_are_held_against():
    x = known.simulate(known.RATE, known.CORRELATION, 4000, seed=1)
    moves = x[1:] - np.exp(-known.RATE) * x[:-1]
    assert np.allclose(moves.var(axis=0), 1, atol=4.5 * np.sqrt(2 / 4000))
    assert np.corrcoef(moves.T)[0, 1] == pytest.approx(known.CORRELATION, abs=0.01)


@pytest.mark.slow
def test_intervals_hold_a_probability_of_a_known_law():
    shares = known.held(0.0, known.CORRELATION, rows=120, steps=30, seed=1)
    assert shares.shape == (3, 2)
    assert ((shares > 0.5) & (shares < 1)).all()
