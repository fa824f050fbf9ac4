"""The flow against the machine: its GFLOP/s over those of a bare XLA matrix product."""

import jax
import jax.random as jr
import numpy as np

from stochflow.inference import CPU_OPTIONS, make_sampler
from stochflow.metrics import interleave

from .report import Effort, Section, times
from .sampling import FEW, paper_flow, sample_in_one_jit

WIDTH = 64


def against_matmul(effort: Effort) -> Section:
    r"""Operations a second of sampling over those of $(n \times 64) \cdot (64 \times 64)$, the hidden layer.

    Operations are those of the flow's matrix products alone, so that neither the noise nor the way an exponential
    is computed earns anything: XLA counts our polynomial and not its own exponential. Shares are of the product at
    the middle batch (10⁴ rows); the same product at other batches stands beside it.
    """
    law, basis, key = paper_flow(), effort.batches[-1], jr.key(2)
    cost = sum(2.0 * leaf.size for leaf in jax.tree.leaves(law) if leaf.ndim == 2)
    sampler = make_sampler(law)
    calls = {f"matmul, {n:,}": _matmul(n) for n in (basis // 4, basis)}
    work = {f"matmul, {n:,}": 2.0 * n * WIDTH**2 for n in (basis // 4, basis, effort.many)}
    x_s = jr.normal(jr.key(1), (basis, 3))
    host = np.asarray(x_s)
    calls[f"sampler, {basis:,}"] = lambda: sampler(host, 0.0, 1.0, key=key)
    calls[f"one jit, {basis:,}"] = sample_in_one_jit(law, x_s, 1.0)
    calls[f"one jit, wide vectors, {basis:,}"] = sample_in_one_jit(law, x_s, 1.0, options=CPU_OPTIONS)
    work |= {name: cost * basis for name in calls if name not in work}
    timings = interleave(calls, repeats=2 * effort.repeats, min_time=effort.min_time)
    timings |= _many(effort, law, sampler)
    work |= {name: cost * effort.many for name in timings if name not in work}
    speed = {name: work[name] / timing.min / 1e9 for name, timing in timings.items()}
    middle = {name: work[name] / timing.median / 1e9 for name, timing in timings.items()}
    reference = f"matmul, {basis:,}"
    rows = {
        name: row
        | {
            "GFLOP/s": speed[name],
            "% of matmul": 100 * speed[name] / speed[reference],
            "% by medians": 100 * middle[name] / middle[reference],
        }
        for name, row in times(timings).items()
    }
    figures = {
        "share": 100 * speed[f"one jit, wide vectors, {basis:,}"] / speed[reference],
        "share of many": 100 * speed[f"sampler, {effort.many:,}"] / speed[reference],
    }
    return Section(f"GFLOP/s over those of a bare matmul of {basis:,} rows", rows, figures)


def _matmul(n):
    a, b = jr.normal(jr.key(3), (n, WIDTH)), jr.normal(jr.key(4), (WIDTH, WIDTH))
    product = jax.jit(lambda a, b: a @ b)
    return lambda: product(a, b)


def _many(effort, law, sampler):
    """The sampler by itself: a program that wants a gigabyte at once leaves neither cache nor pages to the next."""
    x_s = jr.normal(jr.key(1), (effort.many, 3))
    host, key = np.asarray(x_s), jr.key(2)
    in_chunks = {f"sampler, {effort.many:,}": lambda: sampler(host, 0.0, 1.0, key=key)}
    at_once = {
        f"matmul, {effort.many:,}": _matmul(effort.many),
        f"one jit, {effort.many:,}": sample_in_one_jit(law, x_s, 1.0),
    }
    timings = interleave(in_chunks, repeats=effort.repeats, min_time=effort.min_time)
    return timings | interleave(at_once, repeats=min(FEW, effort.repeats), min_time=effort.min_time)
