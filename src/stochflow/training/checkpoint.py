"""Checkpoints and run folders: whole or not at all."""

import dataclasses
import errno
import hashlib
import json
import math
import os
import re
import secrets
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree
from safetensors import SafetensorError
from safetensors.numpy import load as load_tensors, save as save_tensors

FORMAT = 1
CONFIG, METRICS, CHECKPOINT, FIGURES = "config.json", "metrics.jsonl", "checkpoint.safetensors", "figures"
# What a kill leaves of a write that was never finished: the names of `write_atomically`, and no others.
LEFTOVER = re.compile(
    rf"\.({re.escape(CONFIG)}|{re.escape(METRICS)}|{re.escape(CHECKPOINT)})\.[0-9a-f]{{16}}"
)


class CheckpointError(ValueError):
    """A checkpoint or run folder that cannot be used; the message says why and what to do."""


def write_atomically(path: Path, content: bytes) -> None:
    """Write beside `path`, flush to disk, rename: a reader sees the old file or the new one, never half. What is there
    and no file, such as a device or a pipe, is left alone."""
    if path.exists() and not path.is_file():
        raise OSError(errno.EINVAL, "there is something that is no file", os.fspath(path))
    # Not `mkstemp`: nobody else may read its files, whatever the user's mask says.
    name = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    try:
        with open(name, "xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(name, path)
    except BaseException:
        name.unlink(missing_ok=True)
        raise


def write_json(path: Path, content: Any) -> None:
    """Figures for machines, whole or not at all; as in `json_text`."""
    write_atomically(path, json_text(content, indent=1).encode())


def json_text(content: Any, *, indent: int | None = None, default: Callable[[Any], Any] | None = None) -> str:
    """Figures as JSON that any reader takes: what is not a number is null."""
    return json.dumps(_finite(content), indent=indent, default=default, allow_nan=False)


def _finite(content):
    if isinstance(content, dict):
        return {name: _finite(value) for name, value in content.items()}
    if isinstance(content, list | tuple):
        return [_finite(value) for value in content]
    return None if isinstance(content, float) and not math.isfinite(content) else content


def tree_names(tree: PyTree) -> list[str]:
    """One readable, unique name a leaf."""
    return [jax.tree_util.keystr(path) for path, _ in jax.tree_util.tree_leaves_with_path(tree)]


# Characters of an error about a folder that holds another run; a whole model is not printed.
LONGEST_DIFFERENCE = 300


def describe(model: PyTree) -> str:
    """The parts of a model and their sizes; functions by name and without address, which changes with the process."""
    return re.sub(r" at 0x[0-9a-f]+", "", repr(model))


def fingerprint(tree: PyTree) -> str:
    """A hash of every array of a tree: the same data gives the same string."""
    digest = hashlib.sha256()
    for leaf in jax.tree.leaves(tree):
        array = np.ascontiguousarray(leaf)
        digest.update(f"{array.dtype}{array.shape}".encode())
        digest.update(array.tobytes())
    return digest.hexdigest()


def save_tree(path: Path, tree: PyTree, about: dict[str, str]) -> None:
    """A tree of arrays as one safetensors file with a sha256 of its arrays, atomically."""
    arrays = dict(zip(tree_names(tree), map(np.asarray, jax.tree.leaves(tree)), strict=True))
    content = save_tensors(arrays, {**about, "format": str(FORMAT), "sha256": fingerprint(tree)})
    write_atomically(path, content)


def load_tree(path: Path, like: PyTree) -> tuple[PyTree, dict[str, str]]:
    """Read a tree that has the structure, shapes and dtypes of `like`; anything else is a `CheckpointError`."""
    try:
        content = path.read_bytes()
        arrays, about = load_tensors(content), _metadata(content)
    except FileNotFoundError:
        raise CheckpointError(f"there is no checkpoint at {path}.") from None
    except (SafetensorError, ValueError, KeyError) as error:
        raise CheckpointError(
            f"the checkpoint {path} is damaged ({error}); delete it to start the run anew."
        ) from None
    if about.get("format") != str(FORMAT):
        raise CheckpointError(
            f"the checkpoint {path} has format {about.get('format')!r}; this version reads {FORMAT!r}."
        )
    leaves, treedef = jax.tree.flatten(like)
    names = tree_names(like)
    if sorted(names) != sorted(arrays):
        odd = sorted(set(names) ^ set(arrays))
        raise CheckpointError(
            f"the checkpoint {path} is of another model: {odd[0]} is in only one of the two."
        )
    for name, leaf in zip(names, leaves, strict=True):
        found, wanted = arrays[name], jax.eval_shape(lambda leaf=leaf: leaf)
        if found.shape != wanted.shape or found.dtype != wanted.dtype:
            raise CheckpointError(
                f"the checkpoint {path} is of another model: {name} is {found.dtype}{found.shape}, not "
                f"{wanted.dtype}{wanted.shape}."
            )
    tree = jax.tree.unflatten(treedef, [jnp.asarray(arrays[name]) for name in names])
    if fingerprint(tree) != about.get("sha256"):
        raise CheckpointError(
            f"the checkpoint {path} is damaged (checksum); delete it to start the run anew."
        )
    return tree, about


def _metadata(content: bytes) -> dict[str, str]:
    size = int.from_bytes(content[:8], "little")
    return json.loads(content[8 : 8 + size])["__metadata__"]


@dataclasses.dataclass(frozen=True)
class RunFolder:
    """A folder that holds one run: `config.json`, `metrics.jsonl`, `checkpoint.safetensors`, `figures/`."""

    path: Path

    @property
    def checkpoint(self) -> Path:
        return self.path / CHECKPOINT

    @property
    def figures(self) -> Path:
        figures = self.path / FIGURES
        figures.mkdir(exist_ok=True)
        return figures

    @classmethod
    def create(cls, path: str | os.PathLike, record: dict[str, Any]) -> "RunFolder":
        """Make the folder, or open the one that is there if it holds the same run."""
        folder = cls(Path(path))
        if folder.path.is_file():
            raise CheckpointError(f"{folder.path} is a file; a run needs a folder.")
        try:
            folder.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise CheckpointError(
                f"{folder.path} cannot be made: {error.strerror}. Choose another folder."
            ) from None
        leftovers = [path for path in folder.path.iterdir() if LEFTOVER.fullmatch(path.name)]
        config = folder.path / CONFIG
        if config.exists():
            known = folder.read_config()
            for name in sorted(set(known) | set(record)):
                if known.get(name) != record.get(name):
                    raise CheckpointError(
                        f"{folder.path} holds another run: {_difference(name, known, record)}. Give the same seed "
                        "and settings to go on with it, choose another folder, or delete this one."
                    )
        elif set(folder.path.iterdir()) - set(leftovers):
            raise CheckpointError(
                f"{folder.path} is not empty and has no {CONFIG}: it is not a run folder. Choose another."
            )
        else:
            write_atomically(config, json.dumps(record, indent=2).encode())
        for leftover in leftovers:  # only now: what is not a run folder is left as it is
            leftover.unlink()
        return folder

    @classmethod
    def open(cls, path: str | os.PathLike) -> "RunFolder":
        """Open a run folder that must be there."""
        folder = cls(Path(path))
        if not folder.path.exists():
            raise CheckpointError(f"{folder.path} is not there: give the folder of a run.")
        if not (folder.path / CONFIG).is_file():
            raise CheckpointError(f"{folder.path} is not a run folder: it has no {CONFIG}.")
        folder.read_config()  # which refuses the file of another program
        return folder

    def read_config(self) -> dict[str, Any]:
        """The record of the run: what tells it from others, with its settings under `config`."""
        path = self.path / CONFIG
        try:
            record = json.loads(path.read_bytes())
        except ValueError as error:
            raise CheckpointError(
                f"{path} is not valid JSON ({error}); choose another folder, or write the file anew."
            ) from None
        if not isinstance(record, dict) or not isinstance(record.get("config"), dict):
            raise CheckpointError(
                f"{path} is not the record of a run: it has no settings under `config`; choose another folder."
            )
        return record

    def read_metrics(self) -> list[dict[str, Any]]:
        """All complete lines; a line cut short by a kill is left out."""
        path = self.path / METRICS
        lines = path.read_bytes().splitlines() if path.exists() else []
        return list(_parsed(lines, path))

    def append_metrics(self, row: dict[str, Any]) -> None:
        with open(self.path / METRICS, "a") as file:
            file.write(json_text(row) + "\n")

    def rewind_metrics(self, step: int) -> list[dict[str, Any]]:
        """Drop what was logged after `step`, so that a resumed run logs each step once. The log must reach it."""
        rows = [row for row in self.read_metrics() if row["step"] <= step]
        if step > 0 and (not rows or rows[-1]["step"] != step):
            raise CheckpointError(
                f"{self.path / METRICS} does not reach step {step}, where the checkpoint beside it stands: put it back "
                "as it was, or choose another folder."
            )
        self.write_metrics(rows)
        return rows

    def write_metrics(self, rows: list[dict[str, Any]]) -> None:
        """All rows at once, in place of what was there."""
        text = "".join(json_text(row) + "\n" for row in rows)
        write_atomically(self.path / METRICS, text.encode())


def _parsed(lines: Sequence[bytes], path: Path):
    for number, line in enumerate(lines, 1):
        try:
            row = json.loads(line)
        except ValueError:
            if number == len(lines):
                return
            raise CheckpointError(
                f"line {number} of {path} is not valid JSON; put the file back as it was, or choose another folder."
            ) from None
        if wrong := _wrong_in(row):
            raise CheckpointError(
                f"line {number} of {path} is not a report of a run: {wrong}; remove that line, or choose another "
                "folder."
            )
        yield {name: math.nan if value is None else value for name, value in row.items()}


def _wrong_in(row: Any) -> str | None:
    """Why a line of metrics cannot be used, if it cannot."""
    if not isinstance(row, dict):
        return "it is not a JSON object"
    if missing := [name for name in ("step", "seconds") if name not in row]:
        return f"it has no `{missing[0]}`"
    # By `type`, since true and false are no numbers.
    if odd := [name for name, value in row.items() if value is not None and type(value) not in (int, float)]:
        return f"`{odd[0]}` must be a number"
    return None if type(row["step"]) is int else "`step` must be an integer"


# What a record holds fingerprints of, and what it means if they differ.
FINGERPRINTS = {
    "weights": "it was begun with other weights (another seed or another architecture)",
    "validation": "it was begun with other validation data",
    "starts": "it was begun with other starts of triplets",
    "keys": "it was begun with another seed",
}


def _difference(name, known, record):
    if name in FINGERPRINTS:
        return FINGERPRINTS[name]
    if isinstance(known.get(name), dict) and isinstance(record.get(name), dict):
        inner = next(k for k in record[name] | known[name] if known[name].get(k) != record[name].get(k))
        return f"its {name}.{inner} is {known[name].get(inner)!r}, not {record[name].get(inner)!r}"
    both = f"its {name} is {known.get(name)!r}, not {record.get(name)!r}"
    return both if len(both) < LONGEST_DIFFERENCE else f"its {name} is another one"
