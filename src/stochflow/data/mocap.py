"""Motion capture: subject 35 of the CMU collection, walking, as prepared by the authors of ODE2VAE."""

import hashlib
import os
from pathlib import Path

import numpy as np

from .trajectories import Trajectories

FILE = "mocap/mocap35.mat"
SHA256 = "105484f138487f10209cce883d26e2e030d10a6df6f10159f4e6e253f9b03b8d"
WHERE = (
    "get mocap35.mat (ODE2VAE's preprocessing of CMU's subject 35; a copy is in the repository uncbiag/neuro_shooting) "
    "and set STOCHFLOW_DATA to the folder that holds mocap/mocap35.mat"
)
PARTS = {"train": "Xtr", "validation": "Xval", "test": "Xtest"}
FRAME = 0.1  # time units, by convention


def data_folder() -> Path:
    """The folder that the environment variable STOCHFLOW_DATA names."""
    name = os.environ.get("STOCHFLOW_DATA")
    if not name:
        raise FileNotFoundError(f"STOCHFLOW_DATA is not set: {WHERE}.")
    return Path(name)


def load_mocap(
    path: str | os.PathLike | None = None, *, sha256: str | None = SHA256
) -> dict[str, Trajectories]:
    """Sixteen training, three validation and four test sequences of 300 frames and 50 channels.

    Channels 0 to 2 are the velocity of the root, 3 to 49 joint angles in degrees, each with the mean of its sequence
    removed. The file is checked against its known sum before it is read; `sha256=None` reads any file of that layout.
    """
    from scipy.io import loadmat

    path = data_folder() / FILE if path is None else Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"there is no {path}: {WHERE}.")
    if sha256 is not None and (found := hashlib.sha256(path.read_bytes()).hexdigest()) != sha256:
        raise ValueError(
            f"{path} is not the file that is known: its sha256 is {found}, not {sha256}; {WHERE}."
        )
    content = loadmat(path)
    if missing := [name for name in PARTS.values() if name not in content]:
        raise ValueError(f"{path} has no {', '.join(missing)}; it must hold {', '.join(PARTS.values())}.")
    frames = lambda values: FRAME * np.arange(values.shape[1])
    return {
        part: Trajectories.from_arrays(
            frames(content[name]), content[name], names=[f"{part} {i}" for i in range(len(content[name]))]
        )
        for part, name in PARTS.items()
    }
