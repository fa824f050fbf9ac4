"""Series at other speeds, and with fewer rows: more of what a few series could have shown."""

from collections.abc import Sequence

import numpy as np

from .trajectories import Trajectories


def at_speeds(data: Trajectories, speeds: Sequence[float]) -> Trajectories:
    """Every series at every one of `speeds`: at time t after its first row, what the series had at `speed` times t.

    Rows keep their times; between rows of the data values are interpolated linearly, and where one of the two is
    missing so is the result. A series that goes faster ends sooner. For processes that differ in pace, of which a few
    series show only a few: walkers, heartbeats, production cycles.
    """
    speeds = [float(speed) for speed in speeds]
    if not speeds or not all(np.isfinite(speed) and speed > 0 for speed in speeds):
        raise ValueError(f"`speeds` must hold positive numbers, one at least; got {speeds}.")
    times, values, covariates, names = [], [], [], []
    for i, rows in enumerate(data.present):
        t = data.times[i, rows].astype(np.float64)
        seen = np.where(data.mask[i, rows], data.values[i, rows].astype(np.float64), np.nan)
        for speed in speeds:
            then = t[0] + speed * (t - t[0])
            kept = then <= t[-1] * (1 + 1e-9)
            at = np.minimum(then[kept], t[-1])
            times.append(data.origins[i] + t[kept])
            values.append(_between(at, t, seen))
            names.append(data.names[i] if speed == 1 else f"{data.names[i]} at speed {speed:g}")
            if data.u is not None:
                covariates.append(_between(at, t, data.u[i, rows].astype(np.float64)))
    return Trajectories.from_series(times, values, u=covariates if data.u is not None else None, names=names)


def thinned(data: Trajectories, every: int) -> Trajectories:
    """One row of every so many; each of the first so many rows of a series begins one of its own, and none is lost.

    Rows that follow closely tell nearly the same. A model that takes their noise for independent is too sure of what
    it has seen, and slower to train.
    """
    if every < 1:
        raise ValueError(f"`every` must be at least 1; got {every}.")
    if every == 1:
        return data
    times, values, covariates, names = [], [], [], []
    for i, rows in enumerate(data.present):
        kept = np.flatnonzero(rows)
        for first in range(min(every, len(kept))):
            part = kept[first::every]
            times.append(data.origins[i] + data.times[i, part].astype(np.float64))
            values.append(np.where(data.mask[i, part], data.values[i, part].astype(np.float64), np.nan))
            names.append(f"{data.names[i]} from row {first}")
            if data.u is not None:
                covariates.append(data.u[i, part])
    return Trajectories.from_series(times, values, u=covariates if data.u is not None else None, names=names)


def _between(at, times, values):
    """Linear interpolation; a row that is met exactly stands for itself, whatever its neighbour lacks."""
    after = (
        np.clip(np.searchsorted(times, at), 1, len(times) - 1) if len(times) > 1 else np.zeros(len(at), int)
    )
    before = np.maximum(after - 1, 0)
    gap = times[after] - times[before]
    share = np.where(gap > 0, (at - times[before]) / np.where(gap > 0, gap, 1.0), 0.0)[:, None]
    mixed = (1 - share) * values[before] + share * values[after]
    return np.where(share == 0, values[before], np.where(share == 1, values[after], mixed))
