"""A save is whole or did not happen: a full disk, a kill of the last step, a place that cannot be written to."""

import errno
import os
import resource
import shutil

import pytest

from stochflow.io import ModelFileError, load, save

from . import models
from .test_round_trip import same

OLD, NEW = models.LAWS["1 dim"], models.LAWS["deep"]


@pytest.fixture
def short_files():
    """Files cannot grow beyond a kilobyte: the write fails half way, as on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1024, hard))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def _full(*_):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.fixture
def old(tmp_path):
    save(tmp_path / "old.stochflow", OLD)
    return tmp_path / "old.stochflow"


def _untouched(old):
    return same(load(old), OLD) and list(old.parent.iterdir()) == [old]


def test_a_write_that_fails_half_way_leaves_the_old_file(old, short_files):
    with pytest.raises(OSError, match="File too large"):
        save(old, NEW)
    assert _untouched(old)


@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_a_full_disk_leaves_the_old_file(step, old, monkeypatch):
    monkeypatch.setattr(os, step, _full)
    with pytest.raises(OSError, match="No space left"):
        save(old, NEW)
    assert _untouched(old)


@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_a_full_disk_leaves_no_half_of_a_folder(step, old, monkeypatch):
    monkeypatch.setattr(os, step, _full)
    with pytest.raises(OSError, match="No space left"):
        save(old.parent / "new", NEW, folder=True)
    assert _untouched(old)


def test_a_folder_that_is_half_written_goes_away(old, short_files):
    with pytest.raises(OSError, match="File too large"):
        save(old.parent / "new", NEW, folder=True)
    assert _untouched(old)


def test_an_interrupt_leaves_the_old_file(old, monkeypatch):
    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupt)
    with pytest.raises(KeyboardInterrupt):
        save(old, NEW)
    assert _untouched(old)


def test_a_model_that_is_refused_leaves_the_old_file(old):
    with pytest.raises(ModelFileError):
        save(old, NEW, about={"x": float("inf")})
    assert _untouched(old)


def test_a_new_model_takes_the_place_of_the_old(old):
    save(old, NEW)
    assert same(load(old), NEW)
    assert list(old.parent.iterdir()) == [old]


def test_others_may_read_what_the_mask_lets_them(tmp_path):
    before = os.umask(0o022)
    try:
        save(tmp_path / "file", OLD)
        save(tmp_path / "folder", OLD, folder=True)
    finally:
        os.umask(before)
    modes = [path.stat().st_mode & 0o777 for path in (tmp_path / "file", tmp_path / "folder")]
    assert modes == [0o644, 0o755]


def test_no_folder_to_write_to_is_the_systems_error(tmp_path):
    with pytest.raises(FileNotFoundError):
        save(tmp_path / "none" / "it", OLD)
    with pytest.raises(FileNotFoundError):
        save(tmp_path / "none" / "it", OLD, folder=True)


def test_a_file_may_be_moved_and_copied(old, tmp_path):
    shutil.copy(old, tmp_path / "copy")
    assert same(load(tmp_path / "copy"), OLD)
