"""A posterior that is computed and not learnt: the extended Kalman filter and smoother of a model's own parts."""

import itertools
import math
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Bool, Float, Scalar

from ..laws import AbstractGaussianTransition, AffineGaussian, Gaussian
from .emissions import AbstractEmission
from .initial import InitialLaw
from .posteriors import AbstractPosterior, Marginals, PathSample, Reading
from .series import Series
from .small import cholesky, inverse_and_log_det

LOG_2PI = 1.8378770664093453
# Rows after which one of several starts is chosen: as many as tell a phase and which way it runs.
SETTLED = 3
# Added to the variances of a state given the next, in units of rounding: they must not become negative by it.
JITTER = 8


class KalmanPosterior(AbstractPosterior):
    r"""The law of the states given the observations, by a Kalman filter and smoother that linearise the emission.

    Nothing is learnt but the model itself, so there is nothing to over-fit, a series may have any length and any rows
    or channels missing, and forecasts start from what the past tells of every dimension at once. The transition must
    have Gaussian steps, affine in the state (such as [`Rhythm`][stochflow.laws.Rhythm] or a linear SDE); the emission
    may be any, and is taken as normal with its own mean and standard deviation. If it is normal and linear, all is
    exact.

    **Arguments:**

    - `dim`: the size of the state.
    - `rounds`: how often each row is linearised anew where it was found to be.
    - `phases`: how many of the last coordinates are angles of which nothing is known at first. An emission that goes
        round and round cannot be linearised before they are: the filter sets out from a grid of them and goes on with
        the one that explains the first rows best.
    - `starts`: how many angles the grid has, for each phase.
    - `std`: what the filter takes for the noise of every channel; by default each has that of the emission. A channel
        that hardly moves has next to none, and would have all the say, though a model is wrong by more than that.
    """

    dim: int = eqx.field(static=True)
    rounds: int = eqx.field(static=True)
    phases: int = eqx.field(static=True)
    starts: int = eqx.field(static=True)
    std: float | None = eqx.field(static=True)
    context: int = eqx.field(static=True)
    independent: bool = eqx.field(static=True)

    def __init__(
        self, dim: int, *, rounds: int = 2, phases: int = 0, starts: int = 12, std: float | None = None
    ):
        if rounds < 1 or starts < 1:
            raise ValueError(f"`rounds` and `starts` must be at least 1; got {rounds} and {starts}.")
        if not 0 <= phases <= dim:
            raise ValueError(f"`phases` must lie between 0 and `dim`, {dim}; got {phases}.")
        if std is not None and not (std > 0 and math.isfinite(std)):
            raise ValueError(f"`std` must be positive, or None; got {std}.")
        self.dim = dim
        self.rounds = rounds
        self.phases = phases
        self.starts = starts
        self.std = None if std is None else float(std)
        self.context = 0
        self.independent = False

    def of(self, transition, emission, initial):
        if not isinstance(transition, AbstractGaussianTransition):
            raise ValueError(
                "`transition` must have Gaussian steps, affine in the state, for a Kalman posterior; got "
                f"{type(transition).__name__}. Choose another posterior for it."
            )
        return _Kalman(transition, emission, initial, self)

    def marginals(self, series):
        raise ValueError("a Kalman posterior computes with a model's own parts: use `model.reader`.")

    def sample_and_log_prob(self, series, *, key):
        raise ValueError("a Kalman posterior computes with a model's own parts: use `model.reader`.")


class _Normal(NamedTuple):
    """A mean and a covariance."""

    mean: Float[Array, "*rows dim"]
    covariance: Float[Array, "*rows dim dim"]


class _Row(NamedTuple):
    """What the filter reads of a row: the step that led to it and what was observed."""

    step: AffineGaussian
    value: Float[Array, "*rows channels"]
    mask: Bool[Array, "*rows channels"]
    first: Bool[Array, "*rows"]
    present: Bool[Array, "*rows"]


class _Filtered(NamedTuple):
    """Row by row: the inverse covariance before the row was seen, and the state after."""

    precision: Float[Array, "*rows dim dim"]
    after: _Normal
    log_evidence: Float[Array, "*rows"]


