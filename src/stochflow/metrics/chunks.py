"""Many rows, a few at a time: bounded memory, and one small program to compile."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, PyTree


def map_in_chunks(fn: Callable, rows: PyTree[Array], chunk: int) -> PyTree[Array]:
    """`jax.vmap(fn)(rows)`, `chunk` rows at a time.

    The last chunk is filled up with rows from the start, which are dropped again: `jax.lax.map` would compile
    a second program for the rest, which takes longer than the rows do.
    """
    n = jax.tree.leaves(rows)[0].shape[0]
    chunk = min(chunk, n)
    filled = jnp.arange(-(-n // chunk) * chunk) % n
    out = jax.lax.map(fn, jax.tree.map(lambda leaf: leaf[filled], rows), batch_size=chunk)
    return jax.tree.map(lambda leaf: leaf[:n], out)
