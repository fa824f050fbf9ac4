r"""Does one long step give the law of several short ones? The Chapman–Kolmogorov equation, measured.

A law may fit every gap of the data and still disagree with itself in between, and it may agree with itself
and be wrong: read this beside the likelihood, never instead of it.
"""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, PRNGKeyArray, Scalar, ScalarLike

from ..laws import AbstractBridge, AbstractTransition
from ..objectives import one_to_two_gap
from .estimates import AnyArray, mean_and_se
from .scores import energy_distance


class ConsistencyError(NamedTuple):
    """Mean over starts of the energy distance of one step to `steps` equal ones, in the state's units."""

    gaps: Float[Array, " gaps"]
    mean: Float[Array, " gaps"]
    se: Float[Array, " gaps"]
    steps: int


class ConsistencyBound(NamedTuple):
    """Mean over starts of the consistency gap, in nats: a bound from above on a KL divergence."""

    gaps: Float[Array, " gaps"]
    mean: Float[Array, " gaps"]
    se: Float[Array, " gaps"]


def consistency_error(
    law: AbstractTransition,
    x_s: Float[AnyArray, "starts dim"],
    s: ScalarLike,
    gaps: Float[AnyArray, " gaps"],
    *,
    steps: int = 2,
    samples: int = 256,
    key: PRNGKeyArray,
) -> ConsistencyError:
    r"""Energy distance of $p(x_{s+\Delta} \mid x_s)$ to `steps` equal steps, for each gap $\Delta$.

    From every start, `samples` draws of each; the distance is unbiased, so a consistent law has mean zero,
    and the standard error is that over starts, which are independent of one another.
    """
    if steps < 2:
        raise ValueError(f"`steps` must be at least two; got {steps}.")
    mean, se = _distances(law, jnp.asarray(x_s), jnp.asarray(s), jnp.asarray(gaps), steps, samples, key)
    return ConsistencyError(jnp.asarray(gaps), mean, se, steps)


def consistency_bound(
    law: AbstractTransition,
    bridge: AbstractBridge,
    x_s: Float[AnyArray, "starts dim"],
    s: ScalarLike,
    gaps: Float[AnyArray, " gaps"],
    *,
    samples: int = 64,
    key: PRNGKeyArray,
) -> ConsistencyBound:
    r"""Mean of $\log p(x_t|x_s)\,b(x_r|x_s,x_t) - \log p(x_r|x_s)\,p(x_t|x_r)$ at one-step samples.

    It is a KL of the law of $(x_r, x_t)$, and so at least that of $x_t$: one step against two, split at an
    $r$ that is uniform in between. A poor bridge loosens the bound; the exact one of a consistent law makes
    every single term zero.
    """
    mean, se = _bounds(law, bridge, jnp.asarray(x_s), jnp.asarray(s), jnp.asarray(gaps), samples, key)
    return ConsistencyBound(jnp.asarray(gaps), mean, se)


@eqx.filter_jit
def _distances(law, x_s, s, gaps, steps, samples, key):
    def distance(x_s, gap, key):
        one_key, many_key = jr.split(key)
        one = lambda key: law.sample(x_s, s, s + gap, key=key)
        many = lambda key: _walk(law, x_s, s, gap, steps, key)
        draws = jax.vmap(one)(jr.split(one_key, samples)), jax.vmap(many)(jr.split(many_key, samples))
        return energy_distance(*draws).mean

    return _mean_over_starts(distance, x_s, gaps, key)


@eqx.filter_jit
def _bounds(law, bridge, x_s, s, gaps, samples, key):
    def gap_function(x_s, gap, key):
        fraction_key, gap_key = jr.split(key)
        r = s + gap * jr.uniform(fraction_key, (), x_s.dtype)
        return one_to_two_gap(law, bridge, x_s, s, r, s + gap, key=gap_key)

    def mean_gap(x_s, gap, key):
        return jax.vmap(lambda key: gap_function(x_s, gap, key))(jr.split(key, samples)).mean()

    return _mean_over_starts(mean_gap, x_s, gaps, key)


def _walk(law, x_s, s, gap, steps, key) -> Float[Array, " dim"]:
    """`steps` equal steps over the gap, each from where the last one ended."""

    def step(x, step):
        i, key = step
        return law.sample(x, s + gap * i / steps, s + gap * (i + 1) / steps, key=key), None

    # A law may answer in another precision than it is asked in.
    start = x_s.astype(jax.eval_shape(lambda: step(x_s, (0, key))[0]).dtype)
    return jax.lax.scan(step, start, (jnp.arange(steps), jr.split(key, steps)))[0]


def _mean_over_starts(statistic, x_s, gaps, key) -> tuple[Float[Array, " gaps"], Float[Array, " gaps"]]:
    """Mean and standard error over starts of `statistic(x_s, gap, key)`, one gap and one start at a time."""

    def at_gap(row: tuple[Scalar, PRNGKeyArray]):
        gap, key = row
        starts = x_s, jr.split(key, x_s.shape[0])
        return mean_and_se(jax.lax.map(lambda start: statistic(start[0], gap, start[1]), starts))

    mean, se = jax.lax.map(at_gap, (gaps, jr.split(key, gaps.shape[0])))
    return mean, se
