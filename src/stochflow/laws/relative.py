"""A law that moves with its start: some coordinates are only ever seen as displacements."""

import equinox as eqx
import jax.numpy as jnp

from .base import AbstractTransition
from .checks import check_states
from .gaps import hold_log_prob, hold_sample, time_gap
from .transformed import NAMED, Transformed


class Relative(AbstractTransition):
    r"""`law`, made to commute with shifts of the given coordinates.

    $$p(x_t \mid x_s) = p_{\mathrm{law}}(x_t - P x_s \mid x_s - P x_s)$$

    with $P$ the projection on `coordinates`. It is what holds for a log-price, a position or a phase, on which neither
    drift nor diffusion depends: the law need not learn it, and holds wherever those coordinates start,
    as far as nothing depends on them there.
    """

    law: AbstractTransition
    coordinates: tuple[int, ...] = eqx.field(static=True)

    def __init__(self, law: AbstractTransition, coordinates: tuple[int, ...]):
        if not all(0 <= i < law.dim for i in coordinates):
            raise ValueError(f"`coordinates` must lie between 0 and {law.dim - 1}; got {tuple(coordinates)}.")
        bound = [
            i for i in coordinates if isinstance(law, Transformed) and law.support.bounds[i] != NAMED["real"]
        ]
        if bound:
            raise ValueError(
                f"`coordinates` must be some that may lie anywhere; coordinate {bound[0]} of `law` has bounds, which "
                "do not move with the start."
            )
        self.law = law
        self.coordinates = tuple(coordinates)

    @property
    def dim(self) -> int:
        return self.law.dim

    @property
    def homogeneous(self) -> bool:
        return self.law.homogeneous

    def transform_and_log_prob(self, noise, x_s, s, t, u=None):
        """The state of a law that starts at the origin of those coordinates, carried to the start."""
        noise, x_s = check_states(self.dim, noise=noise, x_s=x_s)
        origin = self._origin(x_s)
        x_t, log_prob = self.law.transform_and_log_prob(noise, x_s - origin, s, t, u)
        return hold_sample(time_gap(s, t) == 0, x_s, x_t + origin, log_prob)

    def log_prob(self, x_t, x_s, s, t, u=None):
        """The log-density of the displacement."""
        x_t, x_s = check_states(self.dim, x_t=x_t, x_s=x_s)
        origin = self._origin(x_s)
        log_prob = self.law.log_prob(x_t - origin, x_s - origin, s, t, u)
        return hold_log_prob(time_gap(s, t) == 0, x_s, x_t, log_prob)

    def noise_and_log_prob(self, x_t, x_s, s, t, u=None):
        x_t, x_s = check_states(self.dim, x_t=x_t, x_s=x_s)
        origin = self._origin(x_s)
        noise, log_prob = self.law.noise_and_log_prob(x_t - origin, x_s - origin, s, t, u)
        return noise, hold_log_prob(time_gap(s, t) == 0, x_s, x_t, log_prob)

    def _origin(self, x_s):
        return jnp.where(jnp.array([i in self.coordinates for i in range(self.dim)]), x_s, 0.0)
