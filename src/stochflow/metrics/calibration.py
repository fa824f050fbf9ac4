r"""Is a law as sure as it should be? Ranks of what happened among what the law said could happen.

For a right law, every level and every PIT here is exactly uniform on (0, 1), for any number of samples: a
rank among $n$ exchangeable samples, with ties broken at random and spread over its own $1/(n+1)$.
"""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import jax.scipy as jsp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, Real, Scalar, ScalarLike

from ..laws import AbstractTransition
from .chunks import map_in_chunks
from .estimates import AnyArray, Estimate

ROWS_AT_A_TIME = 2**14  # samples drawn at once: larger batches fall out of the cache
KOLMOGOROV_TERMS = 100  # far more than float64 can see, for any statistic that is not plainly uniform


class UniformityTest(NamedTuple):
    """Kolmogorov–Smirnov statistic against the uniform law, and its p-value."""

    statistic: Scalar
    p_value: Scalar


def hdr_levels(
    law: AbstractTransition,
    x_t: Float[AnyArray, "batch dim"],
    x_s: Float[AnyArray, "batch dim"],
    s: Float[AnyArray, " batch"] | ScalarLike,
    t: Float[AnyArray, " batch"] | ScalarLike,
    u: Float[AnyArray, "batch cond"] | None = None,
    *,
    samples: int = 256,
    key: PRNGKeyArray,
) -> Float[Array, " batch"]:
    r"""The smallest highest-density region that holds each observation: its level, uniform for a right law.

    It is the probability of $\{x : \log p(x \mid x_s) > \log p(x_t \mid x_s)\}$, the share of model samples
    that are likelier than the observation. Near 0 is at the mode, near 1 in the tail; all dimensions at once.
    """
    return _over_observations(_hdr_level, law, x_t, x_s, s, t, u, samples, key)


def pit(
    law: AbstractTransition,
    x_t: Float[AnyArray, "batch dim"],
    x_s: Float[AnyArray, "batch dim"],
    s: Float[AnyArray, " batch"] | ScalarLike,
    t: Float[AnyArray, " batch"] | ScalarLike,
    u: Float[AnyArray, "batch cond"] | None = None,
    *,
    samples: int = 256,
    key: PRNGKeyArray,
) -> Float[Array, "batch dim"]:
    r"""Probability integral transform of each dimension: $P(X_t^{(i)} \le x_t^{(i)} \mid x_s)$ by samples."""
    return _over_observations(_pit, law, x_t, x_s, s, t, u, samples, key)


def sample_pit(samples: Real[AnyArray, " n"], observation: ScalarLike, *, key: PRNGKeyArray) -> Scalar:
    """PIT of one number among samples from anywhere; `jax.vmap` over the series. Integers are taken as floats."""
    samples = jnp.asarray(samples)
    samples = samples.astype(jnp.result_type(samples, float))
    _require_some("samples", samples)
    uniform = jr.uniform(key, (), samples.dtype)
    return _rank(samples, jnp.asarray(observation, samples.dtype), uniform)


def noise_levels(noise: Float[AnyArray, "batch dim"]) -> Float[Array, " batch"]:
    r"""Levels $P(\chi^2_d \le \|z\|^2)$ of the noise that a law's own inverse finds in each observation.

    No sampling, hence no sampling error. The regions are images of balls of noise: as exact as the
    highest-density ones, though not the smallest.
    """
    noise = jnp.asarray(noise)
    return jsp.special.gammainc(noise.shape[1] / 2, jnp.square(noise).sum(axis=1) / 2)


def central_levels(pits: Float[AnyArray, " batch"]) -> Float[Array, " batch"]:
    r"""$|2\,\mathrm{PIT} - 1|$: the level of the smallest central interval that holds each observation."""
    return jnp.abs(2 * jnp.asarray(pits) - 1)


def coverage(levels: Float[AnyArray, " batch"], q: float) -> Estimate:
    r"""Share of the observations inside the region of probability `q`, with its binomial standard error.

    The error is that of a *right* law, $\sqrt{q(1-q)/n}$: divide by it to see how far off a law is. A level of NaN
    is of nothing that was seen, and is left out of both.
    """
    if not 0 <= q <= 1:
        raise ValueError(f"`q` must be a probability, in [0, 1]; got {q}.")
    levels, n = _seen(levels)
    expected = jnp.asarray(q, jnp.result_type(float))
    return Estimate((levels <= q).sum() / n, jnp.sqrt(expected * (1 - expected) / n))


