"""Drawing training pairs and triplets from the complete rows of series, inside `jit`."""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray, ScalarLike, UInt32

from .trajectories import CompleteRows, Trajectories

SCHEMES = ("lag", "root", "log", "pair")


class Pairs(NamedTuple):
    """A batch of transitions: `x_s` at `s`, `x_t` at `t`, covariates `u` of the earlier row."""

    x_s: Float[Array, "batch dim"]
    x_t: Float[Array, "batch dim"]
    s: Float[Array, " batch"]
    t: Float[Array, " batch"]
    u: Float[Array, "batch cond"] | None


class Triplets(NamedTuple):
    """A batch of starts with two later times, `s < r < t`."""

    x_s: Float[Array, "batch dim"]
    s: Float[Array, " batch"]
    r: Float[Array, " batch"]
    t: Float[Array, " batch"]
    u: Float[Array, "batch cond"] | None


class PairSampler(eqx.Module):
    r"""All complete rows in one array, with how far ahead each may look.

    Where series are of very different lengths, give [`CompleteRows`][stochflow.data.CompleteRows] instead of
    `Trajectories`: the draws are the same, and nothing is padded.

    Row $i$ may be paired with the `reach[i]` rows that follow it in its own series within the horizon. Four
    schemes: `"lag"` draws the lag uniformly and then a row that reaches so far, so that long gaps do not
    starve; `"pair"` draws uniformly from all pairs; `"root"` lies between: lags are drawn in proportion to the
    square root of how many pairs have them, so that the few pairs of the longest lags are not learnt by heart;
    `"log"` draws the logarithm of the lag uniformly, for few and long series, in which there are as many times fewer
    stretches apart from one another as the lag is longer. With each, a share `start_fraction` of the batch starts at
    the first row of a series, its lag drawn uniformly: a transient is seen once a series and is easily drowned.

    The last `data.ahead` covariates of a pair are those of its end, the others those of its start.
    """

    values: Float[Array, "rows dim"]
    times: Float[Array, " rows"]
    u: Float[Array, "rows cond"] | None
    reach: Int[Array, " rows"]
    by_reach: Int[Array, " starts"]
    enough: Int[Array, " lags"]
    lag_cumulative: Float[Array, " lags"]
    cumulative: Float[Array, " starts"]
    firsts: Int[Array, " firsts"]
    scheme: str = eqx.field(static=True)
    start_fraction: float = eqx.field(static=True)
    horizon: float = eqx.field(static=True)
    ahead: int = eqx.field(static=True)

    def __init__(
        self,
        data: Trajectories | CompleteRows,
        *,
        horizon: float | None = None,
        scheme: str = "lag",
        start_fraction: float = 0.0,
    ):
        if scheme not in SCHEMES:
            raise ValueError(f"`scheme` must be one of {', '.join(SCHEMES)}; got {scheme!r}.")
        if not 0 <= start_fraction <= 1:
            raise ValueError(f"`start_fraction` must lie in [0, 1]; got {start_fraction}.")
        rows = data.complete_rows()
        horizon = rows.longest_gap if horizon is None else float(horizon)
        if horizon <= 0:
            raise ValueError(
                f"`horizon` must be positive; got {horizon}. Is there a series with two complete rows?"
            )
        reach = [_reach(t, horizon) for t in rows.times_by_series]
        firsts = np.cumsum([0, *[len(r) for r in reach[:-1]]])
        firsts = firsts[[len(r) > 0 and r[0] > 0 for r in reach]]
        flat = np.concatenate(reach)
        if flat.max(initial=0) == 0:
            raise ValueError(
                f"no pair of complete rows of one series lies within the horizon of {horizon:g}: "
                "give longer series or a longer `horizon`."
            )
        order = np.argsort(-flat, kind="stable")
        order = order[flat[order] > 0]
        lags = np.arange(1, flat.max() + 1)
        self.values = jnp.asarray(rows.values)
        self.times = jnp.asarray(rows.times)
        self.u = None if rows.u is None else jnp.asarray(rows.u)
        self.reach = jnp.asarray(flat, jnp.int32)
        self.by_reach = jnp.asarray(order, jnp.int32)
        enough = np.searchsorted(-flat[order], -lags, side="right")
        weights = np.cumsum(1 / lags if scheme == "log" else np.sqrt(enough))
        self.enough = jnp.asarray(enough, jnp.int32)
        self.lag_cumulative = jnp.asarray(weights / weights[-1], jnp.float32)
        self.cumulative = jnp.asarray(np.cumsum(flat[order]) / flat.sum(), jnp.float32)
        self.firsts = jnp.asarray(firsts, jnp.int32)
        self.scheme = scheme
        self.start_fraction = float(start_fraction) if len(firsts) else 0.0
        self.horizon = horizon
        self.ahead = rows.ahead

    @property
    def number(self) -> int:
        """How many pairs there are."""
        return int(np.asarray(self.reach, np.int64).sum())

    def draw(self, batch: int, *, key: PRNGKeyArray) -> Pairs:
        """A batch of pairs."""
        return self.draw_by(jr.bits(key, (WORDS, batch), jnp.uint32))

    def draw_by(self, bits: UInt32[Array, "words batch"]) -> Pairs:
        """The pairs that `WORDS` random words a pair stand for."""
        row_bits, lag_bits, first_bits, first_lag_bits, share_bits = bits
        rows, lags = self._rows_and_lags(row_bits, lag_bits)
        if self.start_fraction > 0:
            firsts = self.firsts[below(first_bits, self.firsts.shape[0])]
            first_lags = 1 + below(first_lag_bits, self.reach[firsts])
            use_first = unit(share_bits) < self.start_fraction
            rows = jnp.where(use_first, firsts, rows)
            lags = jnp.where(use_first, first_lags, lags)
        ends = rows + lags
        u = None if self.u is None else self.u[rows]
        if u is not None and self.u is not None and self.ahead:
            u = u.at[:, -self.ahead :].set(self.u[ends, -self.ahead :])
        return Pairs(self.values[rows], self.values[ends], self.times[rows], self.times[ends], u)

    def _rows_and_lags(self, row_bits, lag_bits):
        if self.scheme != "pair":
            longest = self.enough.shape[0]
            if self.scheme == "lag":
                lags = 1 + below(lag_bits, longest)
            else:
                place = jnp.searchsorted(self.lag_cumulative, unit(lag_bits), side="right")
                lags = 1 + jnp.minimum(place, longest - 1)
            return self.by_reach[below(row_bits, self.enough[lags - 1])], lags
        place = jnp.searchsorted(self.cumulative, unit(row_bits), side="right")
        rows = self.by_reach[jnp.minimum(place, self.by_reach.shape[0] - 1)]
        return rows, 1 + below(lag_bits, self.reach[rows])


