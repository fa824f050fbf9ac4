"""The training step, as `fit` runs it: likelihood alone, and with both directions of the consistency loss."""

import json
import resource
import subprocess
import sys
import time
from typing import NamedTuple

import equinox as eqx
import jax
import jax.random as jr

from stochflow import BridgeFlow, FitConfig
from stochflow.data import PairSampler
from stochflow.data.lorenz import lorenz_trajectories
from stochflow.laws import times_in_order
from stochflow.metrics import interleave
from stochflow.training import FlowAndBridge
from stochflow.training.devices import everywhere, on_devices, usable_devices
from stochflow.training.fit import _Objective, _Source
from stochflow.training.step import init_state, make_optimiser, make_step

from .report import Effort, Section, times
from .sampling import paper_flow

# Steps to a compiled chunk; dispatch is then a small part.
STEPS = 10
WEIGHT = 0.4
# Of the CPU, as the commands have them.
DEVICES = 2


class Compiled(NamedTuple):
    """A compiled chunk of steps with its arguments, and what compiling it took."""

    call: object
    arguments: tuple
    seconds: dict[str, float]
    temporary: float
    devices: int

    def run(self):
        return self.call(*self.arguments)  # pyright: ignore[reportCallIssue]


def steps_on_two_devices(effort: Effort) -> Section:
    """The section by a process that has two devices of the CPU: all else is timed with one, as it is without asking."""
    asked = [sys.executable, "-m", __spec__.name, json.dumps(effort)]
    ran = subprocess.run(asked, capture_output=True, text=True, check=False)
    if ran.returncode:
        raise RuntimeError(f"{' '.join(asked[1:3])} ended with {ran.returncode}: {ran.stderr.strip()[-500:]}")
    return Section(*json.loads(ran.stdout.splitlines()[-1]))


def steps(effort: Effort, batches: tuple[int, ...] = (256, 512)) -> Section:
    """Time a step, compile time and memory; on one device of the CPU, and on two if there are."""
    sampler = PairSampler(lorenz_trajectories(64, key=jr.key(5)), horizon=1.0)
    numbers = sorted({1, usable_devices(*batches)})
    compiled = {
        _name(kind, batch, number): compile_step(sampler, batch, weight, number, triplets=triplets)
        for number in numbers
        for batch in batches
        for kind, weight, triplets in [
            ("likelihood", 0.0, None),
            ("consistency", WEIGHT, batch),
            ("consistency, as many each way", WEIGHT, 2 * batch),
        ]
    }
    calls = {name: program.run for name, program in compiled.items()}
    timings = interleave(calls, repeats=effort.repeats, min_time=effort.min_time)
    rows = {
        name: row
        | {f"{stage} s": taken for stage, taken in compiled[name].seconds.items()}
        | {"temp MB": compiled[name].temporary / 1e6}
        for name, row in times(timings, per=STEPS).items()
    }
    rows["process"] = {"peak MB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3}
    figures = {}
    for number in numbers:
        for batch in batches:
            fastest = lambda kind, batch=batch, number=number: timings[_name(kind, batch, number)].min
            for kind in ("consistency", "consistency, as many each way"):
                figures[f"{kind}, {batch}, {number}"] = fastest(kind) / fastest("likelihood")
        taken = [sum(program.seconds.values()) for program in compiled.values() if program.devices == number]
        figures[f"compile, {number}"] = max(taken)
    return Section("A training step", rows, figures)


def _name(kind: str, batch: int, number: int) -> str:
    return f"{kind}, {batch}, {'one device' if number == 1 else f'{number} devices'}"


def compile_step(
    sampler: PairSampler, batch: int, weight: float, number: int = 1, *, triplets: int | None = None
) -> Compiled:
    """`STEPS` steps of `fit` under one `scan`, compiled stage by stage."""
    config = FitConfig(batch_size=batch, consistency=weight, consistency_batch=triplets)
    bridge = BridgeFlow(3, key=jr.key(6)) if weight else None
    params, static = eqx.partition(FlowAndBridge(paper_flow(), bridge), eqx.is_inexact_array)
    nothing = jax.tree.map(lambda _: False, params)
    optim = make_optimiser(config)
    objective = _Objective(config, sampler.horizon, sampler.horizon)

    def chunk(state, data, key):
        loss = lambda params, step, key: objective.loss(eqx.combine(params, static), data, step, key)
        step = make_step(loss, optim, config, inner_filter=nothing)
        with times_in_order():
            return jax.lax.scan(lambda state, _: step(state, key), state, length=STEPS)

    state = init_state(params, eqx.filter(params, nothing), optim, keep_best=False)
    arguments = everywhere((state, _Source(sampler), jr.key(7)), number)
    begin = time.perf_counter()
    traced = on_devices(chunk, number).trace(*arguments)
    after_trace = time.perf_counter()
    lowered = traced.lower()
    after_lower = time.perf_counter()
    program = lowered.compile()
    seconds = {
        "trace": after_trace - begin,
        "lower": after_lower - after_trace,
        "compile": time.perf_counter() - after_lower,
    }
    memory = program.memory_analysis()
    return Compiled(program, arguments, seconds, 0.0 if memory is None else memory.temp_size_in_bytes, number)


if __name__ == "__main__":
    jax.config.update("jax_num_cpu_devices", DEVICES)
    print(json.dumps(steps(Effort(*json.loads(sys.argv[1])))))
