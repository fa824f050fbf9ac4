"""The loader of motion capture: its checks on a small file, and the real one where it is at hand."""

import hashlib
import os

import numpy as np
import pytest
from scipy.io import savemat

from stochflow.data.mocap import load_mocap


@pytest.fixture
def small(tmp_path):
    rng = np.random.default_rng(0)
    path = tmp_path / "small.mat"
    savemat(
        path,
        {
            "Xtr": rng.normal(size=(3, 5, 2)),
            "Xval": rng.normal(size=(1, 5, 2)),
            "Xtest": rng.normal(size=(2, 5, 2)),
        },
    )
    return path


def test_a_file_with_the_right_sum_is_read(small):
    data = load_mocap(small, sha256=hashlib.sha256(small.read_bytes()).hexdigest())
    assert {part: len(series) for part, series in data.items()} == {"train": 3, "validation": 1, "test": 2}
    assert np.allclose(data["train"].times[0], 0.1 * np.arange(5))


def test_another_file_a_missing_one_and_one_of_another_layout_are_refused(small, tmp_path, monkeypatch):
    with pytest.raises(ValueError, match="is not the file that is known: its sha256 is"):
        load_mocap(small)
    with pytest.raises(FileNotFoundError, match=r"there is no .*nothing.mat: get mocap35.mat"):
        load_mocap(tmp_path / "nothing.mat")
    savemat(tmp_path / "other.mat", {"Xtr": np.ones((2, 3, 1))})
    with pytest.raises(ValueError, match="has no Xval, Xtest"):
        load_mocap(tmp_path / "other.mat", sha256=None)
    monkeypatch.delenv("STOCHFLOW_DATA", raising=False)
    with pytest.raises(FileNotFoundError, match="STOCHFLOW_DATA is not set"):
        load_mocap()


@pytest.mark.skipif(
    "STOCHFLOW_DATA" not in os.environ,
    reason="the real file is not in the repository; STOCHFLOW_DATA names its folder, as in CI",
)
def test_zero_has_the_known_error_on_the_real_file():
    data = load_mocap()
    assert [len(data[part]) for part in ("train", "validation", "test")] == [16, 3, 4]
    assert np.isclose((data["test"].values[:, 100:] ** 2).mean(), 34.08, atol=0.01)
