"""What motion capture asks of a forecast, without any training: `python -m benchmarks.mocap_baselines`.

How unequal the channels are, how much a number of principal components can hold, and how far one gets by looking up
what followed the most similar stretches of the training sequences (set-up 2: frames 100–299 from the first hundred).
"""

import numpy as np

from stochflow.data.mocap import load_mocap

GIVEN, TRAIN_FRAMES = 100, 200
# Frames that are compared, and how many of the most similar stretches are averaged.
STRETCH, NEIGHBOURS = 50, 8


def main() -> None:
    data = {part: series.values.astype(np.float64) for part, series in load_mocap().items()}
    rows = data["train"][:, :TRAIN_FRAMES].reshape(-1, data["train"].shape[2])
    variances = np.sort(rows.var(axis=0))[::-1]
    share = variances[:4].sum() / variances.sum()
    print(
        f"largest variances {variances[:4].round(0)}, {share:.0%} of all; median {np.median(variances):.1f}"
    )
    mean = rows.mean(axis=0)
    axes = np.linalg.svd(rows - mean, full_matrices=False)[2]
    later = data["test"][:, GIVEN:]
    for number in (3, 4, 5, 6):
        kept = axes[:number].T @ axes[:number]
        left = np.square((later - mean) - (later - mean) @ kept).mean()
        print(f"{number} principal components leave {left:.2f} of the test frames")
    errors = [
        np.square(look_up(data["train"], test[:GIVEN], mean) - test[GIVEN:]).mean() for test in data["test"]
    ]
    print(f"looked up: {np.mean(errors):.2f} ({', '.join(f'{error:.2f}' for error in errors)})")


def look_up(train: np.ndarray, given: np.ndarray, mean: np.ndarray) -> np.ndarray:
    """At each later frame the mean of what followed the most similar stretches that go on so long."""
    frames = train.shape[1]
    windows = np.lib.stride_tricks.sliding_window_view(
        train, STRETCH, axis=1
    )  # series, starts, channels, frames
    distances = np.square(windows - given[-STRETCH:].T).mean(axis=(2, 3))
    order = np.argsort(distances, axis=None)
    series, ends = np.unravel_index(order, distances.shape)
    ends = ends + STRETCH
    found = []
    for ahead in range(frames - len(given)):
        able = np.flatnonzero(ends + ahead < frames)[:NEIGHBOURS]
        found.append(train[series[able], ends[able] + ahead].mean(axis=0) if len(able) else mean)
    return np.stack(found)


if __name__ == "__main__":
    main()
