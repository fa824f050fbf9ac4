"""A fitted forecaster as a model file, and back."""

import dataclasses
import json
import os
import textwrap
from typing import Any

import jax.numpy as jnp
import numpy as np

from ..flows import LocalFlow
from ..io import ModelFileError, pack, read_archive, unpack, write_archive
from ..io.archive import RESERVED
from ..io.errors import naming, quote
from ..latent import ObservedFlow
from ..laws import Support
from .direct import DirectModel, DirectPast
from .effects import Effects
from .fitting import check_card
from .forecaster import Forecaster, NotFittedError
from .frames import Columns
from .history import History, Memory
from .latent import LatentModel, LatentPast
from .model import AbstractModel, Fitted
from .sound import (
    check_columns,
    check_direct,
    check_ids,
    check_model,
    knots,
    positive,
    require_finite,
    require_parts,
)
from .stored import read_id, read_params, stored_id, stored_params
from .times import TimeAxis, is_zone
from .units import Units

KIND = "forecaster"
# What the manifest holds of a forecaster of either kind.
SHARED = ("kind", "params", "columns", "axis", "names", "gap", "card", "frame", "model")
# No time of a calendar is later, in seconds.
LATEST = 1e15
# Characters of what went wrong that an error repeats.
LONGEST_REASON = 400
FRAMES = ("pandas", "polars", "pyarrow", "modin", "cudf")


def save_forecaster(forecaster: Forecaster, path: str | os.PathLike, *, folder: bool = False) -> None:
    """Parameters, columns, units and card as JSON; the law and what forecasts start from as arrays."""
    if not hasattr(forecaster, "fitted_"):
        raise NotFittedError("this Forecaster has not been fitted: there is nothing to save.")
    fitted = forecaster.fitted_
    check_card(fitted.card, fitted.names)
    manifest: dict[str, Any] = {
        "kind": KIND,
        "params": stored_params(forecaster),
        "columns": dataclasses.asdict(fitted.columns),
        # Files in which times are counted from 1970 are those of before.
        "axis": {n: v for n, v in dataclasses.asdict(fitted.axis).items() if n != "origin" or v},
        "names": list(fitted.names),
        "gap": fitted.gap,
        "card": fitted.card,
        "frame": fitted.frame,
    }
    past: Any = forecaster.past_
    if isinstance(fitted.model, DirectModel):
        check_direct(fitted.model, past)
    ids = np.frombuffer(json.dumps([stored_id(name) for name in past.ids]).encode(), np.uint8)
    more, parts, arrays = _write(fitted.model, past)
    spec, weights = pack(parts, prefix="model.")
    arrays = {name: np.asarray(value) for name, value in arrays.items()} | {"past.ids": ids.astype(np.int32)}
    write_archive(path, manifest | more | {"model": spec}, weights | arrays, folder=folder)


def _write(model: AbstractModel, past: Any) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """Of a model: what goes into the manifest, what is packed, and arrays beside."""
    if isinstance(model, DirectModel):
        more = {"ahead": model.ahead, "own_scale": model.own_scale, "usual_gap": model.history.gap}
        parts = {"law": model.law, "support": model.support}
        return more | {"horizon": model.horizon}, parts, _direct_arrays(model, past)
    assert isinstance(model, LatentModel)
    whole = {name: getattr(past, name).astype(np.int32) for name in ("mask", "present")}
    wide = {name: getattr(past, name) for name in ("times", "values", "last")}
    arrays = {f"past.{name}": array for name, array in (whole | wide).items()}
    return {"horizon": model.horizon}, {"flow": model.flow, "support": model.support}, arrays


def load_forecaster(cls: type[Forecaster], path: str | os.PathLike) -> Forecaster:
    """Everything is checked before anything is built; what is wrong is a `ModelFileError`."""
    manifest, tensors = read_archive(path)
    with naming(path):
        if manifest.get("kind") != KIND:
            raise ModelFileError(
                f"it holds no forecaster but {quote(manifest.get('kind'))}: read it with `stochflow.io.load`."
            )
        try:
            return _build(cls, manifest, tensors)
        except ModelFileError:
            raise
        except (
            KeyError, TypeError, ValueError, AttributeError, IndexError, OverflowError, RecursionError
        ) as error:  # fmt: skip
            said = "".join(letter if letter.isprintable() else " " for letter in str(error))
            reason = textwrap.shorten(said, LONGEST_REASON, placeholder=" …")
            raise ModelFileError(
                f"it does not hold a whole forecaster ({type(error).__name__}: {reason})"
            ) from None


