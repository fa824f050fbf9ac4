"""The flow itself: draws and log-densities at several batches, one step or several, long gaps and short ones."""

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np

from stochflow import StochasticFlow, rollout
from stochflow.inference import make_sampler
from stochflow.inference.sampler import CHUNK
from stochflow.metrics import flops_per_sample, interleave

from .report import Effort, Section, times

# Large batches take long enough for a few turns to do.
FEW = 5


def paper_flow() -> StochasticFlow:
    """The paper's Lorenz flow, 25,130 parameters."""
    return StochasticFlow(3, clock="linear", key=jr.key(0))


def draws_and_densities(effort: Effort) -> Section:
    """Sampling and log-density, by batch; the largest in chunks."""
    law, rows, key = paper_flow(), {}, jr.key(2)
    sampler = make_sampler(law)
    for batch in (*effort.batches, effort.many):
        x_s, x_t = jr.normal(jr.key(1), (2, batch, 3))
        host = np.asarray(x_s)
        calls = {
            f"sample, {batch:,}": lambda host=host: sampler(host, 0.0, 1.0, key=key),
            f"log-density, {batch:,}": _density(law, x_t, x_s),
        }
        if batch != effort.many:
            calls |= {f"sample in one jit, {batch:,}": sample_in_one_jit(law, x_s, 1.0)}
        repeats = min(FEW, effort.repeats) if batch == effort.many else effort.repeats
        for name, row in times(interleave(calls, repeats=repeats, min_time=effort.min_time)).items():
            rows[name] = row | {"µs a row": 1e3 * row["min ms"] / batch}
    return Section("Draws and log-densities", rows, {"kflops": flops_per_sample(law).transform / 1e3})


def gaps_and_chains(effort: Effort) -> Section:
    """One step at t = 1 and at t = 0.25; and t = 1 in one, two and four steps (the paper's H_pred)."""
    law, rows, figures = paper_flow(), {}, {}
    for batch in effort.batches[1:]:
        x_s = jr.normal(jr.key(1), (batch, 3))
        sample = sample_in_one_jit(law, x_s)
        calls = {f"t = {t}, {batch:,}": lambda t=t, sample=sample: sample(t) for t in (0.25, 1.0)}
        calls |= {f"t = 1, H_pred = {gap}, {batch:,}": _chain(law, x_s, gap) for gap in (1.0, 0.5, 0.25)}
        timings = interleave(calls, repeats=effort.repeats, min_time=effort.min_time)
        rows |= times(timings)
        figures[f"gap ratio {batch}"] = (
            timings[f"t = 1.0, {batch:,}"].min / timings[f"t = 0.25, {batch:,}"].min
        )
    return Section("One step or several", rows, figures | {"gap ratio": max(figures.values())})


def single_call(effort: Effort) -> Section:
    """One draw through `jit` against a `jit` that does nothing."""
    law, x = paper_flow(), jnp.ones(3)
    s, t, key = jnp.zeros(()), jnp.ones(()), jr.key(2)
    empty = jax.jit(lambda x: x)
    constant = jax.jit(lambda x, s, t, key: law.sample(x, s, t, key=key))
    passed = jax.jit(lambda law, x, s, t, key: law.sample(x, s, t, key=key))
    density = jax.jit(lambda x, s, t: law.log_prob(x, x, s, t))
    calls = {
        "empty jit": lambda: empty(x),
        "sample, weights in the program": lambda: constant(x, s, t, key),
        "sample, weights passed": lambda: passed(law, x, s, t, key),
        "log-density, weights in the program": lambda: density(x, s, t),
    }
    timings = interleave(calls, repeats=2 * effort.repeats, min_time=effort.min_time)
    least = timings["empty jit"].min
    rows = {name: row | {"over empty": timings[name].min / least} for name, row in times(timings).items()}
    return Section("A single call", rows, {"single": timings["sample, weights in the program"].min / least})


def sample_in_one_jit(law, x_s, t=None, *, options: dict[str, str] | None = None) -> Callable:
    """A callable of the time (or of nothing, if that is given) that draws the whole batch in one program."""

    @functools.partial(jax.jit, compiler_options=options)
    def sample(x_s, t, key):
        noise = jr.normal(key, x_s.shape)
        return jax.vmap(lambda z, x: law.transform(z, x, 0.0, t))(noise, x_s)

    key = jr.key(2)
    return (lambda t: sample(x_s, t, key)) if t is None else (lambda: sample(x_s, t, key))


def _density(law, x_t, x_s):
    @jax.jit
    def log_prob(x_t, x_s, t):
        one = lambda pair: law.log_prob(*pair, 0.0, t)
        return jax.lax.map(one, (x_t, x_s), batch_size=min(CHUNK, len(x_s)))

    return lambda: log_prob(x_t, x_s, 1.0)


def _chain(law, x_s, gap):
    @jax.jit
    def roll(x_s, key):
        path = lambda x, k: rollout(law, x, np.array([0.0, 1.0]), max_gap=gap, key=k)[-1]
        return jax.vmap(path)(x_s, jr.split(key, len(x_s)))

    key = jr.key(2)
    return lambda: roll(x_s, key)
