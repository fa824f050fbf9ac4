"""A law that was learnt on standardised values and rescaled times, in the user's units."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Bool, Float, Scalar, ScalarLike

from .base import AbstractBridge, AbstractTransition
from .checks import as_positive, as_vector, check_states
from .gaps import bridge_gaps, hold_log_prob, hold_sample, pinned_end, time_gap
from .horizon import BRIDGE_LESS, warn_beyond_horizon, warn_beyond_latest


class Standardised(AbstractTransition):
    r"""The law of $x = \mathrm{loc} + \mathrm{scale}\cdot z$ when `law` is that of $z$ in units of
    `time_scale`.

    $$\log p(x_t \mid x_s; s, t) = \log p_z(z_t \mid z_s; s/c, t/c) - \sum_i \log \mathrm{scale}_i$$

    `horizon` is the longest gap, in the user's units, that `law` was trained for, or `None` if there is no
    such limit; a longer gap that is known when the law is called draws a `HorizonWarning`. So does a time beyond
    `latest`, the latest that a law which depends on the time itself was trained on. No gradient reaches `loc` and
    `scale`.
    """

    law: AbstractTransition
    loc: Float[Array, " dim"]
    scale: Float[Array, " dim"]
    time_scale: float = eqx.field(static=True)
    horizon: float | None = eqx.field(static=True)
    latest: float | None = eqx.field(static=True)

    def __init__(
        self,
        law: AbstractTransition,
        loc: ArrayLike | list,
        scale: ArrayLike | list,
        time_scale: float = 1.0,
        horizon: float | None = None,
        latest: float | None = None,
    ):
        self.law = law
        self.loc = as_vector("loc", loc, law.dim)
        self.scale = as_positive("scale", scale, law.dim)
        self.time_scale = positive_float("time_scale", time_scale)
        self.horizon = None if horizon is None else positive_float("horizon", horizon)
        self.latest = None if latest is None else positive_float("latest", latest)

    @property
    def dim(self) -> int:
        return self.law.dim

    @property
    def homogeneous(self) -> bool:
        return self.law.homogeneous

    def transform_and_log_prob(
        self,
        noise: Float[Array, " dim"],
        x_s: Float[Array, " dim"],
        s: ScalarLike,
        t: ScalarLike,
        u: Float[Array, " cond"] | None = None,
    ) -> tuple[Float[Array, " dim"], Scalar]:
        """The state of the standardised law, brought back to the user's units."""
        noise, x_s = check_states(self.dim, noise=noise, x_s=x_s)
        units = Units(self.loc, self.scale, self.time_scale)
        warn_beyond_horizon(s, t, self.horizon)
        warn_beyond_latest(t, self.latest)
        # Where no time passes the round trip through `z` would lose the last digit of `x_s`.
        still, start, end = units.step(s, t, self.homogeneous)
        z_t, log_prob = self.law.transform_and_log_prob(noise, units.standardise(x_s), start, end, u)
        return hold_sample(still, x_s, units.restore(z_t), log_prob - units.log_volume())

    def log_prob(
        self,
        x_t: Float[Array, " dim"],
        x_s: Float[Array, " dim"],
        s: ScalarLike,
        t: ScalarLike,
        u: Float[Array, " cond"] | None = None,
    ) -> Scalar:
        """The log-density per unit of the user's volume."""
        x_t, x_s = check_states(self.dim, x_t=x_t, x_s=x_s)
        still, pair, log_volume = self._pair(x_t, x_s, s, t)
        return hold_log_prob(still, x_s, x_t, self.law.log_prob(*pair, u) - log_volume)

    def noise_and_log_prob(self, x_t, x_s, s, t, u=None):
        x_t, x_s = check_states(self.dim, x_t=x_t, x_s=x_s)
        still, pair, log_volume = self._pair(x_t, x_s, s, t)
        noise, log_prob = self.law.noise_and_log_prob(*pair, u)
        return noise, hold_log_prob(still, x_s, x_t, log_prob - log_volume)

    def _pair(self, x_t, x_s, s, t):
        """Whether no time passes, the pair in the law's units, and the log-volume of those."""
        warn_beyond_horizon(s, t, self.horizon)
        warn_beyond_latest(t, self.latest)
        units = Units(self.loc, self.scale, self.time_scale)
        still, start, end = units.step(s, t, self.homogeneous)
        return still, (units.standardise(x_t), units.standardise(x_s), start, end), units.log_volume()


