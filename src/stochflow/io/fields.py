"""What the config of a class may hold: each kind of field checks a value, on the way out and on the way in."""

import dataclasses
import math
from typing import Any

from .errors import ModelFileError, quote

MOST_NUMBERS = 64
MOST_PARTS = 16
MOST_INTERVALS = 4096
# No length of time, scale or standard deviation of ours is larger, or smaller than one over it; and in single precision
# neither of them is near where numbers end.
LARGEST = 1e30


def _refuse(name: str, wanted: str, value: Any) -> None:
    raise ModelFileError(f"`{name}` must be {wanted}; got {quote(value)}")


@dataclasses.dataclass(frozen=True)
class Whole:
    """An integer within bounds; `True` is none."""

    least: int
    most: int
    optional: bool = False

    def check(self, name: str, value: Any) -> None:
        if self.optional and value is None:
            return
        if type(value) is not int or not self.least <= value <= self.most:
            _refuse(name, f"an integer from {self.least} to {self.most}", value)


@dataclasses.dataclass(frozen=True)
class Flag:
    """True or false."""

    def check(self, name: str, value: Any) -> None:
        if type(value) is not bool:
            _refuse(name, "true or false", value)


@dataclasses.dataclass(frozen=True)
class Choice:
    """One of a few words."""

    words: tuple[str, ...]

    def check(self, name: str, value: Any) -> None:
        if not isinstance(value, str) or value not in self.words:
            _refuse(name, f"one of {', '.join(self.words)}", value)


@dataclasses.dataclass(frozen=True)
class Positive:
    """A positive number that can be reckoned with in single precision; `None` too if it is optional."""

    optional: bool = False

    def check(self, name: str, value: Any) -> None:
        if self.optional and value is None:
            return
        # A float in JSON, always: so that what is read is what was written, and an integer is a mistake.
        if not isinstance(value, float) or not 1 / LARGEST <= value <= LARGEST:
            _refuse(name, f"a positive float from {1 / LARGEST:g} to {LARGEST:g}", value)


@dataclasses.dataclass(frozen=True)
class Positives:
    """A few positive numbers."""

    def check(self, name: str, value: Any) -> None:
        if not isinstance(value, list | tuple) or len(value) > MOST_NUMBERS:
            _refuse(name, f"a list of at most {MOST_NUMBERS} numbers", value)
        for number in value:
            Positive().check(name, number)


@dataclasses.dataclass(frozen=True)
class Wholes:
    """A few integers within bounds."""

    least: int
    most: int

    def check(self, name: str, value: Any) -> None:
        if not isinstance(value, list | tuple) or len(value) > MOST_INTERVALS:
            _refuse(name, f"a list of at most {MOST_INTERVALS} integers", value)
        for number in value:
            Whole(self.least, self.most).check(name, number)


@dataclasses.dataclass(frozen=True)
class Intervals:
    """For each coordinate a pair of bounds, `None` for one that is infinite."""

    def check(self, name: str, value: Any) -> None:
        if not isinstance(value, list | tuple) or not 1 <= len(value) <= MOST_INTERVALS:
            _refuse(name, f"a list of 1 to {MOST_INTERVALS} pairs", value)
        for pair in value:
            sides = [side for side in pair if side is not None] if isinstance(pair, list | tuple) else [None]
            if len(pair) != 2 or not all(isinstance(side, float) and math.isfinite(side) for side in sides):
                _refuse(name, "pairs of finite floats or nulls", pair)


def as_pair(low: Any, high: Any) -> list[Any]:
    """The bounds of an interval as JSON has them: `None` for one that is infinite."""
    return [side if math.isfinite(float(side)) else None for side in (low, high)]


def as_interval(low: Any, high: Any) -> tuple[Any, Any]:
    """The bounds that `as_pair` wrote."""
    return -math.inf if low is None else low, math.inf if high is None else high


@dataclasses.dataclass(frozen=True)
class Part:
    """Another module, of a class that has the interface `role`."""

    role: type
    optional: bool = False


@dataclasses.dataclass(frozen=True)
class Parts:
    """Several modules in a row."""

    role: type


Plain = Whole | Flag | Choice | Positive | Positives | Wholes | Intervals
Field = Plain | Part | Parts