def _build(cls, manifest, tensors) -> Forecaster:
    forecaster = read_params(cls, manifest["params"])
    given: dict[str, Any] = manifest["columns"]
    columns = Columns(**{n: tuple(v) if isinstance(v, list) else v for n, v in given.items()})  # type: ignore[arg-type]
    axis, names = TimeAxis(**manifest["axis"]), tuple(manifest["names"])
    if axis.zone is not None and (not isinstance(axis.zone, str) or not is_zone(axis.zone)):
        raise ValueError(f"the time zone {axis.zone!r} is not known")
    check_columns(columns, names)
    check_card(card := manifest["card"], names)
    if manifest["frame"] not in FRAMES:
        raise ValueError(f"frames of {manifest['frame']!r} are not known")
    parts = unpack(manifest["model"], tensors, prefix="model.")
    ids = np.asarray(tensors["past.ids"]).astype(np.uint8).tobytes().decode()
    ids = [read_id(name) for name in json.loads(ids)]
    check_ids(ids, columns)
    kind = "latent" if "flow" in parts else "flow"
    model, past = (_latent if kind == "latent" else _direct)(manifest, tensors, parts, ids)
    if axis.is_calendar and not (np.abs(past.last) < LATEST).all():
        raise ValueError("the last time of a series is beyond all calendars")
    check_model(model, columns, names)
    _check_nothing_else(manifest, tensors, model, past)
    if card["kind"] != kind:
        raise ValueError(f"its card is that of {card['kind']!r}, and its model of {kind!r}")
    gap = positive("gap", manifest["gap"])
    forecaster._set(Fitted(columns, axis, names, model, gap, card, manifest["frame"]), None, past)
    return forecaster


def _check_nothing_else(manifest, tensors, model: AbstractModel, past: Any) -> None:
    """All that is in a file is read: what `save_forecaster` would not write has no place in it."""
    more, _, arrays = _write(model, past)
    known = {*SHARED, *more, *RESERVED}, {"past.ids", *arrays}
    own = [name for name in tensors if not name.startswith("model.")]
    for found, names in zip((manifest, own), known, strict=True):
        if strangers := sorted(set(found) - names):
            raise ValueError(f"{quote(strangers[0])} has no place in it")


def _direct_arrays(model: DirectModel, past: DirectPast) -> dict[str, Any]:
    units, history = model.units, model.history
    effects = {} if model.effects is None else model.effects._asdict()
    return {
        **{f"effects.{name}": value for name, value in effects.items()},
        "units.loc": units.loc,
        "units.scale": units.scale,
        "units.covariate_loc": units.covariate_loc,
        "units.covariate_scale": units.covariate_scale,
        "history.usual": history.usual,
        "history.centre": history.centre,
        "history.width": history.width,
        **{f"past.memory.{name}": value for name, value in past.memory._asdict().items()},
        **{f"past.{name}": getattr(past, name) for name in ("last", "known", "centre", "spread", "wider")},
    }


def _latent(manifest, tensors, parts, ids) -> tuple[LatentModel, LatentPast]:
    require_parts(parts, flow=ObservedFlow, support=Support)
    model = LatentModel(parts["flow"], parts["support"], positive("horizon", manifest["horizon"]))
    of = lambda name: np.asarray(tensors[f"past.{name}"])
    past = LatentPast(of("times"), of("values"), of("mask") != 0, of("present") != 0, of("last"), ids)
    series, rows = past.times.shape
    shapes = {
        "values": (series, rows, model.dim),
        "mask": (series, rows, model.dim),
        "present": (series, rows),
        "last": (len(ids),),
    }
    for name, shape in shapes.items():
        if getattr(past, name).shape != shape:
            raise ValueError(f"{name!r} has shape {getattr(past, name).shape} where {shape} is needed")
    require_finite(times=past.times, values=past.values, last=past.last)
    if series != len(ids) or not past.present[:, 0].all() or (np.diff(past.times, axis=1) < 0).any():
        raise ValueError("the past is not that of as many series as there are ids")
    return model, past


def _direct(manifest, tensors, parts, ids) -> tuple[DirectModel, DirectPast]:
    require_parts(parts, law=LocalFlow, support=Support)
    wide = lambda name: np.asarray(tensors[name])
    single = lambda name: jnp.asarray(tensors[name], jnp.float32)
    law, support = parts["law"], parts["support"]
    horizon, gap = (positive(name, manifest[name]) for name in ("horizon", "usual_gap"))
    ahead = manifest["ahead"]
    if type(ahead) is not int or ahead < 0:
        raise ValueError("the number of covariates that are known ahead must be an integer ≥ 0")
    units = Units(
        support,
        single("units.loc"),
        single("units.scale"),
        single("units.covariate_loc"),
        single("units.covariate_scale"),
        horizon,
    )
    history = History(single("history.usual"), single("history.centre"), single("history.width"), gap)
    memory: Any = Memory(**{name: wide(f"past.memory.{name}") for name in Memory._fields})  # type: ignore[arg-type]
    spread = wide("past.spread")
    # Files of before did not have it.
    ones = np.ones((len(ids), knots(law), law.dim))
    wider = wide("past.wider") if "past.wider" in tensors else ones
    past = DirectPast(memory, wide("past.last"), wide("past.known"), ids, wide("past.centre"), spread, wider)
    own_scale = manifest["own_scale"]
    if type(own_scale) is not bool:
        raise ValueError("'own_scale' must be true or false")
    # Files of before have none, and those without covariates ahead.
    found = ahead > 0 and "effects.slopes" in tensors
    effects = Effects(*(single(f"effects.{name}") for name in Effects._fields)) if found else None
    model = DirectModel(law, history, units, ahead=ahead, own_scale=own_scale, effects=effects)
    check_direct(model, past)
    return model, past
