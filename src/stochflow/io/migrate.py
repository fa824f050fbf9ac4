"""From the formats of earlier versions to the present one.

A format never changes without a new number, and a number never changes its meaning. When the number goes up, add the
function that turns the last format into the new one, and keep a small file of the last one with the tests.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from .errors import ModelFileError, quote

FORMAT_VERSION = 3

Content = tuple[dict[str, Any], dict[str, np.ndarray]]


def _without_roams(manifest: dict[str, Any], tensors: dict[str, np.ndarray]) -> Content:
    """Forecasters of format 1 keep no memory of how far a series roams, and their laws do not read any."""
    if (size := tensors.get("past.memory.size")) is not None:
        tensors["past.memory.roams"] = np.zeros((size.shape[0], 0, size.shape[1]), size.dtype)
    return manifest, tensors


def _without_witness(manifest: dict[str, Any], tensors: dict[str, np.ndarray]) -> Content:
    """Corrections of format 2 take what last stretches say as it is."""
    last = "noise"  # of the tables and numbers of a correction, before it had a witness
    for name in [name for name in tensors if name.split(".")[-2:] == ["correction", last]]:
        of = name.removesuffix(last)
        tensors[of + "witness"] = np.zeros_like(tensors[of + "spread"])
    return manifest, tensors


# From which version, and how to get to the next: `(manifest, tensors)` in and out, without their checksums.
MIGRATIONS: dict[int, Callable[[dict[str, Any], dict[str, np.ndarray]], Content]] = {
    1: _without_roams,
    2: _without_witness,
}


def check_version(version: Any) -> int:
    """A version that this library can read."""
    if type(version) is not int or version < 1:
        raise ModelFileError(f"its `format_version` must be a positive integer; got {quote(version)}")
    if version > FORMAT_VERSION:
        raise ModelFileError(f"it was written by a newer stochflow (format {version}); upgrade stochflow.")
    return version


def migrate(manifest: dict[str, Any], tensors: dict[str, np.ndarray]) -> Content:
    """Bring what was read to the present format, one version at a time."""
    for version in range(check_version(manifest["format_version"]), FORMAT_VERSION):
        try:
            manifest, tensors = MIGRATIONS[version](dict(manifest), dict(tensors))
        except (LookupError, TypeError, ValueError) as error:
            raise ModelFileError(
                f"format {version} could not be brought up to date ({quote(str(error))})"
            ) from None
        manifest["format_version"] = version + 1
    return manifest, tensors
