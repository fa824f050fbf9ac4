"""JSON without its loose ends: no NaN, no key twice, no huge number, no deep nest."""

import itertools
import json
import math
from typing import Any

from .errors import ModelFileError, quote

# Deeper than any model nests, and far from where Python's stack ends.
DEEPEST = 48
# Beyond it an integer is no size, count or version of ours.
LARGEST_INTEGER = 2**53
LONGEST_INTEGER = len(str(-LARGEST_INTEGER))


def read_json(content: bytes, what: str) -> dict[str, Any]:
    """The JSON object in `content`; `what` is its name in errors."""
    try:
        found = json.loads(
            content.decode("utf-8"),
            object_pairs_hook=_without_twins,
            parse_int=_integer,
            parse_constant=_constant,
        )
    except RecursionError:
        raise ModelFileError(f"{what} is nested too deeply") from None
    except ModelFileError as error:
        raise ModelFileError(f"{what} {error}") from None
    except ValueError as error:
        raise ModelFileError(f"{what} is not valid JSON ({error})") from None
    if not isinstance(found, dict):
        raise ModelFileError(f"{what} must be a JSON object")
    _check_values(found, what)
    return found


def canonical_json(content: dict[str, Any]) -> bytes:
    """The same bytes for the same content, whatever the order of its keys."""
    try:
        return json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise ModelFileError(f"what is stored beside the weights must be plain JSON ({error}).") from None


# Called for every object of a file, however many: hence no function of its own.
_without_twins = lambda pairs: found if len(found := dict(pairs)) == len(pairs) else _refuse_twins()


def _refuse_twins():
    raise ModelFileError("has a key twice")


def _integer(text):
    # The length first: turning a million digits into an integer takes minutes.
    if len(text) > LONGEST_INTEGER or abs(int(text)) > LARGEST_INTEGER:
        raise ModelFileError(f"has an integer beyond 2^53, {quote(text)}")
    return int(text)


def _constant(text):
    raise ModelFileError(f"has {text}, which is not JSON")


def _check_values(content: Any, what: str) -> None:
    """Level by level, not by recursion: the depth is what is in doubt."""
    level = [content]
    for _ in range(DEEPEST):
        level = list(itertools.chain.from_iterable(v.values() if isinstance(v, dict) else v for v in level))
        if any(isinstance(value, float) and not math.isfinite(value) for value in level):
            raise ModelFileError(f"{what} has a number too large for a float")
        level = [value for value in level if isinstance(value, dict | list)]
        if not level:
            return
    raise ModelFileError(f"{what} is nested too deeply")
