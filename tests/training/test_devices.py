"""A batch that is shared between two devices; they need a process of their own."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).with_name("two_devices.py")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("two")


def run(*args):
    env = os.environ | {"XLA_FLAGS": "--xla_backend_optimization_level=0 --xla_cpu_use_fusion_emitters=false"}
    return subprocess.run(
        [sys.executable, SCRIPT, *args], check=False, capture_output=True, text=True, env=env
    )


@pytest.fixture(scope="module")
def answers(folder):
    done = run(folder)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_there_are_two_devices_and_a_batch_that_is_odd_is_not_shared(answers):
    assert answers["devices"] == 2
    assert answers["usable"] == [2, 1]


@pytest.mark.parametrize("what", ["gradients agree", "keys differ", "resumes", "latent", "on one device"])
def test_two_devices(what, answers):
    assert answers[what]


def test_a_run_goes_on_with_as_many_devices_as_it_began_with(answers, folder):
    assert "holds a run with another number of devices: pass the same" in run(folder, "1").stderr