class _Kalman(AbstractPosterior):
    """The posterior of a model with these parts."""

    transition: AbstractGaussianTransition
    emission: AbstractEmission
    initial: InitialLaw
    settings: KalmanPosterior

    def __init__(
        self,
        transition: AbstractGaussianTransition,
        emission: AbstractEmission,
        initial: InitialLaw,
        settings: KalmanPosterior,
    ):
        self.transition = transition
        self.emission = emission
        self.initial = initial
        self.settings = settings

    @property
    def dim(self) -> int:
        return self.settings.dim

    @property
    def context(self) -> int:
        return self.settings.context

    @property
    def independent(self) -> bool:
        return self.settings.independent

    def sample_and_log_prob(self, series, *, key):
        return _path(self._backward(*self._filter(series)), key)

    def read(self, series, *, key):
        rows, filtered = self._filter(series)
        kernels = self._backward(rows, filtered)
        laws = jax.vmap(lambda mean, covariance: Gaussian(mean, _root(covariance)))(*filtered.after)
        return Reading(_path(kernels, key), laws)

    def marginals(self, series):
        rows, filtered = self._filter(series)
        kernels = self._backward(rows, filtered)

        def step(later, now):
            gain, shift, noise = now
            here = _Normal(gain @ later.mean + shift, gain @ later.covariance @ gain.T + noise)
            return here, here

        nothing = jax.tree.map(lambda leaf: jnp.zeros_like(leaf[0]), filtered.after)
        _, found = jax.lax.scan(step, nothing, kernels, reverse=True)
        return Marginals(found.mean, jnp.sqrt(jnp.diagonal(found.covariance, axis1=1, axis2=2)))

    def last(self, series):
        # What the filter found at each row is not used, and so not stored.
        mean, covariance = self._head_and_rest(self._rows(series))[1][0]
        return Gaussian(mean, _root(covariance))

    def _rows(self, series: Series) -> _Row:
        first = jnp.arange(len(series.times)) == 0
        # The first row has no step before it; that of the padding is never used.
        gaps = jnp.where(first | ~series.present | (series.gaps == 0), 1.0, series.gaps)
        u = None if series.u is None else jnp.roll(series.u, 1, axis=0)
        steps = jax.vmap(self.transition.moments, in_axes=(0, None if u is None else 0))(gaps, u)
        return _Row(steps, series.seen, series.mask & series.present[:, None], first, series.present)

    def _filter(self, series: Series) -> tuple[_Row, _Filtered]:
        rows = self._rows(series)
        head, (_, rest) = self._head_and_rest(rows)
        return rows, jax.tree.map(lambda *parts: jnp.concatenate(parts), head, rest)

    def _head_and_rest(self, rows: _Row) -> tuple[_Filtered, tuple[_Normal, _Filtered]]:
        """The first rows by the start that explains them best, and from there all others, with where they end."""
        # Single precision weights may read rows in double.
        precise = jnp.result_type(rows.value, rows.step.matrix, self.initial.mean)
        starts = jax.tree.map(lambda leaf: leaf.astype(precise), self._starts())
        settled = min(SETTLED, len(rows.first))
        first, others = (
            jax.tree.map(cut, rows) for cut in (lambda leaf: leaf[:settled], lambda leaf: leaf[settled:])
        )
        tried = jax.vmap(lambda start: self._scan(start, start, first)[1])(starts)
        best = jnp.argmax(jax.lax.stop_gradient(tried.log_evidence.sum(axis=1)))
        head, start = jax.tree.map(lambda leaf: leaf[best], (tried, starts))
        return head, self._scan(jax.tree.map(lambda leaf: leaf[-1], head.after), start, others)

    def _starts(self) -> _Normal:
        """The law of the first state, once for every place on the grid of phases."""
        mean, std = self.initial.mean, jnp.exp(self.initial.log_std)
        phases, starts = self.settings.phases, self.settings.starts
        if phases == 0:
            return _Normal(mean[None], jnp.diag(std**2)[None])
        width = 2 * jnp.pi / starts
        grid = jnp.array(list(itertools.product(range(starts), repeat=phases)), mean.dtype) * width
        others = jnp.broadcast_to(mean[:-phases], (len(grid), self.dim - phases))
        variances = jnp.concatenate([std[:-phases] ** 2, jnp.full(phases, width**2, std.dtype)])
        covariance = jnp.broadcast_to(jnp.diag(variances), (len(grid), self.dim, self.dim))
        return _Normal(jnp.concatenate([others, grid - jnp.pi], axis=1), covariance)

    def _scan(self, carry: _Normal, start: _Normal, rows: _Row) -> tuple[_Normal, _Filtered]:
        def forward(carry, row):
            matrix, root = row.step.matrix, row.step.scale_tril
            ahead = _Normal(
                matrix @ carry.mean + row.step.offset,
                matrix @ carry.covariance @ matrix.T + root @ root.T,
            )
            before = jax.tree.map(lambda a, b: jnp.where(row.first, a, b), start, ahead)
            after, precision, log_evidence = self._update(before, row.value, row.mask)
            after = jax.tree.map(lambda new, old: jnp.where(row.present, new, old), after, carry)
            return after, _Filtered(precision, after, jnp.where(row.present, log_evidence, 0.0))

        return jax.lax.scan(forward, carry, rows)

    def _update(self, before: _Normal, value, mask) -> tuple[_Normal, Array, Scalar]:
        """What a row tells: as if the emission were linear about the mean, found in a few rounds."""
        mean, covariance = before
        precision, log_det = inverse_and_log_det(covariance)

        def linearised(at):
            expected, std = self.emission.mean_and_std(at)
            std = std if self.settings.std is None else jnp.full_like(std, self.settings.std)
            slopes = jnp.where(mask[:, None], jax.jacfwd(self.emission.mean)(at), 0.0)
            weights = jnp.where(mask, std**-2.0, 0.0)
            surprise = jnp.where(mask, value - expected, 0.0) - slopes @ (mean - at)
            told = (slopes.T * weights[None]) @ surprise
            after, log_det_after = inverse_and_log_det(precision + (slopes.T * weights[None]) @ slopes)
            # Of the linear model: the surprise has covariance R + J P Jᵀ, whose inverse and determinant are found in
            # the dimension of the state.
            squares = (weights * surprise**2).sum() - told @ (after @ told)
            log_dets = log_det + log_det_after + jnp.where(mask, 2 * jnp.log(std) + LOG_2PI, 0.0).sum()
            return _Normal(mean + after @ told, after), -0.5 * (squares + log_dets)

        after, log_evidence = linearised(mean)
        for _ in range(self.settings.rounds - 1):
            after, log_evidence = linearised(after.mean)
        return after, precision, log_evidence

    def _backward(self, rows: _Row, filtered: _Filtered) -> "_Kernels":
        """Each state given the next."""
        follows = jnp.roll(rows.present, -1).at[-1].set(False)
        step, precision = (
            jax.tree.map(lambda leaf: jnp.roll(leaf, -1, axis=0), part)
            for part in (rows.step, filtered.precision)
        )

        def kernel(mean, covariance, step, precision, follows):
            gain = jnp.where(follows, covariance @ step.matrix.T @ precision, 0.0)
            kept = jnp.eye(self.dim, dtype=mean.dtype) - gain @ step.matrix
            root = gain @ step.scale_tril
            shift = mean - gain @ (step.matrix @ mean + step.offset)
            return _Kernels(gain, shift, kept @ covariance @ kept.T + root @ root.T)

        return jax.vmap(kernel)(filtered.after.mean, filtered.after.covariance, step, precision, follows)


