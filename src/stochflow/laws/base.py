"""The two interfaces that everything shares: a transition law and a bridge law.

A module sees *one* state and scalar times; `jax.vmap` batches at the edge.
"""

import abc

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, PRNGKeyArray, PyTree, Scalar, ScalarLike

from .checks import check_state


class AbstractTransition(eqx.Module):
    r"""A transition law $p(x_t \mid x_s;\, s, t, u)$ that can be sampled in one step and evaluated exactly.

    A law is given by a map from standard normal noise to the state at $t$ and by its log-density. The map
    is pure: it holds no generator, so it can be exported as it is. At $t = s$ it is the identity, with `==`;
    $t < s$ is an error.
    """

    dim: eqx.AbstractVar[int]

    @property
    def homogeneous(self) -> bool:
        """Whether gaps between times are all that matters; a law that does not say so is taken to need the times."""
        return False

    @abc.abstractmethod
    def transform_and_log_prob(
        self,
        noise: Float[Array, " dim"],
        x_s: Float[Array, " dim"],
        s: ScalarLike,
        t: ScalarLike,
        u: Float[Array, " cond"] | None = None,
    ) -> tuple[Float[Array, " dim"], Scalar]:
        """The state at `t` that standard normal `noise` is sent to, and its log-density, in one pass."""

    @abc.abstractmethod
    def log_prob(
        self,
        x_t: Float[Array, " dim"],
        x_s: Float[Array, " dim"],
        s: ScalarLike,
        t: ScalarLike,
        u: Float[Array, " cond"] | None = None,
    ) -> Scalar:
        r"""$\log p(x_t \mid x_s)$; at $t = s$, $+\infty$ at $x_t = x_s$ and $-\infty$ elsewhere."""

    def noise_and_log_prob(
        self,
        x_t: Float[Array, " dim"],
        x_s: Float[Array, " dim"],
        s: ScalarLike,
        t: ScalarLike,
        u: Float[Array, " cond"] | None = None,
    ) -> tuple[Float[Array, " dim"], Scalar]:
        """The noise that `transform` sends to `x_t`, and the log-density there. If the law is right the noise is
        standard normal, which is what calibration checks rest on. Not every law can tell."""
        raise NotImplementedError(f"{type(self).__name__} has no inverse from states to noise.")

    def prepare(
        self,
        x_s: Float[Array, " dim"],
        s: ScalarLike,
        t: ScalarLike,
        u: Float[Array, " cond"] | None = None,
    ) -> PyTree[Array]:
        """What all draws and densities from one start over one gap share; work that is then done once."""
        return x_s, jnp.asarray(s), jnp.asarray(t), u

    def prepared_transform_and_log_prob(
        self, noise: Float[Array, " dim"], prepared: PyTree[Array]
    ) -> tuple[Float[Array, " dim"], Scalar]:
        """`transform_and_log_prob`, from what `prepare` returned."""
        return self.transform_and_log_prob(noise, *prepared)

    def prepared_log_prob(self, x_t: Float[Array, " dim"], prepared: PyTree[Array]) -> Scalar:
        """`log_prob`, from what `prepare` returned."""
        return self.log_prob(x_t, *prepared)

    def transform(
        self,
        noise: Float[Array, " dim"],
        x_s: Float[Array, " dim"],
        s: ScalarLike,
        t: ScalarLike,
        u: Float[Array, " cond"] | None = None,
    ) -> Float[Array, " dim"]:
        """Noise in, state out."""
        x_t, _ = self.transform_and_log_prob(noise, x_s, s, t, u)
        return x_t

    def sample(
        self,
        x_s: Float[Array, " dim"],
        s: ScalarLike,
        t: ScalarLike,
        u: Float[Array, " cond"] | None = None,
        *,
        key: PRNGKeyArray,
    ) -> Float[Array, " dim"]:
        """One draw of the state at `t`."""
        x_s = check_state("x_s", x_s, self.dim)
        return self.transform(jr.normal(key, x_s.shape, x_s.dtype), x_s, s, t, u)

    def sample_and_log_prob(
        self,
        x_s: Float[Array, " dim"],
        s: ScalarLike,
        t: ScalarLike,
        u: Float[Array, " cond"] | None = None,
        *,
        key: PRNGKeyArray,
    ) -> tuple[Float[Array, " dim"], Scalar]:
        """One draw and its log-density, for about the price of the draw."""
        x_s = check_state("x_s", x_s, self.dim)
        return self.transform_and_log_prob(jr.normal(key, x_s.shape, x_s.dtype), x_s, s, t, u)


class AbstractBridge(eqx.Module):
    r"""A bridge law $b(x_r \mid x_s, x_t;\, s, r, t, u)$ for $s \le r \le t$.

    At $r = s$ and $r = t$ a sample is the end state itself, with `==`.
    """

    dim: eqx.AbstractVar[int]

    @property
    def homogeneous(self) -> bool:
        """Whether gaps between times are all that matters; a law that does not say so is taken to need the times."""
        return False

    @abc.abstractmethod
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
        """The state at `r` that standard normal `noise` is sent to, and its log-density, in one pass."""

    @abc.abstractmethod
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
        r"""$\log b(x_r \mid x_s, x_t)$."""

    def transform(
        self,
        noise: Float[Array, " dim"],
        x_s: Float[Array, " dim"],
        x_t: Float[Array, " dim"],
        s: ScalarLike,
        r: ScalarLike,
        t: ScalarLike,
        u: Float[Array, " cond"] | None = None,
    ) -> Float[Array, " dim"]:
        """Noise in, state out."""
        x_r, _ = self.transform_and_log_prob(noise, x_s, x_t, s, r, t, u)
        return x_r

    def sample(
        self,
        x_s: Float[Array, " dim"],
        x_t: Float[Array, " dim"],
        s: ScalarLike,
        r: ScalarLike,
        t: ScalarLike,
        u: Float[Array, " cond"] | None = None,
        *,
        key: PRNGKeyArray,
    ) -> Float[Array, " dim"]:
        """One draw of the state at `r`."""
        x_s = check_state("x_s", x_s, self.dim)
        return self.transform(jr.normal(key, x_s.shape, x_s.dtype), x_s, x_t, s, r, t, u)

    def sample_and_log_prob(
        self,
        x_s: Float[Array, " dim"],
        x_t: Float[Array, " dim"],
        s: ScalarLike,
        r: ScalarLike,
        t: ScalarLike,
        u: Float[Array, " cond"] | None = None,
        *,
        key: PRNGKeyArray,
    ) -> tuple[Float[Array, " dim"], Scalar]:
        """One draw and its log-density, for about the price of the draw."""
        x_s = check_state("x_s", x_s, self.dim)
        return self.transform_and_log_prob(jr.normal(key, x_s.shape, x_s.dtype), x_s, x_t, s, r, t, u)
