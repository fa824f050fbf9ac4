"""`Trajectories`: many series, each with times of its own, in padded arrays that have been checked; and their complete
rows alone, one after another."""

import dataclasses
from collections.abc import Sequence

import numpy as np
from jaxtyping import Bool, Float, Int

# A channel needs a standard deviation of this many steps of float32 at its size: about sixteen levels.
FEWEST_STEPS = 4
# What varies by less than this share of its size, in float64, is constant but for rounding.
ROUNDING = 1e-12


@dataclasses.dataclass(frozen=True, eq=False)
class CompleteRows:
    """The complete rows of several series, one series after another: what pairs are drawn from.

    They take as much memory as there are rows; [`Trajectories`][stochflow.data.Trajectories] take as much as if all
    series were as long as the longest. Times are since the first row of each series, complete or not.

    - `lengths`: how many of the rows are those of each series.
    - `ahead`: how many of the last covariates are known ahead.
    """

    times: Float[np.ndarray, " rows"]
    values: Float[np.ndarray, "rows dim"]
    u: Float[np.ndarray, "rows cond"] | None
    lengths: Int[np.ndarray, " series"]
    ahead: int = 0

    @classmethod
    def from_series(
        cls,
        times: Sequence[np.ndarray],
        values: Sequence[np.ndarray],
        *,
        u: Sequence[np.ndarray] | None = None,
        names: Sequence[str] | None = None,
        ahead: int = 0,
    ) -> "CompleteRows":
        """As [`Trajectories.from_series`][stochflow.data.Trajectories.from_series]; rows that lack a channel are left
        out."""
        _, series = _checked(times, values, u, names)
        whole = [~np.isnan(x).any(1) for _, _, x, _ in series]
        join = lambda arrays: np.concatenate([array[ok] for array, ok in zip(arrays, whole, strict=True)])
        return cls(
            times=join([t for _, t, _, _ in series]),
            values=join([x for _, _, x, _ in series]),
            u=None if u is None else join([w for _, _, _, w in series]),
            lengths=np.array([ok.sum() for ok in whole]),
            ahead=ahead,
        )

    def complete_rows(self) -> "CompleteRows":
        """These: there are no others."""
        return self

    @property
    def times_by_series(self) -> list[Float[np.ndarray, " _rows"]]:
        """The times of each series."""
        return np.split(self.times, np.cumsum(self.lengths)[:-1])

    @property
    def longest_gap(self) -> float:
        """From the first to the last row, of the longest series."""
        return float(max(np.ptp(t) if len(t) else 0.0 for t in self.times_by_series))


