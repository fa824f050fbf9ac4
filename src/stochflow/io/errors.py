"""The one error of this room."""

import contextlib
import os
import reprlib
from collections.abc import Iterator

AGAIN = "save the model anew, or fetch the file once more"
# Characters of a name or value out of a file that an error repeats.
LONGEST_QUOTE = 60
QUOTING = reprlib.Repr()
QUOTING.maxstring = QUOTING.maxother = QUOTING.maxlong = LONGEST_QUOTE


class ModelFileError(ValueError):
    """A model file that cannot be used, or a model that cannot be saved: which, why, and the way out."""


@contextlib.contextmanager
def naming(path: str | os.PathLike) -> Iterator[None]:
    """Put the name of the file in front of whatever is wrong with it; and the way out behind, if there is none.

    An error that ends in a full stop has a way out of its own.
    """
    try:
        yield
    except ModelFileError as error:
        end = "" if str(error).endswith(".") else f"; {AGAIN}."
        raise ModelFileError(f"the model file {os.fspath(path)!r} cannot be used: {error}{end}") from None


def quote(value: object) -> str:
    """A value out of a file, short and printable, whatever it is; a large one is not written out first."""
    text = QUOTING.repr(value)
    return text if len(text) <= LONGEST_QUOTE else f"{text[:LONGEST_QUOTE]}…"
