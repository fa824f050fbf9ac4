"""What users pass to a forecaster, checked: numbers of draws, and seeds as scikit-learn has them."""

from typing import Any

import numpy as np

# In single precision JAX would take seeds from here on for others.
MOST_SEEDS = 2**32
# What is drawn at random may be told how: see `seed_of`.
Seed = int | np.random.Generator | np.random.RandomState | None


def count(number: Any, least: int = 1, name: str = "samples") -> int:
    """A whole number of at least so many."""
    if not _is_integer(number) or number < least:
        what = "a positive integer" if least == 1 else f"an integer of at least {least}"
        raise ValueError(f"`{name}` must be {what}; got {number!r}.")
    return int(number)


def seed_of(random_state: Seed, otherwise: Seed) -> int:
    """Of a number, or of a generator of NumPy's, which gives the next one; where nothing is passed, of what the
    forecaster was made with; and if that is `None`, a new one."""
    given = checked_seed(otherwise if random_state is None else random_state)
    if isinstance(given, np.random.RandomState):
        return int(given.randint(MOST_SEEDS, dtype=np.int64))
    if given is None or isinstance(given, np.random.Generator):
        return int(np.random.default_rng(given).integers(MOST_SEEDS))
    return int(given)


def checked_seed(given: Any) -> Seed:
    if given is None or isinstance(given, np.random.Generator | np.random.RandomState):
        return given
    if not _is_integer(given) or not 0 <= given < MOST_SEEDS:
        raise ValueError(
            f"`random_state` must be an integer from 0 to {MOST_SEEDS - 1}, a generator of NumPy's, or None; got "
            f"{given!r}."
        )
    return given


def _is_integer(value: Any) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool)
