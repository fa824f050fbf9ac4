"""The container: a manifest and weights, in one file or in one folder.

The file is a zip of two members that are not compressed, `model.json` and `weights.safetensors`; any zip program opens
it. It is read without one: all that the two members leave open is fixed (order, names, dates, flags), so the rest of
the file must be, byte for byte, what `write_archive` would write around them. There is nothing to unpack, hence no
bomb and no path to leave by, and no bit can flip unseen. A folder holds the same two files; others beside them (a
licence, a README) are never opened.

The manifest says which format, which stochflow, how long the weights are and their sha256; and it holds a sha256 of
itself. Both guard against accidents. They do not tell who wrote the file.
"""

import contextlib
import hashlib
import importlib.metadata
import os
import shutil
import stat
import struct
import tempfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from ..training.checkpoint import write_atomically
from . import migrate as formats
from .errors import ModelFileError, naming, quote
from .strict_json import canonical_json, read_json
from .tensors import read_tensors, write_tensors

FORMAT = "stochflow"
MANIFEST, WEIGHTS = "model.json", "weights.safetensors"
RESERVED = ("format", "format_version", "stochflow", "weights", "checksum")
# A few thousand names of columns; half a megabyte of JSON is read and checked in a fraction of a second.
MOST_MANIFEST = 2**19
MOST_WEIGHTS = 2**30

# The records of a zip, and what never changes in ours: version 2.0, no flags, stored, midnight of 1 January 1980.
LOCAL, CENTRAL, END = struct.Struct("<4s5H3L2H"), struct.Struct("<4s6H3L5H2L"), struct.Struct("<4s4H2LH")
LOCAL_MARK, CENTRAL_MARK, END_MARK = b"PK\3\4", b"PK\1\2", b"PK\5\6"
VERSION, FLAGS, STORED, TIME, DATE = 20, 0, 0, 0, 33


def write_archive(
    path: str | os.PathLike,
    manifest: dict[str, Any],
    tensors: dict[str, np.ndarray],
    *,
    folder: bool = False,
) -> None:
    """Write `manifest` (plain JSON) and `tensors` to one file, or to a new folder; whole or not at all.

    A file that is there is replaced at the end, when all has been written; a folder that holds anything is not
    touched. The same content gives the same bytes. What could not be read back is refused.
    """
    path = Path(path)
    if taken := sorted(set(manifest) & set(RESERVED)):
        raise ModelFileError(f"`manifest` must not use the reserved names {', '.join(taken)}.")
    weights = write_tensors(tensors)
    content = _signed(manifest, weights)
    _read_manifest(content)
    if len(content) > MOST_MANIFEST or len(weights) > MOST_WEIGHTS:
        raise ModelFileError(
            f"a model may have {MOST_MANIFEST} bytes of manifest and {MOST_WEIGHTS} of weights; got "
            f"{len(content)} and {len(weights)}."
        )
    if not folder and path.is_dir():
        raise ModelFileError(f"{os.fspath(path)!r} is a folder: give the name of a file.")
    try:
        if folder:
            _write_folder(path, content, weights)
        else:
            local = [_local(MANIFEST, content), content, _local(WEIGHTS, weights), weights]
            write_atomically(path, b"".join([*local, _directory(content, weights)]))
    except OSError as error:  # of the kind that it is, but about the file that was asked for
        reason = error.strerror if path.parent.is_dir() else "there is no such folder to write to"
        raise type(error)(error.errno, f"{reason}; nothing was written", os.fspath(path)) from error


def read_archive(path: str | os.PathLike) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """The manifest and the arrays of a file or folder, checked and brought to the present format."""
    with naming(path):
        manifest, weights = _read_folder(path) if os.path.isdir(path) else _read_file(path)
        if hashlib.sha256(weights).hexdigest() != manifest["weights"]["sha256"]:
            raise ModelFileError("its weights do not have the sha256 that its manifest names")
        return formats.migrate(manifest, read_tensors(weights))


def peek(path: str | os.PathLike) -> dict[str, Any]:
    """The manifest alone, checked but in the format it was written in: what a file holds, without its weights."""
    with naming(path):
        if os.path.isdir(path):
            return _read_manifest(_whole(Path(path) / MANIFEST, MOST_MANIFEST))
        with _opened(path) as file:
            return _read_manifest(_read_member(file, MANIFEST, MOST_MANIFEST))


def _signed(manifest: dict[str, Any], weights: bytes) -> bytes:
    facts = {
        "format": FORMAT,
        "format_version": formats.FORMAT_VERSION,
        "stochflow": _version(),
        "weights": {"sha256": hashlib.sha256(weights).hexdigest(), "size": len(weights)},
    }
    whole = read_json(canonical_json({**manifest, **facts}), "the manifest")  # as it will be read back
    return canonical_json({**whole, "checksum": _checksum(whole)})


def _version() -> str:
    try:
        return importlib.metadata.version("stochflow")
    except importlib.metadata.PackageNotFoundError:
        return "unknown"


def _checksum(manifest: dict[str, Any]) -> str:
    return hashlib.sha256(canonical_json(manifest)).hexdigest()