class StandardisedBridge(AbstractBridge):
    """A bridge that was learnt on standardised values and rescaled times, in the user's units.

    The same as `Standardised`, for a bridge: a sample at an end is that end itself, with `==`, and `horizon` is the
    longest time between two ends.
    """

    bridge: AbstractBridge
    loc: Float[Array, " dim"]
    scale: Float[Array, " dim"]
    time_scale: float = eqx.field(static=True)
    horizon: float | None = eqx.field(static=True)

    def __init__(
        self,
        bridge: AbstractBridge,
        loc: ArrayLike | list,
        scale: ArrayLike | list,
        time_scale: float = 1.0,
        horizon: float | None = None,
    ):
        self.bridge = bridge
        self.loc = as_vector("loc", loc, bridge.dim)
        self.scale = as_positive("scale", scale, bridge.dim)
        self.time_scale = positive_float("time_scale", time_scale)
        self.horizon = None if horizon is None else positive_float("horizon", horizon)

    @property
    def dim(self) -> int:
        return self.bridge.dim

    @property
    def homogeneous(self) -> bool:
        return self.bridge.homogeneous

    def transform_and_log_prob(
        self,
        noise: Float[Array, " dim"],
        x_s: Float[Array, " dim"],
        x_t: Float[Array, " dim"],
        s: ScalarLike,
        r: ScalarLike,
        t: ScalarLike,
        u: Float[Array, " cond"] | None = None,
    ) -> tuple[Float[Array, " dim"], Scalar]:
        """The state of the standardised bridge, brought back to the user's units."""
        noise, x_s, x_t = check_states(self.dim, noise=noise, x_s=x_s, x_t=x_t)
        units = Units(self.loc, self.scale, self.time_scale)
        ends = units.standardise(x_s), units.standardise(x_t)
        warn_beyond_horizon(s, t, self.horizon, BRIDGE_LESS)
        gaps = bridge_gaps(s, r, t)
        pinned, end = pinned_end(*gaps, x_s, x_t)
        start, middle, stop = units.times(
            pinned, *((0.0, gaps[0], sum(gaps)) if self.homogeneous else (s, r, t))
        )
        z_r, log_prob = self.bridge.transform_and_log_prob(noise, *ends, start, middle, stop, u)
        return hold_sample(pinned, end, units.restore(z_r), log_prob - units.log_volume())

    def log_prob(
        self,
        x_r: Float[Array, " dim"],
        x_s: Float[Array, " dim"],
        x_t: Float[Array, " dim"],
        s: ScalarLike,
        r: ScalarLike,
        t: ScalarLike,
        u: Float[Array, " cond"] | None = None,
    ) -> Scalar:
        """The log-density per unit of the user's volume."""
        x_r, x_s, x_t = check_states(self.dim, x_r=x_r, x_s=x_s, x_t=x_t)
        units = Units(self.loc, self.scale, self.time_scale)
        states = units.standardise(x_r), units.standardise(x_s), units.standardise(x_t)
        warn_beyond_horizon(s, t, self.horizon, BRIDGE_LESS)
        gaps = bridge_gaps(s, r, t)
        pinned, end = pinned_end(*gaps, x_s, x_t)
        start, middle, stop = units.times(
            pinned, *((0.0, gaps[0], sum(gaps)) if self.homogeneous else (s, r, t))
        )
        log_prob = self.bridge.log_prob(*states, start, middle, stop, u) - units.log_volume()
        return hold_log_prob(pinned, end, x_r, log_prob)


class Units(eqx.Module):
    """The change of units that both wrappers share. Nothing is trained through it."""

    loc: Float[Array, " dim"]
    scale: Float[Array, " dim"]
    time_scale: float = eqx.field(static=True)

    def standardise(self, x: Float[Array, " dim"]) -> Float[Array, " dim"]:
        """From the user's units."""
        return (x - jax.lax.stop_gradient(self.loc)) / jax.lax.stop_gradient(self.scale)

    def restore(self, z: Float[Array, " dim"]) -> Float[Array, " dim"]:
        """Back to the user's units."""
        return jax.lax.stop_gradient(self.loc) + jax.lax.stop_gradient(self.scale) * z

    def times(self, held: Bool[Array, ""], *times: ScalarLike) -> list[Scalar]:
        """The times in the law's units; 0, 1, … where the law is held and its answer will not be used.

        Equal times need not stay equal: a compiler may fuse `t / c - s / c` into a product and a sum with one
        rounding, which then is not zero and may be negative.
        """
        return [jnp.where(held, float(i), jnp.asarray(t) / self.time_scale) for i, t in enumerate(times)]

    def step(self, s: ScalarLike, t: ScalarLike, homogeneous: bool) -> tuple[Bool[Array, ""], Scalar, Scalar]:
        """Whether no time passes, and a step from `s` to `t` in the law's units: from 0, if only the gap matters."""
        gap = time_gap(s, t)
        start, end = self.times(gap == 0, *((0.0, gap) if homogeneous else (s, t)))
        return gap == 0, start, end

    def log_volume(self) -> Scalar:
        """The log of how much larger a volume is in the user's units."""
        return jnp.log(jax.lax.stop_gradient(self.scale)).sum()


def positive_float(name: str, value: float | int) -> float:
    """A positive Python float: a static fact of a law."""
    if not value > 0:
        raise ValueError(f"`{name}` must be positive; got {value}.")
    return float(value)
