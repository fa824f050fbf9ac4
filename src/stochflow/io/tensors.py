"""Arrays as safetensors, checked to the last byte.

The header is read by the few lines below and not by the library, which then has nothing left to do: an array is a view
of the bytes. So what is accepted is decided here, and is less than the format allows: four dtypes, no metadata, no
holes, and finite numbers only. The library writes.
"""

import math
from typing import Any

import numpy as np
from safetensors.numpy import save as save_tensors

from .errors import ModelFileError, quote
from .strict_json import read_json

DTYPES = {"F32": "<f4", "F64": "<f8", "I32": "<i4", "I64": "<i8"}
LENGTH_BYTES = 8
MOST_HEADER = 2**19
# A hundred times the arrays of a usual flow; each costs a name of a few dozen bytes in the header.
MOST_TENSORS = 4096
LONGEST_NAME = 256
MOST_AXES = 8


def write_tensors(tensors: dict[str, np.ndarray]) -> bytes:
    """A safetensors file, if `read_tensors` will accept it."""
    # The order of a dict must not show in the bytes.
    arrays = {name: np.ascontiguousarray(tensors[name]) for name in sorted(tensors)}
    for name, array in arrays.items():
        if array.dtype.newbyteorder("<").str not in DTYPES.values():
            raise ModelFileError(
                f"{quote(name)} must be float32, float64, int32 or int64; got {array.dtype}."
            )
    shaped = {name: array.reshape(np.shape(tensors[name])) for name, array in arrays.items()}
    content = save_tensors(shaped)
    read_tensors(content)
    return content


def read_tensors(content: bytes) -> dict[str, np.ndarray]:
    """Read-only views of the arrays in `content`, by name."""
    header, body = _split(content)
    if len(header) > MOST_TENSORS:
        raise ModelFileError(f"the weights must be at most {MOST_TENSORS} arrays; got {len(header)}.")
    ends = {name: _checked(name, entry) for name, entry in header.items()}
    _check_no_holes(ends, len(content) - body)
    arrays = {name: _array(content, body, header[name], *ends[name]) for name in header}
    for name, array in arrays.items():
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            raise ModelFileError(
                f"{quote(name)} holds NaN or infinity; train again or go back to a good file."
            )
    return arrays


def _split(content: bytes) -> tuple[dict[str, Any], int]:
    """The header, and where the body begins."""
    size = int.from_bytes(content[:LENGTH_BYTES], "little")
    body = LENGTH_BYTES + size
    if size > MOST_HEADER or body > len(content):
        raise ModelFileError(f"the header of its weights has an impossible length, {size} bytes")
    return read_json(content[LENGTH_BYTES:body], "the header of its weights"), body


def _checked(name: str, entry: Any) -> tuple[int, int]:
    """Where the array begins and ends, if its entry makes sense."""
    if not (0 < len(name) <= LONGEST_NAME and name.isprintable()):
        raise ModelFileError(f"{quote(name)} is no name of an array")
    if not isinstance(entry, dict) or set(entry) != {"dtype", "shape", "data_offsets"}:
        raise ModelFileError(f"{quote(name)} must have a dtype, a shape and offsets, and no more")
    dtype, shape, ends = entry["dtype"], entry["shape"], entry["data_offsets"]
    if not isinstance(dtype, str) or dtype not in DTYPES:
        raise ModelFileError(f"{quote(name)} must be one of {', '.join(DTYPES)}; got {quote(dtype)}")
    if not _are_sizes(shape) or len(shape) > MOST_AXES:
        raise ModelFileError(f"{quote(name)} has an impossible shape, {quote(shape)}")
    if not _are_sizes(ends) or len(ends) != 2:
        raise ModelFileError(f"{quote(name)} has impossible offsets, {quote(ends)}")
    if ends[1] - ends[0] != math.prod(shape) * np.dtype(DTYPES[dtype]).itemsize:
        raise ModelFileError(f"{quote(name)} has a shape that does not fit its bytes, {quote(shape)}")
    return ends[0], ends[1]


def _are_sizes(values: Any) -> bool:
    return isinstance(values, list) and all(type(value) is int and value >= 0 for value in values)


def _check_no_holes(ends: dict[str, tuple[int, int]], size: int) -> None:
    reached = 0
    for begin, end in sorted(ends.values()):
        if begin != reached:
            raise ModelFileError(f"its weights overlap or leave a hole at byte {reached}")
        reached = end
    if reached != size:
        raise ModelFileError(f"its weights must fill {size} bytes; the header names {reached}")


def _array(content: bytes, body: int, entry: dict[str, Any], begin: int, end: int) -> np.ndarray:
    dtype = np.dtype(DTYPES[entry["dtype"]])
    flat = np.frombuffer(content, dtype, count=(end - begin) // dtype.itemsize, offset=body + begin)
    return flat.reshape(entry["shape"])
