"""Between a module and what can be written: a spec, which is JSON, and arrays by name.

A spec is `{"class": "Standardised", "config": {"law": {"class": …}, …}}`; an array is named by its path in the tree,
such as `law.net.weights.0`. Several modules go together as a dict, whose spec has the class `dict`.

A module is never built from a file directly. Its config is checked, then the *shapes* of what the constructor would
make are found (by abstract evaluation: no memory, no compilation), then names and shapes are compared, and only then
are the arrays put in. The same happens when a module is packed, so what has been saved can be loaded.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import PRNGKeyArray

from .errors import ModelFileError, quote
from .fields import MOST_PARTS, Field, Part, Parts
from .registry import SMALLEST, entry_named, entry_of, later_fields

DICT = "dict"
# Layers of all networks of a model together: it takes two milliseconds to find the shapes of one.
MOST_LAYERS = 256


def pack(module: Any, *, prefix: str = "") -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """The spec of a module, or of a dict of them, and its arrays; their names begin with `prefix`."""
    spec = _spec(module)
    like = _like(spec)
    if not _same_but_for_arrays(module, like):
        raise ModelFileError(
            f"this {type(module).__name__} was altered after it was built, in more than its weights; only what "
            "a constructor makes can be saved."
        )
    tensors = {name: np.asarray(leaf) for name, leaf in _arrays(module).items()}
    _check_arrays(spec, like, tensors)
    return spec, {prefix + name: array for name, array in tensors.items()}


def unpack(spec: Any, tensors: dict[str, np.ndarray], *, prefix: str = "") -> Any:
    """The module, or the dict of them, that `pack` was given.

    Every array whose name begins with `prefix` must be one of the model's; the others are left alone.
    """
    given = {name.removeprefix(prefix): array for name, array in tensors.items() if name.startswith(prefix)}
    spec = _completed(spec)
    like = _like(spec)
    _check_arrays(spec, like, given)
    filled = iter([jnp.asarray(given[name]) for name in _arrays(like)])
    return jax.tree.map(lambda leaf: next(filled) if _is_array(leaf) else leaf, like)


def _completed(spec: Any, depth: int = 0) -> Any:
    """A spec with what its classes have learnt since it was written; whatever is wrong with it is found later."""
    if not isinstance(spec, dict) or not isinstance(spec.get("config"), dict) or depth > MOST_PARTS:
        return spec
    complete = lambda value: (
        [_completed(part, depth + 1) for part in value]
        if isinstance(value, list)
        else _completed(value, depth + 1)
    )
    config = {name: complete(value) for name, value in spec["config"].items()}
    return {**spec, "config": {**later_fields(spec.get("class")), **config}}


def _spec(module: Any) -> dict[str, Any]:
    if isinstance(module, dict):
        return {"class": DICT, "config": {name: _spec_or_none(part) for name, part in module.items()}}
    entry = entry_of(module)
    config = {}
    for name, value in entry.config(module).items():
        match entry.fields[name]:
            case Part():
                config[name] = _spec_or_none(value)
            case Parts():
                config[name] = [_spec(part) for part in value]
            case _:
                config[name] = list(value) if isinstance(value, tuple) else value
    return {"class": entry.cls.__name__, "config": config}


def _spec_or_none(module: Any) -> dict[str, Any] | None:
    return None if module is None else _spec(module)


def _like(spec: Any) -> Any:
    """What the constructor would make, with shapes in the place of arrays."""
    if (layers := _check(spec)) > MOST_LAYERS:
        raise ModelFileError(f"a model may have at most {MOST_LAYERS} layers; this one has {layers}.")
    try:
        # With `jit`, each shape that is new would be traced for a program of its own, which is never run.
        with jax.disable_jit():
            return eqx.filter_eval_shape(lambda: _build(spec, jr.key(0)))
    except Exception as error:  # whatever a constructor has against it, the spec is wrong
        reason = " ".join(str(error).split())
        raise ModelFileError(f"its model cannot be built ({quote(reason)})") from None


def _check(spec: Any, role: type = object) -> int:
    """Check a spec and all within it, and count, from above, the layers of its networks."""
    if not isinstance(spec, dict) or set(spec) != {"class", "config"} or not isinstance(spec["config"], dict):
        raise ModelFileError(f"a model must have a class and a config; got {quote(spec)}")
    config = spec["config"]
    if spec["class"] == DICT and role is object:
        if len(config) > MOST_PARTS or not all(isinstance(n, str) and n.isidentifier() for n in config):
            raise ModelFileError(f"a dict of models must have at most {MOST_PARTS} plain names")
        return sum(_check(part) for part in _inner(spec).values())
    entry = entry_named(spec["class"])
    if not issubclass(entry.cls, role):
        raise ModelFileError(f"{entry.cls.__name__} stands where {role.__name__} must be")
    if odd := sorted(set(entry.fields) ^ set(config)):
        where = "lacks" if odd[0] in entry.fields else "does not know"
        raise ModelFileError(f"the config of {spec['class']} {where} {quote(odd[0])}")
    layers = sum(_check_field(name, field, config[name]) for name, field in entry.fields.items())
    # Triangular splines have a network a coordinate.
    nets = config.get("layers", 0) + 3 + (config["dim"] if config.get("coupling") == "triangular" else 0)
    return layers + (config.get("depth", 0) + 1) * nets


def _check_field(name: str, field: Field, value: Any) -> int:
    """Check the value of a field, and count the layers that it brings with it."""
    match field:
        case Part():
            return 0 if field.optional and value is None else _check(value, field.role)
        case Parts():
            if not isinstance(value, list) or not 1 <= len(value) <= MOST_PARTS:
                raise ModelFileError(f"`{name}` must be a list of 1 to {MOST_PARTS} parts")
            return sum(_check(part, field.role) for part in value)
        case _:
            field.check(name, value)
            return 0


def _build(spec: dict[str, Any], key: PRNGKeyArray) -> Any:
    """What a checked spec describes."""
    inner = {path: _build(part, key) for path, part in _inner(spec).items()}
    if spec["class"] == DICT:
        return {name: inner.get(name) for name in spec["config"]}
    entry = entry_named(spec["class"])
    config = dict(spec["config"])
    for name, field in entry.fields.items():
        if isinstance(field, Part):
            config[name] = inner.get(name)
        elif isinstance(field, Parts):
            config[name] = [inner[f"{name}.{i}"] for i in range(len(config[name]))]
    return entry.make(key, **config)


def _inner(spec: dict[str, Any]) -> dict[str, Any]:
    """The specs within a checked spec, by their paths."""
    config = spec["config"]
    if spec["class"] == DICT:
        return {name: part for name, part in config.items() if part is not None}
    fields = entry_named(spec["class"]).fields
    one = {name: config[name] for name, field in fields.items() if isinstance(field, Part)}
    several = {
        f"{name}.{i}": part
        for name, field in fields.items()
        if isinstance(field, Parts)
        for i, part in enumerate(config[name])
    }
    return {path: part for path, part in (one | several).items() if part is not None}


def _is_array(leaf: Any) -> bool:
    return isinstance(leaf, jax.Array | np.ndarray | jax.ShapeDtypeStruct)


def _arrays(tree: Any) -> dict[str, Any]:
    """The arrays of a tree by their paths, in the order of its leaves."""
    found = jax.tree_util.tree_leaves_with_path(tree)
    return {".".join(map(_key_name, path)): leaf for path, leaf in found if _is_array(leaf)}


def _key_name(key: Any) -> str:
    return str(getattr(key, "name", getattr(key, "idx", getattr(key, "key", key))))


def _same_but_for_arrays(module: Any, like: Any) -> bool:
    """Whether all else of two modules is equal: classes, static fields, functions, and where arrays are."""
    hidden = [jax.tree.map(lambda leaf: None if _is_array(leaf) else leaf, tree) for tree in (module, like)]
    structures = jax.tree.structure(module), jax.tree.structure(like)
    return structures[0] == structures[1] and jax.tree.leaves(hidden[0]) == jax.tree.leaves(hidden[1])


def _check_arrays(spec: dict[str, Any], like: Any, tensors: dict[str, np.ndarray]) -> None:
    """Names, shapes, dtypes and signs."""
    wanted = _arrays(like)
    if odd := sorted(set(wanted) ^ set(tensors)):
        where = "missing from" if odd[0] in wanted else "no part of the model but in"
        raise ModelFileError(f"the array {quote(odd[0])} is {where} its weights")
    for name, leaf in wanted.items():
        _check_array(name, tensors[name], leaf)
    _check_numbers(spec, tensors, "")


def _check_array(name: str, array: np.ndarray, like: jax.ShapeDtypeStruct) -> None:
    if array.shape != like.shape:
        raise ModelFileError(f"the array {quote(name)} must have shape {like.shape}; got {array.shape}")
    # The precision is that of the file, whatever JAX would choose today; the kind is not.
    if array.dtype.kind != np.dtype(like.dtype).kind:
        raise ModelFileError(f"the array {quote(name)} must be of kind {like.dtype}; got {array.dtype}")
    if array.dtype.itemsize == 8 and not jax.config.read("jax_enable_x64"):
        raise ModelFileError(
            f"the array {quote(name)} is {array.dtype}, and JAX is set to single precision; call "
            '`jax.config.update("jax_enable_x64", True)` first.'
        )


def _check_numbers(spec: dict[str, Any], tensors: dict[str, np.ndarray], prefix: str) -> None:
    for path, part in _inner(spec).items():
        _check_numbers(part, tensors, f"{prefix}{path}.")
    if spec["class"] == DICT:
        return
    entry = entry_named(spec["class"])
    for name in entry.positive:
        array = tensors[prefix + name]
        if not ((np.diagonal(array) if array.ndim == 2 else array) >= SMALLEST).all():
            raise ModelFileError(
                f"the array {quote(prefix + name)} must be positive, at least {SMALLEST:.3g}"
            )
    for name, (low, high) in entry.within.items():
        array = tensors.get(prefix + name, np.zeros(0))
        if not ((low <= array) & (array <= high)).all():
            raise ModelFileError(f"the array {quote(prefix + name)} must lie between {low:g} and {high:g}")
    for name in entry.rising:
        if not (np.diff(tensors[prefix + name]) > 0).all():
            raise ModelFileError(f"the array {quote(prefix + name)} must rise")
