"""The units that a model computes in, the values that it may take, and the keys of its draws."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float

from ..laws import Support
from ..laws.transformed import off_line, on_line

# Values may be up to so large, and move by no less than one over it.
LARGEST = 1e30
# Of its level, a column must move by more than this: in single precision, which holds a hundredth of it, and in double.
FINEST, FINEST_DOUBLE = 1e-5, 1e-12
# Of a series in the units of all: a standard deviation below this is none.
STILL = 1e-6
# What a covariate that never changed in the fit is divided by: whatever it is later, nothing is known of what it does.
UNKNOWN = 1e29


class Units(eqx.Module):
    """From the user's values and times to those of the law: on the line, centred and scaled; the horizon is one."""

    support: Support
    loc: Float[Array, " dim"]
    scale: Float[Array, " dim"]
    covariate_loc: Float[Array, " cond"]
    covariate_scale: Float[Array, " cond"]
    horizon: float = eqx.field(static=True)

    def values(self, x: np.ndarray) -> np.ndarray:
        return (on_line(self.support, x) - np.asarray(self.loc)) / np.asarray(self.scale)

    def restore(self, z: Float[np.ndarray, "*rows dim"]) -> Float[np.ndarray, "*rows dim"]:
        """Values of the law in the user's units, in double precision: a level may be much larger than the moves."""
        return off_line(
            self.support, np.asarray(self.loc, np.float64) + np.asarray(self.scale, np.float64) * z
        )

    def covariates(self, u: np.ndarray) -> np.ndarray:
        return (u - np.asarray(self.covariate_loc)) / np.asarray(self.covariate_scale)


def covariate_units(u: Float[np.ndarray, "rows cond"]) -> tuple[np.ndarray, np.ndarray]:
    """Centre and scale of each covariate."""
    spread = np.clip(u.std(axis=0), 1 / LARGEST, UNKNOWN)
    return u.mean(axis=0), np.where(np.ptp(u, axis=0) > 0, spread, UNKNOWN)


def make_support(
    x: np.ndarray, names: tuple[str, ...], intervals: list[Any], *, finest: float = FINEST
) -> Support:
    """The support of the values, all of which must lie within it. A half-line is a logarithm up to the furthest value
    and a line beyond: what is rare is not blown up. `finest`: of its level, a channel must move by more than this."""
    region = Support(intervals)
    reach = np.ones(len(names))
    check_support(x, names, region)
    for i, (low, high) in enumerate(region.bounds):
        seen = x[~np.isnan(x[:, i]), i]
        if not len(seen) or np.ptp(seen) == 0:
            what = f"is constant ({seen[0]:g})" if len(seen) else "is never observed"
            raise ValueError(f"column {names[i]!r} {what}: it has no law to learn; drop it.")
        _require_holdable(seen, names[i], finest)
        if np.isfinite(low) != np.isfinite(high):
            reach[i] = (seen - low).max() if np.isfinite(low) else (high - seen).max()
    return Support(region.bounds, jnp.asarray(reach, jnp.float32))


def _require_holdable(seen: np.ndarray, name: str, finest: float) -> None:
    """Laws are computed in single precision: neither values nor what they move by may be lost in it."""
    largest, moves = np.abs(seen).max(), np.ptp(seen)
    if largest > LARGEST or moves < 1 / LARGEST:
        raise ValueError(
            f"column {name!r} has values up to {largest:.3g} that differ by {moves:.3g}, beyond single precision: "
            "multiply it by a number that brings it nearer to 1."
        )
    if seen.std() < finest * np.abs(np.median(seen)):
        raise ValueError(
            f"column {name!r} moves by {seen.std():.3g} around {np.median(seen):.6g}, which is lost in rounding: "
            "subtract a number near its level first."
        )


def check_support(x: np.ndarray, names: tuple[str, ...], support: Support) -> None:
    """All values that are there must lie within the support."""
    for i, (low, high) in enumerate(support.bounds):
        outside = (x[:, i] <= low) | (x[:, i] >= high)
        if outside.any():
            raise ValueError(
                f"column {names[i]!r} must lie between {low:g} and {high:g}, as `support` says; got "
                f"{x[outside.argmax(), i]:g}."
            )


def keys_of(key, ids):
    """A key for each series from its id, so that results do not depend on what else is forecast."""
    marks = np.array([mark_of(name) for name in ids], np.uint32)
    return jax.vmap(lambda mark: jr.fold_in(key, mark))(marks)


def mark_of(name: Any) -> int:
    """A number for an id: FNV-1a over its text, the same on every machine."""
    mark = 2166136261
    for byte in str(name).encode():
        mark = (mark ^ byte) * 16777619 % 2**32
    return mark
