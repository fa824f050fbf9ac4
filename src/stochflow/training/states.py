"""Hidden states of a batch of series, and the steps between them that an update of a latent flow looks at."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, Scalar

from ..data.batches import draw_lags, draw_rows, draw_rows_with_room
from ..data.pairs import Pairs, Triplets, triplet_times
from ..latent import LatentFlow, Series
from ..laws import Gaussian
from .config import LatentConfig


class Steps(NamedTuple):
    """Steps from state to state, what the posterior says of the density of each end, and which of them there are."""

    pairs: Pairs
    log_q: Float[Array, " steps"]
    real: Bool[Array, " steps"]

    def mean(self, values: Float[Array, " steps"]) -> Scalar:
        """Over the steps that there are."""
        return jnp.where(self.real, values, 0.0).sum() / jnp.maximum(self.real.sum(), 1)


class States(NamedTuple):
    """A path of states of each series; `counts` tells how many rows, from `context` on, have one. `filtered` is the law
    of each given the rows up to it, where the posterior knows."""

    x: Float[Array, "series rows dim"]
    log_q: Float[Array, "series rows"]
    filtered: Gaussian | None
    times: Float[Array, "series rows"]
    u: Float[Array, "series rows cond"] | None
    rows: Bool[Array, "series rows"]
    counts: Int[Array, " series"]
    context: int

    def moves(self, number: int | None, *, key: PRNGKeyArray) -> Steps:
        """Steps from a row to the next: `number` of them, or all."""
        if number is None:
            series, first = (index.ravel() for index in jnp.indices(self.rows[:, 1:].shape))
            return self.steps(series, first, first + 1)
        series, row = draw_rows(jnp.maximum(self.counts - 1, 0), number, key=key)
        first = self.context + row
        return self.steps(series, first, first + 1)

    def skips(self, config: LatentConfig, *, key: PRNGKeyArray) -> Steps:
        """Steps from a row to one at least two further on."""
        return self.steps(*self.skip_rows(config, key=key))

    def skip_rows(
        self, config: LatentConfig, *, key: PRNGKeyArray
    ) -> tuple[Int[Array, " steps"], Int[Array, " steps"], Int[Array, " steps"]]:
        """Series, first and last row of each."""
        row_key, lag_key = jr.split(key)
        if config.skip_scheme == "lag":
            longest = jnp.full(config.skip_starts * config.skip_samples, self.counts.max() - 1)
            longest = longest if config.skip_lag is None else jnp.minimum(longest, config.skip_lag)
            lags = draw_lags(longest, shortest=2, scheme="uniform", key=lag_key)
            series, row = draw_rows_with_room(self.counts, lags, key=row_key)
            return series, self.context + row, self.context + row + lags
        series, row = draw_rows(jnp.maximum(self.counts - 2, 0), config.skip_starts, key=row_key)
        series, row = (jnp.repeat(index, config.skip_samples) for index in (series, row))
        longest = self.counts[series] - 1 - row
        longest = longest if config.skip_lag is None else jnp.minimum(longest, config.skip_lag)
        lags = draw_lags(longest, shortest=2, scheme=config.skip_scheme, key=lag_key)
        first = self.context + row
        return series, first, first + lags

    def triplets(self, config: LatentConfig, horizon: float, *, key: PRNGKeyArray) -> Triplets:
        """Starts at states, for the consistency loss, which does not move them."""
        row_key, lag_key, place_key = jr.split(key, 3)
        number = config.consistency_batch or 256
        series, row = draw_rows(jnp.maximum(self.counts - 1, 0), number, key=row_key)
        lags = draw_lags(self.counts[series] - 1 - row, shortest=1, scheme="uniform", key=lag_key)
        pairs = self.steps(series, self.context + row, self.context + row + lags).pairs
        places = jr.uniform(place_key, (2, number), pairs.s.dtype)
        r, t = triplet_times(pairs.s, pairs.t, horizon=horizon, scheme=config.triplets, places=places)
        return Triplets(jax.lax.stop_gradient(pairs.x_s), pairs.s, r, t, pairs.u)

    def bounds(self, widened: float) -> tuple[Float[Array, " dim"], Float[Array, " dim"]]:
        """The lowest and the highest state of the batch in each dimension, so many times as far from their middle."""
        there = self.rows[:, :, None]
        low = jnp.where(there, self.x, jnp.inf).min(axis=(0, 1))
        high = jnp.where(there, self.x, -jnp.inf).max(axis=(0, 1))
        middle, half = (low + high) / 2, widened * (high - low) / 2
        return jax.lax.stop_gradient((middle - half, middle + half))

    def reconstruction(self, model: LatentFlow, batch: Series) -> Scalar:
        """Minus the log-likelihood of what was observed, a row."""
        log_prob = jax.vmap(jax.vmap(model.emission.log_prob))(batch.values, batch.mask, self.x)
        return -jnp.where(self.rows, log_prob, 0.0).sum() / self.rows.sum()

    def kl_a_row(self, model: LatentFlow, mean_of_moves: Scalar) -> Scalar:
        """The KL divergence a row: `mean_of_moves` a step, and that from the initial law at the first row."""
        x, log_q = self.x[:, self.context], self.log_q[:, self.context]
        some = self.counts > 0
        first = jnp.where(some, log_q - jax.vmap(model.initial.log_prob)(x), 0.0).sum()
        moves = jnp.maximum(self.counts - 1, 0).sum()
        return (first + moves * mean_of_moves) / self.counts.sum()

    def steps(self, series, first, last):
        """Where there is no such step (a series is too short for it), one of length one that does not count."""
        last = jnp.minimum(last, self.times.shape[1] - 1)
        real = self.rows[series, first] & self.rows[series, last] & (last > first)
        s, t = self.times[series, first], self.times[series, last]
        t = jnp.where(real, t, s + 1)
        u = None if self.u is None else self.u[series, first]
        pairs = Pairs(self.x[series, first], self.x[series, last], s, t, u)
        return Steps(pairs, self.log_q[series, last], real)
