"""Parameters and ids as plain JSON, and back."""

import datetime
from collections.abc import Mapping
from typing import Any

import numpy as np

from ..io.fields import as_interval, as_pair
from .forecaster import Forecaster


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
    return _plain(params)


def read_params(cls: type[Forecaster], params: dict[str, Any]) -> Forecaster:
    """A forecaster with the parameters that `stored_params` gave."""
    forecaster = cls(**{name: _named(name, value) for name, value in params.items()})
    forecaster._config()
    return forecaster


def stored_id(name: Any) -> Any:
    """An id as plain JSON; of a date or a datetime, its kind and its text."""
    name = _plain(name)
    if name is None or not isinstance(name, str | int | float | datetime.date):
        raise ValueError(
            f"ids must be text, numbers or dates to be saved; got {name!r}: make them strings, and fit."
        )
    if not isinstance(name, datetime.date):
        return name
    kind = "datetime" if isinstance(name, datetime.datetime) else "date"
    return {kind: name.isoformat()}


def read_id(name: Any) -> Any:
    """The id that `stored_id` wrote."""
    if isinstance(name, bool):
        raise ValueError(f"{name!r} is no id")
    if isinstance(name, str | int | float):
        return name
    [(kind, text)] = name.items()
    return {"date": datetime.date, "datetime": datetime.datetime}[kind].fromisoformat(text)


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
