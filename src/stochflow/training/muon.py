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

from .packing import together

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
    """The momentum of each stack of matrices, in the order of their first members."""

    count: Array
    momentum: list[Float[Array, "number rows cols"]]


def muon_for_matrices(
    learning_rate: optax.ScalarOrSchedule, *, weight_decay: float = 0.0, beta: float = 0.95
) -> optax.GradientTransformation:
    """Steps along the orthogonalised Nesterov momentum, for a tree of matrices; other leaves must be masked out.

    Momentum is kept stack by stack, so that a step is a few large operations and not many small ones.
    """

    def init(params):
        leaves = jax.tree.leaves(params)
        momentum = [
            jnp.zeros((len(places), *room), leaves[places[0]].dtype) for room, places in _stacks(leaves)
        ]
        return MuonState(jnp.zeros((), jnp.int32), momentum)

    def update(updates, state, params=None):
        leaves, treedef = jax.tree.flatten(updates)
        rate = jnp.asarray(learning_rate(state.count) if callable(learning_rate) else learning_rate)
        done, momentum = {}, []
        for (room, places), old in zip(_stacks(leaves), state.momentum, strict=True):
            stack = jnp.stack([_lay(leaves[i], room[0]) for i in places])
            new = beta * old + (1 - beta) * stack
            gains = jnp.array([_gain(leaves[i].shape) for i in places], stack.dtype)[:, None, None]
            step = -rate * gains * orthogonalise(beta * new + (1 - beta) * stack)
            momentum.append(new)
            done |= {i: _unlay(matrix, leaves[i].shape) for i, matrix in zip(places, step, strict=True)}
        steps = jax.tree.unflatten(treedef, [done[i] for i in range(len(leaves))])
        if weight_decay:
            steps = jax.tree.map(lambda step, p: step - rate * weight_decay * p, steps, params)
        return steps, MuonState(state.count + 1, momentum)

    return optax.GradientTransformation(init, update)


def _stacks(leaves: list[Array]) -> list[tuple[tuple[int, int], list[int]]]:
    """The rooms that the matrices need, each with the places of those that go there."""
    groups: dict[tuple[int, int], list[int]] = {}
    for i, leaf in enumerate(leaves):
        groups.setdefault(_room(leaf.shape), []).append(i)
    return list(groups.items())


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
    adam = optax.chain(optax.scale_by_adam(0.9, 0.999), optax.scale_by_learning_rate(learning_rate))
    matrices = muon_for_matrices(learning_rate, weight_decay=weight_decay, beta=beta)
    return optax.partition({"muon": matrices, "adam": together(adam)}, label)
