"""JSON without its loose ends: no NaN, no key twice, no huge number, no deep nest."""

import json
import math
from typing import Any

from .errors import AGAIN, ModelFileError, quote

# Deeper than any model nests, and far from where Python's stack ends.
DEEPEST = 48
# Beyond it an integer is no size, count or version of ours.
LARGEST_INTEGER = 2**53


def read_json(content: bytes, what: str) -> dict[str, Any]:
    """The JSON object in `content`; `what` is its name in errors."""
    try:
        found = json.loads(
            content.decode("utf-8"),
            object_pairs_hook=_without_twins,
            parse_int=_integer,
            parse_float=_number,
            parse_constant=_constant,
        )
    except RecursionError:
        raise ModelFileError(f"{what} is nested too deeply; {AGAIN}.") from None
    except ModelFileError as error:
        raise ModelFileError(f"{what} {error}; {AGAIN}.") from None
    except ValueError as error:
        raise ModelFileError(f"{what} is not valid JSON ({error}); {AGAIN}.") from None
    if not isinstance(found, dict):
        raise ModelFileError(f"{what} must be a JSON object; {AGAIN}.")
    _check_depth(found, what)
    return found


def canonical_json(content: dict[str, Any]) -> bytes:
    """The same bytes for the same content, whatever the order of its keys."""
    try:
        return json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise ModelFileError(f"what is stored beside the weights must be plain JSON ({error}).") from None


def _without_twins(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ModelFileError("has a key twice")
    return found


def _integer(text: str) -> int:
    # The length first: turning a million digits into an integer takes minutes.
    if len(text) > len(str(LARGEST_INTEGER)) + 1 or abs(int(text)) > LARGEST_INTEGER:
        raise ModelFileError(f"has an integer beyond 2^53, {quote(text)}")
    return int(text)


def _number(text: str) -> float:
    if not math.isfinite(float(text)):
        raise ModelFileError(f"has a number too large for a float, {quote(text)}")
    return float(text)


def _constant(text: str) -> float:
    raise ModelFileError(f"has {text}, which is not JSON")


def _check_depth(content: Any, what: str) -> None:
    level = [content]
    for _ in range(DEEPEST):
        inner = [part.values() if isinstance(part, dict) else part for part in level]
        level = [part for parts in inner for part in parts if isinstance(part, dict | list)]
        if not level:
            return
    raise ModelFileError(f"{what} is nested too deeply; {AGAIN}.")
