"""Lengths of time as they are written."""

import re
from typing import Any

# Seconds in each unit that a length of time may be written in.
UNITS = {
    "ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0,
}  # fmt: skip
# Other names of them: of pandas and NumPy, and words. A month has no length.
OTHER_NAMES = {
    "m": "min", "T": "min", "D": "d", "H": "h", "W": "w", "S": "s", "sec": "s", "hr": "h", "nanosecond": "ns",
    "microsecond": "us", "millisecond": "ms", "second": "s", "minute": "min", "hour": "h", "day": "d", "week": "w",
}  # fmt: skip
# A number and a unit, several times over, as in 2h30min; the number may be left out where there is one.
LENGTH = re.compile(r"\s*(\d+(?:\.\d*)?(?:e[+-]?\d+)?|\.\d+)?\s*([A-Za-z]+)\s*")


def nanos_of(value: Any) -> int | None:
    """Of an offset of pandas that is always as long."""
    try:
        return int(value.nanos)
    except (AttributeError, TypeError, ValueError):  # as of a month
        return None


def seconds_in(text: str) -> float | None:
    """Seconds; `None` if this is no length."""
    parts = list(LENGTH.finditer(text))
    if "".join(part[0] for part in parts) != text or (len(parts) > 1 and not all(part[1] for part in parts)):
        return None
    units = [_unit_of(part[2]) for part in parts]
    if not units or None in units or len(set(units)) < len(units):
        return None
    return sum(float(part[1] or 1) * UNITS[unit] for part, unit in zip(parts, units, strict=True) if unit)


def _unit_of(word: str) -> str | None:
    """The unit that a word names, in the singular or the plural."""
    for name in (word, word.removesuffix("s") if len(word) > 2 else word):
        if (unit := OTHER_NAMES.get(name, name)) in UNITS:
            return unit
    return None
