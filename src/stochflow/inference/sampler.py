"""Many draws at once, as fast as the machine allows: chunks that stay in cache, a few at a time."""

import os
from concurrent.futures import ThreadPoolExecutor

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, ArrayLike, Float, PRNGKeyArray

from ..flows.nets import with_padded_widths
from ..laws import (
    AbstractTransition,
    horizon_of,
    latest_of,
    times_in_order,
    warn_beyond_horizon,
    warn_beyond_latest,
)

# Medians on two busy cores, the paper's Lorenz flow, 10⁴ rows: 16.9 ms in chunks of 512, 15.1 of 1024, 13.4
# of 2048, 14.0 of 4096; the last two change places from run to run. Small chunks spend their time on dispatch;
# at 10⁵ rows unchunked the activations are given fresh memory pages at every call, 40 % of the processor time.
CHUNK = 4096
# XLA's own loops fill half of a 512-bit register unless they are told otherwise; where there is none, nothing changes.
CPU_OPTIONS = {"xla_cpu_prefer_vector_width": "512"}


class Sampler:
    """Draws from a law for a whole batch; made by [`make_sampler`][stochflow.inference.make_sampler]."""

    law: AbstractTransition
    chunk: int

    def __init__(self, law: AbstractTransition, chunk: int, workers: int):
        self.law = law
        self.chunk = chunk
        self._pool = ThreadPoolExecutor(workers) if workers > 1 else None
        fast = with_padded_widths(law)

        def draw(key, first, x_s, s, t, u):
            rows = first + jnp.arange(x_s.shape[0])
            sample = lambda i, x, u: fast.sample(x, s, t, u, key=jr.fold_in(key, i))
            with times_in_order():  # checked below, once for all
                return jax.vmap(sample, in_axes=(0, 0, None if u is None else 0))(rows, x_s, u)

        on_cpu = jax.default_backend() == "cpu"
        self._draw = jax.jit(draw, compiler_options=CPU_OPTIONS if on_cpu else None)

    def __call__(
        self,
        x_s: ArrayLike,
        s: float,
        t: float,
        u: ArrayLike | None = None,
        *,
        key: PRNGKeyArray,
    ) -> Float[Array, "n dim"]:
        """One draw of the state at `t` for each row of `x_s`, of shape (n, dim); `u` has shape (n, cond).

        Row `i` is `law.sample(x_s[i], s, t, u[i], key=jax.random.fold_in(key, i))`, up to rounding.
        """
        states, covariates = self._checked(x_s, u)
        s, t = float(s), float(t)
        if not 0 <= t - s < np.inf:  # NaN fails too
            raise ValueError(
                f"`t` must not be earlier than `s`, and both must be finite: a transition law runs forwards; "
                f"got {s:g}, {t:g}."
            )
        warn_beyond_horizon(s, t, horizon_of(self.law))
        warn_beyond_latest(t, latest_of(self.law))
        s, t = (0.0, t - s) if self.law.homogeneous else (s, t)  # float32 is too coarse for unix seconds
        times = np.asarray(s, states.dtype), np.asarray(t, states.dtype)

        def drawn(first):
            rows = slice(first, first + self.chunk)
            number = len(states[rows])
            size = self._bucket(number)
            part_u = None if covariates is None else _pad(covariates[rows], size)
            draws = self._draw(key, np.int32(first), _pad(states[rows], size), *times, part_u)
            return draws if number == size else np.asarray(draws)[:number]

        if len(states) <= self.chunk:
            return jnp.asarray(drawn(0) if len(states) else states)
        out = np.empty_like(states)

        def fill(first):
            out[first : first + self.chunk] = drawn(first)

        list((map if self._pool is None else self._pool.map)(fill, range(0, len(states), self.chunk)))
        return jnp.asarray(out)

    def _bucket(self, rows):
        """Powers of two up to a chunk: a program for each of them serves every number of rows."""
        return min(self.chunk, 1 << (rows - 1).bit_length())

    def _checked(self, x_s, u):
        states = np.asarray(x_s)
        if states.ndim != 2 or states.shape[1] != self.law.dim:
            raise ValueError(f"`x_s` must have shape (n, {self.law.dim}); got {states.shape}.")
        if len(states) > np.iinfo(np.int32).max:
            raise ValueError(f"`x_s` must have fewer than 2³¹ rows; got {len(states)}.")
        # To what JAX is set to: it would warn of double precision and then round it.
        states = states.astype(
            jax.dtypes.canonicalize_dtype(np.result_type(states.dtype, np.float32)), copy=False
        )
        if u is None:
            return states, None
        covariates = np.asarray(u, states.dtype)
        if covariates.ndim != 2 or len(covariates) != len(states):
            raise ValueError(f"`u` must have shape ({len(states)}, cond_dim); got {covariates.shape}.")
        return states, covariates


def make_sampler(law: AbstractTransition, *, chunk: int = CHUNK, workers: int | None = None) -> Sampler:
    """A compiled callable `sampler(x_s, s, t, key=key)` that draws a state at `t` for each row of `x_s`.

    The weights are constants of the program, so make a new sampler when they change. Rows are drawn in
    chunks: memory does not grow with their number beyond the states themselves. The last chunk is padded to a
    power of two, so at most `log2(chunk) + 2` programs are ever compiled, whatever the numbers of rows.

    The noise of row `i` comes from `jax.random.fold_in(key, i)`: a row's draw does not depend on `chunk`, on
    `workers` or on how many rows follow it. (A key a row is no dearer than a key a block of rows: 60 ns of
    about 1,200 for a row of the paper's Lorenz flow.)

    **Arguments:**

    - `law`: any transition law, learnt or exact.
    - `chunk`: rows to a chunk.
    - `workers`: chunks in flight at once, each in a thread; by default one more than there are cores on a CPU, so that
        none waits while another chunk is copied, else one.

    It is for the top level of a program, with concrete arrays. Inside `jit` use `jax.vmap(law.sample)`.
    """
    if workers is None:
        workers = _cores() + 1 if jax.default_backend() == "cpu" else 1
    for name, value in [("chunk", chunk), ("workers", workers)]:
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise ValueError(f"`{name}` must be an integer of at least 1; got {value!r}.")
    return Sampler(law, chunk, workers)


def _cores():
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _pad(rows, size):
    """Up to `size` rows by repeating the last one, a state as good as any other."""
    if len(rows) == size:
        return rows
    return np.concatenate([rows, np.repeat(rows[-1:], size - len(rows), axis=0)])
