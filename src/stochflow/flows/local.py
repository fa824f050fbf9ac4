"""A flow in the units of the moment: displacements from where a series is, over how much it moves just now."""

import math
from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Bool, Float, Scalar

from ..laws import AbstractTransition, check_state, hold_log_prob, hold_sample, time_gap
from ..laws.checks import as_positive
from ..laws.ornstein_uhlenbeck import relative_expm1
from .flow import StochasticFlow
from .stack import Base

# Corrections are set at this many gaps, evenly in their logarithm.
KNOTS = 6
# The 95 % quantile of a normal law.
NORMAL_95 = 1.645
# Of the Gaussian's standard deviation: noise is not taken to be narrower.
NARROWEST = 0.05


class Correction(eqx.Module):
    r"""What a check on held-out data has taught: how much of the drift to believe, and how far to spread.

    The mean of $x_t$ becomes $x_s + a\,d + b\,(1 - e^{-\kappa\Delta t})(\mu - x_s)$ with $d$ the flow's drift, $a$ its
    `trust`, and $b$ the `pull` of an Ornstein–Uhlenbeck process (`rate`, `level`); its standard deviation is
    multiplied by `spread`. Of the result, $s$, a `share` is the flow's: where a gap is so long that there are few
    stretches of it, the standard deviation becomes $s^w s_0^{1-w}$, with $s_0$ such that the central 90 % are as wide
    as those of the process (`noise` a unit of time). What a series has done of late may say more: the noise is
    `recent` times as wide again, if that is given. Rows of the fit lie nearer than others do, so what a series has done
    is measured from `witness`, the logarithm of what such rows ask for, all together; none by default. Tables are
    piecewise linear in the logarithm of the gap and constant beyond `log_gaps`; of `spread` it is what $s$ owes to it,
    $w$ times its logarithm, that is.
    """

    log_gaps: Float[Array, " knots"]
    trust: Float[Array, "knots dim"]
    pull: Float[Array, "knots dim"]
    spread: Float[Array, "knots dim"]
    share: Float[Array, "knots dim"]
    rate: Float[Array, " dim"]
    level: Float[Array, " dim"]
    noise: Float[Array, " dim"]
    witness: Float[Array, "knots dim"]
    recent: Float[Array, "knots dim"] | None

    def __init__(
        self, log_gaps, trust, pull, spread, share, rate, level, noise, *, witness=None, recent=None
    ):
        self.log_gaps, self.trust, self.pull, self.spread, self.share = log_gaps, trust, pull, spread, share
        self.rate, self.level, self.noise = rate, level, noise
        self.witness = jnp.zeros_like(spread) if witness is None else witness
        self.recent = recent

    def witnessed(
        self, log_wider: Float[ArrayLike, "knots dim"], share: Float[ArrayLike, " knots"]
    ) -> "Correction":
        """Told that rows of the fit say so many times as wide as this, in logarithms: a `share` of it is believed of
        all series, and what one of them says is measured from the rest."""
        log_wider, share = (jnp.asarray(each, self.spread.dtype) for each in (log_wider, share))
        share = share[:, None]
        spread = self.spread * jnp.exp(share * log_wider / self.share)
        tables = spread, self.witness + (1 - share) * log_wider
        return eqx.tree_at(lambda correction: (correction.spread, correction.witness), self, tables)

    def apply(
        self,
        base: Base,
        x_s: Float[Array, " dim"],
        size: Float[Array, " dim"],
        dt: Scalar,
        width_of: Callable[[Base], Float[Array, " dim"]],
    ) -> Base:
        """The corrected base of a displacement in units of `size`; `width_of` says how wide the noise of a base is."""
        log_dt = jnp.log(jnp.maximum(dt, jnp.finfo(dt.dtype).tiny))
        read = lambda table: jnp.stack(
            [jnp.interp(log_dt, self.log_gaps, column) for column in table.T]
        ).astype(dt.dtype)
        trust, pull, share = map(read, (self.trust, self.pull, self.share))
        wider = jnp.exp(read(self.share * jnp.log(self.spread)))
        # The smaller the share, the nearer the noise is to normal.
        tail = None if base.tail is None else share * base.tail
        base = base._replace(gate=share * base.gate, tail=tail)
        back = -jnp.expm1(-self.rate * dt) * (self.level - x_s) / size
        mean = trust * base.mean + pull * back.astype(dt.dtype)
        variance = jnp.square(self.noise) * dt * relative_expm1(-2 * self.rate * dt)
        simple = base.std / width_of(base) * jnp.sqrt(variance).astype(dt.dtype) / size
        std = wider * base.std**share * simple ** (1 - share)
        return base._replace(mean=mean, std=std if self.recent is None else std * read(self.recent))


