"""A phase that runs at a pace which wanders: what comes back, but not on the dot."""

import math
from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Float, Scalar

from .checks import as_positive, as_vector, check_states, require
from .gaps import hold_log_prob, hold_sample, positive_gap, time_gap
from .gaussian import AbstractGaussianTransition, AffineGaussian
from .ornstein_uhlenbeck import relative_expm1

# Below this size 1 - tanh(h)/h is summed as a series: the quotient has lost half of its digits in float32.
SERIES_BELOW = 0.05
# Sways are kept in units of this. A pace differs by a few hundredths, and an update of usual size should not undo it.
SWAY_UNIT = 0.02


class Rhythm(AbstractGaussianTransition):
    r"""A phase $\theta$ on the line, driven by traits $y$ that fade and come anew:

    $$d\theta = (\omega + c^\top y)\,dt + \sigma\,dW, \qquad dy = -\kappa\,y\,dt + \sqrt{2\kappa}\,dV$$

    A trait has a standard normal law in the long run and is forgotten at its rate $\kappa$: a slow one that sways the
    phase is a pace of one's own, a quick one a stumble, and one that does not sway it is a style. The state is
    $(y, \theta)$. The phase is not wrapped: what sees it should be periodic, such as a
    [`PeriodicEmission`][stochflow.latent.PeriodicEmission].

    A linear SDE, and so Gaussian over any gap, in closed form: one step or many are the same law, whatever the
    parameters. With $a = \kappa\Delta t$, the phase given $y_t$ has the variance $\Delta t^2 \sum c^2\,\frac2a
    \big(1 - \frac{\tanh a/2}{a/2}\big) + \sigma^2\Delta t$.

    `rate` is $\kappa$ and `sway` is $c$, vectors with one number a trait; `pace` is $\omega$ and `std` $\sigma$,
    numbers. Rates and the std are positive and kept as logarithms. `u` is not used.
    """

    log_rate: Float[Array, " traits"]
    scaled_sway: Float[Array, " traits"]
    pace: Float[Array, ""]
    log_std: Float[Array, ""]

    def __init__(
        self,
        rate: ArrayLike | list,
        sway: ArrayLike | list,
        pace: ArrayLike | float,
        std: ArrayLike | float,
    ):
        self.log_rate = jnp.log(as_positive("rate", rate))
        self.scaled_sway = as_vector("sway", sway, self.log_rate.size) / SWAY_UNIT
        pace, std = (jnp.asarray(value, jnp.result_type(float)) for value in (pace, std))
        if pace.shape or std.shape:
            raise ValueError(f"`pace` and `std` must be numbers; got shapes {pace.shape} and {std.shape}.")
        self.pace = require("pace", pace, jnp.isfinite(pace), "be finite")
        self.log_std = jnp.log(require("std", std, (std > 0) & (std < jnp.inf), "be positive"))

    @property
    def dim(self) -> int:
        return self.log_rate.size + 1

    @property
    def sway(self) -> Float[Array, " traits"]:
        return SWAY_UNIT * self.scaled_sway

    def moments(self, gap: Scalar, u: Float[Array, " cond"] | None) -> AffineGaussian:
        step = self._step(gap)
        with_row = lambda diagonal, last, row: jnp.diag(jnp.append(diagonal, last)).at[-1, :-1].set(row)
        return AffineGaussian(
            with_row(step.kept, 1.0, step.reach),
            jnp.zeros(self.dim, step.kept.dtype).at[-1].set(step.run),
            with_row(step.spread, step.left, step.pushed),
        )

    # By the structure of the law, trait by trait: no matrix is multiplied and no triangular system solved.

    def transform_and_log_prob(self, noise, x_s, s, t, u=None):
        """Traits fade, and what they were and became pushes the phase."""
        noise, x_s = check_states(self.dim, noise=noise, x_s=x_s)
        gap = time_gap(s, t)
        step = self._step(positive_gap(gap))
        traits = step.kept * x_s[:-1] + step.spread * noise[:-1]
        phase = self._ahead(step, x_s, noise) + step.left * noise[-1]
        x_t = jnp.append(traits, phase).astype(x_s.dtype)
        return hold_sample(gap == 0, x_s, x_t, self._log_prob(step, noise))

    def log_prob(self, x_t, x_s, s, t, u=None):
        """The noise of each trait, then that of the phase."""
        x_t, x_s = check_states(self.dim, x_t=x_t, x_s=x_s)
        gap = time_gap(s, t)
        step = self._step(positive_gap(gap))
        noise = jnp.append((x_t[:-1] - step.kept * x_s[:-1]) / step.spread, 0.0)
        noise = noise.at[-1].set((x_t[-1] - self._ahead(step, x_s, noise)) / step.left)
        return hold_log_prob(gap == 0, x_s, x_t, self._log_prob(step, noise))

    def _ahead(self, step, x_s, noise):
        """Where the phase will be but for noise of its own."""
        return x_s[-1] + step.run + (step.reach * x_s[:-1] + step.pushed * noise[:-1]).sum()

    def _log_prob(self, step, noise):
        log_scale = jnp.log(step.spread).sum() + jnp.log(step.left)
        return -0.5 * ((noise**2).sum() + self.dim * math.log(2 * math.pi)) - log_scale

    def _step(self, gap) -> "_Step":
        faded = jnp.exp(self.log_rate) * gap
        reach = self.sway * gap * relative_expm1(-faded)
        alone = (self.sway**2 * _one_less_tanhc(faded / 2) * 2 / faded).sum() * gap**2
        return _Step(
            kept=jnp.exp(-faded),
            reach=reach,
            spread=jnp.sqrt(-jnp.expm1(-2 * faded)),
            pushed=reach * jnp.sqrt(jnp.tanh(faded / 2)),
            run=self.pace * gap,
            left=jnp.sqrt(alone + jnp.exp(2 * self.log_std) * gap),
        )


class _Step(NamedTuple):
    """What is `kept` of each trait and how far its `reach` moves the phase; the `spread` of its noise and how far the
    phase is `pushed` by that; how far the phase will `run`, and the std that is `left` for it."""

    kept: Float[Array, " traits"]
    reach: Float[Array, " traits"]
    spread: Float[Array, " traits"]
    pushed: Float[Array, " traits"]
    run: Scalar
    left: Scalar


def _one_less_tanhc(h: Float[Array, " n"]) -> Float[Array, " n"]:
    r"""$1 - \tanh(h)/h$ for $h > 0$, to all digits near zero."""
    small = h < SERIES_BELOW
    near, far = jnp.where(small, h, 0.0) ** 2, jnp.where(small, 1.0, h)
    series = near * (1 / 3 - near * (2 / 15 - near * (17 / 315 - near * 62 / 2835)))
    return jnp.where(small, series, 1 - jnp.tanh(far) / far)
