"""Where paths start: a box, an array of states, or a law of the user's."""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, ArrayLike, Float, PRNGKeyArray

from ..laws import Support
from .probe import first_line

Starts = tuple[ArrayLike | list, ArrayLike | list] | ArrayLike | Callable
# Of a law given as a function: enough to meet a mistake that is not rare, few enough to cost nothing.
TRIED = 256
# Paths start beyond the faces of a box too, by this share of its width: a face is then no end of what is learnt.
ROOM = 0.125


class Box(eqx.Module):
    """Uniform between two corners; each coordinate is spread evenly (a Latin hypercube).

    What a fit is to learn from, `place`, lies between the outer corners, with the density of Chebyshev's nodes, higher
    towards the faces. A fit has neighbours on one side only there, and is at its worst.
    """

    low: Float[Array, " dim"]
    high: Float[Array, " dim"]
    outer_low: Float[Array, " dim"]
    outer_high: Float[Array, " dim"]

    @property
    def size(self) -> int:
        """How many numbers between 0 and 1 `place` takes for a start."""
        return self.low.shape[0]

    def place(self, shares: Float[Array, "number size"], *, key: PRNGKeyArray) -> Float[Array, "number dim"]:
        """Starts for a fit, one a row of numbers between 0 and 1."""
        share = jnp.square(jnp.sin(jnp.pi / 2 * shares)).astype(self.low.dtype)
        return self.outer_low[None] + share * (self.outer_high - self.outer_low)[None]

    @eqx.filter_jit
    def draw(self, number: int, *, key: PRNGKeyArray) -> Float[Array, "number dim"]:
        order_key, place_key = jr.split(key)
        shape = number, self.low.shape[0]
        cell = jr.permutation(
            order_key, jnp.broadcast_to(jnp.arange(number)[:, None], shape), independent=True
        )
        share = (cell + jr.uniform(place_key, shape, self.low.dtype)) / number
        return self.low[None] + share * (self.high - self.low)[None]


class States(eqx.Module):
    """One of the given states, each as likely as the next."""

    states: Float[Array, "states dim"]

    @property
    def size(self) -> int:
        return 1

    def place(self, shares: Float[Array, "number size"], *, key: PRNGKeyArray) -> Float[Array, "number dim"]:
        number = self.states.shape[0]
        return self.states[jnp.minimum((shares[:, 0] * number).astype(jnp.int32), number - 1)]

    @eqx.filter_jit
    def draw(self, number: int, *, key: PRNGKeyArray) -> Float[Array, "number dim"]:
        return self.states[jr.randint(key, (number,), 0, self.states.shape[0])]


class StartLaw(eqx.Module):
    """What a function `key -> x0` draws."""

    function: Callable

    @property
    def size(self) -> int:
        return 0

    def place(self, shares: Float[Array, "number size"], *, key: PRNGKeyArray) -> Float[Array, "number dim"]:
        return self.draw(shares.shape[0], key=key)

    @eqx.filter_jit
    def draw(self, number: int, *, key: PRNGKeyArray) -> Float[Array, "number dim"]:
        return jax.vmap(lambda key: jnp.asarray(self.function(key), jnp.result_type(float)))(
            jr.split(key, number)
        )


def make_starts(starts: Starts, dim: int, support: Support, *, key: PRNGKeyArray) -> Box | States | StartLaw:
    """The starts in one of the three forms, checked: shape, finite, within the support."""
    if callable(starts):
        try:
            shape = jax.eval_shape(lambda key: jnp.asarray(starts(key)), key).shape
        except Exception as error:  # whatever a function of the user's raises
            raise ValueError(f"`starts` could not be called with a key: {first_line(error)}.") from error
        if shape != (dim,):
            raise ValueError(f"`starts` must return one state of shape ({dim},); got {shape}.")
        made = StartLaw(starts)
        _require_inside(made.draw(TRIED, key=key), support)
        return made
    if isinstance(starts, tuple):
        return _box(starts, dim, support)
    if isinstance(starts, list) and len(starts) == 2:
        raise ValueError(
            "`starts` as a list of two may be a box or two states: pass a tuple (low, high), or an array of states."
        )
    try:
        states = np.asarray(starts, float)
    except (TypeError, ValueError):
        raise ValueError(f"`starts` must be numbers, or a function of a key; got {starts!r}.") from None
    if states.ndim != 2 or states.shape[1] != dim or not len(states):
        raise ValueError(
            f"`starts` must be a pair (low, high) of corners, states of shape (n, {dim}), or a function of a key; got "
            f"shape {states.shape}."
        )
    _require_inside(states, support)
    return States(jnp.asarray(states, jnp.result_type(float)))


def _box(corners, dim, support):
    if len(corners) != 2:
        raise ValueError(f"`starts` must be a pair of corners, low and high; got {len(corners)} of them.")
    try:
        low, high = (np.asarray(corner, float) for corner in corners)
    except (TypeError, ValueError):
        raise ValueError(f"`starts` must have corners of numbers; got {corners!r}.") from None
    for name, corner in {"low": low, "high": high}.items():
        if corner.shape != (dim,):
            raise ValueError(f"`starts` must have corners of shape ({dim},); got {corner.shape} for {name}.")
    if not (np.isfinite(low) & np.isfinite(high)).all():
        raise ValueError("`starts` must be finite; got a corner that is not.")
    if not (low < high).all():
        raise ValueError(f"`starts` must have `low` below `high`; got {low.tolist()}, {high.tolist()}.")
    for (lowest, highest), a, b in zip(support.bounds, low, high, strict=True):
        if a < lowest or b > highest:
            raise ValueError(
                f"`starts` must lie within `support`; got [{a:g}, {b:g}] for ({lowest:g}, {highest:g})."
            )
    bounds = np.array(support.bounds)
    room = ROOM * (high - low)
    # Halfway to a bound at most: what lies on it is often where the SDE ends.
    outer_low = low - np.minimum(room, (low - bounds[:, 0]) / 2)
    outer_high = high + np.minimum(room, (bounds[:, 1] - high) / 2)
    return Box(
        *(jnp.asarray(corner, jnp.result_type(float)) for corner in (low, high, outer_low, outer_high))
    )


def _require_inside(states, support):
    states = np.asarray(states, float)
    if not np.isfinite(states).all():
        raise ValueError(
            f"`starts` must be finite; got {(~np.isfinite(states)).any(axis=1).sum()} that are not."
        )
    low, high = np.array(support.bounds).T
    outside = ~((states > low) & (states < high)).all(axis=1)
    if outside.any():
        raise ValueError(f"`starts` must lie within `support`; got {states[outside][0].tolist()}.")
