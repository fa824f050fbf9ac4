"""Run times that can be compared: taken in turns, in one process."""

import statistics
import time
from collections.abc import Callable, Mapping
from typing import NamedTuple

import jax


class Timing(NamedTuple):
    """Seconds a call, over the repeats. The minimum is the least disturbed; compare ratios, not seconds."""

    min: float
    median: float


def interleave(
    callables: Mapping[str, Callable[[], object]], *, repeats: int = 20, min_time: float = 0.01
) -> dict[str, Timing]:
    """Times each callable `repeats` times, in turns, so that a busy machine slows all of them alike.

    Each is warmed up (and so compiled) first and waited for at every call. A repeat lasts at least `min_time`
    seconds: a fast callable is called many times and the time divided. Every other round runs backwards.
    """
    if repeats < 1:
        raise ValueError(f"`repeats` must be at least one; got {repeats}.")
    calls = {name: _calls_that_last(fn, min_time) for name, fn in callables.items()}
    seconds: dict[str, list[float]] = {name: [] for name in callables}
    for i in range(repeats):
        for name in list(callables)[:: -1 if i % 2 else 1]:
            seconds[name].append(_seconds(callables[name], calls[name]) / calls[name])
    return {name: Timing(min(taken), statistics.median(taken)) for name, taken in seconds.items()}


def _calls_that_last(fn: Callable[[], object], min_time: float) -> int:
    _seconds(fn, 1)  # compiles
    calls = 1
    while _seconds(fn, calls) < min_time:
        calls *= 2
    return calls


def _seconds(fn: Callable[[], object], calls: int) -> float:
    start = time.perf_counter()
    for _ in range(calls):
        jax.block_until_ready(fn())
    return time.perf_counter() - start
