"""Parameters and ids as plain JSON, and back."""

import datetime
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from ..io.fields import as_interval, as_pair
from ..io.registry import DEPTH, SIZE
from ..laws import Support
from .forecaster import Forecaster
from .times import TimeAxis

# Of the integers that data frames hold, those of 128 bits are the largest.
LEAST_ID, LARGEST_ID = -(2**127), 2**128 - 1
# Steps are counted in 32 bits; networks are no larger than a model file may hold.
MOST = {"steps": 2**31 - 1, "batch_size": 2**31 - 1, "width": SIZE.most, "depth": DEPTH.most}


def stored_params(forecaster: Forecaster) -> dict[str, Any]:
    """The parameters; a length of time that is neither words nor a number in words, and `None` for a bound of a support
    that is infinite. A generator is not kept."""
    params = forecaster.get_params()
    if isinstance(params["random_state"], np.random.Generator | np.random.RandomState):
        params["random_state"] = None
    if isinstance(params["horizon"], datetime.timedelta | np.timedelta64):
        params["horizon"] = forecaster.horizon_
    if isinstance(params["support"], Mapping):
        support = params["support"].items()
        params["support"] = {n: each if isinstance(each, str) else as_pair(*each) for n, each in support}
    params = _plain(params)
    read_params(type(forecaster), params)  # they may have been set after the fit
    return params


def read_params(cls: type[Forecaster], params: dict[str, Any]) -> Forecaster:
    """A forecaster with the parameters that `stored_params` gave, checked as `fit` checks them."""
    forecaster = cls(**{name: _named(name, value) for name, value in params.items()})
    config = forecaster._config()
    for name, most in MOST.items():
        if getattr(config, name) > most:
            raise ValueError(f"`{name}` must be at most {most}; got {getattr(config, name)}.")
    if forecaster.support is not None:
        Support(list(forecaster.support.values()) or ["real"])
    if (horizon := forecaster.horizon) is not None:
        TimeAxis("duration" if isinstance(horizon, str) else "float").length(horizon, "horizon")
    return forecaster


def stored_id(name: Any) -> Any:
    """An id as plain JSON; of a date or a datetime, its kind and its text."""
    name = _plain(name)
    if not isinstance(name, datetime.date) and not _is_plain_id(name):
        raise ValueError(
            f"ids must be text, numbers or dates to be saved; got {name!r}: make them strings, and fit."
        )
    if not isinstance(name, datetime.date):
        return name
    kind = "datetime" if isinstance(name, datetime.datetime) else "date"
    if getattr(name, "nanosecond", 0):
        raise ValueError(
            f"ids must be whole microseconds to be saved; got {name!r}: make them strings, and fit."
        )
    return {kind: name.isoformat()}


def read_id(name: Any) -> Any:
    """The id that `stored_id` wrote."""
    if _is_plain_id(name):
        return name
    if not isinstance(name, dict):
        raise ValueError("an id must be text, a number or a date")
    [(kind, text)] = name.items()
    return {"date": datetime.date, "datetime": datetime.datetime}[kind].fromisoformat(text)


def _is_plain_id(name: Any) -> bool:
    """Text that can be written, true or false, or a finite number that a data frame can hold."""
    if isinstance(name, str):
        return not any("\ud800" <= letter <= "\udfff" for letter in name)  # halves of characters
    if isinstance(name, float):
        return math.isfinite(name)
    return isinstance(name, int) and LEAST_ID <= name <= LARGEST_ID


def _plain(value: Any) -> Any:
    """Plain JSON: numbers of NumPy, tuples and mappings included."""
    if isinstance(value, dict):
        return {str(name): _plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return value.item() if isinstance(value, np.generic) else value


def _named(name: str, value: Any) -> Any:
    """A parameter as it was given: pairs of bounds are tuples."""
    if name == "support" and value is not None:
        return {
            column: as_interval(*each) if isinstance(each, list) else each for column, each in value.items()
        }
    return value
