"""Batches of whole series for latent flows: rows without observations dropped, stretches of one length."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from ..latent import LatentUnits, Series
from .trajectories import Trajectories


def compact_series(data: Trajectories, units: LatentUnits) -> Series:
    """All series in standard units with the batch in front; rows without any observation are dropped."""
    order = np.argsort(~data.present, axis=1, kind="stable")[:, : int(data.present.sum(1).max())]
    pick = lambda array: np.take_along_axis(
        array, order.reshape(order.shape + (1,) * (array.ndim - 2)), axis=1
    )
    mask, present = pick(data.mask), pick(data.present)
    values = np.where(mask, (pick(data.values) - np.asarray(units.loc)) / np.asarray(units.scale), 0.0)
    times = np.where(present, pick(data.times) / units.time_scale, 0.0)
    # In the padding time stands still, so that no gap is negative.
    times = np.where(present, times, times.max(axis=1, keepdims=True))
    return Series(
        times=jnp.asarray(times, jnp.float32),
        values=jnp.asarray(values, jnp.float32),
        mask=jnp.asarray(mask),
        present=jnp.asarray(present),
        u=None if data.u is None else jnp.asarray(pick(data.u), jnp.float32),
    )


def draw_series(data: Series, batch: int, window: int, *, key: PRNGKeyArray) -> Series:
    """`batch` series (all of them, if there are no more), and of each a random stretch of `window` rows."""
    which_key, start_key = jr.split(key)
    number, rows = data.times.shape
    which = jnp.arange(number) if batch >= number else jr.choice(which_key, number, (batch,), replace=False)
    if window >= rows:
        return jax.tree.map(lambda leaf: leaf[which], data)
    spare = jnp.maximum(data.present[which].sum(axis=1) - window, 0)
    starts = jr.randint(start_key, which.shape, 0, spare + 1)
    at = starts[:, None] + jnp.arange(window)[None]
    return jax.tree.map(lambda leaf: leaf[which[:, None], at], data)


def draw_rows(
    counts: Int[Array, " series"], number: int, *, key: PRNGKeyArray
) -> tuple[Int[Array, " number"], Int[Array, " number"]]:
    """`number` of the rows 0, …, count - 1 of all series, each as likely as any other: series and row."""
    total = jnp.cumsum(counts)
    place = jr.randint(key, (number,), 0, jnp.maximum(total[-1], 1))
    series = jnp.searchsorted(total, place, side="right").clip(0, counts.shape[0] - 1)
    return series, place - (total[series] - counts[series])


def draw_rows_with_room(
    counts: Int[Array, " series"], lags: Int[Array, " number"], *, key: PRNGKeyArray
) -> tuple[Int[Array, " number"], Int[Array, " number"]]:
    """For each lag one of the rows that have another so far on in their series, each as likely as any other."""
    total = jnp.cumsum(jnp.maximum(counts[None] - lags[:, None], 0), axis=1)
    place = jr.randint(key, lags.shape, 0, jnp.maximum(total[:, -1], 1))
    series = (place[:, None] >= total).sum(axis=1).clip(0, counts.shape[0] - 1)
    before = jnp.where(series > 0, jnp.take_along_axis(total, (series - 1).clip(0)[:, None], axis=1)[:, 0], 0)
    return series, place - before


def draw_lags(
    longest: Int[Array, "*shape"], *, shortest: int, scheme: str, key: PRNGKeyArray
) -> Int[Array, "*shape"]:
    """Lags from `shortest` to `longest`, uniform or uniform in their logarithm."""
    share: Float[Array, "*shape"] = jr.uniform(key, longest.shape)
    if scheme == "log":
        spread = jnp.log((longest + 1) / shortest)
        lags = jnp.floor(shortest * jnp.exp(share * spread)).astype(longest.dtype)
    else:
        lags = shortest + jnp.floor(share * (longest - shortest + 1)).astype(longest.dtype)
    return jnp.clip(lags, shortest, jnp.maximum(longest, shortest))
