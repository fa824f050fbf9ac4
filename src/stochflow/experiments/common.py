"""What several studies share: bounds of settings, densities of whole batches, runs of more than one fit."""

import json
import os
from collections.abc import Iterable, Sequence
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


def read_study(path: Path) -> list[dict[str, Any]]:
    """The rows that a study's file of scores holds; none if there is no file."""
    try:
        rows = json.loads(path.read_bytes()) if path.exists() else []
        if isinstance(rows, list) and all(isinstance(row["case"]["name"], str) for row in rows):
            return rows
    except (ValueError, TypeError, KeyError):
        pass
    raise ValueError(
        f"{path} holds no rows of this study, and is not overwritten: move it away, or choose another folder."
    )


def merge_study(
    kept: list[dict[str, Any]], new: list[dict[str, Any]], order: Iterable[str]
) -> list[dict[str, Any]]:
    """The rows of both in the order of the study; of two with one name the new one."""
    rows = {row["case"]["name"]: row for row in [*kept, *new]}
    known = [name for name in order if name in rows]
    return [rows.pop(name) for name in known] + list(rows.values())
