"""Muon, with matrices of about one shape orthogonalised together.

Muon (Jordan et al., 2024) replaces the momentum of each weight matrix by the nearest semi-orthogonal matrix,
found by a few Newton–Schulz steps, and leaves vectors to Adam. Our networks are many small matrices of few
shapes, so the Newton–Schulz steps are taken for all matrices of one shape together: laid on their long side and, if
thin, padded with zero rows to a round number of them.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float

# The quintic of Jordan et al.: it maps singular values to about [0.7, 1.2] in five steps, fast rather than exact.
QUINTIC = (3.4445, -4.7750, 2.0315)
NEWTON_SCHULZ_STEPS = 5
# Thin matrices are padded with zero rows to a multiple of this, so that those of almost one shape go together.
ROUND = 16


def orthogonalise(stack: Float[Array, "number rows cols"]) -> Float[Array, "number rows cols"]:
    """Each wide matrix's nearest semi-orthogonal matrix, to the accuracy that Muon wants."""
    a, b, c = QUINTIC
    x = stack / (jnp.linalg.norm(stack, axis=(1, 2), keepdims=True) + 1e-8)

    def step(_, x):
        gram = x @ jnp.swapaxes(x, 1, 2)
        return a * x + (b * gram + c * gram @ gram) @ x

    return jax.lax.fori_loop(0, NEWTON_SCHULZ_STEPS, step, x)


class MuonState(NamedTuple):
    count: Array
    momentum: optax.Updates


def scale_by_muon(beta: float = 0.95) -> optax.GradientTransformation:
    """Orthogonalised Nesterov momentum for a tree of matrices; other leaves must be masked out."""

    def init(params):
        return MuonState(jnp.zeros((), jnp.int32), optax.tree.zeros_like(params))

    def update(updates, state, params=None):
        del params
        count = state.count + 1
        momentum = optax.tree.update_moment(updates, state.momentum, beta, 1)
        nesterov = jax.tree.map(lambda m, g: beta * m + (1 - beta) * g, momentum, updates)
        return _by_shape(nesterov), MuonState(count, momentum)

    return optax.GradientTransformation(init, update)


def _by_shape(tree: optax.Updates) -> optax.Updates:
    leaves, treedef = jax.tree.flatten(tree)
    groups: dict[tuple[int, int], list[int]] = {}
    for i, leaf in enumerate(leaves):
        groups.setdefault(_room(leaf.shape), []).append(i)
    done = {}
    for (rows, _), places in groups.items():
        stack = orthogonalise(jnp.stack([_lay(leaves[i], rows) for i in places]))
        done |= {
            i: _gain(leaves[i].shape) * _unlay(m, leaves[i].shape) for i, m in zip(places, stack, strict=True)
        }
    return jax.tree.unflatten(treedef, [done[i] for i in range(len(leaves))])


def _room(shape: tuple[int, ...]) -> tuple[int, int]:
    """The stack that a matrix belongs to: wide, with a round number of rows."""
    rows, cols = sorted(shape)
    return min(-(-rows // ROUND) * ROUND, cols), cols


def _lay(matrix, rows):
    """The matrix on its long side with zero rows added; they stay zero, and change nothing in the others."""
    matrix = matrix.T if matrix.shape[0] > matrix.shape[1] else matrix
    return jnp.pad(matrix, ((0, rows - matrix.shape[0]), (0, 0)))


def _unlay(matrix, shape):
    matrix = matrix[: min(shape)]
    return matrix.T if shape[0] > shape[1] else matrix


def _gain(shape: tuple[int, ...]) -> float:
    """A wide layer's update is scaled so that its output moves as far as a square one's (rows are inputs)."""
    return max(1.0, shape[1] / shape[0]) ** 0.5


def muon(
    learning_rate: optax.ScalarOrSchedule, *, weight_decay: float = 0.0, beta: float = 0.95
) -> optax.GradientTransformation:
    """Muon for the matrices of a model and Adam for the rest, at one learning rate."""
    label = lambda params: jax.tree.map(lambda p: "muon" if p.ndim == 2 else "adam", params)
    finish = lambda: (
        optax.add_decayed_weights(weight_decay),
        optax.scale_by_learning_rate(learning_rate),
    )
    return optax.partition(
        {
            "muon": optax.chain(scale_by_muon(beta), *finish()),
            "adam": optax.chain(optax.scale_by_adam(0.9, 0.999), optax.scale_by_learning_rate(learning_rate)),
        },
        label,
    )
