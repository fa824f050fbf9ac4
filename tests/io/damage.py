"""How to spoil a good model file: each a named function from its parts to bytes that must be refused.

The file is one of a law (`models.LAWS["standardised flow"]`), or of a forecaster of two channels whose networks have
two layers.
"""

import dataclasses
import hashlib
import io
import json
import struct
import zipfile
from collections.abc import Callable

import numpy as np

from stochflow.io.archive import MANIFEST, WEIGHTS, _directory, _local
from stochflow.io.migrate import FORMAT_VERSION
from stochflow.io.strict_json import canonical_json

Damage = Callable[[dict, bytes], bytes]
DAMAGE: dict[str, Damage] = {}


def file_of(manifest: bytes, weights: bytes) -> bytes:
    """A container that is in order, whatever is in it."""
    members = [_local(MANIFEST, manifest), manifest, _local(WEIGHTS, weights), weights]
    return b"".join([*members, _directory(manifest, weights)])


def signed(manifest: dict, weights: bytes) -> bytes:
    """A file whose checksums are right: the damage is one that they do not see."""
    facts = {"sha256": hashlib.sha256(weights).hexdigest(), "size": len(weights)}
    return checked({**manifest, "weights": facts}, weights)


def checked(manifest: dict, weights: bytes) -> bytes:
    """Only the checksum of the manifest is right."""
    whole = {name: value for name, value in manifest.items() if name != "checksum"}
    checksum = hashlib.sha256(canonical_json(whole)).hexdigest()
    return file_of(canonical_json({**whole, "checksum": checksum}), weights)


def add(name: str, damage: Damage) -> None:
    assert name not in DAMAGE
    DAMAGE[name] = damage


# Bytes that are no model at all, or one that was cut or spliced.
for _name, _content in {
    "empty file": b"",
    "one byte": b"P",
    "text": b"a model, I swear\n" * 100,
    "a pickle": b"\x80\x04\x95cos\nsystem\n(S'echo hi'\ntR.",
    "zeros": bytes(5000),
    "the end of an empty zip": b"PK\5\6" + bytes(18),
    "noise": np.random.default_rng(0).bytes(5000),
}.items():
    add(_name, lambda m, w, content=_content: content)
