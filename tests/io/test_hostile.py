"""Whatever a file holds: one typed error, within a second, in little memory, and nothing built."""

import hashlib
import io
import json
import os
import time
import tracemalloc
import zipfile

import pytest

from stochflow.io import ModelFileError, load, peek, save
from stochflow.io.archive import MANIFEST, WEIGHTS
from stochflow.io.migrate import FORMAT_VERSION

from . import models
from .damage import DAMAGE, signed

# Of the processor's time, so that a busy machine fails no test.
MOST_SECONDS = 1.0
# A manifest of one megabyte can become some twenty times that as Python objects; the files here are below 4 MB.
MOST_BYTES = 64 * 2**20
LONGEST_MESSAGE = 800


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    """The manifest and the weights of a good model."""
    folder = tmp_path_factory.mktemp("good") / "model"
    save(folder, models.LAWS["standardised flow"], folder=True)
    load(folder)  # whatever is done once a process is not counted
    return peek(folder), (folder / WEIGHTS).read_bytes()


def refuse(path, load=load):
    """Load it: time, memory and message must be in bounds."""
    for attempt in range(3):  # processor time counts what the other threads of a busy machine do, too
        before = time.process_time()
        with pytest.raises(ModelFileError) as caught:
            load(path)
        if time.process_time() - before < MOST_SECONDS:
            break
        assert attempt < 2
    message = str(caught.value)
    assert repr(os.fspath(path)) in message
    assert "\n" not in message
    assert len(message) < LONGEST_MESSAGE
    message.encode()  # printable everywhere, whatever the file said
    return message


@pytest.mark.parametrize("name", DAMAGE)
def test_a_hostile_file_is_refused(name, good, tmp_path):
    path = tmp_path / "it.stochflow"
    path.write_bytes(DAMAGE[name](*good))
    refuse(path)
    tracemalloc.start()
    try:
        with pytest.raises(ModelFileError):
            load(path)
        assert tracemalloc.get_traced_memory()[1] < MOST_BYTES
    finally:
        tracemalloc.stop()


def test_networks_of_shapes_that_were_never_seen_take_no_longer(good, tmp_path):
    """A network a coordinate, as many as may be: `bins` gives each attempt shapes of its own."""
    manifest, weights = good
    seconds = []
    for bins in (201, 202, 203):  # the quickest counts, as for a busy machine
        config = {"coupling": "triangular", "dim": 246, "width": 1, "depth": 0, "layers": 0, "bins": bins}
        flow = {**manifest["model"]["config"]["law"]["config"], **config, "order": [*range(246)][::-1]}
        model = {"class": "StochasticFlow", "config": flow}
        (tmp_path / "it").write_bytes(signed({**manifest, "model": model}, weights))
        before = time.process_time()
        with pytest.raises(ModelFileError, match=r"is (missing from|no part of)"):
            load(tmp_path / "it")
        seconds.append(time.process_time() - before)
    assert min(seconds) < MOST_SECONDS


def test_the_corpus_starts_from_a_good_file(good, tmp_path):
    (tmp_path / "it").write_bytes(signed(*good))
    save(tmp_path / "same", models.LAWS["standardised flow"])
    assert (tmp_path / "it").read_bytes() == (tmp_path / "same").read_bytes()
    load(tmp_path / "it")


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("text", "it is no stochflow model"),
        ("compressed", "model.json is compressed; unpack the file into a folder"),
        ("format_version 7", rf"written by a newer stochflow \(format {FORMAT_VERSION + 1}\); upgrade"),
        ("model/class 7", "the class 'Mystery'; known are BernoulliEmission, "),
        ("weights/sha256 2", "do not have the sha256 that its manifest names"),
        ("member ../model.json", r"must be model.json and weights.safetensors; got b'\.\./model.json'"),
        (
            "model/config/law/config/width 7",
            "`width` must be an integer from 1 to 65536; got 1000000000",
        ),
        ("model/config/law/config/width 5", r"must have shape \(3, 9\); got \(3, 8\)"),
        ("NaN in loc", "'loc' holds NaN or infinity"),
        ("scale of -1.0", "'scale' must be positive"),
        ("manifest: key twice", "its manifest has a key twice"),
        ("header: scale 0", "must fill 3680 bytes; the header names 3664"),
        ("header: scale/dtype 1", "'scale' must be of kind float64; got int64"),
        ("header: stranger 0", "'stranger' is no part of the model"),
        ("kind 1", "it holds 'forecaster'"),
        ("model 6", "must be a list of 1 to 16 parts"),
        ("a deep net in many parts", "at most 256 layers"),
        ("a network a coordinate", "at most 256 layers"),
    ],
)
def test_the_error_says_what_is_wrong(name, words, good, tmp_path):
    path = tmp_path / "it.stochflow"
    path.write_bytes(DAMAGE[name](*good))
    with pytest.raises(ModelFileError, match=words):
        load(path)


