"""What one step of the flow replaces: many steps of a solver."""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from stochflow.inference import make_sampler
from stochflow.metrics import interleave
from stochflow.sde import SDE, lorenz, solve_path_diffrax

from .report import Effort, Section, times
from .sampling import FEW, paper_flow

STEP = 0.01
FINE = 0.001
# A call this long is timed in few turns.
SLOW_BATCH = 1_000


class LatentSDE(eqx.Module):
    """The sampling half of a latent SDE with the paper's sizes: prior drift, diffusion, decoder.

    Latent 4, hidden 128; 17,668, 1,540 and 15 parameters (the paper's E.2).
    """

    drift_weights: tuple[Float[Array, "_ _"], ...]
    drift_biases: tuple[Float[Array, " _"], ...]
    diffusion_in: Float[Array, "2 latent hidden"]
    diffusion_out: Float[Array, "latent hidden"]
    diffusion_bias: Float[Array, " latent"]
    decoder: Float[Array, "latent dim"]
    decoder_bias: Float[Array, " dim"]

    def __init__(self, latent: int = 4, hidden: int = 128, dim: int = 3, *, key: PRNGKeyArray):
        *drift_keys, in_key, out_key, decoder_key = jr.split(key, 6)
        sizes = [latent, hidden, hidden, latent]
        self.drift_weights = tuple(
            jr.normal(k, (n, m)) / jnp.sqrt(n)
            for k, n, m in zip(drift_keys, sizes[:-1], sizes[1:], strict=True)
        )
        self.drift_biases = tuple(jnp.zeros(m) for m in sizes[1:])
        self.diffusion_in = jr.normal(in_key, (2, latent, hidden))
        self.diffusion_out = jr.normal(out_key, (latent, hidden)) / jnp.sqrt(hidden)
        self.diffusion_bias = jnp.zeros(latent)
        self.decoder = jr.normal(decoder_key, (latent, dim)) / jnp.sqrt(latent)
        self.decoder_bias = jnp.zeros(dim)

    def drift(self, z: Float[Array, " latent"]) -> Float[Array, " latent"]:
        h = z
        for weight, bias in zip(self.drift_weights[:-1], self.drift_biases[:-1], strict=True):
            h = jax.nn.softplus(h @ weight + bias)
        return h @ self.drift_weights[-1] + self.drift_biases[-1]

    def diffusion(self, z: Float[Array, " latent"]) -> Float[Array, " latent"]:
        """One small network a dimension."""
        weight, bias = self.diffusion_in
        h = jax.nn.softplus(z[:, None] * weight + bias)
        return jax.nn.sigmoid((h * self.diffusion_out).sum(-1) + self.diffusion_bias)

    def decode(self, z: Float[Array, " latent"]) -> Float[Array, " dim"]:
        return z @ self.decoder + self.decoder_bias


def euler_maruyama(drift: Callable, diffusion: Callable, x0: Array, step: float, key: PRNGKeyArray) -> Array:
    """The states at t = 1 of a whole batch: nothing but a scan, the least that a solver can cost."""
    number = round(1 / step)

    def advance(x, key):
        noise = jnp.sqrt(step) * jr.normal(key, x.shape, x.dtype)
        return x + step * drift(x) + diffusion(x) * noise, None

    return jax.lax.scan(advance, x0, jr.split(key, number))[0]


def against_solvers(effort: Effort) -> Section:
    """The state at t = 1 by the flow, and by solvers of the true SDE and of a latent SDE."""
    rows, figures = {}, {}
    for batch in effort.solver_batches:
        repeats = effort.repeats if batch < SLOW_BATCH else min(FEW, effort.repeats)
        timings = interleave(_calls(batch), repeats=repeats, min_time=effort.min_time)
        flow = timings[f"flow, one step, {batch:,}"].min
        rows |= {
            name: row | {"over the flow": timings[name].min / flow} for name, row in times(timings).items()
        }
        figures[f"latent over flow {batch}"] = timings[f"latent SDE, plain scan, {batch:,}"].min / flow
    return Section(f"Against solvers, t = 1 (steps of {STEP} and {FINE})", rows, figures)


def _calls(batch):
    x0, key = jr.normal(jr.key(1), (batch, 3)), jr.key(2)
    z0 = jr.normal(jr.key(1), (batch, 4))
    host, sampler = np.asarray(x0), make_sampler(paper_flow())
    system, latent = lorenz(), LatentSDE(key=jr.key(8))
    drift = jax.vmap(lambda x: system.drift(0.0, x, None))
    diffusion = jax.vmap(lambda x: system.diffusion(0.0, x, None))
    plain = lambda step: jax.jit(lambda x, key: euler_maruyama(drift, diffusion, x, step, key))
    coarse, fine = plain(STEP), plain(FINE)
    prior = jax.vmap(latent.drift), jax.vmap(latent.diffusion)
    decode = jax.jit(jax.vmap(latent.decode))
    scan = jax.jit(lambda z, key: decode(euler_maruyama(*prior, z, STEP, key)))
    of_lorenz = _diffrax(system)
    of_latent = _diffrax(SDE.autonomous(latent.drift, latent.diffusion, 4))
    return {
        f"flow, one step, {batch:,}": lambda: sampler(host, 0.0, 1.0, key=key),
        f"true SDE, plain scan, {batch:,}": lambda: coarse(x0, key),
        f"true SDE, plain scan, fine, {batch:,}": lambda: fine(x0, key),
        f"true SDE, Diffrax, {batch:,}": lambda: of_lorenz(x0, key),
        f"latent SDE, plain scan, {batch:,}": lambda: scan(z0, key),
        f"latent SDE, Diffrax, {batch:,}": lambda: decode(of_latent(z0, key)),
    }


def _diffrax(sde):
    times = jnp.array([0.0, 1.0])

    @jax.jit
    def solve(x0, key):
        one = lambda x, k: solve_path_diffrax(sde, x, times, step=STEP, key=k)[-1]
        return jax.vmap(one)(x0, jr.split(key, len(x0)))

    return solve