class PreparedLocal(NamedTuple):
    """A condition, ready for draws and densities of displacements in units of the size of moves."""

    base: Base
    x_s: Float[Array, " dim"]
    log_size: Float[Array, " dim"]
    at_rest: Bool[Array, ""]


class LocalFlow(AbstractTransition):
    r"""The law of $x_t = x_s + \sigma_{\Delta t}\,y$ with $\sigma_0$ the size of moves just now and $y$ from a flow.

    The first `dim` covariates are $\log\sigma_0$, and the flow sees the others. So the law moves with its start and
    scales with its moves: a level or a volatility that was never seen before is no new situation. Where the level does
    matter, it comes in as a covariate. Sizes return to the usual one, at a rate $\lambda$ that is learnt; over a gap
    the variance is the mean of what it is on the way,

    $$\sigma_{\Delta t}^2 = \bar\sigma^2
      + (\sigma_0^2 - \bar\sigma^2)\,\frac{1 - e^{-\lambda\Delta t}}{\lambda\Delta t}, \qquad
      \log p(x_t \mid x_s) = \log p_y\!\left(\frac{x_t - x_s}{\sigma_{\Delta t}}\right)
      - \sum_i \log\sigma_{\Delta t, i}$$

    - `usual`: $\bar\sigma^2$, a variance a unit of time. Not trained.
    - `half_life`: of the way back to it, at first.
    - `correction`: scales the flow's drift and spread, gap by gap; there is none while the flow is trained.
    """

    law: StochasticFlow
    usual: Float[Array, " dim"]
    log_rate: Float[Array, " dim"]
    correction: Correction | None

    def __init__(
        self,
        law: StochasticFlow,
        usual: ArrayLike,
        *,
        half_life: float = 1.0,
        correction: Correction | None = None,
    ):
        if law.stack.layers:
            raise ValueError(f"`law` must have no couplings after its Gaussian; got {len(law.stack.layers)}.")
        if not half_life > 0:
            raise ValueError(f"`half_life` must be positive; got {half_life}.")
        self.law = law
        self.usual = as_positive("usual", usual, law.dim)
        self.log_rate = jnp.full(law.dim, math.log(math.log(2.0) / half_life), self.usual.dtype)
        self.correction = correction

    @property
    def dim(self) -> int:
        return self.law.dim

    @property
    def cond_dim(self) -> int:
        return self.dim + self.law.cond_dim

    @property
    def autonomous(self) -> bool:
        return self.law.autonomous

    def corrected(self, correction: Correction | None) -> "LocalFlow":
        """The same law with another correction."""
        return eqx.tree_at(lambda flow: flow.correction, self, correction, is_leaf=lambda leaf: leaf is None)

    def widened(self, by: Float[Array, "knots dim"]) -> "LocalFlow":
        """The same law with the noise of each channel so many times as wide at each gap of its correction. A law
        without one is taken as it is."""
        if self.correction is None:
            return self
        return eqx.tree_at(lambda flow: flow.correction.recent, self, by, is_leaf=lambda leaf: leaf is None)

    def log_size(self, log_size: Float[Array, " dim"], dt: Scalar) -> Float[Array, " dim"]:
        r"""$\log\sigma_{\Delta t}$ from $\log\sigma_0$."""
        usual = jax.lax.stop_gradient(self.usual).astype(log_size.dtype)
        share = relative_expm1(-jnp.exp(self.log_rate).astype(log_size.dtype) * dt)
        return 0.5 * jnp.log(usual + (jnp.exp(2 * log_size) - usual) * share)

    @property
    def homogeneous(self) -> bool:
        return self.law.homogeneous

    def transform_and_log_prob(self, noise, x_s, s, t, u=None):
        return self.prepared_transform_and_log_prob(noise, self.prepare(x_s, s, t, u))

    def log_prob(self, x_t, x_s, s, t, u=None):
        return self.noise_and_log_prob(x_t, x_s, s, t, u)[1]

    def noise_and_log_prob(self, x_t, x_s, s, t, u=None):
        return self._noise_and_log_prob(x_t, self.prepare(x_s, s, t, u))

    def channel_noise(self, x_t, x_s, s, t, u=None) -> Float[Array, " dim"]:
        """The noise of each channel by itself, whatever the others do: standard normal if the law is right.

        That of `noise_and_log_prob` is of each channel *given* others, where noise is correlated or splines of one
        channel look at another. Of several channels half the width of the central 90 %, up and down, is therefore put
        together from what each number of the noise moves, in squares: exact of a normal law, close of others. Its
        middle is where noise of zero goes.
        """
        prepared = self.prepare(x_s, s, t, u)
        if self.dim == 1:
            return self._noise_and_log_prob(x_t, prepared)[0]
        state = lambda noise: self.prepared_transform_and_log_prob(noise, prepared)[0]
        ends = NORMAL_95 * jnp.eye(self.dim, dtype=prepared.x_s.dtype)
        # All at once: a spline is compiled wherever it is called.
        moved = jax.vmap(state)(jnp.concatenate([ends, -ends, jnp.zeros_like(ends[:1])]))
        middle = moved[-1]
        up, down = (jnp.square(each - middle[None]) for each in jnp.split(moved[:-1], 2))
        own = jnp.eye(self.dim, dtype=bool)
        others = jnp.where(own, 0.0, 0.5 * (up + down)).sum(axis=0)
        away = x_t - middle
        half = jnp.where(away > 0, jnp.diagonal(up), jnp.diagonal(down)) + others
        return NORMAL_95 * away / jnp.sqrt(half)

    def prepare(self, x_s, s, t, u=None) -> PreparedLocal:
        """What moves just now and a gap say: the size of a displacement, and its base, corrected."""
        x_s = check_state("x_s", x_s, self.dim)
        if u is None or jnp.shape(u) != (self.cond_dim,):
            got = "none" if u is None else f"shape {jnp.shape(u)}"
            raise ValueError(f"`u` must have shape ({self.cond_dim},): sizes, then covariates; got {got}.")
        dt = jnp.asarray(time_gap(s, t), x_s.dtype)
        log_size = self.log_size(u[: self.dim], dt)
        seen = u[self.dim :] if self.law.cond_dim else None
        base = self.law.prepare(jnp.zeros_like(x_s), s, t, seen).base
        if self.correction is not None:
            base = self.correction.apply(base, x_s, jnp.exp(log_size), dt, self._width)
        return PreparedLocal(self.centred(base), x_s, log_size, dt == 0)

    def prepared_transform_and_log_prob(self, noise, prepared):
        base, x_s, log_size, at_rest = prepared
        y, log_prob = self.law.stack.forward(check_state("noise", noise, self.dim), base)
        return hold_sample(at_rest, x_s, x_s + jnp.exp(log_size) * y, log_prob - log_size.sum())

    def prepared_log_prob(self, x_t, prepared):
        return self._noise_and_log_prob(x_t, prepared)[1]

    def _noise_and_log_prob(self, x_t, prepared):
        base, x_s, log_size, at_rest = prepared
        x_t = check_state("x_t", x_t, self.dim)
        noise, log_prob = self.law.stack.inverse((x_t - x_s) * jnp.exp(-log_size), base)
        return noise, hold_log_prob(at_rest, x_s, x_t, log_prob - log_size.sum())

    def _width(self, base: Base) -> Float[Array, " dim"]:
        """How wide the central 90 % of each channel are, put together from what each number of the noise moves, in
        squares; a normal law's of one are one."""
        ends = NORMAL_95 * jnp.eye(self.dim, dtype=base.std.dtype)
        at = jax.vmap(lambda noise: self.law.stack.forward(noise, base)[0])(jnp.concatenate([ends, -ends]))
        apart = jnp.square((at[: self.dim] - at[self.dim :]) / (2 * NORMAL_95)).sum(axis=0)
        return jnp.maximum(jnp.sqrt(apart), NARROWEST * base.std)

    def centred(self, base: Base) -> Base:
        """The base such that noise of zero goes to what was its mean: splines shape the noise and move it nowhere. So
        the mean is a median, and can be believed or not."""
        at_zero, _ = self.law.stack.forward(jnp.zeros_like(base.mean), base)
        return base._replace(mean=2 * base.mean - at_zero)
