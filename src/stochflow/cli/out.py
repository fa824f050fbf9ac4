"""Whether `--out`, and other flags of its kind, can be written, asked before anything is computed."""

import tempfile
from pathlib import Path

import typer

from .rows import require_ending


def writable(context: typer.Context, flag: typer.CallbackParam, out: Path | None) -> Path | None:
    """The callback of every flag that is a folder: it can be made and written."""
    if out is not None and not context.resilient_parsing:
        _try(out, flag)
    return out


def writable_file(context: typer.Context, flag: typer.CallbackParam, out: Path | None) -> Path | None:
    """The callback of every flag that is a file: it can be written into its folder."""
    if out is not None and not context.resilient_parsing:
        if out.is_dir():
            raise OSError(f"{out} is a folder; choose another {flag.opts[0]}, with a file name.")
        if out.exists() and not out.is_file():
            raise OSError(f"{out} is no file that can be replaced; choose another {flag.opts[0]}.")
        _try(out.parent, flag)
    return out


def writable_rows(context: typer.Context, flag: typer.CallbackParam, out: Path | None) -> Path | None:
    """The callback of every flag that is a file of rows: its ending is one that rows are written by, too."""
    writable_file(context, flag, out)
    if out is not None and not context.resilient_parsing:
        require_ending(out)
    return out


def _try(folder: Path, flag: typer.CallbackParam) -> None:
    """Write a nameless file into the folder, or where it would have to be made: only that tells for sure."""
    try:
        there = next(path for path in (folder, *folder.absolute().parents) if path.exists())
        with tempfile.TemporaryFile(dir=there):
            pass
    except OSError as error:
        raise OSError(
            f"the folder {folder} cannot be made or written ({error.strerror}); choose another {flag.opts[0]}."
        ) from None
