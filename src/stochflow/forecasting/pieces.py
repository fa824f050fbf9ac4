"""Stretches of series in the units of a law."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from .akin import Series


class Piece(NamedTuple):
    """A stretch of one series: complete rows, in the law's units, with covariates; at each row the mean of the series
    so far, where each has units of its own; and when it began, on a clock that all series share."""

    times: Float[np.ndarray, " rows"]
    values: Float[np.ndarray, "rows dim"]
    u: Float[np.ndarray, "rows cond"]
    centres: Float[np.ndarray, "rows dim"] | None = None
    began: float = 0.0

    @property
    def on_clock(self) -> Series:
        return Series(self.began + self.times, self.values)

    def some(self, chosen: Bool[np.ndarray, " rows"]) -> "Piece":
        """Without the rows that were not chosen."""
        centres = None if self.centres is None else self.centres[chosen]
        return Piece(self.times[chosen], self.values[chosen], self.u[chosen], centres, self.began)

    def told_apart(self) -> "Piece":
        """Without rows that come so soon after another that single precision, far from the origin, sees no gap."""
        short = self.times.astype(np.float32)
        return self.some(np.concatenate([[True], np.diff(np.maximum.accumulate(short)) > 0]))


def usual_gap(pieces: list[Piece]) -> float:
    """The median gap between one row and the next."""
    return float(np.median(np.concatenate([np.diff(piece.times) for piece in pieces])))
