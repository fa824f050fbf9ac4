"""A run that is killed goes on as if it had not been, bit for bit; damaged folders are refused."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import jax.random as jr
import numpy as np
import pytest
from safetensors.numpy import load_file

import stochflow
from stochflow.training import CheckpointError, RunFolder, loop

SCRIPT = Path(__file__).with_name("killable.py")
STEPS = 2000
KEY = jr.key(2)


def _start(folder):
    # All runs of this test are one program: it is compiled once.
    env = os.environ | {
        "XLA_FLAGS": "--xla_backend_optimization_level=0 --xla_cpu_use_fusion_emitters=false",
        "JAX_COMPILATION_CACHE_DIR": str(folder.parent.parent / "compiled"),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    }
    return subprocess.Popen([sys.executable, SCRIPT, folder, str(STEPS)], env=env)


def _metrics(folder):
    """Without the clock: that is the one thing which two runs do not share."""
    rows = RunFolder.open(folder).read_metrics()
    return [{name: value for name, value in row.items() if name != "seconds"} for row in rows]


@pytest.fixture(scope="module")
def whole_run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "whole"
    assert _start(folder).wait() == 0
    return folder


def test_a_killed_run_ends_bit_identical_to_one_that_was_not(whole_run, tmp_path):
    folder, kills = tmp_path / "killed", 0
    for wait in (0.3, 0.1):  # two real kills, at different moments after a checkpoint
        process = _start(folder)
        before = _step(folder)
        while process.poll() is None and _step(folder) in (before, STEPS):
            time.sleep(0.005)
        time.sleep(wait)
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
            kills += 1
        process.wait()
    assert kills >= 1, "the run was over before it could be killed: give it more steps"
    assert _step(folder) > 0
    assert _start(folder).wait() == 0
    expected, found = (
        load_file(whole_run / "checkpoint.safetensors"),
        load_file(folder / "checkpoint.safetensors"),
    )
    assert expected.keys() == found.keys()
    for name, array in expected.items():
        assert np.array_equal(array, found[name], equal_nan=True), name
    assert _metrics(folder) == _metrics(whole_run)


def _step(folder):
    path = Path(folder) / "checkpoint.safetensors"
    if not path.exists():
        return 0
    content = path.read_bytes()
    header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
    return int(header["__metadata__"]["step"])


def _fit(folder, *, key=KEY, seed=0, flow=None, **settings):
    values = np.random.default_rng(seed).normal(size=(4, 10, 1)).cumsum(1)
    data = stochflow.Trajectories.from_arrays(np.arange(10.0), values)
    config = stochflow.FitConfig(**({"steps": 20, "log_every": 10, "batch_size": 8} | settings))
    flow = flow or stochflow.StochasticFlow(1, width=4, layers=1, key=jr.key(0))
    return stochflow.fit(flow, data, config=config, folder=folder, key=key)


@pytest.fixture(scope="module")
def finished_run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("finished") / "run"
    _fit(folder)
    return folder


def test_a_finished_run_is_not_trained_again(finished_run, tmp_path):
    first, again = _fit(tmp_path / "run"), _fit(tmp_path / "run")
    assert first.history == again.history
    assert json.loads((tmp_path / "run" / "config.json").read_text())["config"]["steps"] == 20


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"learning_rate": 0.5}, "its config.learning_rate is 0.01, not 0.5"),
        ({"key": jr.key(9)}, "another key or seed"),
        ({"seed": 9}, "another data"),
    ],
)
def test_another_run_in_the_same_folder_is_refused(finished_run, change, message, tmp_path):
    shutil.copytree(finished_run, tmp_path / "run")
    before = (tmp_path / "run" / "checkpoint.safetensors").read_bytes()
    with pytest.raises(CheckpointError, match=message):
        _fit(tmp_path / "run", **change)
    assert (tmp_path / "run" / "checkpoint.safetensors").read_bytes() == before


def test_a_folder_that_is_not_a_run_is_refused_and_left_alone(tmp_path):
    (tmp_path / "holiday.txt").write_text("photos")
    with pytest.raises(CheckpointError, match="not a run folder"):
        _fit(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["holiday.txt"]
    with pytest.raises(CheckpointError, match="is a file"):
        _fit(tmp_path / "holiday.txt")
    with pytest.raises(CheckpointError, match="not a run folder"):
        RunFolder.open(tmp_path)


@pytest.mark.parametrize("damage", ["cut", "empty", "flipped", "text"])
def test_a_damaged_checkpoint_is_refused(finished_run, damage, tmp_path):
    shutil.copytree(finished_run, tmp_path / "run")
    path = tmp_path / "run" / "checkpoint.safetensors"
    content = path.read_bytes()
    flipped = content[:-9] + bytes([content[-9] ^ 1]) + content[-8:]
    path.write_bytes(
        {"cut": content[: len(content) // 2], "empty": b"", "flipped": flipped, "text": b"hello" * 9}[damage]
    )
    with pytest.raises(CheckpointError, match="is damaged"):
        _fit(tmp_path / "run")


def test_half_a_line_of_metrics_is_left_out(finished_run, tmp_path):
    shutil.copytree(finished_run, tmp_path / "run")
    with open(tmp_path / "run" / "metrics.jsonl", "a") as file:
        file.write('{"step": 99, "lo')
    assert [row["step"] for row in RunFolder.open(tmp_path / "run").read_metrics()] == [10, 20]


@pytest.mark.parametrize("left", [0, 1])
def test_metrics_that_end_before_the_checkpoint_are_missed(finished_run, left, tmp_path):
    shutil.copytree(finished_run, tmp_path / "run")
    metrics = tmp_path / "run" / "metrics.jsonl"
    metrics.write_text("".join(metrics.read_text().splitlines(keepends=True)[:left]))
    with pytest.raises(CheckpointError, match=r"metrics\.jsonl does not reach step 20, where the checkpoint"):
        _fit(tmp_path / "run")


def test_what_is_no_number_is_null_in_the_file_and_nan_when_read(finished_run, tmp_path):
    shutil.copytree(finished_run, tmp_path / "run")
    run = RunFolder.open(tmp_path / "run")
    run.append_metrics({"step": 30, "seconds": 4.0, "loss": float("nan"), "rate": float("inf")})
    refuse = lambda name: pytest.fail(f"{name} is not JSON")
    last = (run.path / "metrics.jsonl").read_text().splitlines()[-1]
    assert json.loads(last, parse_constant=refuse) == {"step": 30, "seconds": 4.0, "loss": None, "rate": None}
    assert np.isnan(run.read_metrics()[-1]["loss"])


def test_what_a_kill_left_of_an_unfinished_write_is_in_nobodys_way(tmp_path):
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / ".config.json.0123456789abcdef").write_text("{")
    _fit(folder)
    (folder / ".checkpoint.safetensors.fedcba9876543210").write_bytes(b"half")
    _fit(folder)
    assert not [path.name for path in folder.iterdir() if path.name.startswith(".")]


def test_a_folder_that_is_refused_is_left_as_it_is(finished_run, tmp_path):
    folder = tmp_path / "mine"
    folder.mkdir()
    for name in ("notes.txt", ".config.json.bak", ".config.json.0123456789abcdef"):
        (folder / name).write_text("mine")
    with pytest.raises(CheckpointError, match="is not a run folder"):
        _fit(folder)
    assert {path.name: path.read_text() for path in folder.iterdir()} == dict.fromkeys(
        ("notes.txt", ".config.json.bak", ".config.json.0123456789abcdef"), "mine"
    )
    shutil.copytree(finished_run, tmp_path / "run")
    path = tmp_path / "run" / "metrics.jsonl"
    damaged = b"{" + b"\n".join(path.read_bytes().splitlines()[1:])
    path.write_bytes(damaged)
    with pytest.raises(CheckpointError, match=r"metrics\.jsonl"):
        _fit(tmp_path / "run")
    assert path.read_bytes() == damaged


def test_a_flow_with_other_weights_is_another_run(finished_run, tmp_path, getkey):
    shutil.copytree(finished_run, tmp_path / "run")
    with pytest.raises(
        CheckpointError, match=r"begun with other weights \(another seed.*Give the same seed"
    ) as caught:
        _fit(tmp_path / "run", flow=stochflow.StochasticFlow(1, width=4, layers=1, key=getkey()))
    assert json.loads((tmp_path / "run" / "config.json").read_text())["weights"] not in str(caught.value)


def test_nothing_is_written_for_a_run_that_cannot_start(tmp_path, getkey):
    with pytest.raises(ValueError, match="`u` must have shape"):
        _fit(tmp_path / "run", flow=stochflow.StochasticFlow(1, cond_dim=1, width=4, layers=1, key=getkey()))
    assert not (tmp_path / "run").exists()


def test_a_model_is_described_alike_by_the_next_process():
    """`repr` has the addresses of functions in it, which are others each time."""
    program = (
        "import jax.random as jr, stochflow\n"
        "from stochflow.training.checkpoint import describe\n"
        "print(describe(stochflow.latent_flow(3, 2, key=jr.key(0))))\n"
    )
    runs = [
        subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
        for _ in range(2)
    ]
    assert runs[0] == runs[1]
    assert "softplus" in runs[0]
    assert "0x" not in runs[0]


def test_a_folder_of_another_model_says_so_in_one_sentence(tmp_path):
    RunFolder.create(tmp_path, {"config": {}, "model": "a" * 1000})
    with pytest.raises(CheckpointError, match="holds another run: its model is another one"):
        RunFolder.create(tmp_path, {"config": {}, "model": "b" * 1000})


@pytest.mark.parametrize("record", ["[]", "5", "{}", '{"config": 5}', "{", b"\xff"])
def test_a_record_that_is_none_is_refused(record, tmp_path):
    (tmp_path / "config.json").write_bytes(record if isinstance(record, bytes) else record.encode())
    for attempt in (RunFolder.open, lambda path: RunFolder.create(path, {"config": {}})):
        with pytest.raises(CheckpointError, match=r"config\.json is not .*; choose another folder"):
            attempt(tmp_path)


@pytest.mark.parametrize(
    ("line", "wrong"),
    [
        ("5", "not a JSON object"),
        ('{"loss": 1.0}', "no `step`"),
        ('{"step": 2}', "no `seconds`"),
        ('{"step": 2.5, "seconds": 1}', "`step` must be an integer"),
        ('{"step": null, "seconds": 1}', "`step` must be an integer"),
        ('{"step": 2, "seconds": 1, "loss": "low"}', "`loss` must be a number"),
        ('{"step": 2, "seconds": true}', "`seconds` must be a number"),
    ],
)
def test_a_line_of_metrics_that_is_no_report_is_refused(line, wrong, tmp_path):
    run = RunFolder.create(tmp_path / "run", {"config": {}})
    (run.path / "metrics.jsonl").write_text(f'{{"step": 1, "seconds": 1}}\n{line}\n')
    with pytest.raises(
        CheckpointError, match=f"line 2 of .*metrics.jsonl is not a report of a run: .*{wrong}"
    ):
        run.rewind_metrics(9)


def test_other_validation_data_are_said_in_words(tmp_path):
    RunFolder.create(tmp_path, {"config": {}, "validation": None})
    with pytest.raises(CheckpointError, match="begun with other validation data"):
        RunFolder.create(tmp_path, {"config": {}, "validation": "5229f55b"})


def test_a_kill_loses_no_more_than_was_agreed(monkeypatch, tmp_path):
    """By a clock on which each report takes four seconds, with ten seconds between checkpoints at most."""
    clock, saved = [0.0], []

    def computed(result):
        clock[0] += 4.0
        return result

    monkeypatch.setattr(loop.time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(loop.jax, "block_until_ready", computed)
    monkeypatch.setattr(loop, "_save", lambda state, folder, about: saved.append(clock[0]))
    values = np.random.default_rng(0).normal(size=(8, 5, 1)).cumsum(1)
    stochflow.fit(
        stochflow.StochasticFlow(1, width=4, layers=1, key=jr.key(0)),
        stochflow.Trajectories.from_arrays(np.arange(5.0), values),
        config=stochflow.FitConfig(steps=9, log_every=1, batch_size=4, checkpoint_seconds=10.0),
        folder=tmp_path / "run",
        key=KEY,
    )
    assert saved == [8.0, 16.0, 24.0, 32.0, 36.0]
