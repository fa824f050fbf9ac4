"""What motion capture asks of a forecast, without any training: `python -m benchmarks.mocap_baselines`.

How unequal the channels are, how much a number of principal components can hold, and how far one gets by looking up
what followed the most similar stretches of the training sequences (set-up 2: frames 100–299 from the first hundred).
And what a walk is: one closed curve, gone through at a pace of its own from a phase of its own, and how much of set-up
1 (frames 3–299 from the first three) hangs on the pace.
"""

import numpy as np

from stochflow.data.mocap import load_mocap

GIVEN, TRAIN_FRAMES = 100, 200
# Frames that are compared, and how many of the most similar stretches are averaged.
STRETCH, NEIGHBOURS = 50, 8
# The curve: places on it, the width of the kernel that averages it (radians), and how often phases are fitted anew.
PLACES, KERNEL, ROUNDS = 200, 0.06, 3
PACES = np.linspace(0.038, 0.05, 25)  # radians a frame
FEW = 3


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
    walk(data)


def walk(data: dict[str, np.ndarray]) -> None:
    """Fit the curve to the training sequences, then phase and pace of every sequence, by all frames and by three."""
    train = data["train"]
    rows = train.reshape(-1, train.shape[2])
    plane = np.linalg.svd(rows - rows.mean(axis=0), full_matrices=False)[2][:2].T
    seen = (train - rows.mean(axis=0)) @ plane
    angle = np.unwrap(
        np.arctan2(seen[..., 1] / seen[..., 1].std(), seen[..., 0] / seen[..., 0].std()), axis=1
    )
    frames = np.arange(train.shape[1])
    paces, phases = np.stack([np.polyfit(frames, one, 1) for one in angle]).T
    for _ in range(ROUNDS):
        curve = closed_curve(train, phases[:, None] + paces[:, None] * frames)
        _, paces, phases = np.array([nearest(curve, one, PACES) for one in train]).T
    usual = paces.mean()
    print(f"training: pace {usual:.4f} ± {paces.std():.4f} radians a frame")
    early = [pace_of_three(curve, one[first:]) for one in train for first in range(0, len(frames) - FEW, 10)]
    told = np.corrcoef(early, np.repeat(paces, len(early) // len(train)))[0, 1]
    print(f"correlation of the pace over three frames with that of the sequence: {told:.2f}")
    known = np.append(paces, [nearest(curve, one, PACES)[1] for one in data["validation"]])
    slowest, fastest = range_of_paces(paces / usual, known / usual)
    print(
        f"all {len(known)} of training and validation: {known.mean() / usual:.3f} ± {known.std() / usual:.3f} of the "
        f"usual pace; training sequences at {slowest:.3f} to {fastest:.3f} of their own have that mean and spread"
    )
    for part in ("validation", "test"):
        for i, one in enumerate(data[part]):
            error, pace, _ = nearest(curve, one, PACES)
            _, _, early = nearest(curve, one, [usual], slice(0, FEW))
            after = lambda phase, pace, one=one: np.square(path(curve, phase, pace, one) - one)[FEW:].mean()
            print(
                f"{part} {i}: the curve with the best phase and pace leaves {error:.1f} (pace {pace:.4f}); phase by "
                f"three frames and the usual pace {after(early, usual):.1f}, the true pace {after(early, pace):.1f}"
            )
    for slower in (1.0, 0.99, 0.98, 0.97, 0.95):
        errors = [error_of_mean(curve, one, [slower * usual]) for one in data["test"]]
        print(f"test, phase by three frames and {slower:g} of the usual pace: {np.mean(errors):.2f}")
    for slowest, fastest in ((0.88, 1.02), (0.9, 1.02), (0.92, 1.05), (0.93, 1.02), (0.93, 1.0)):
        paces = usual * np.linspace(slowest, fastest, len(PACES))
        errors = [error_of_mean(curve, one, paces) for one in data["test"]]
        print(
            f"test, the mean over paces from {slowest:g} to {fastest:g} of the usual one: {np.mean(errors):.2f}"
        )


def range_of_paces(shown: np.ndarray, wanted: np.ndarray) -> tuple[float, float]:
    """Between which factors, evenly, the paces `shown` have to be to have the mean and the spread of those `wanted`."""
    half = np.sqrt(3 * max(wanted.var() - shown.var(), 0.0))
    return wanted.mean() - half, wanted.mean() + half


def error_of_mean(curve: np.ndarray, one: np.ndarray, paces) -> float:
    """Of the mean of the curves that go on from three frames at each of the paces."""
    starts = [nearest(curve, one, [pace], slice(0, FEW)) for pace in paces]
    mean = np.mean([path(curve, phase, pace, one) for _, pace, phase in starts], axis=0)
    return np.square(mean - one)[FEW:].mean()


def pace_of_three(curve: np.ndarray, one: np.ndarray) -> float:
    """How far along the curve three frames go in a frame, at the nearest place on it."""
    place = np.square(curve - one[FEW - 1]).sum(axis=1).argmin()
    slope = (curve[(place + 1) % PLACES] - curve[place - 1]) / (4 * np.pi / PLACES)
    velocity = (one[FEW - 1] - one[0]) / (FEW - 1)
    return float(velocity @ slope / (slope @ slope))


def closed_curve(train: np.ndarray, phases: np.ndarray) -> np.ndarray:
    grid = np.arange(PLACES) / PLACES * 2 * np.pi
    weights = np.exp((np.cos(grid[:, None] - phases.reshape(1, -1)) - 1) / KERNEL**2)
    return weights @ train.reshape(-1, train.shape[2]) / weights.sum(axis=1, keepdims=True)


def path(curve: np.ndarray, phase: float, pace: float, like: np.ndarray) -> np.ndarray:
    angles = phase + pace * np.arange(len(like))
    return curve[np.round(angles / (2 * np.pi) * PLACES).astype(int) % PLACES]


def nearest(
    curve: np.ndarray, one: np.ndarray, paces, frames: slice = slice(None)
) -> tuple[float, float, float]:
    """The smallest error over some frames, and the pace and phase that have it."""
    tried = [
        (np.square((path(curve, phase, pace, one) - one)[frames]).mean(), pace, phase)
        for pace in paces
        for phase in np.arange(PLACES) / PLACES * 2 * np.pi
    ]
    return min(tried)


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
