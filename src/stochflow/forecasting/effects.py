"""What covariates that are known ahead do at once: a regression, of which a law sees what is left."""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..metrics.estimates import AnyArray
from .history import rates_of_moves

# Moves that speak against a pull of a covariate on the moves, before any have been seen; an effect on the level has
# next to none against it, so that what may be either, as a season may, is taken for that.
AGAINST_PULL, AGAINST_LEVEL = 10.0, 1e-3
# Squares of standard errors, a covariate, that an effect is made smaller by: what chance alone brings is forgotten.
FORGOTTEN = 2.0
# Of the mean square of moves.
LEAST = 1e-12
# Of a move, the part that was not fitted.
LEAST_REST = 1e-3


class Effects(NamedTuple):
    """How much higher a series stands, in its own units, a unit of each covariate that is known ahead; and the mean
    square of moves, a unit of time, before such effects are taken off."""

    slopes: Float[Array, "ahead dim"]
    moves: Float[Array, " dim"]

    def at(self, ahead: Float[AnyArray, "*rows ahead"]) -> Float[np.ndarray, "*rows dim"]:
        return np.asarray(ahead) @ np.asarray(self.slopes, np.float64)


class Moves(NamedTuple):
    """From row to row: how long it took, where it began and ended, and the covariates there."""

    gaps: Float[np.ndarray, " moves"]
    x_s: Float[np.ndarray, "moves dim"]
    x_t: Float[np.ndarray, "moves dim"]
    u_s: Float[np.ndarray, "moves ahead"]
    u_t: Float[np.ndarray, "moves ahead"]


def find_effects(
    times: list[Float[np.ndarray, " _rows"]],
    values: list[Float[np.ndarray, "_rows dim"]],
    ahead: list[Float[np.ndarray, "_rows ahead"]],
    gap: float,
) -> Effects:
    r"""What covariates do at once, from moves between neighbouring rows.

    $x_t - x_s = \beta\,(u_t - u_s) + \gamma\,u_t\,\Delta t + c\,\Delta t + \varepsilon$ for each channel, by weighted
    least squares. An effect on the level, $\beta$, is undone when the covariate goes back; a pull on the moves,
    $\gamma$, is not, and is left to the law.
    """
    rates = np.concatenate([rates_of_moves(t, x, gap) for t, x in zip(times, values, strict=True)])
    moves = _moves(times, values, ahead)
    dim, number = moves.x_s.shape[1], moves.u_s.shape[1]
    slopes = np.zeros((number, dim))
    if len(moves.gaps) > 2 * number + 1:
        for channel in range(dim):
            slopes[:, channel] = _slopes(moves, channel, gap)
    return Effects(
        *(jnp.asarray(array, jnp.float32) for array in (slopes, np.maximum(rates.mean(axis=0), LEAST)))
    )


def _moves(times, values, ahead) -> Moves:
    joined = lambda cut: np.concatenate([cut(*each) for each in zip(times, values, ahead, strict=True)])
    return Moves(
        joined(lambda t, x, u: np.diff(t)),
        joined(lambda t, x, u: x[:-1]),
        joined(lambda t, x, u: x[1:]),
        joined(lambda t, x, u: u[:-1]),
        joined(lambda t, x, u: u[1:]),
    )


def _slopes(moves: Moves, channel: int, gap: float) -> Float[np.ndarray, " ahead"]:
    """Of one channel; smaller by what chance may have brought (James and Stein, 1961, positive part)."""
    long = (moves.gaps / gap)[:, None]
    weight = 1 / np.sqrt(long + 1)
    design = weight * np.concatenate([moves.u_t - moves.u_s, long * moves.u_t, long], axis=1)
    moved = weight[:, 0] * (moves.x_t - moves.x_s)[:, channel]
    number = moves.u_s.shape[1]
    against = np.repeat([AGAINST_LEVEL, AGAINST_PULL, AGAINST_LEVEL], [number, number, 1])
    inverse = np.linalg.inv(design.T @ design + np.diag(against))
    found = inverse @ design.T @ moved
    # Errors that hold whatever the noise of each move (White, 1980), as if it had not been fitted (MacKinnon and White,
    # 1985), and no smaller than those of moves in general: a covariate that was on once leaves its moves no rest.
    rest = moved - design @ found
    lever = ((design @ inverse) * design).sum(axis=1)
    usual = np.square(rest).sum() / max(len(rest) - 2 * number - 1, 1)
    each = design * np.sqrt(np.maximum(np.square(rest / np.maximum(1 - lever, LEAST_REST)), usual))[:, None]
    covariance = (inverse @ (each.T @ each) @ inverse)[:number, :number]
    slopes = found[:number]
    evidence = slopes @ np.linalg.pinv(covariance, rcond=1e-8, hermitian=True) @ slopes
    return max(0.0, 1 - FORGOTTEN * number / max(evidence, 1e-12)) * slopes
