"""How far a learnt law may be trusted in one step."""

import warnings

import numpy as np
from jax.core import Tracer
from jaxtyping import ArrayLike

# Times are float32 and horizons are sums of them: a gap this little longer is not beyond the horizon.
TOLERANCE = 1e-4


class HorizonWarning(UserWarning):
    """One step is longer than any that the law was trained on."""


def warn_beyond_horizon(s: ArrayLike, t: ArrayLike, horizon: float | None) -> None:
    """Warn if a gap that is known now is longer than the horizon; a traced one is let through."""
    if horizon is None or isinstance(s, Tracer) or isinstance(t, Tracer):
        return
    longest = float(np.max(np.asarray(t) - np.asarray(s), initial=0.0))
    if longest > horizon * (1 + TOLERANCE):
        warnings.warn(
            f"a step of {longest:g} is beyond the horizon of {horizon:g} that this law was trained on; chain "
            f"shorter steps with `rollout(..., max_gap={horizon:g})`.",
            HorizonWarning,
            stacklevel=3,
        )