def _read_manifest(content: bytes) -> dict[str, Any]:
    manifest = read_json(content, "its manifest")
    if manifest.get("format") != FORMAT:
        raise ModelFileError(f"its format must be {FORMAT!r}; got {quote(manifest.get('format'))}")
    formats.check_version(manifest.get("format_version"))  # before all that another version may change
    given = manifest.pop("checksum", None)
    if given != _checksum(manifest):
        raise ModelFileError("its manifest does not have the checksum that it names")
    weights = manifest.get("weights")
    if not isinstance(weights, dict) or set(weights) != {"sha256", "size"}:
        raise ModelFileError("its manifest must name the sha256 and the size of its weights")
    if type(weights["size"]) is not int or not 0 <= weights["size"] <= MOST_WEIGHTS:
        raise ModelFileError(
            f"its weights must have at most {MOST_WEIGHTS} bytes; got {quote(weights['size'])}"
        )
    return manifest


def _write_folder(path: Path, content: bytes, weights: bytes) -> None:
    """Into a temporary folder, which then takes the place of none or of an empty one: that, too, is one step."""
    if path.exists() and not (path.is_dir() and not any(path.iterdir())):
        raise ModelFileError(
            f"{os.fspath(path)!r} is there already; give a new folder, or remove the old one."
        )
    made = Path(tempfile.mkdtemp(dir=path.parent, prefix=f".{path.name}."))
    try:
        inner = made / path.name  # made by `mkdir`, so that others may read it if the user's mask lets them
        inner.mkdir()
        write_atomically(inner / WEIGHTS, weights)
        write_atomically(inner / MANIFEST, content)
        os.replace(inner, path)
    finally:
        shutil.rmtree(made, ignore_errors=True)


def _read_folder(path: str | os.PathLike) -> tuple[dict[str, Any], bytes]:
    manifest = _read_manifest(_whole(Path(path) / MANIFEST, MOST_MANIFEST))
    return manifest, _whole(Path(path) / WEIGHTS, MOST_WEIGHTS, manifest["weights"]["size"])


def _whole(path: Path, most: int, size: int | None = None) -> bytes:
    # A link could lead to any file of the reader's; a model has no need of one.
    with _opened(path, getattr(os, "O_NOFOLLOW", 0)) as file:
        found = os.fstat(file.fileno()).st_size
        if found > most or size not in (None, found):
            wanted = f"at most {most}" if size is None else f"{size}"
            raise ModelFileError(f"{path.name} must have {wanted} bytes; it has {found}")
        return file.read(found)


def _read_file(path: str | os.PathLike) -> tuple[dict[str, Any], bytes]:
    with _opened(path) as file:
        content = _read_member(file, MANIFEST, MOST_MANIFEST)
        manifest = _read_manifest(content)
        weights = _read_member(file, WEIGHTS, MOST_WEIGHTS, manifest["weights"]["size"])
        rest = _directory(content, weights)
        if file.read(len(rest) + 1) != rest:
            raise ModelFileError("it does not end as it should: damaged, cut short or repacked")
        return manifest, weights


@contextlib.contextmanager
def _opened(path: str | os.PathLike, flags: int = 0) -> Iterator[BinaryIO]:
    """A regular file, open for reading; a pipe or a device is refused and never waited for."""
    flags |= os.O_RDONLY | getattr(os, "O_BINARY", 0) | getattr(os, "O_NONBLOCK", 0)
    try:
        file = os.fdopen(os.open(path, flags), "rb")
    except FileNotFoundError:
        raise ModelFileError(f"there is no {quote(os.path.basename(path))}; check the path.") from None
    except (OSError, ValueError) as error:
        raise ModelFileError(f"{quote(os.path.basename(path))} cannot be opened ({error})") from None
    with file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise ModelFileError(f"{quote(os.path.basename(path))} must be a regular file")
        yield file


def _read_member(file: BinaryIO, name: str, most: int, size: int | None = None) -> bytes:
    """The content of the member that must come next; nothing of it is read before its size has been checked."""
    header = file.read(LOCAL.size)
    if len(header) < LOCAL.size or header[:4] != LOCAL_MARK:
        raise ModelFileError(f"it is no stochflow model, or it is damaged at {name}")
    _, _, _, method, _, _, _, packed, found, letters, _ = LOCAL.unpack(header)
    title = file.read(min(letters, 2 * len(name)))
    if title != name.encode():
        raise ModelFileError(f"its members must be {MANIFEST} and {WEIGHTS}; got {quote(title)}")
    if method != STORED or packed != found:
        raise ModelFileError(f"{name} is compressed; unpack the file into a folder and load that.")
    there = os.fstat(file.fileno()).st_size - file.tell()
    if found > min(most, there) or size not in (None, found):
        raise ModelFileError(f"{name} has an impossible size, {found} bytes")
    content = file.read(found)
    if header + title != _local(name, content):
        raise ModelFileError(f"{name} is damaged or repacked (its checksum or header differs)")
    return content


def _local(name: str, content: bytes) -> bytes:
    size, title = len(content), name.encode()
    fixed = VERSION, FLAGS, STORED, TIME, DATE
    return LOCAL.pack(LOCAL_MARK, *fixed, zlib.crc32(content), size, size, len(title), 0) + title


def _directory(content: bytes, weights: bytes) -> bytes:
    """What follows the members: the central directory and the end of the archive."""
    entries, offset = [], 0
    for name, member in ((MANIFEST, content), (WEIGHTS, weights)):
        size, title = len(member), name.encode()
        fixed = VERSION, VERSION, FLAGS, STORED, TIME, DATE
        sizes = zlib.crc32(member), size, size, len(title)
        entries.append(CENTRAL.pack(CENTRAL_MARK, *fixed, *sizes, 0, 0, 0, 0, 0, offset) + title)
        offset += LOCAL.size + len(title) + size
    length = sum(map(len, entries))
    return b"".join(entries) + END.pack(END_MARK, 0, 0, len(entries), len(entries), length, offset, 0)