for _eighth in range(1, 8):
    add(f"cut at {_eighth}/8", lambda m, w, k=_eighth: signed(m, w)[: k * len(signed(m, w)) // 8])
add("last byte lost", lambda m, w: signed(m, w)[:-1])
add("one byte more", lambda m, w: signed(m, w) + b"\0")
add("another file behind", lambda m, w: signed(m, w) * 2)
add("a program in front", lambda m, w: b"#!/bin/sh\n" + signed(m, w))


# The container.
def _zipped(members: dict[str, bytes], method: int = zipfile.ZIP_STORED) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", method) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return file.getvalue()


def _with_field(content: bytes, offset: int, form: str, value: float) -> bytes:
    return content[:offset] + struct.pack(form, value) + content[offset + struct.calcsize(form) :]


def _second(manifest: dict, weights: bytes) -> int:
    """Where the header of the weights begins."""
    return signed(manifest, weights).index(b"PK\3\4", 4)


_json = canonical_json
add("repacked", lambda m, w: _zipped({MANIFEST: _json(m), WEIGHTS: w}))
add("compressed", lambda m, w: _zipped({MANIFEST: _json(m), WEIGHTS: w}, zipfile.ZIP_DEFLATED))
add("bomb of zeros", lambda m, w: _zipped({MANIFEST: _json(m), WEIGHTS: bytes(10**7)}, zipfile.ZIP_DEFLATED))
add("bomb in the manifest", lambda m, w: _zipped({MANIFEST: b" " * 10**7, WEIGHTS: w}, zipfile.ZIP_DEFLATED))
add("bomb in a bomb", lambda m, w: _zipped({MANIFEST: _json(m), WEIGHTS: DAMAGE["bomb of zeros"](m, w)}))
add("third member", lambda m, w: _zipped({MANIFEST: _json(m), WEIGHTS: w, "more": b""}))
add("members in the other order", lambda m, w: _zipped({WEIGHTS: w, MANIFEST: _json(m)}))
add("weights missing", lambda m, w: _zipped({MANIFEST: _json(m)}))
for _path in ("../model.json", "/etc/passwd", "..\\model.json", "model.json/", "MODEL.JSON", "x" * 60_000):
    add(f"member {_path[:20]}", lambda m, w, path=_path: _zipped({path: _json(m), WEIGHTS: w}))
add("weights by another path", lambda m, w: signed(m, w).replace(WEIGHTS.encode(), b"../../evil.safetensor"))
add("manifest of 4 GiB, declared", lambda m, w: _sized(m, w, 0))
add("weights of 4 GiB, declared", lambda m, w: _sized(m, w, _second(m, w)))
add("compressed by a flag alone", lambda m, w: _with_field(signed(m, w), 8, "<H", 8))
add("encrypted by a flag alone", lambda m, w: _with_field(signed(m, w), 6, "<H", 1))


def _sized(manifest: dict, weights: bytes, start: int) -> bytes:
    huge = _with_field(signed(manifest, weights), start + 18, "<L", 2**32 - 1)
    return _with_field(huge, start + 22, "<L", 2**32 - 1)


# The manifest, as text.
for _name, _text in {
    "empty": b"",
    "not JSON": b"{'format': 'stochflow'}",
    "not UTF-8": b'{"format": "\xff"}',
    "UTF-16": '{"format": "stochflow"}'.encode("utf-16"),
    "with a byte-order mark": b"\xef\xbb\xbf{}",
    "a list": b"[]",
    "a number": b"1",
    "deep": b'{"a":' * 80_000 + b"1" + b"}" * 80_000,
    "deep and open": b"[" * 500_000,
    "just too deep": b'{"a":' * 60 + b"1" + b"}" * 60,
    "NaN": b'{"format": NaN}',
    "minus infinity": b'{"format": -Infinity}',
    "number too large": b'{"format": 1e999}',
    "integer of half a million digits": b'{"format": ' + b"9" * 500_000 + b"}",
    "integer of twenty digits": b'{"format": 10000000000000000000}',
    "key twice": b'{"format": "stochflow", "format": "stochflow"}',
    "two objects": b"{}{}",
    "as many lists as fit": b'{"a": [' + b"[]," * 170_000 + b"[]]}",
    "above the cap": b'{"a": "' + b"a" * 2**19 + b'"}',
    "lone surrogate": b'{"format": "\\ud800"}',
}.items():
    add(f"manifest: {_name}", lambda m, w, text=_text: file_of(text, w))


# The manifest, as content; `DELETE` takes a name away.
DELETE = object()


@dataclasses.dataclass(frozen=True)
class Other:
    """The first of these values that is not there already."""

    values: tuple


FLOW = "model/config/law/config"
# Where the file of a forecaster has what that of a law has elsewhere.
PLACES = {
    FLOW: f"{FLOW}/law/config",
    "model/config/time_scale": "usual_gap",
    "model/config/horizon": "horizon",
}
ARRAYS = {
    "scale": "units.scale",
    "loc": "units.loc",
    "law.net.weights.0": "model.law.law.net.weights.0",
    "law.stack.layers.1.bound": "model.law.law.stack.noise_layers.1.bound",
}


def _place(manifest: dict, path: str, places: dict[str, str]) -> str:
    """A path in the file of a law, or what stands for it in that of a forecaster."""
    if manifest["kind"] != "forecaster":
        return path
    found = [name for name in places if f"{path}/".startswith(f"{name}/")]
    return places[found[0]] + path.removeprefix(found[0]) if found else path


def _edited(content: dict, path: str, value: object) -> dict:
    copy = json.loads(json.dumps(content))
    *parents, last = path.split("/")
    place = copy
    for parent in parents:
        place = place[int(parent)] if isinstance(place, list) else place[parent]
    if value is DELETE:
        del place[last]
    elif isinstance(value, Other):
        place[last] = next(each for each in value.values if each != place[last])
    else:
        place[last] = value
    assert json.dumps(copy) != json.dumps(content)
    return copy


_JOINED = {"class": "JoinedPosterior", "config": {"parts": []}}
for _ in range(4):
    _JOINED = {"class": "JoinedPosterior", "config": {"parts": [_JOINED] * 9}}
_SMOOTH = {"channels": 65536, "dim": 4096, "hidden": 65536, "width": 65536, "depth": 32}
_SMOOTH = {"class": "SmoothingPosterior", "config": {**_SMOOTH, "autonomous": True, "mask_input": True}}
for _path, _values in {
    "format": [DELETE, "other", None, 1, {}],
    "format_version": [DELETE, "1", 1.0, True, None, 0, -1, FORMAT_VERSION + 1, 10**12, [1]],
    "kind": [DELETE, Other(("forecaster", "model")), None, 1],
    "model": [DELETE, None, [], {}, "StochasticFlow", 3, _JOINED, _SMOOTH],
    "model/class": [
        DELETE,
        None,
        3,
        [],
        {},
        "os.system",
        "builtins.eval",
        "Mystery",
        "x" * 10**5,
        Other(("dict", "Relative")),
    ],
    "model/config": [DELETE, None, [], {}, 3],
    "model/config/law": [DELETE, None, 3, [], _SMOOTH, {"class": "dict", "config": {}}],
    "model/config/time_scale": [DELETE, None, 0.0, -1.0, 1, True, "1.0", [], 1e-300, 1e300],
    "model/config/horizon": [DELETE, 0.0, -1.0, True, "1.0"],
    "model/config/more": [1],
    FLOW: [{}, {"dim": 2}],
    f"{FLOW}/dim": [DELETE, None, 0, -1, True, 2.0, "2", 3, 4096, 4097, 10**9],
    f"{FLOW}/width": [0, -8, True, "8", 8.0, 9, 65536, 10**9, 2**53],
    f"{FLOW}/depth": [0, 1, 32, 33, 10**9],
    f"{FLOW}/layers": [-1, Other((0, 2)), 1, 3, 80, 128, 10**9],
    f"{FLOW}/cond_dim": [-1, 1, 4096, False, None],
    f"{FLOW}/autonomous": [False, 1, None, "true"],
    f"{FLOW}/octaves": [-1, 1, 32, 10**9, True],
    f"{FLOW}/lenses": [-1, 1, 256, 257, 10**9, True],
    f"{FLOW}/spline_layers": [-1, 0, 129, 10**9, True],
    f"{FLOW}/periods": [None, 3, [0.0], [-1.0], [1], ["1"], [1.0] * 65, [1.0] * 10**5, {"a": 1}, [1e-300]],
    f"{FLOW}/clock": [None, Other(("saturating", "linear")), "os", 3, []],
    f"{FLOW}/coupling": [Other(("spline", "affine")), "", None],
    f"{FLOW}/tails": [Other((True, False)), 0, None],
    f"{FLOW}/key": [0],
}.items():
    for _i, _value in enumerate(_values):
        add(
            f"{_path} {_i}",
            lambda m, w, p=_path, v=_value: signed(_edited(m, _place(m, p, PLACES), v), w),
        )
for _path, _values in {
    "weights": [DELETE, None, {}, 3, {"size": 1}],
    "weights/size": [DELETE, None, True, -1, 0, 1.5, "1", 2**30, 2**31, 2**53],
    "weights/sha256": [DELETE, None, "0" * 64, "", 3],
}.items():
    for _i, _value in enumerate(_values):
        add(f"{_path} {_i}", lambda m, w, p=_path, v=_value: checked(_edited(m, p, v), w))
_dict = lambda parts: {"class": "dict", "config": parts}
add("dict: many names", lambda m, w: signed({**m, "model": _dict({f"a{i}": None for i in range(99)})}, w))
add("dict: path as a name", lambda m, w: signed({**m, "model": _dict({"../a": m["model"]})}, w))
add("dict: nothing", lambda m, w: signed({**m, "model": _dict({})}, w))
add("a deep net in many parts", lambda m, w: signed({**m, "model": _dict(_many(m))}, w))
add("a network a coordinate", lambda m, w: signed({**m, "model": _triangular(m)}, w))
add("manifest unsigned", lambda m, w: file_of(_json({**m, "about": {"changed": 1}}), w))
add("checksum of a list", lambda m, w: file_of(_json({**m, "checksum": [1]}), w))


def _many(manifest: dict) -> dict:
    flow = _edited(manifest, _place(manifest, f"{FLOW}/depth", PLACES), 32)["model"]
    return {f"a{i}": flow for i in range(16)}


def _triangular(manifest: dict) -> dict:
    """With as many networks as coordinates, and thousands of those."""
    flow = _edited(manifest, f"{FLOW}/coupling", "triangular")
    return _edited(flow, f"{FLOW}/dim", 4096)["model"]


# The weights: their header, and what is in them.
def _parts(weights: bytes) -> tuple[dict, bytes]:
    size = int.from_bytes(weights[:8], "little")
    return json.loads(weights[8 : 8 + size]), weights[8 + size :]


def _weights(header: bytes, body: bytes) -> bytes:
    return len(header).to_bytes(8, "little") + header + body


def _header_edited(weights: bytes, path: str, value: object) -> bytes:
    header, body = _parts(weights)
    return _weights(json.dumps(_edited(header, path, value)).encode(), body)


for _length in (0, 1, 2**19 + 1, 2**32, 2**63, 2**64 - 1):
    add(f"header of {_length} bytes", lambda m, w, n=_length: signed(m, n.to_bytes(8, "little") + w[8:]))
add("weights: empty", lambda m, w: signed(m, b""))
add("weights: three bytes", lambda m, w: signed(m, b"\1\0\0"))
add("weights: cut", lambda m, w: signed(m, w[:-4]))
add("weights: more", lambda m, w: signed(m, w + bytes(4)))
for _name, _text in {
    "deep": b'{"a":' * 80_000 + b"1" + b"}" * 80_000,
    "a list": b"[]",
    "nothing": b"{}",
    "not UTF-8": b'{"\xff": 1}',
    "many": json.dumps({f"a{i}": {} for i in range(10**5)}).encode()[: 2**19],
    "more than may be": json.dumps({f"a{i}": 0 for i in range(5000)}).encode(),
}.items():
    add(f"header: {_name}", lambda m, w, text=_text: signed(m, _weights(text, _parts(w)[1])))
for _path, _values in {
    "scale": [DELETE, None, [], {}, 3],
    "stranger": [{"dtype": "F64", "shape": [0], "data_offsets": [0, 0]}],
    "__metadata__": [{}, {"a": "b"}],
    "x" * 300: [{"dtype": "F64", "shape": [0], "data_offsets": [0, 0]}],
    "new\nline": [{"dtype": "F64", "shape": [0], "data_offsets": [0, 0]}],
    "scale/dtype": [Other(("F32", "F64")), "I64", "BOOL", "F16", "OBJECT", None, 3, []],
    "scale/shape": [
        [1, 2],
        [2, 1],
        [],
        [3],
        [-2],
        [-1, -2],
        [True, 2],
        [2.0],
        None,
        2,
        [2**53, 2**53],
        [1] * 9,
    ],
    "scale/data_offsets": [
        [0, 16],
        [0],
        [],
        [16, 0],
        [-16, 0],
        [0, 2**53],
        [2**53, 2**53 + 16],
        None,
        "ab",
        [0.0, 16.0],
    ],
    "scale/more": [1],
}.items():
    for _i, _value in enumerate(_values):
        add(
            f"header: {_path[:20]} {_i}",
            lambda m, w, p=_path, v=_value: signed(m, _header_edited(w, _place(m, p, ARRAYS), v)),
        )


def _with_numbers(weights: bytes, name: str, value: float) -> bytes:
    header, body = _parts(weights)
    begin, _ = header[name]["data_offsets"]
    form = {"F32": "<f", "F64": "<d"}[header[name]["dtype"]]
    return _with_field(weights, len(weights) - len(body) + begin, form, value)


for _name, _value in {"NaN": np.nan, "Inf": np.inf, "-Inf": -np.inf}.items():
    for _array in ("law.net.weights.0", "law.stack.layers.1.bound", "loc"):
        add(
            f"{_name} in {_array}",
            lambda m, w, a=_array, v=_value: signed(m, _with_numbers(w, _place(m, a, ARRAYS), v)),
        )
for _value in (0.0, -1.0):
    add(
        f"scale of {_value}",
        lambda m, w, v=_value: signed(m, _with_numbers(w, _place(m, "scale", ARRAYS), v)),
    )
