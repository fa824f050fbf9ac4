"""Save and load one model, or several that belong together."""

import os
from typing import Any

from .archive import read_archive, write_archive
from .errors import ModelFileError, naming, quote
from .trees import pack, unpack

KIND = "model"


def save(
    path: str | os.PathLike, module: Any, *, about: dict[str, Any] | None = None, folder: bool = False
) -> None:
    """Write a law, a bridge, a latent flow or a dict of them to one file, or to a new folder with `folder=True`.

    `about` is anything that JSON can hold, to be found again by [`peek`][stochflow.io.peek]: the names of columns, the
    unit of time, where the data came from. A file that is there is replaced, but not before the new one is complete.
    """
    spec, tensors = pack(module)
    write_archive(path, {"kind": KIND, "model": spec, "about": about or {}}, tensors, folder=folder)


def load(path: str | os.PathLike) -> Any:
    """The module, or dict of modules, in a file or folder that [`save`][stochflow.io.save] wrote: equal bit for bit.

    Nothing of the file is run, and it is checked before anything is built. All that can be wrong with it is a
    [`ModelFileError`][stochflow.io.ModelFileError].
    """
    manifest, tensors = read_archive(path)
    with naming(path):
        if manifest.get("kind") != KIND:
            raise ModelFileError(
                f"it must hold a model; it holds {quote(manifest.get('kind'))}; load it as that."
            )
        if "model" not in manifest:
            raise ModelFileError("its manifest describes no model")
        return unpack(manifest["model"], tensors)
