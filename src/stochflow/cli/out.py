"""Whether `--out` can be written, asked before anything is computed."""

import tempfile
from pathlib import Path

import typer

from .rows import require_ending


def writable(context: typer.Context, out: Path | None) -> Path | None:
    """The callback of every `--out` that is a folder: it can be made and written."""
    if out is not None and not context.resilient_parsing:
        _try(out, out)
    return out


def writable_file(context: typer.Context, out: Path | None) -> Path | None:
    """The callback of every `--out` that is a file: it can be written into its folder."""
    if out is not None and not context.resilient_parsing:
        if out.is_dir():
            raise OSError(f"{out} is a folder; choose another --out, with a file name.")
        _try(out.parent, out)
    return out


def writable_rows(context: typer.Context, out: Path | None) -> Path | None:
    """The callback of every `--out` that is a file of rows: its ending is one that rows are written by, too."""
    writable_file(context, out)
    if out is not None and not context.resilient_parsing:
        require_ending(out)
    return out


def _try(folder: Path, out: Path) -> None:
    """Write a nameless file into the folder, or where it would have to be made: only that tells for sure."""
    try:
        there = next(path for path in (folder, *folder.absolute().parents) if path.exists())
        with tempfile.TemporaryFile(dir=there):
            pass
    except OSError as error:
        raise OSError(
            f"the folder {folder} cannot be made or written ({error.strerror}); choose another --out."
        ) from None
