"""Strict by default: float64, no silent rank promotion, shape checks on, warnings as errors."""

import gc
import itertools
import os
from pathlib import Path

# Tests compile hundreds of small programs and run each once: fast code is not worth the time it takes to make. The
# newer emitters of loops set up a compiler pipeline for each of them: without, the tests take two thirds of the time.
os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=0 --xla_cpu_use_fusion_emitters=false")

import jax
import jax.random as jr
import pytest
from jaxtyping import config, install_import_hook

jax.config.update("jax_enable_x64", True)
jax.config.update("jax_numpy_rank_promotion", "raise")

hook = install_import_hook("stochflow", "beartype.beartype")
import stochflow  # noqa: E402

for name in dir(stochflow):
    getattr(stochflow, name)  # rooms are imported when they are asked for
hook.uninstall()


# Linux gives a process 65,530 maps of memory, and a compiled program holds several: at the end of them the compiler
# crashes. A file of tests seldom needs more than the rest.
MOST_MAPS, MAPS = 25_000, Path("/proc/self/maps")


@pytest.fixture(autouse=True, scope="module")
def few_programs():
    """Forget compiled programs after a file of tests, where they have become many."""
    yield
    if MAPS.exists() and MAPS.read_bytes().count(b"\n") > MOST_MAPS:
        jax.clear_caches()
        gc.collect()


@pytest.fixture
def getkey():
    """A function that returns a new key at each call, the same ones in each run."""
    counter = itertools.count()
    return lambda: jr.fold_in(jr.key(20251115), next(counter))


@pytest.fixture
def as_users_have_it():
    """The shape checks of the tests off: what is wrong with an argument has to be said by the library itself."""
    config.update("jaxtyping_disable", True)
    yield
    config.update("jaxtyping_disable", False)
