"""What has been observed of one series, checked, as the parts of a latent flow read it."""

import warnings
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, PRNGKeyArray

from ..data.trajectories import way_out_of_dates
from ..latent import ObservedFlow, Series

# Gaps so many times as long or as short as those of the training are more likely in another unit.
OTHER_UNIT = 30.0
# Numbers of rows are rounded up to so many leading bits: one program serves many, at an eighth more work at most.
LEADING_BITS = 4


class Past(NamedTuple):
    """One series in the model's units, padded; and in the user's units the times of its observed rows, without the
    padding, since `origin`."""

    series: Series
    times: Float[np.ndarray, " rows"]
    origin: float

    @property
    def last(self) -> float:
        """The time of the last observed row, since the origin."""
        return float(self.times[-1])


def read_past(
    flow: ObservedFlow,
    times: np.ndarray,
    values: np.ndarray,
    u: Float[np.ndarray, "rows cond"] | None,
) -> Past:
    """Check a series against the flow that is to read it."""
    if not isinstance(flow, ObservedFlow):
        raise ValueError(
            "`flow` must be a fitted latent flow with its units, such as `fit_latent(...).flow`; got "
            f"{type(flow).__name__}."
        )
    series, origin = observed_series(times, values, u)
    channels, context = flow.model.channels, flow.model.posterior.context
    if series.values.shape[1] != channels:
        raise ValueError(
            f"`values` must have {channels} channels, as `flow` has; got {series.values.shape[1]}."
        )
    known = np.asarray(series.times, np.float64)
    if len(known) <= context:
        raise ValueError(
            f"the posterior reads {context} rows before the first state: {context + 1} observed rows are needed; got "
            f"{len(known)}."
        )
    _warn_of_other_units(flow, known)
    return Past(flow.units.standardise(_padded(series)), known, origin)


def observed_series(
    times: np.ndarray,
    values: np.ndarray,
    u: Float[np.ndarray, "rows cond"] | None = None,
) -> tuple[Series, float]:
    """A series as the models read it, and the origin of its times, which is the first of them. NaN means missing; rows
    of nothing else are dropped."""
    times, values = np.asarray(times), np.asarray(values)
    if values.ndim != 2 or times.shape != values.shape[:1]:
        raise ValueError(
            f"`times` and `values` must have shapes (rows,) and (rows, channels); got {times.shape} and {values.shape}."
        )
    for name, array in (("times", times), ("values", values)):
        if array.dtype.kind not in "iuf":
            raise ValueError(f"`{name}` must hold real numbers; got {array.dtype}{way_out_of_dates(array)}.")
    times, values = times.astype(np.float64), values.astype(np.float64)
    if not np.isfinite(times).all() or (np.diff(times) <= 0).any():
        raise ValueError("`times` must be finite and increase.")
    if np.isinf(values).any():
        raise ValueError(f"`values` must not be infinite; row {int(np.isinf(values).any(1).argmax())} is.")
    mask = ~np.isnan(values)
    kept = mask.any(axis=1)
    if not kept.any():
        raise ValueError("`values` must have at least one observation.")
    dtype, origin = jnp.result_type(float), float(times[0])
    since = (times[kept] - origin).astype(dtype)
    if (np.diff(since) <= 0).any():
        row = int(np.flatnonzero(kept)[1:][np.diff(since) <= 0][0])
        raise ValueError(
            f"row {row}: time {times[row]:.9g} is too close to the one before for {since.dtype.name}, counted from the "
            f"first, {origin:.9g}: give fewer rows, or times in a longer unit."
        )
    return Series(
        times=jnp.asarray(since),
        values=jnp.asarray(np.where(mask, values, 0.0)[kept], dtype),
        mask=jnp.asarray(mask[kept]),
        present=jnp.ones(int(kept.sum()), bool),
        u=None if u is None else jnp.asarray(_checked_covariates(u, len(times))[kept], dtype),
    ), origin


def check_draws(samples: int, key: PRNGKeyArray) -> None:
    """How many are asked for, and with which key."""
    if isinstance(samples, bool) or not isinstance(samples, int | np.integer) or samples < 1:
        raise ValueError(f"`samples` must be an integer of at least 1; got {samples!r}.")
    if not isinstance(key, jax.Array):
        raise ValueError(f"`key` must be a JAX key, such as `jax.random.key(0)`; got {key!r}.")


def check_finite(found: bool, what: str) -> None:
    if not found:
        warnings.warn(
            f"{what} are not all finite: the series is unlike all that the flow was trained on, or its times are in "
            "another unit.",
            stacklevel=4,
        )


def bucket(number: int) -> int:
    """The number, rounded up to one of few."""
    grain = 1 << max(0, number.bit_length() - LEADING_BITS)
    return -(-number // grain) * grain


def _padded(series: Series) -> Series:
    """In the padding time stands still and nothing is seen."""
    rows = len(series.times)
    more = bucket(rows) - rows
    end = lambda leaf, fill: jnp.concatenate([leaf, jnp.full((more, *leaf.shape[1:]), fill, leaf.dtype)])
    hold = lambda leaf: jnp.concatenate([leaf, jnp.repeat(leaf[-1:], more, axis=0)])
    return Series(
        times=hold(series.times),
        values=end(series.values, 0.0),
        mask=end(series.mask, False),
        present=end(series.present, False),
        u=None if series.u is None else hold(series.u),
    )


def _warn_of_other_units(flow, times):
    usual = flow.units.gap
    if usual is None or len(times) < 2:
        return
    gap = float(np.median(np.diff(times)))
    if not usual / OTHER_UNIT < gap < usual * OTHER_UNIT:
        warnings.warn(
            f"rows of the past are {gap:g} apart where those of the training were {usual:g}: are `times` in another "
            "unit?",
            stacklevel=4,
        )


def _checked_covariates(u, rows) -> Float[np.ndarray, "rows cond"]:
    u = np.asarray(u, np.float64)
    if u.ndim != 2 or len(u) != rows:
        raise ValueError(f"`u` must have shape ({rows}, cond_dim), a row each of `times`; got {u.shape}.")
    if not np.isfinite(u).all():
        raise ValueError(f"`u` must be finite; row {int((~np.isfinite(u)).any(1).argmax())} is not.")
    return u
