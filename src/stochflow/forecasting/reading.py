"""Reading what series have done, many at once, by few compiled programs."""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Bool, Float, Int

from ..metrics.estimates import AnyArray
from .history import Memory, padded, padded_length
from .recent import Read, Said, recent_said, recent_width

# Rows of the past that are read at the most: what lies before them has faded from every memory, and says little of
# how wide the next moves are.
PAST = 8192
# Series whose past is read by one call, filled up if there are fewer: so what is read of one does not depend on the
# others, to the last digit.
AT_ONCE = 16
# Rows of a transition.
LEAST_ROWS = 2


class Past(NamedTuple):
    """Complete rows of a series in the units of the law, and what the state is measured from at each."""

    times: Float[np.ndarray, " rows"]
    values: Float[np.ndarray, "rows dim"]
    covariates: Float[np.ndarray, "rows covariates"]
    centres: Float[np.ndarray, "rows dim"]


class Found(NamedTuple):
    """Of each series: the memory after its last row, what its last stretches say of the law, and how many times as wide
    the law is taken to be for it."""

    memory: Memory
    said: Said
    wider: Float[AnyArray, "*series knots dim"]


def read_rows(model: Any, rows: list[Past], *, one_length: bool = False) -> Found:
    """What series have done, read in batches of one padded length: one program for each length or, with `one_length`,
    a single one."""
    lengths = [padded_length(len(past.times)) for past in rows]
    lengths = [max(lengths)] * len(rows) if one_length else lengths
    found: list[Any] = [None] * len(rows)
    for length in sorted(set(lengths)):
        group = [i for i, n in enumerate(lengths) if n == length]
        for first in range(0, len(group), AT_ONCE):
            part = group[first : first + AT_ONCE]
            filled = (part + [part[-1]] * AT_ONCE)[:AT_ONCE]
            arrays = [
                (*padded(t, x, length), *(_as_long(each, length) for each in rest))
                for t, x, *rest in (rows[i] for i in filled)
            ]
            read = _read(model, *(np.stack(each) for each in zip(*arrays, strict=True)))
            read = jax.tree.map(np.asarray, read)
            for place, i in enumerate(part):
                found[i] = jax.tree.map(lambda leaf, place=place: leaf[place], read)
    return jax.tree.map(lambda *leaves: np.stack(leaves), *found)


def places(
    whole: list[Bool[np.ndarray, " _rows"]], number: int
) -> tuple[Int[np.ndarray, " places"], Int[np.ndarray, " places"]]:
    """Series and how many of their first rows: places evenly over all rows that are `whole`, but for those that end no
    transition."""
    ends = [np.flatnonzero(each)[LEAST_ROWS - 1 :] for each in whole]
    series = np.repeat(np.arange(len(ends)), [len(each) for each in ends])
    at = np.unique(np.linspace(0, max(len(series) - 1, 0), number).astype(int))[: len(series)]
    return series[at], np.concatenate(ends)[at] + 1


def _as_long(array: np.ndarray, length: int) -> np.ndarray:
    more = length - len(array)
    return np.concatenate([array, np.repeat(array[-1:], more, axis=0)]).astype(np.float32)


@eqx.filter_jit
def _read(model, values, gaps, keep, covariates, centres):
    def one(values, gaps, keep, covariates, centres):
        memory, _, seen = model.history.scan(values, gaps, keep, centres)
        rows = Read(values, gaps, keep.sum() - 1, seen, covariates, centres)
        said = recent_said(model.law, rows, model.ahead)
        return Found(memory, said, recent_width(model.law, said))

    return jax.vmap(one)(values, gaps, keep, covariates, centres)
