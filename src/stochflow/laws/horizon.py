"""How far a learnt law may be trusted in one step."""

import sys
import warnings
from types import FrameType

import numpy as np
from jax.core import Tracer
from jaxtyping import ArrayLike

# Times are float32 and horizons are sums of them: a gap this little longer is not beyond the horizon.
TOLERANCE = 1e-4
# Whose lines a warning should not point at: the user wrote none of them.
NOT_THE_USERS = ("stochflow", "equinox", "jax", "jaxtyping", "beartype", "contextlib")
CHAIN = "chain shorter steps with `rollout(..., max_gap={horizon:g})`"
BRIDGE_LESS = "give the bridge ends that are closer together"


class HorizonWarning(UserWarning):
    """One step is longer, or ends later, than any that the law was trained on."""


def warn_beyond_horizon(s: ArrayLike, t: ArrayLike, horizon: float | None, way_out: str = CHAIN) -> None:
    """Warn if a gap that is known now is longer than the horizon; a traced one is let through."""
    if horizon is None or isinstance(s, Tracer) or isinstance(t, Tracer):
        return
    longest = float(np.max(np.asarray(t) - np.asarray(s), initial=0.0))
    if longest > horizon * (1 + TOLERANCE):
        warnings.warn(
            f"a step of {longest:g} is beyond the horizon of {horizon:g} that this law was trained on; "
            f"{way_out.format(horizon=horizon)}.",
            HorizonWarning,
            stacklevel=_level_of_the_user(sys._getframe()),
        )


def warn_beyond_latest(t: ArrayLike, latest: float | None) -> None:
    """Warn if a law that depends on the time itself is asked for a later time than any it was trained on; a traced one
    is let through."""
    if latest is None or isinstance(t, Tracer):
        return
    end = float(np.max(np.asarray(t), initial=-np.inf))
    if end > latest + TOLERANCE * abs(latest):
        warnings.warn(
            f"the time {end:g} is later than {latest:g}, the latest that this law was trained on, and it depends on "
            "the time itself; train it on times as late as that.",
            HorizonWarning,
            stacklevel=_level_of_the_user(sys._getframe()),
        )


def _level_of_the_user(frame: FrameType | None) -> int:
    """The `stacklevel` that makes a warning from `frame` point at the first line that is not a library's."""
    level = 1
    while frame is not None and frame.f_globals.get("__name__", "").split(".")[0] in NOT_THE_USERS:
        level, frame = level + 1, frame.f_back
    return level
