"""What all Gaussian laws share: one density, and the two interfaces that are filled in with moments alone."""

import abc
import math

import equinox as eqx
import jax.numpy as jnp
from jax.scipy.linalg import solve_triangular
from jaxtyping import Array, Float, Scalar, ScalarLike

from .base import AbstractBridge, AbstractTransition
from .checks import check_states
from .gaps import bridge_gaps, hold_log_prob, hold_sample, pinned_end, positive_gap, time_gap


class Gaussian(eqx.Module):
    r"""$\mathcal N(m, T T^\top)$ with $T$ lower triangular; noise $\varepsilon$ is sent to
    $m + T \varepsilon$."""

    mean: Float[Array, " dim"]
    scale_tril: Float[Array, "dim dim"]

    def transform_and_log_prob(self, noise: Float[Array, " dim"]) -> tuple[Float[Array, " dim"], Scalar]:
        """The point that `noise` is sent to, and its log-density."""
        return self.mean + self.scale_tril @ noise, self._log_prob_of_noise(noise)

    def log_prob(self, x: Float[Array, " dim"]) -> Scalar:
        """The log-density at `x`."""
        return self._log_prob_of_noise(solve_triangular(self.scale_tril, x - self.mean, lower=True))

    def _log_prob_of_noise(self, noise):
        log_det = jnp.log(jnp.diagonal(self.scale_tril)).sum()
        return -0.5 * (noise @ noise) - log_det - 0.5 * noise.size * math.log(2 * math.pi)


class AffineGaussian(eqx.Module):
    r"""A law that is Gaussian with a mean affine in where it starts:
    $x_t \mid x_s \sim \mathcal N(F x_s + g, T T^\top)$."""

    matrix: Float[Array, "dim dim"]
    offset: Float[Array, " dim"]
    scale_tril: Float[Array, "dim dim"]

    def given(self, x_s: Float[Array, " dim"]) -> Gaussian:
        """The law from `x_s`."""
        return Gaussian(self.matrix @ x_s + self.offset, self.scale_tril)


class AbstractGaussianTransition(AbstractTransition):
    """A time-homogeneous law with Gaussian, affine steps: a final class gives `moments`, the rest is here."""

    @property
    def homogeneous(self) -> bool:
        return True

    @abc.abstractmethod
    def moments(self, gap: Scalar, u: Float[Array, " cond"] | None) -> AffineGaussian:
        """The step over a positive `gap`."""

    def transform_and_log_prob(
        self,
        noise: Float[Array, " dim"],
        x_s: Float[Array, " dim"],
        s: ScalarLike,
        t: ScalarLike,
        u: Float[Array, " cond"] | None = None,
    ) -> tuple[Float[Array, " dim"], Scalar]:
        """Mean plus Cholesky factor times noise."""
        noise, x_s = check_states(self.dim, noise=noise, x_s=x_s)
        gap = time_gap(s, t)
        step = self.moments(positive_gap(gap), u).given(x_s)
        return hold_sample(gap == 0, x_s, *step.transform_and_log_prob(noise))

    def log_prob(
        self,
        x_t: Float[Array, " dim"],
        x_s: Float[Array, " dim"],
        s: ScalarLike,
        t: ScalarLike,
        u: Float[Array, " cond"] | None = None,
    ) -> Scalar:
        r"""The Gaussian log-density of `x_t`."""
        x_t, x_s = check_states(self.dim, x_t=x_t, x_s=x_s)
        gap = time_gap(s, t)
        return hold_log_prob(gap == 0, x_s, x_t, self.moments(positive_gap(gap), u).given(x_s).log_prob(x_t))


class AbstractGaussianBridge(AbstractBridge):
    """A Gaussian bridge of a time-homogeneous law: a final class gives `between`, the rest is here."""

    @property
    def homogeneous(self) -> bool:
        return True

    @abc.abstractmethod
    def between(
        self,
        x_s: Float[Array, " dim"],
        x_t: Float[Array, " dim"],
        before: Scalar,
        after: Scalar,
        u: Float[Array, " cond"] | None,
    ) -> Gaussian:
        """The law of the state that is `before` after `x_s` and `after` before `x_t`, both gaps positive."""

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
        """Mean plus Cholesky factor times noise."""
        noise, x_s, x_t = check_states(self.dim, noise=noise, x_s=x_s, x_t=x_t)
        before, after = bridge_gaps(s, r, t)
        law = self.between(x_s, x_t, positive_gap(before), positive_gap(after), u)
        return hold_sample(*pinned_end(before, after, x_s, x_t), *law.transform_and_log_prob(noise))

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
        r"""The Gaussian log-density of `x_r`."""
        x_r, x_s, x_t = check_states(self.dim, x_r=x_r, x_s=x_s, x_t=x_t)
        before, after = bridge_gaps(s, r, t)
        law = self.between(x_s, x_t, positive_gap(before), positive_gap(after), u)
        return hold_log_prob(*pinned_end(before, after, x_s, x_t), x_r, law.log_prob(x_r))