@dataclasses.dataclass(frozen=True, eq=False)
class Trajectories:
    """Series of states at irregular times, padded to one length.

    Make one with [`from_arrays`][stochflow.data.Trajectories.from_arrays] or
    [`from_series`][stochflow.data.Trajectories.from_series]; both check their input and name the series and the
    row of whatever is wrong.

    - `times`: float32, time since the series' own origin. The origin is subtracted in float64 first: unix
        seconds in float32 are 128 s apart.
    - `values`: float32, zero where `mask` is false.
    - `mask`: true where a channel was observed; false all along a padded row.
    - `u`: covariates of each row, or `None`.
    - `origins`: the first time of each series, float64.
    - `names`: one string a series, used in messages.
    - `ahead`: how many of the last covariates are known ahead: a law reads them at the end of a gap, and the others at
        its start.
    """

    times: Float[np.ndarray, "series rows"]
    values: Float[np.ndarray, "series rows dim"]
    mask: Bool[np.ndarray, "series rows dim"]
    u: Float[np.ndarray, "series rows cond"] | None
    origins: Float[np.ndarray, " series"]
    names: tuple[str, ...]
    ahead: int = 0

    @classmethod
    def from_arrays(
        cls,
        times: np.ndarray,
        values: np.ndarray,
        *,
        u: np.ndarray | None = None,
        names: Sequence[str] | None = None,
    ) -> "Trajectories":
        """From `values` of shape `(series, rows, dim)` and `times` of shape `(rows,)` or `(series, rows)`.

        NaN in `values` means missing.
        """
        values, times = np.asarray(values), np.asarray(times)
        if values.ndim != 3:
            raise ValueError(
                f"`values` must have shape (series, rows, dim); got {values.shape}. One series of shape "
                "(rows, dim) becomes `values[None]`."
            )
        if times.ndim == 1:
            times = np.broadcast_to(times, (values.shape[0], *times.shape))
        if times.shape != values.shape[:2]:
            raise ValueError(
                f"`times` must have shape {values.shape[1:2]} or {values.shape[:2]} to go with `values` of "
                f"shape {values.shape}; got {times.shape}."
            )
        return cls.from_series(list(times), list(values), u=None if u is None else list(u), names=names)

    @classmethod
    def from_series(
        cls,
        times: Sequence[np.ndarray],
        values: Sequence[np.ndarray],
        *,
        u: Sequence[np.ndarray] | None = None,
        names: Sequence[str] | None = None,
    ) -> "Trajectories":
        """From one `times` of shape `(rows,)` and one `values` of shape `(rows, dim)` a series."""
        names, series = _checked(times, values, u, names)
        pad = lambda arrays, fill=0.0: _pad(arrays, fill)
        padded = pad([x for _, _, x, _ in series], np.nan)
        mask = ~np.isnan(padded)
        return cls(
            times=pad([t for _, t, _, _ in series]),
            values=np.where(mask, padded, 0.0).astype(np.float32),
            mask=mask,
            u=None if u is None else pad([w for _, _, _, w in series]),
            origins=np.array([origin for origin, _, _, _ in series], np.float64),
            names=names,
        )

    @classmethod
    def joined(cls, *parts: "Trajectories") -> "Trajectories":
        """The series of all parts, one after another."""
        if not parts:
            raise ValueError("there must be at least one part to join; got none.")
        if len({part.u is None for part in parts}) > 1:
            raise ValueError(
                "either all parts must have covariates `u` or none; some have them and some do not."
            )
        series = [(part, i, ok) for part in parts for i, ok in enumerate(part.present)]
        seen = lambda part, i, ok: np.where(part.mask[i, ok], part.values[i, ok], np.nan)
        return cls.from_series(
            [part.origins[i] + part.times[i, ok].astype(np.float64) for part, i, ok in series],
            [seen(*each) for each in series],
            u=None if parts[0].u is None else [np.asarray(part.u)[i, ok] for part, i, ok in series],
            names=[part.names[i] for part, i, _ in series],
        )

    def __len__(self) -> int:
        return self.values.shape[0]

    def __repr__(self) -> str:
        return (
            f"Trajectories({len(self)} series, {int(self.present.sum())} rows, dim {self.dim}, gaps "
            f"{self.gaps.min(initial=np.inf):.3g} to {self.longest_gap:.3g})"
        )

    @property
    def dim(self) -> int:
        return self.values.shape[2]

    @property
    def cond_dim(self) -> int:
        return 0 if self.u is None else self.u.shape[2]

    @property
    def present(self) -> Bool[np.ndarray, "series rows"]:
        """Rows with at least one observed channel."""
        return np.asarray(self.mask.any(2))

    @property
    def complete(self) -> Bool[np.ndarray, "series rows"]:
        """Rows with every channel observed: what a directly observed law is learnt from."""
        return np.asarray(self.mask.all(2))

    def complete_rows(self) -> CompleteRows:
        """The complete rows alone, one series after another."""
        ok = self.complete
        u = None if self.u is None else self.u[ok]
        return CompleteRows(self.times[ok], self.values[ok], u, ok.sum(1), self.ahead)

    @property
    def gaps(self) -> Float[np.ndarray, " gaps"]:
        """Gaps between consecutive complete rows, all series together."""
        found = [np.diff(t[ok]) for t, ok in zip(self.times, self.complete, strict=True)]
        return np.concatenate(found)

    @property
    def longest_gap(self) -> float:
        """From the first to the last complete row, of the longest series."""
        spans = [np.ptp(t[ok]) if ok.any() else 0.0 for t, ok in zip(self.times, self.complete, strict=True)]
        return float(max(spans))

    @property
    def latest(self) -> float:
        """Of the complete rows of all series, the longest time since the origin."""
        return float(max((t[ok].max() for t, ok in zip(self.times, self.complete, strict=True) if ok.any())))

    def select(self, index: Sequence[int] | np.ndarray) -> "Trajectories":
        """Some of the series."""
        index = np.asarray(index, int)
        if index.ndim != 1 or not ((-len(self) <= index) & (index < len(self))).all():
            raise ValueError(
                f"`index` must be a list of numbers from 0 to {len(self) - 1}; got {index.tolist()}."
            )
        u = None if self.u is None else self.u[index]
        names = tuple(self.names[i] for i in index)
        return Trajectories(
            self.times[index], self.values[index], self.mask[index], u, self.origins[index], names, self.ahead
        )

    def split(self, *fractions: float, seed: int) -> tuple["Trajectories", ...]:
        """Split by series: `train, validation, test = data.split(0.7, 0.15, 0.15, seed=0)`."""
        if not fractions or not min(fractions) > 0 or not abs(sum(fractions) - 1) < 1e-6:  # NaN fails too
            raise ValueError(f"`fractions` must be positive and add up to 1; got {fractions}.")
        if len(self) < len(fractions):
            raise ValueError(
                f"{len(self)} series cannot be split {len(fractions)} ways by series: pass more series, or cut "
                "one by time with `window`."
            )
        order = np.random.default_rng(seed).permutation(len(self))
        sizes = np.maximum(1, np.floor(np.array(fractions) * len(self)).astype(int))
        sizes[np.argmax(sizes)] += len(self) - sizes.sum()
        return tuple(self.select(part) for part in np.split(order, np.cumsum(sizes)[:-1]))

    def window(self, start: float = -np.inf, stop: float = np.inf) -> "Trajectories":
        """Rows whose time since the series' origin lies in `[start, stop)`; series left empty are dropped."""
        keep = self.present & (self.times >= start) & (self.times < stop)
        chosen = np.flatnonzero(keep.any(1))
        if not chosen.size:
            raise ValueError(f"no series has a row at a time in [{start}, {stop}).")
        masked = np.where(self.mask, self.values, np.nan)
        return Trajectories.from_series(
            [self.origins[i] + self.times[i, keep[i]].astype(np.float64) for i in chosen],
            [masked[i, keep[i]] for i in chosen],
            u=None if self.u is None else [self.u[i, keep[i]] for i in chosen],
            names=[self.names[i] for i in chosen],
        )

    def scale(self) -> tuple[Float[np.ndarray, " dim"], Float[np.ndarray, " dim"]]:
        """Mean and standard deviation of each channel over what was observed."""
        seen = np.where(self.mask, self.values.astype(np.float64), np.nan).reshape(-1, self.dim)
        for channel in range(self.dim):
            observed = seen[~np.isnan(seen[:, channel]), channel]
            if observed.size == 0 or np.ptp(observed) == 0:
                what = "is never observed" if observed.size == 0 else f"is constant ({observed[0]:g})"
                raise ValueError(
                    f"channel {channel} {what}: it has no law to learn; drop it, or, if it varies by less than single "
                    "precision tells, subtract a constant from it first."
                )
        return np.nanmean(seen, 0).astype(np.float32), np.nanstd(seen, 0).astype(np.float32)


