"""Draws as data frames: a row a draw, or columns of quantiles; and what a fitted model says of itself."""

from typing import Any

import numpy as np

from .frames import write_frame

DEFAULT_INTERVAL = 0.9


def model_card(panel, axis, names, kind, model, checks, seconds) -> dict[str, Any]:
    """What the model was made from and how it did, as plain numbers and words."""
    spans = [t[-1] - t[0] for t in panel.times]
    whole = np.concatenate([~np.isnan(x).any(1) for x in panel.values])
    return {
        "kind": kind,
        "why": f"{1 - whole.mean():.0%} of the rows lack a channel",
        "series": len(panel),
        "rows": len(whole),
        "channels": list(names),
        "from": axis.show(min(t[0] for t in panel.times)),
        "to": axis.show(max(t[-1] for t in panel.times)),
        "longest_series": axis.show_length(max(spans)),
        "horizon": axis.show_length(model.horizon),
        "scaling": "series" if getattr(model, "own_scale", False) else "global",
        "training_seconds": round(seconds, 1),
        "held_out": [
            {
                "gap": axis.show_length(check.gap),
                "pairs": check.pairs,
                "coverage_of_90": dict(zip(names, (round(c, 3) for c in check.coverage), strict=True)),
                "relative_crps": dict(zip(names, (round(c, 3) for c in check.relative_crps), strict=True)),
            }
            for check in checks
        ],
    }


def _id_and_time(ids, at, repeats, columns, axis, like) -> dict[str, Any]:
    """The first columns of a frame with the times of each series `repeats` times over."""
    out: dict[str, Any] = {}
    number = at.shape[1]
    if columns.id is not None:
        kinds = np.array(ids) if isinstance(ids[0], int | float | np.number) else np.array(ids, object)
        out[columns.id] = list(np.repeat(kinds, number * repeats))
    times = np.tile(at[:, None, :], (1, repeats, 1)).reshape(-1)
    out[columns.time] = axis.write(columns.time, times, like.implementation)
    return out


def sample_frame(draws, ids, at, names, columns, axis, like) -> Any:
    series, samples, times, _ = draws.shape
    out = _id_and_time(ids, at, samples, columns, axis, like)
    out["sample"] = np.tile(np.repeat(np.arange(samples), times), series)
    flat = draws.reshape(-1, draws.shape[-1]).astype(np.float64)
    return write_frame(out | {name: flat[:, i].copy() for i, name in enumerate(names)}, like)


def summary_frame(draws, ids, at, names, columns, axis, like, quantiles, interval) -> Any:
    levels = _levels(quantiles, interval)
    out = _id_and_time(ids, at, 1, columns, axis, like)
    for i, name in enumerate(names):
        found = np.quantile(draws[..., i].astype(np.float64), list(levels.values()), axis=1)
        for (ending, _), column in zip(levels.items(), found, strict=True):
            out[name + ending] = column.reshape(-1).copy()
    return write_frame(out, like)


def _levels(quantiles, interval) -> dict[str, float]:
    """Column endings and the quantile in each."""
    if quantiles is not None and interval is not None:
        raise ValueError("pass `quantiles` or `interval`, not both.")
    if quantiles is not None:
        levels = [float(q) for q in np.atleast_1d(np.asarray(quantiles, float))]
        if not levels or not all(0 < q < 1 for q in levels):
            raise ValueError(f"`quantiles` must lie between 0 and 1; got {list(quantiles)}.")
        return {f"_q{q:g}": q for q in levels}
    inside = DEFAULT_INTERVAL if interval is None else interval
    if not isinstance(inside, int | float) or not 0 < inside < 1:
        raise ValueError(f"`interval` must be a probability between 0 and 1; got {interval!r}.")
    return {"": 0.5, f"_lo{100 * inside:g}": (1 - inside) / 2, f"_hi{100 * inside:g}": (1 + inside) / 2}