# What one pair takes, and what a triplet takes beside its pair. A batch is drawn by one call of the generator, because
# each call costs a third of a second to compile.
WORDS, TIME_WORDS = 5, 2


def below(bits: UInt32[Array, " batch"], number: Int[Array, " batch"] | int) -> Int[Array, " batch"]:
    r"""$\lfloor b\,n / 2^{32} \rfloor$: random words as integers from 0 to `number` - 1, all alike but for one part in
    $2^{32}/n$."""
    n = jnp.asarray(number, jnp.uint32)
    high, low, n_high, n_low = bits >> 16, bits & 0xFFFF, n >> 16, n & 0xFFFF
    middle = high * n_low + ((low * n_low) >> 16)
    carried = low * n_high + (middle & 0xFFFF)
    return (high * n_high + (middle >> 16) + (carried >> 16)).astype(jnp.int32)


def unit(bits: UInt32[Array, "*shape"]) -> Float[Array, "*shape"]:
    """Random words as numbers in [0, 1), in steps that single precision can tell apart."""
    return (bits >> 8).astype(jnp.float32) * jnp.float32(2.0**-24)


def _reach(times: np.ndarray, horizon: float) -> np.ndarray:
    """How many later rows lie within the horizon, for each row (with a little room for float32 times)."""
    limit = times.astype(np.float64) + horizon * (1 + 1e-6)
    return np.searchsorted(times, limit, side="right") - 1 - np.arange(len(times))


TRIPLET_SCHEMES = ("paper", "balanced")
# Of the way from s to t. At the very ends one of the two steps is the identity and nothing is learnt.
INNERMOST = 1e-3
BALANCED = 0.2


def draw_triplets(
    sampler: PairSampler, batch: int, *, horizon: ScalarLike, scheme: str, key: PRNGKeyArray
) -> Triplets:
    r"""Starts from the data with $s < r < t \le s + H$.

    `"paper"`: half of the end times are those of data pairs, half uniform on $(s, s + H)$; $r$ is uniform
    between (its appendix B). `"balanced"`: the same end times, but $r$ lies in the middle three fifths: where
    data reaches only so far, a gap twice as long is then taught by two gaps that the data does cover, and not
    by a tiny step and one that is itself unknown.
    """
    return draw_pairs_and_triplets(sampler, 0, batch, horizon=horizon, scheme=scheme, key=key)[1]


def draw_pairs_and_triplets(
    sampler: PairSampler, number: int, batch: int, *, horizon: ScalarLike, scheme: str, key: PRNGKeyArray
) -> tuple[Pairs, Triplets]:
    """`number` pairs, and `batch` triplets as [`draw_triplets`][stochflow.data.draw_triplets] draws them, at once."""
    bits = jr.bits(key, (WORDS + TIME_WORDS, number + batch), jnp.uint32)
    drawn = sampler.draw_by(bits[:WORDS])
    pairs = jax.tree.map(lambda leaf: leaf[:number], drawn)
    others = jax.tree.map(lambda leaf: leaf[number:], drawn)
    places = unit(bits[WORDS:, number:])
    r, t = triplet_times(others.s, others.t, horizon=horizon, scheme=scheme, places=places)
    return pairs, Triplets(others.x_s, others.s, r, t, others.u)


def triplet_times(
    s: Float[Array, " batch"],
    t: Float[Array, " batch"],
    *,
    horizon: ScalarLike,
    scheme: str,
    places: Float[Array, "2 batch"],
) -> tuple[Float[Array, " batch"], Float[Array, " batch"]]:
    """Middle and end times for starts `s`: every other end is that of a data pair, `t`, the rest are uniform.

    `places` in [0, 1) say where an end lies within the horizon and a middle between its ends.
    """
    end, middle = places
    uniform = s + horizon * (INNERMOST + (1 - INNERMOST) * end)
    t = jnp.where(jnp.arange(s.shape[0]) % 2 == 0, t, uniform)
    inner = BALANCED if scheme == "balanced" else INNERMOST
    tau = inner + (1 - 2 * inner) * middle
    return s + tau * (t - s), t


def long_gaps(triplets: Triplets, *, horizon: float, steps: int, key: PRNGKeyArray) -> Triplets:
    r"""The same starts with end times uniform on $(2H/n, H)$ from them.

    So the longest of $n$ equal steps, $H/n$, is shorter than the shortest such gap: what teaches is not its own pupil.
    """
    gaps = jr.uniform(key, triplets.s.shape, minval=2 * horizon / steps, maxval=horizon)
    return triplets._replace(t=triplets.s + gaps)
