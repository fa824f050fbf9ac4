"""Files of earlier formats stay readable; those of later ones say so."""

from pathlib import Path

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest

from stochflow.io import ModelFileError, load, migrate, peek, read_archive, save

from . import models
from .test_round_trip import same

FORMAT_1 = Path(__file__).parent / "files" / "format1.stochflow"
# The log-densities of a transition and of a bridge, and a draw, when the file was written.
EXPECTED = [-9.8046894, 0.35285163, 0.30600697, -1.8507147]


def test_a_file_of_format_1_still_says_what_it_said():
    """Written in single precision by stochflow 0.1.0, and never to be written again: see `files/README.md`."""
    assert peek(FORMAT_1)["format_version"] == 1
    assert peek(FORMAT_1)["about"] == {"columns": ["x", "y"], "unit": "s"}
    both = load(FORMAT_1)
    x_s, x_r, x_t, noise = jnp.array([[0.3, -1.2], [0.5, -0.9], [0.9, -0.4], [0.7, -0.4]], jnp.float32)
    s, r, t = jnp.array([0.25, 0.5, 1.0], jnp.float32)

    @eqx.filter_jit
    def look(law, bridge):
        drawn = law.transform(noise, x_s, s, t)
        return law.log_prob(x_t, x_s, s, t), bridge.log_prob(x_r, x_s, x_t, s, r, t), *drawn

    assert both["law"].loc.dtype == jnp.float32
    assert np.allclose(look(**both), EXPECTED, rtol=2e-4)


def test_migrations_are_applied_in_order(tmp_path, monkeypatch):
    monkeypatch.setattr(migrate, "FORMAT_VERSION", 1)
    save(tmp_path / "it", models.LAWS["1 dim"], about={"seen": []})

    def step(version):
        def apply(manifest, tensors):
            assert manifest["format_version"] == version
            manifest["about"] = {"seen": [*manifest["about"]["seen"], version]}
            return manifest, {**tensors, f"net.biases.{version - 1}": np.full(8, float(version))}

        return apply

    monkeypatch.setattr(migrate, "MIGRATIONS", {2: step(2), 1: step(1)})
    monkeypatch.setattr(migrate, "FORMAT_VERSION", 3)
    manifest, _ = read_archive(tmp_path / "it")
    assert manifest["about"] == {"seen": [1, 2]}
    assert manifest["format_version"] == 3
    biases = load(tmp_path / "it").net.biases
    assert [float(bias[0]) for bias in biases[:2]] == [1.0, 2.0]
    assert peek(tmp_path / "it")["format_version"] == 1  # as it was written


def test_a_file_of_the_present_format_is_not_migrated(tmp_path, monkeypatch):
    never = dict.fromkeys(range(1, migrate.FORMAT_VERSION + 1), lambda manifest, tensors: 1 / 0)
    monkeypatch.setattr(migrate, "MIGRATIONS", never)
    save(tmp_path / "it", models.LAWS["1 dim"])
    assert same(load(tmp_path / "it"), models.LAWS["1 dim"])


def test_a_migration_that_fails_is_the_files_fault(tmp_path, monkeypatch):
    now = migrate.FORMAT_VERSION
    save(tmp_path / "it", models.LAWS["1 dim"])
    monkeypatch.setattr(migrate, "MIGRATIONS", {now: lambda manifest, tensors: manifest["none"]})
    monkeypatch.setattr(migrate, "FORMAT_VERSION", now + 1)
    with pytest.raises(ModelFileError, match=f"format {now} could not be brought up to date"):
        load(tmp_path / "it")


def test_every_earlier_format_has_a_migration():
    assert set(migrate.MIGRATIONS) == set(range(1, migrate.FORMAT_VERSION))
