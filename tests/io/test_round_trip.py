"""What is loaded is what was saved, bit for bit."""

import zipfile

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from safetensors.numpy import load as load_tensors

import stochflow
from stochflow.flows import SplineCoupling, StochasticFlow
from stochflow.io import ModelFileError, load, pack, peek, read_archive, save, unpack, write_archive
from stochflow.io.migrate import FORMAT_VERSION
from stochflow.io.registry import REGISTRY

from ..flows.catalogue import covariates
from . import models

S, R, T = 0.1, 0.4, 1.3


def same(a, b) -> bool:
    """Equal classes, static fields and functions, and arrays equal in dtype and bits."""
    if jax.tree.structure(a) != jax.tree.structure(b):
        return False
    return all(
        np.asarray(x).dtype == np.asarray(y).dtype and np.array_equal(x, y) if eqx.is_array(x) else x == y
        for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True)
    )


@pytest.mark.parametrize("name", models.ALL)
def test_a_model_comes_back_as_it_was(name, tmp_path):
    save(tmp_path / "it.stochflow", models.ALL[name])
    assert same(load(tmp_path / "it.stochflow"), models.ALL[name])


def test_every_class_of_the_registry_is_in_the_catalogue():
    leaves = lambda tree: [tree, *[leaf for part in vars(tree).values() for leaf in parts(part)]]
    parts = lambda part: (
        leaves(part)
        if isinstance(part, eqx.Module)
        else [leaf for one in part for leaf in parts(one)]
        if isinstance(part, tuple)
        else []
    )
    assert set(REGISTRY) <= {type(leaf).__name__ for model in models.ALL.values() for leaf in leaves(model)}


@pytest.mark.parametrize("name", ["standardised flow", "spline, not autonomous, covariates"])
def test_a_law_says_the_same_with_equality(name, tmp_path, getkey):
    law = models.LAWS[name]
    save(tmp_path / "law", law)
    again = load(tmp_path / "law")
    u = covariates(law) if hasattr(law, "cond_dim") else None
    x_s, x_t, key = jr.normal(getkey(), (law.dim,)), jr.normal(getkey(), (law.dim,)), getkey()
    draw = eqx.filter_jit(lambda law: (law.sample(x_s, S, T, u, key=key), law.log_prob(x_t, x_s, S, T, u)))
    for new, old in zip(draw(again), draw(law), strict=True):
        assert (new == old).all()


def test_a_bridge_and_a_latent_flow_say_the_same(tmp_path, getkey):
    save(tmp_path / "both", {"bridge": models.BRIDGES["standardised flow"], "latent": models.OBSERVED})
    both = load(tmp_path / "both")
    x, key, series = jnp.array([0.3, -0.2]), getkey(), models.series(getkey())

    @eqx.filter_jit
    def look(bridge, flow):
        path = flow.model.reader.sample_and_log_prob(flow.units.standardise(series), key=key)
        seen = flow.model.emission.log_prob(series.values[0], series.mask[0], path.x[0])
        return bridge.sample(x, 2 * x, S, R, T, key=key), path, seen

    new, old = (
        look(both["bridge"], both["latent"]),
        look(models.BRIDGES["standardised flow"], models.OBSERVED),
    )
    assert jax.tree.all(jax.tree.map(lambda a, b: (a == b).all(), new, old))


def test_the_package_has_both_under_longer_names(tmp_path):
    stochflow.save_model(tmp_path / "law", models.LAWS["deep"])
    assert same(stochflow.load_model(tmp_path / "law"), models.LAWS["deep"])


def test_single_precision_stays_single_when_double_is_on(tmp_path):
    law = jax.tree.map(lambda leaf: leaf.astype(jnp.float32), models.LAWS["saturating clock"])
    save(tmp_path / "law", law)
    assert same(load(tmp_path / "law"), law)


def test_double_precision_is_not_rounded_in_silence(tmp_path):
    save(tmp_path / "law", models.LAWS["deep"])
    with jax.enable_x64(False), pytest.raises(ModelFileError, match="single precision"):
        load(tmp_path / "law")


def test_a_folder_holds_the_same_as_a_file(tmp_path):
    law = models.LAWS["standardised flow"]
    save(tmp_path / "file", law, about={"unit": "h"})
    save(tmp_path / "folder", law, about={"unit": "h"}, folder=True)
    with zipfile.ZipFile(tmp_path / "file") as archive:
        assert archive.testzip() is None
        assert {name: archive.read(name) for name in archive.namelist()} == {
            path.name: path.read_bytes() for path in (tmp_path / "folder").iterdir()
        }
    (tmp_path / "folder" / "README.md").write_text("not ours")
    assert same(load(tmp_path / "folder"), law)
    assert peek(tmp_path / "folder") == peek(tmp_path / "file")


def test_the_weights_are_plain_safetensors(tmp_path):
    law = models.LAWS["standardised flow"]
    save(tmp_path / "folder", law, folder=True)
    found = load_tensors((tmp_path / "folder" / "weights.safetensors").read_bytes())
    assert (found["law.net.weights.0"] == law.law.net.weights[0]).all()
    assert (found["scale"] == law.scale).all()


