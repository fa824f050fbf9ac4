"""Many small arrays as one long one: an optimiser that goes number by number is then one loop, not one a leaf."""

from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jaxtyping import PyTree


def pack(tree: PyTree) -> dict[str, jax.Array]:
    """All leaves of one type as one vector."""
    leaves = jax.tree.leaves(tree)
    kinds = dict.fromkeys(str(leaf.dtype) for leaf in leaves)
    return {
        kind: jnp.concatenate([leaf.reshape(-1) for leaf in leaves if str(leaf.dtype) == kind])
        for kind in kinds
    }


def unpack(packed: Any, like: PyTree) -> PyTree:
    """A tree with the shapes and types of `like` and the numbers of `packed`."""
    leaves, treedef = jax.tree.flatten(like)
    taken = dict.fromkeys(packed, 0)

    def parts() -> Iterator[jax.Array]:
        for leaf in leaves:
            kind = str(leaf.dtype)
            begin, taken[kind] = taken[kind], taken[kind] + leaf.size
            yield packed[kind][begin : taken[kind]].reshape(leaf.shape)

    return jax.tree.unflatten(treedef, list(parts()))


def together(inner: optax.GradientTransformation) -> optax.GradientTransformation:
    """An optimiser that goes number by number, applied to all leaves of one type as one vector."""

    def update(updates, state, params=None):
        new, state = inner.update(pack(updates), state, None if params is None else pack(params))
        return unpack(new, updates), state

    return optax.GradientTransformation(lambda params: inner.init(pack(params)), update)
