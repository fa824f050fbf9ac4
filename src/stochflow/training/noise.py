"""The noise of each channel, after a fit: what the states leave of it."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import PRNGKeyArray

from ..data import Trajectories
from ..data.batches import compact_series
from ..latent import KalmanPosterior, LatentFlow, ObservedFlow
from ..objectives import state_rows


def with_channel_noise(
    flow: ObservedFlow, trajectories: Trajectories, *, std: float | None = None, key: PRNGKeyArray
) -> ObservedFlow:
    r"""A fitted flow whose draws have as much noise in each channel as states of the posterior leave of it:

    $$\sigma_c^2 = \frac1n \sum_i \big(o_{ic} - \mu_c(x_i)\big)^2, \qquad x \sim q(x \mid o),$$

    the step of the EM algorithm that the noise has in closed form. A noise that is fixed while training keeps channels
    that hardly move from having all the say, and is too wide for them: intervals then hold too much. The means do not
    change.

    **Arguments:**

    - `flow`: its emission is normal, with a standard deviation that does not depend on the state.
    - `trajectories`: what it was fitted to, or other series of the same kind.
    - `std`: what a posterior that is computed goes on to take for the noise of every channel; it is not changed
        by default.
    - `key`: for the states.
    """
    if trajectories.dim != flow.model.channels:
        raise ValueError(
            f"`flow` has {flow.model.channels} channels but the trajectories have {trajectories.dim}."
        )
    series = compact_series(trajectories, flow.units)
    squares, counts = _left(flow.model, series, jr.split(key, len(trajectories)))
    if (np.asarray(counts) == 0).any():
        never = int(np.argmin(np.asarray(counts)))
        raise ValueError(f"channel {never} is never observed: nothing tells of its noise.")
    old = flow.model
    emission, posterior = old.emission.with_stds(jnp.sqrt(squares / counts)), old.posterior
    if std is not None and isinstance(posterior, KalmanPosterior):
        settings = {name: getattr(posterior, name) for name in ("rounds", "phases", "starts")}
        posterior = KalmanPosterior(posterior.dim, **settings, std=std)
    model = LatentFlow(old.transition, emission, posterior, old.bridge)
    return ObservedFlow(eqx.tree_at(lambda m: m.initial, model, old.initial), flow.units)


@eqx.filter_jit
def _left(model, series, keys):
    """For each channel the sum of the squares that a path of states leaves, and of how many observations."""

    def one(item):
        rows, key = item
        path = model.reader.sample_and_log_prob(rows, key=key)
        there = rows.mask & state_rows(model, rows)[:, None]
        left = jnp.where(there, rows.seen - jax.vmap(model.emission.mean)(path.x), 0.0)
        return (left**2).sum(axis=0), there.sum(axis=0)

    squares, counts = jax.lax.map(one, (series, keys), batch_size=16)
    return squares.sum(axis=0), counts.sum(axis=0)