def test_the_same_model_gives_the_same_bytes(tmp_path):
    save(tmp_path / "a", models.OBSERVED, about={"x": 1, "y": 2})
    save(tmp_path / "b", models.OBSERVED, about={"y": 2, "x": 1})
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_peek_reads_the_manifest_alone(tmp_path):
    save(tmp_path / "law", models.LAWS["standardised flow"], about={"columns": ["u", "v"], "unit": "days"})
    manifest = peek(tmp_path / "law")
    assert manifest["about"] == {"columns": ["u", "v"], "unit": "days"}
    assert manifest["model"]["class"] == "Standardised"
    assert manifest["model"]["config"]["law"]["config"]["width"] == 8
    assert (manifest["format"], manifest["format_version"]) == ("stochflow", FORMAT_VERSION)


def test_what_is_stored_beside_is_what_json_makes_of_it(tmp_path):
    odd = "\u00e9\ud800"
    save(tmp_path / "it", models.UNITS, about={"rows": {2: (1, 2.5), 10: None}, odd: [True, -0.0, 1e-300]})
    assert peek(tmp_path / "it")["about"] == {"rows": {"2": [1, 2.5], "10": None}, odd: [True, 0.0, 1e-300]}


def test_a_room_of_its_own_stores_modules_beside_other_arrays(tmp_path):
    parts = {"law": models.LAWS["deep"], "bridge": None}
    spec, tensors = pack(parts, prefix="model.")
    loc = np.arange(3.0)
    write_archive(tmp_path / "it", {"kind": "table", "model": spec}, {**tensors, "loc": loc})
    manifest, found = read_archive(tmp_path / "it")
    assert same(unpack(manifest["model"], found, prefix="model."), parts)
    assert (found["loc"] == loc).all()
    with pytest.raises(ModelFileError, match="it holds 'table'"):
        load(tmp_path / "it")


@pytest.mark.parametrize(
    "array", [np.zeros(()), np.zeros((0, 3)), np.arange(6, dtype=np.int32).reshape(2, 3).T]
)
def test_arrays_of_odd_shapes_and_strides_come_back(array, tmp_path):
    write_archive(tmp_path / "it", {}, {"array": array})
    found = read_archive(tmp_path / "it")[1]["array"]
    assert found.dtype == array.dtype
    assert np.array_equal(found, array)


def test_an_altered_module_is_not_saved_as_another(tmp_path):
    layer = models.drawn(SplineCoupling, (False,), 2, width=8, depth=2, half_width=3.0)
    narrow = eqx.tree_at(lambda flow: flow.stack.noise_layers[0], models.LAWS["1 dim, spline"], layer)
    with pytest.raises(ModelFileError, match="altered after it was built"):
        save(tmp_path / "it", narrow)
    relu = eqx.tree_at(lambda e: e.net.activation, models.EMISSIONS["poisson"], jax.nn.relu)
    with pytest.raises(ModelFileError, match="altered after it was built"):
        save(tmp_path / "it", relu)
    assert list(tmp_path.iterdir()) == []


class Stranger(eqx.Module):
    """Of no class that files know."""

    x: jax.Array


@pytest.mark.parametrize(
    ("module", "about", "words"),
    [
        (Stranger(jnp.ones(2)), {}, "^Stranger cannot be saved; known are"),
        (jax.tree.map(lambda x: x * jnp.nan, models.LAWS["deep"]), {}, "holds NaN or infinity"),
        (jax.tree.map(lambda x: x.astype(jnp.float16), models.LAWS["deep"]), {}, "must be float32, float64"),
        (models.LAWS["deep"], {"x": np.nan}, "must be plain JSON"),
        (models.LAWS["deep"], {"x": np.zeros(3)}, "must be plain JSON"),
        (models.LAWS["deep"], {"x": 2**60}, r"beyond 2\^53"),
        (models.LAWS["deep"], {"x": "x" * 2**19}, "bytes of manifest"),
        (models.drawn(StochasticFlow, 2, width=1, depth=30, layers=20), {}, "at most 256 layers"),
        ({"a.b": models.LAWS["deep"]}, {}, "plain names"),
    ],
)
def test_what_could_not_be_read_back_is_not_written(module, about, words, tmp_path):
    with pytest.raises(ModelFileError, match=words):
        save(tmp_path / "it", module, about=about)
    assert list(tmp_path.iterdir()) == []


def test_reserved_names_and_places_are_kept_free(tmp_path):
    with pytest.raises(ModelFileError, match="reserved names format"):
        write_archive(tmp_path / "it", {"format": "mine"}, {})
    with pytest.raises(ModelFileError, match="is a folder"):
        save(tmp_path, models.UNITS)
    save(tmp_path / "folder", models.UNITS, folder=True)
    with pytest.raises(ModelFileError, match="is there already"):
        save(tmp_path / "folder", models.LAWS["deep"], folder=True)
    assert same(load(tmp_path / "folder"), models.UNITS)
    (tmp_path / "empty").mkdir()
    save(tmp_path / "empty", models.UNITS, folder=True)
    assert same(load(tmp_path / "empty"), models.UNITS)
