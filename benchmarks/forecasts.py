"""A whole forecast of a latent model: every frame in one step, against a latent SDE that must walk there."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray, Scalar

from stochflow.data.mocap import FRAME
from stochflow.experiments.mocap import CHANNELS, STATE, MocapSetting, paper_model
from stochflow.flows.nets import with_padded_widths
from stochflow.inference import CPU_OPTIONS, forecast
from stochflow.latent import GaussianEmission, KalmanPosterior, LatentFlow, PeriodicEmission
from stochflow.laws import Rhythm
from stochflow.metrics import interleave

from .report import Effort, Section, times

FRAMES, SAMPLES, STEP = 297, 100, 0.02
OURS, PAPERS = (
    "latent flow of a rhythm, one step a frame",
    "latent flow of the paper's size, one step a frame",
)
SOLVER = f"latent SDE, plain scan, steps of {STEP}"
WIDE = f"{SOLVER}, wide vectors"


class MocapLatentSDE(eqx.Module):
    """The sampling half of the latent SDE that the paper times on motion capture, set-up 1 (its E.3).

    State 6; prior drift 426 parameters, diffusion 726, decoder 4,240.
    """

    drift_net: eqx.nn.MLP
    diffusion_in: Float[Array, "3 dim hidden"]
    diffusion_out: Float[Array, "dim hidden"]
    diffusion_bias: Float[Array, " dim"]
    decoder: eqx.nn.MLP

    def __init__(self, dim: int = STATE, hidden: int = 30, *, key: PRNGKeyArray):
        drift_key, in_key, out_key, decoder_key = jr.split(key, 4)
        self.drift_net = eqx.nn.MLP(dim + 1, dim, hidden, 1, jax.nn.softplus, key=drift_key)
        self.diffusion_in = jr.normal(in_key, (3, dim, hidden))
        self.diffusion_out = jr.normal(out_key, (dim, hidden)) / jnp.sqrt(hidden)
        self.diffusion_bias = jnp.zeros(dim)
        self.decoder = eqx.nn.MLP(dim, 2 * CHANNELS, hidden, 2, jax.nn.softplus, key=decoder_key)

    def drift(self, t: Scalar, x: Float[Array, " dim"]) -> Float[Array, " dim"]:
        return self.drift_net(jnp.append(x, t))

    def diffusion(self, t: Scalar, x: Float[Array, " dim"]) -> Float[Array, " dim"]:
        """One small network of the state and the time a dimension."""
        of_x, of_t, bias = self.diffusion_in
        hidden = jax.nn.softplus(x[:, None] * of_x + t * of_t + bias)
        return jax.nn.sigmoid((hidden * self.diffusion_out).sum(axis=1) + self.diffusion_bias)


def walk(sde: MocapLatentSDE, x0: Float[Array, "batch dim"], frames: int, key: PRNGKeyArray) -> Array:
    """Euler–Maruyama from frame to frame by a plain scan, decoded: (batch, frames, channels)."""
    inner = round(FRAME / STEP)
    drift = jax.vmap(sde.drift, in_axes=(None, 0))
    diffusion = jax.vmap(sde.diffusion, in_axes=(None, 0))

    def frame(x, number):
        keys = jr.split(jr.fold_in(key, number), inner)
        for i in range(inner):
            t = number * FRAME + i * STEP
            noise = jnp.sqrt(STEP) * jr.normal(keys[i], x.shape, x.dtype)
            x = x + STEP * drift(t, x) + diffusion(t, x) * noise
        return x, x

    _, states = jax.lax.scan(frame, x0, jnp.arange(frames))
    return jax.vmap(jax.vmap(sde.decoder))(jnp.swapaxes(states, 0, 1))


def leap(model, x0: Float[Array, "batch dim"], frames: int, key: PRNGKeyArray) -> Array:
    """Every frame in one step from the start, decoded."""
    grid = FRAME * np.arange(1, frames + 1)
    transition = with_padded_widths(model.transition)  # as `forecast_latent` does

    def one(x, key):
        states = forecast(transition, x, 0.0, grid, key=key)
        return jax.vmap(model.emission.mean)(states)

    return jax.vmap(one)(x0, jr.split(key, len(x0)))


def rhythm_model(*, key: PRNGKeyArray) -> LatentFlow:
    """A latent flow of the size that `stochflow reproduce mocap` trains by default."""
    setting = MocapSetting()
    features, traits = setting.styles + 2 * setting.harmonics, setting.styles + 2
    emission = GaussianEmission(features, CHANNELS, depth=0, key=key)
    return LatentFlow(
        Rhythm(np.linspace(0.1, 2.0, traits), np.full(traits, 0.02), 0.46, 0.03),
        PeriodicEmission(emission, harmonics=setting.harmonics, unseen=2),
        KalmanPosterior(traits + 1, phases=1),
    )


def whole_forecasts(effort: Effort) -> Section:
    """Means of 297 frames and 100 samples, by the latent flows of the paper's size and of ours, and by a latent SDE.

    The SDE is compiled as JAX does it and for wide vectors; the faster of the two is what the flows, compiled as JAX
    does it, are held against.
    """
    small = effort.repeats < 10
    frames, samples = (20, 10) if small else (FRAMES, SAMPLES)
    ours, paper, rival = (
        rhythm_model(key=jr.key(4)),
        paper_model(1, key=jr.key(0)),
        MocapLatentSDE(key=jr.key(1)),
    )
    key = jr.key(3)
    starts = {model.dim: jr.normal(jr.key(2), (samples, model.dim)) for model in (ours, paper)}
    one_step = {name: _compiled(model, frames) for name, model in {OURS: ours, PAPERS: paper}.items()}
    solve = lambda x0, key: walk(rival, x0, frames, key)
    solver, wide = jax.jit(solve), jax.jit(solve, compiler_options=CPU_OPTIONS)
    calls = {
        OURS: lambda: one_step[OURS](starts[ours.dim], key),
        PAPERS: lambda: one_step[PAPERS](starts[paper.dim], key),
        SOLVER: lambda: solver(starts[STATE], key),
        WIDE: lambda: wide(starts[STATE], key),
    }
    timings = interleave(calls, repeats=effort.repeats, min_time=effort.min_time)
    sde = min(timings[SOLVER].min, timings[WIDE].min)
    rows = {
        name: row | {"latent SDE over it": sde / timings[name].min} for name, row in times(timings).items()
    }
    ratios = {"forecast": sde / timings[OURS].min, "forecast, paper's size": sde / timings[PAPERS].min}
    return Section(f"A forecast of {frames} frames, {samples} samples", rows, ratios)


def _compiled(model, frames):
    return jax.jit(lambda x0, key: leap(model, x0, frames, key))
