"""Held-out log-likelihood, per gap."""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.random as jr
import numpy as np

from ..data import PairSampler, Trajectories

# Enough for a standard error of a few hundredths of a nat; few enough to cost less than a second.
VALIDATION_PAIRS = 8192
BINS = 4


def make_validation(data: Trajectories, horizon: float) -> Callable[..., dict[str, float]]:
    """A function of the model: mean negative log-likelihood, over all and by quarters of the horizon.

    The pairs are drawn once, uniformly in lag, with a fixed key: every report is on the same pairs.
    """
    pairs = PairSampler(data, horizon=horizon).draw(VALIDATION_PAIRS, key=jr.key(0))
    quarter = np.minimum((np.asarray(pairs.t - pairs.s) / horizon * BINS).astype(int), BINS - 1)

    @eqx.filter_jit
    def log_probs(flow):
        u_axis = None if pairs.u is None else 0
        log_prob = jax.vmap(flow.log_prob, in_axes=(0, 0, 0, 0, u_axis))
        return log_prob(pairs.x_t, pairs.x_s, pairs.s, pairs.t, pairs.u)

    def validate(model) -> dict[str, float]:
        losses = -np.asarray(log_probs(model.flow), np.float64)
        scores = {"loss": float(losses.mean()) if np.isfinite(losses).all() else float("inf")}
        for i in range(BINS):
            if (quarter == i).any():
                scores[f"gap_{i + 1}_of_{BINS}"] = float(losses[quarter == i].mean())
        return scores

    return validate
