"""What a call costs, as XLA counts it: the paper's FLOPs."""

from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float

from ..laws import AbstractTransition


class SampleFlops(NamedTuple):
    """Floating-point operations of one sample: from given noise, and from a key (the generator counted)."""

    transform: float
    sample: float


def flops(fn: Callable, *args) -> float:
    """Floating-point operations of `fn(*args)` once compiled.

    Arrays are inputs of the program, those inside `fn` too (a method of a module, say): as constants, XLA
    would fold some of the work away and not count it. A loop's body may be counted once, whatever its length.
    """
    arrays, static = eqx.partition((fn, args), eqx.is_array)

    def run(arrays):
        fn, args = eqx.combine(arrays, static)
        return eqx.filter(fn(*args), eqx.is_array)

    analysis = jax.jit(run).lower(arrays).compile().cost_analysis()
    (analysis,) = analysis if isinstance(analysis, list | tuple) else (analysis,)
    if analysis is None or "flops" not in analysis:
        raise RuntimeError(f"XLA does not count operations on this backend, {jax.default_backend()!r}.")
    return float(analysis["flops"])


def flops_per_sample(law: AbstractTransition, u: Float[Array, " cond"] | None = None) -> SampleFlops:
    """What one sample of a law costs; the same for every gap.

    Counted in double precision, where every elementary function is XLA's own and counts as none of the operations that
    it takes: so do the paper's, and a faster exponential must not look like more work. `flops(law.transform, …)`
    counts the program as it runs in single precision.
    """
    with jax.enable_x64(True):
        double = lambda a: jnp.asarray(a, jnp.float64) if eqx.is_inexact_array(a) else a
        law, u = jax.tree.map(double, (law, u))
        x_s, s, t = jnp.zeros(law.dim), jnp.zeros(()), jnp.ones(())
        return SampleFlops(
            flops(law.transform, jnp.zeros(law.dim), x_s, s, t, u),
            flops(lambda law, key: law.sample(x_s, s, t, u, key=key), law, jr.key(0)),
        )