class _Kernels(NamedTuple):
    """A state given the next: its mean is `gain` times that plus `shift`, its covariance `noise`."""

    gain: Float[Array, "rows dim dim"]
    shift: Float[Array, "rows dim"]
    noise: Float[Array, "rows dim dim"]


def _path(kernels, key):
    """Backwards: the last state first, then each given the one after it."""
    root = jax.vmap(_root)(kernels.noise)
    noise = jr.normal(key, kernels.shift.shape, kernels.shift.dtype)
    pushed = kernels.shift + jnp.einsum("rij,rj->ri", root, noise)

    def step(x, now):
        gain, push = now
        x = gain @ x + push
        return x, x

    _, x = jax.lax.scan(step, jnp.zeros_like(noise[0]), (kernels.gain, pushed), reverse=True)
    log_scale = jnp.log(jnp.diagonal(root, axis1=1, axis2=2)).sum(axis=1)
    return PathSample(x, -0.5 * (noise**2 + LOG_2PI).sum(axis=1) - log_scale)


def _root(covariance: Float[Array, "dim dim"]) -> Float[Array, "dim dim"]:
    """The Cholesky factor of a covariance that rounding may have spoilt a little."""
    jitter = JITTER * jnp.finfo(covariance.dtype).eps
    return cholesky(covariance + jitter * jnp.diag(jnp.diagonal(covariance)))