def _checked(times, values, u, names):
    """The names, and each series as `_check_series` returns it, or an error that says what is wrong."""
    if len(values) == 0:
        raise ValueError("there must be at least one series; got none.")
    counts = {"times": len(times), "u": len(values) if u is None else len(u)}
    counts["names"] = len(values) if names is None else len(names)
    for what, count in counts.items():
        if count != len(values):
            raise ValueError(f"`{what}` must have one entry a series ({len(values)}); got {count}.")
    names = tuple(str(i) for i in range(len(values))) if names is None else tuple(map(str, names))
    us = [None] * len(values) if u is None else u
    series = [_check_series(*each) for each in zip(names, times, values, us, strict=True)]
    _same_width("values", [x for _, _, x, _ in series], names)
    _refuse_coarse(values)
    if u is not None:
        _same_width("u", [w for _, _, _, w in series], names)
    return names, series


def _check_series(name, times, values, u):
    """One series as (origin, float32 times since it, values, u), or an error that names series and row."""
    where = f"series {name!r}"
    times, values = np.asarray(times), np.asarray(values)
    if times.dtype.kind in "iu":  # differences of unsigned and of short numbers wrap around
        times = times.astype(np.int64)
    if values.ndim != 2 or times.ndim != 1 or len(times) != len(values):
        raise ValueError(
            f"{where}: `times` must have shape (rows,) and `values` (rows, dim); got {times.shape} and "
            f"{values.shape}."
        )
    if values.shape[0] == 0 or values.shape[1] == 0:
        raise ValueError(f"{where} is empty: `values` has shape {values.shape}.")
    for what, array in [("times", times), ("values", values), *([] if u is None else [("u", np.asarray(u))])]:
        if array.dtype.kind not in "iuf":  # lengths of time count as integers elsewhere in NumPy
            raise ValueError(
                f"{where}: `{what}` must hold real numbers; got {array.dtype}{way_out_of_dates(array)}."
            )
    _refuse(where, "time", ~np.isfinite(times), times, "drop the row, or give it its time")
    _refuse(where, "value", np.isinf(values).any(1), values)
    steps = np.diff(times)
    _refuse(where, "time", np.concatenate([[False], steps < 0]), times, "times must increase: sort the rows")
    _refuse(where, "time", np.concatenate([[False], steps == 0]), times, "the time of the row before, again")
    since = times.astype(np.float64) - np.float64(times[0]) if times.dtype.kind == "f" else times - times[0]
    since = since.astype(np.float32)
    merged = np.concatenate([[False], np.diff(since) <= 0])
    _refuse(where, "time", merged, times, "too close to the row before for float32")
    if u is not None:
        u = np.asarray(u, np.float32)
        if u.ndim != 2 or len(u) != len(values):
            raise ValueError(f"{where}: `u` must have shape ({len(values)}, cond_dim); got {u.shape}.")
        _refuse(where, "covariate", ~np.isfinite(u).all(1), u)
    with np.errstate(over="ignore"):  # refused by name below
        as_float = values.astype(np.float32)
    _refuse(where, "value", np.isinf(as_float).any(1), values, "too large for float32")
    return float(times[0]), since, as_float, u


