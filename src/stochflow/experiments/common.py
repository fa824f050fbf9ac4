"""What several studies share: bounds of settings, densities of whole batches, runs of more than one fit."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import PRNGKeyArray

from ..training import FitResult, RunFolder


def require_at_least(name: str, value: int, least: int) -> None:
    if value < least:
        raise ValueError(f"`{name}` must be at least {least}; got {value}.")


@eqx.filter_jit
def log_probs(law, x_t, x_s, gap):
    """Of a whole batch of pairs with one gap, from time 0."""
    return jax.vmap(lambda a, b: law.log_prob(a, b, jnp.zeros_like(gap), gap))(x_t, x_s)


def open_stages(
    folder: str | os.PathLike | None,
    names: Sequence[str],
    record: dict[str, Any],
    keys: Sequence[PRNGKeyArray],
) -> tuple[RunFolder | None, list[Path | None]]:
    """The folder of a run of several fits, and one for each of those within it; nothing if there is to be none."""
    if folder is None:
        return None, [None] * len(names)
    run = RunFolder.create(folder, record | {"keys": [jr.key_data(key).tolist() for key in keys]})
    return run, [run.path / name for name in names]


def one_history(first: FitResult, second: FitResult, *, between: float = 0.0) -> list[dict[str, Any]]:
    """The reports of two fits as those of one; `between` are the seconds from one to the other."""
    before = first.history[-1] | {"seconds": first.history[-1]["seconds"] + between}
    after = lambda row: row | {name: before[name] + row[name] for name in ("step", "seconds")}
    return [*first.history, *map(after, second.history)]