def test_no_bit_flips_unseen(good, tmp_path):
    content = signed(*good)
    path = tmp_path / "it"
    ends = [*range(40), *range(len(content) - 180, len(content))]
    where = [(place, bit) for place in ends for bit in (place % 8, (place + 3) % 8)]
    where += [(place, place % 8) for place in range(40, len(content) - 180, 29)]
    for place, bit in where:
        flipped = bytearray(content)
        flipped[place] ^= 1 << bit
        path.write_bytes(flipped)
        with pytest.raises(ModelFileError):
            load(path)


def test_no_bit_of_a_folder_flips_unseen(tmp_path):
    save(tmp_path / "model", models.LAWS["1 dim"], folder=True)
    for name in (MANIFEST, WEIGHTS):
        path = tmp_path / "model" / name
        content = path.read_bytes()
        for place in range(0, len(content), 13):
            flipped = bytearray(content)
            flipped[place] ^= 1 << place % 8
            path.write_bytes(flipped)
            with pytest.raises(ModelFileError):
                load(tmp_path / "model")
        path.write_bytes(content)
    load(tmp_path / "model")


def _link_manifest(folder):
    (folder / MANIFEST).rename(folder / "elsewhere")
    (folder / MANIFEST).symlink_to(folder / "elsewhere")


def _link_weights(folder):
    (folder / WEIGHTS).rename(folder / "elsewhere")
    (folder / WEIGHTS).symlink_to("elsewhere")


def _pipe(folder):
    (folder / WEIGHTS).unlink()
    os.mkfifo(folder / WEIGHTS)


def _folder_inside(folder):
    (folder / WEIGHTS).unlink()
    (folder / WEIGHTS).mkdir()


FOLDERS = {
    "manifest is a link": _link_manifest,
    "weights are a link": _link_weights,
    "weights are a pipe": _pipe,
    "weights are a folder": _folder_inside,
    "no weights": lambda folder: (folder / WEIGHTS).unlink(),
    "no manifest": lambda folder: (folder / MANIFEST).unlink(),
    "manifest of a terabyte": lambda folder: os.truncate(folder / MANIFEST, 2**40),
    "weights of a terabyte": lambda folder: os.truncate(folder / WEIGHTS, 2**40),
    "weights of a gigabyte": lambda folder: os.truncate(folder / WEIGHTS, 2**30),
    "weights of another model": lambda folder: (folder / WEIGHTS).write_bytes(_other_weights(folder)),
}


def _other_weights(folder):
    """Of the same length, and sound in themselves."""
    content = bytearray((folder / WEIGHTS).read_bytes())
    content[-1] ^= 128  # the sign of a weight
    return bytes(content)


@pytest.mark.parametrize("name", FOLDERS)
def test_a_hostile_folder_is_refused(name, tmp_path):
    save(tmp_path / "model", models.LAWS["1 dim"], folder=True)
    FOLDERS[name](tmp_path / "model")
    refuse(tmp_path / "model")


def test_a_path_that_is_no_model_is_refused(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    for path in (tmp_path / "none", tmp_path / "none" / "either", tmp_path / "pipe", tmp_path / "folder"):
        refuse(path)
    for path in ("/dev/zero", "nul\0inside", "", "x" * 5000):
        with pytest.raises(ModelFileError):
            load(path)


def test_the_way_out_of_a_compressed_file_works(good, tmp_path):
    (tmp_path / "it").write_bytes(DAMAGE["compressed"](_signed_manifest(good), good[1]))
    with pytest.raises(ModelFileError, match="unpack the file into a folder and load that"):
        load(tmp_path / "it")
    with zipfile.ZipFile(tmp_path / "it") as archive:
        archive.extractall(tmp_path / "folder")
    assert load(tmp_path / "folder").dim == 2


def _signed_manifest(good):
    with zipfile.ZipFile(io.BytesIO(signed(*good))) as archive:
        return json.loads(archive.read(MANIFEST))


def test_what_peek_reads_is_checked_too(good, tmp_path):
    for name in ("empty file", "manifest: deep", "format_version 7", "manifest unsigned", "compressed"):
        (tmp_path / "it").write_bytes(DAMAGE[name](*good))
        with pytest.raises(ModelFileError):
            peek(tmp_path / "it")


def test_the_checksum_is_that_of_the_weights(good):
    manifest, weights = good
    assert manifest["weights"]["sha256"] == hashlib.sha256(weights).hexdigest()
