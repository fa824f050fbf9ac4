"""Whether what a file says of a forecaster can be true: each check raises an error that says what is wrong."""

from typing import Any

import numpy as np

from ..flows import LocalFlow
from ..io.registry import LEAST
from .direct import DirectModel, DirectPast
from .frames import Columns
from .history import HALF_LIVES
from .latent import LatentModel
from .model import AbstractModel
from .units import LARGEST

# Of so many standard deviations that a covariate may lie from its mean: of all rows of the fit, none is further away
# than the root of their number.
FURTHEST_KNOWN = 1e6


def check_columns(columns: Columns, names: tuple[str, ...]) -> None:
    """Columns that a frame can have, each named once, and the channels in them."""
    single = [columns.time, *(name for name in (columns.id, columns.channel) if name is not None)]
    lists = (columns.values, columns.static, columns.past, columns.future)
    if not all(isinstance(each, tuple) for each in lists):
        raise ValueError("the columns must have names that are text")
    named = [*single, *(name for each in lists for name in each)]
    if not all(isinstance(name, str) for name in (*named, *names)):
        raise ValueError("the columns must have names that are text")
    if len(set(named)) < len(named) or len(set(names)) < len(names):
        raise ValueError("a column is named twice")
    if (len(columns.values) != 1) if columns.channel is not None else (names != columns.values):
        raise ValueError(f"channels {names} of the columns {columns.values}")


def check_ids(ids: list[Any], columns: Columns) -> None:
    """Those of one series at least, and of one at most where no column says which."""
    if len({type(name) for name in ids}) != 1 or len(set(ids)) < len(ids):
        raise ValueError("ids must be of one type, and each there once")
    if columns.id is None and len(ids) > 1:
        raise ValueError(f"{len(ids)} series, and no column of ids")


def check_model(model: AbstractModel, columns: Columns, names: tuple[str, ...]) -> None:
    """As many channels and covariates as there are columns for."""
    if isinstance(model, DirectModel):
        dim, read, ahead = model.law.dim, model.units.covariate_loc.size, model.ahead
    else:
        assert isinstance(model, LatentModel)
        dim, read, ahead = model.flow.model.channels, 0, 0
    if not dim == model.support.dim == len(names):
        raise ValueError(f"{len(names)} columns of values for a model of {dim}")
    named = len(columns.static) + len(columns.past) + len(columns.future)
    if (named, len(columns.future)) != (read, ahead):
        raise ValueError(
            f"{named} covariates, {len(columns.future)} of them known ahead, for a model of {read} and {ahead}"
        )


def require_parts(parts: dict[str, Any], **kinds: type) -> None:
    """These parts of a model and no others."""
    if {name: type(part) for name, part in parts.items()} != kinds:
        raise ValueError(f"its model must be of {' and '.join(kinds)}")


def knots(law: LocalFlow) -> int:
    """At how many gaps the law is corrected."""
    return 0 if law.correction is None else law.correction.log_gaps.shape[0]


def check_direct(model: DirectModel, past: DirectPast) -> None:
    """Arrays of the right shapes, whose numbers mean something."""
    dim, series = model.law.dim, len(past.ids)
    covariates = model.units.covariate_loc.shape[0]
    if model.history.size + covariates != model.law.cond_dim or model.history.dim != dim:
        raise ValueError("the history does not go with the law")
    wanted = {
        "loc": (model.units.loc, (dim,)),
        "scale": (model.units.scale, (dim,)),
        "covariate_loc": (model.units.covariate_loc, (covariates,)),
        "covariate_scale": (model.units.covariate_scale, (covariates,)),
        "reading": (model.history.centre, (model.history.size - dim,)),
        "width": (model.history.width, model.history.centre.shape),
        "last": (past.last, (series,)),
        "known": (past.known, (series, covariates - model.ahead)),
        "centre": (past.centre, (series, dim)),
        "spread": (past.spread, (series, dim)),
        "wider": (past.wider, (series, knots(model.law), dim)),
        "x": (past.memory.x, (series, dim)),
        "size": (past.memory.size, (series, dim)),
        "means": (past.memory.means, (series, len(HALF_LIVES), dim)),
        "variances": (past.memory.variances, (series, len(HALF_LIVES), dim)),
        "roams": (past.memory.roams, (series, model.history.roams, dim)),
    }
    if model.effects is not None:
        wanted |= {
            "slopes": (model.effects.slopes, (model.ahead, dim)),
            "moves": (model.effects.moves, (dim,)),
        }
    for name, (array, shape) in wanted.items():
        if array.shape != shape:
            raise ValueError(f"{name!r} has shape {array.shape} where {shape} is needed")
        require_finite(**{name: array})
    for name, array in {
        "scale": model.units.scale,
        "covariate_scale": model.units.covariate_scale,
        "spread": past.spread,
        "wider": past.wider,
        "usual": model.history.usual,
        "width": model.history.width,
        **({} if model.effects is None else {"moves": model.effects.moves}),
    }.items():
        array = np.asarray(array, np.float32)  # as it is used
        if not ((array >= LEAST) & (array < LARGEST)).all():
            raise ValueError(f"{name!r} must be positive, from {LEAST:g} to {LARGEST:g}")
    if not (np.abs(past.known) <= FURTHEST_KNOWN).all():
        raise ValueError(
            f"'known' must be of covariates within {FURTHEST_KNOWN:g} standard deviations of the mean; got one "
            f"{np.abs(past.known).max():.3g} away"
        )
    for name in ("size", "variances", "roams"):
        if (np.asarray(getattr(past.memory, name)) < 0).any():
            raise ValueError(f"{name!r} must not be negative")


def require_finite(**arrays: Any) -> None:
    """Numbers all, in single precision too, which laws are computed in."""
    for name, array in arrays.items():
        if not (np.abs(np.asarray(array)) <= np.finfo(np.float32).max).all():
            raise ValueError(f"{name!r} holds NaN or infinity")


def positive(name: str, value: Any) -> float:
    """A positive number that is no further from one than a length of time can be."""
    if not isinstance(value, float) or not 1 / LARGEST <= value <= LARGEST:
        raise ValueError(f"{name!r} must be a positive number")
    return value