def way_out_of_dates(array: np.ndarray) -> str:
    """What to do with dates, which are no numbers."""
    if array.dtype.kind not in "mM":
        return ""
    return (
        ": convert to numbers first, such as seconds since the first, `(t - t[0]) / np.timedelta64(1, 's')`"
    )


def _refuse_coarse(values):
    """Values are centred after they have become float32, which must still tell them apart; float32 loses nothing."""
    arrays = [np.asarray(x) for x in values]
    if all(x.dtype == np.float32 for x in arrays):
        return
    for channel in range(arrays[0].shape[1]):
        seen = np.concatenate([x[:, channel] for x in arrays]).astype(np.float64)
        seen = seen[~np.isnan(seen)]
        size, spread = np.abs(seen).max(initial=0.0), seen.std() if seen.size else 0.0
        moves = len(np.unique(seen.astype(np.float32))) > 1  # if not, it is constant, and `scale` says so
        if moves and ROUNDING * size < spread < FEWEST_STEPS * np.spacing(np.float32(size)):
            raise ValueError(
                f"channel {channel} varies by only {spread:.3g} about {seen.mean():.9g}, which float32 does not "
                "resolve: subtract a constant from it first."
            )


def _refuse(where, what, bad, array, why=None):
    if bad.any():
        row = int(np.flatnonzero(bad)[0])
        reason = "" if why is None else f": {why}"
        raise ValueError(f"{where}, row {row}: {what} {np.asarray(array)[row]} is not allowed{reason}.")


def _same_width(what, arrays, names):
    for name, array in zip(names, arrays, strict=True):
        if array.shape[1] != arrays[0].shape[1]:
            raise ValueError(
                f"series {name!r}: `{what}` has {array.shape[1]} columns where series {names[0]!r} has "
                f"{arrays[0].shape[1]}."
            )


def _pad(arrays, fill):
    rows = max(len(array) for array in arrays)
    out = np.full((len(arrays), rows, *arrays[0].shape[1:]), fill, np.float32)
    for padded, array in zip(out, arrays, strict=True):
        padded[: len(array)] = array
    return out
