r"""Proper scores of samples against an observation, and the energy distance of two samples.

One forecast at a time: `jax.vmap` over the series. All estimators are *fair*: their mean does not depend on
the number of samples. Lower is better.
"""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, Scalar, ScalarLike

from .chunks import map_in_chunks
from .estimates import AnyArray, Estimate

ROWS_AT_A_TIME = 64  # of a block of pairwise distances: small enough for the cache


def crps(samples: Float[AnyArray, " n"], observation: ScalarLike) -> Scalar:
    r"""Continuous ranked probability score, $E|X - y| - \tfrac12 E|X - X'|$, in $O(n \log n)$.

    With the samples in order, $\tfrac12 E|X - X'| = \sum_i (2i - n - 1)\, x_{(i)} / n(n-1)$.
    Gneiting and Raftery (2007); the fair form is Ferro's (2014).
    """
    n = _at_least(2, samples)
    ordered = jnp.sort(jnp.asarray(samples))
    half_spread = (2 * jnp.arange(1, n + 1) - n - 1) @ (ordered - ordered.mean()) / (n * (n - 1))
    return jnp.abs(ordered - observation).mean() - half_spread


@eqx.filter_jit
def energy_score(samples: Float[AnyArray, "n dim"], observation: Float[AnyArray, " dim"]) -> Scalar:
    r"""$E\|X - y\| - \tfrac12 E\|X - X'\|$: the CRPS of a vector, in $O(n^2)$ time and $O(n)$ memory."""
    n = _at_least(2, samples)
    samples, observation = jnp.asarray(samples), jnp.asarray(observation)
    to_all = lambda x: _norms(x[None] - samples).sum()
    spread = map_in_chunks(to_all, samples, ROWS_AT_A_TIME).sum() / (n * (n - 1))
    return _norms(samples - observation[None]).mean() - spread / 2


@eqx.filter_jit
def energy_distance(x: Float[AnyArray, "n dim"], y: Float[AnyArray, "n dim"]) -> Estimate:
    r"""$2E\|X - Y\| - E\|X - X'\| - E\|Y - Y'\|$, zero iff the laws are the same, with a standard error.

    The U-statistic over $i \neq j$ of $\|x_i - y_j\| + \|x_j - y_i\| - \|x_i - x_j\| - \|y_i - y_j\|$:
    unbiased, hence at times below zero, and so even if $x_i$ and $y_i$ share their noise. The standard error
    is Hoeffding's: its square is $4\zeta_1/n + 2\zeta_2/n^2$ to leading order, with $\zeta_1$ the variance
    of a row's mean, zero for equal laws, and $\zeta_2$ that of one term.
    """
    n = _at_least(3, x)
    x, y = jnp.asarray(x), jnp.asarray(y)

    def row(pair):
        x_i, y_i = pair
        across = _norms(x_i[None] - y) + _norms(y_i[None] - x)
        terms = across - _norms(x_i[None] - x) - _norms(y_i[None] - y)
        diagonal = 2 * jnp.linalg.norm(x_i - y_i)
        return terms.sum() - diagonal, jnp.square(terms).sum() - jnp.square(diagonal)

    sums, sums_of_squares = map_in_chunks(row, (x, y), ROWS_AT_A_TIME)
    rows, mean = sums / (n - 1), sums.mean() / (n - 1)
    zeta_2 = sums_of_squares.mean() / (n - 1) - mean**2
    zeta_1 = jnp.maximum((rows.var(ddof=1) * (n - 1) - zeta_2) / (n - 2), 0)  # less the noise of a row's mean
    return Estimate(mean, jnp.sqrt((4 * (n - 2) * zeta_1 + 2 * zeta_2) / (n * (n - 1))))


def _norms(x: Float[Array, "n dim"]) -> Float[Array, " n"]:
    return jnp.sqrt(jnp.square(x).sum(axis=1))


def _at_least(least: int, samples: Float[AnyArray, "n ..."]) -> int:
    if samples.shape[0] < least:
        raise ValueError(f"`samples` must hold at least {least}; got {samples.shape[0]}.")
    return samples.shape[0]