def uniformity_test(levels: Float[AnyArray, " n"]) -> UniformityTest:
    r"""Kolmogorov–Smirnov test against the uniform law, with Stephens' small-sample form of the asymptote:
    $p = 2 \sum_k (-1)^{k-1} e^{-2 k^2 \lambda^2}$ at $\lambda = (\sqrt n + 0.12 + 0.11/\sqrt n)\, D$. Levels of NaN
    are left out, of $n$ too."""
    levels, n = _seen(levels)
    ordered = jnp.sort(levels)  # NaN comes last
    steps = jnp.arange(levels.shape[0] + 1) / n
    statistic = jnp.nanmax(jnp.maximum(steps[1:] - ordered, ordered - steps[:-1]))
    k = jnp.arange(1, KOLMOGOROV_TERMS + 1)
    stretched = (jnp.sqrt(n) + 0.12 + 0.11 / jnp.sqrt(n)) * statistic
    p_value = 2 * ((-1.0) ** (k - 1) * jnp.exp(-2 * jnp.square(k * stretched))).sum()
    return UniformityTest(statistic, jnp.clip(p_value, 0, 1))


def _seen(levels: Float[AnyArray, " n"]) -> tuple[Float[Array, " n"], Int[Array, ""]]:
    """The levels, and how many of them are not NaN."""
    levels = jnp.asarray(levels)
    _require_some("levels", levels)
    n = (~jnp.isnan(levels)).sum()
    return levels, eqx.error_if(n, n == 0, "`levels` must hold a number; all of them are NaN.")


def _require_some(name: str, numbers: Array) -> None:
    if not numbers.shape[0]:
        raise ValueError(f"`{name}` must hold at least one number; got none.")


def _over_observations(statistic, law, x_t, x_s, s, t, u, samples, key):
    """`statistic` of each observation; a time may be one for all or one for each, and is traced."""
    x_t, x_s, batch = jnp.asarray(x_t), jnp.asarray(x_s), x_t.shape[0]
    s, t = (jnp.broadcast_to(jnp.asarray(time, x_s.dtype), (batch,)) for time in (s, t))
    rows = (x_t, x_s, s, t, None if u is None else jnp.asarray(u), jr.split(key, batch))
    return _over_rows(statistic, law, rows, samples)


@eqx.filter_jit
def _over_rows(statistic, law, rows, samples):
    chunk = max(1, ROWS_AT_A_TIME // samples)
    levels = map_in_chunks(lambda row: statistic(law, *row, samples=samples), rows, chunk)
    return eqx.error_if(levels, jnp.isnan(levels), "a sample, an observation or a log-density is NaN.")


def _hdr_level(law, x_t, x_s, s, t, u, key, *, samples) -> Scalar:
    keys = jr.split(key, samples + 1)
    draw_keys, tie_key = keys[:-1], keys[-1]
    log_probs = jax.vmap(lambda key: law.sample_and_log_prob(x_s, s, t, u, key=key)[1])(draw_keys)
    return _rank(-log_probs, -law.log_prob(x_t, x_s, s, t, u), jr.uniform(tie_key, (), x_s.dtype))


def _pit(law, x_t, x_s, s, t, u, key, *, samples) -> Float[Array, " dim"]:
    keys = jr.split(key, samples + 1)
    draw_keys, tie_key = keys[:-1], keys[-1]
    draws = jax.vmap(lambda key: law.sample(x_s, s, t, u, key=key))(draw_keys)
    return jax.vmap(_rank, in_axes=(1, 0, 0))(draws, x_t, jr.uniform(tie_key, x_t.shape, x_s.dtype))


def _rank(samples: Float[Array, " n"], value: Scalar, uniform: Scalar) -> Scalar:
    """Rank in (0, 1) of `value` among the samples and itself, randomised by `uniform`; NaN if anything is."""
    below, equal = (samples < value).sum(), (samples == value).sum()
    rank = (below + uniform * (1 + equal)) / (1 + samples.shape[0])
    undefined: Bool[Array, ""] = jnp.isnan(value) | jnp.isnan(samples).any()
    return jnp.where(undefined, jnp.nan, rank)
