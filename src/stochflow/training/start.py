"""Where to start a latent flow from: states that already mean something."""

from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Float, PRNGKeyArray

from ..data import Trajectories
from ..data.batches import compact_series
from ..flows import BridgeFlow, StochasticFlow
from ..latent import FilteringPosterior, GaussianEmission, JoinedPosterior, LatentFlow, WindowPosterior
from .config import LatentConfig
from .latent import units_of


def principal_latent_flow(
    data: Trajectories,
    *,
    config: LatentConfig,
    components: int,
    window: int = 5,
    slow: int = 0,
    width: int = 64,
    layers: int = 4,
    clock: str = "saturating",
    coupling: str = "affine",
    periods: Sequence[float] = (),
    std: str = "fixed",
    initial_std: float = 0.2,
    key: PRNGKeyArray,
) -> LatentFlow:
    r"""A latent flow whose state is, to begin with, the leading principal components of the data and their rates of
    change: those of a straight line through the last `window` rows.

    Emission and posterior are linear, so there is nothing to be found before the transition can be learnt: no thousand
    updates in which states mean nothing yet. All of it is trained on from there. For series whose rows are evenly
    spaced and mostly complete.

    **Arguments:**

    - `config`: what [`fit_latent`][stochflow.training.fit_latent] will be given; it decides the units.
    - `components`: of the data; the state has twice as many dimensions, and `slow` more.
    - `window`: rows that the posterior reads, two at least.
    - `slow`: further dimensions, of which the emission knows nothing at first, read by a GRU from all that came before:
        for what a few rows do not tell, such as the pace of a walk.
    - `width`, `layers`, `clock`, `coupling`: of the transition; `std`, `initial_std`: of the emission.
    - `periods`: after which the process comes back, in the data's units of time, if it does.
    """
    _check(data, components, window, slow)
    flow_key, bridge_key, emission_key, posterior_key = jr.split(key, 4)
    dim = 2 * components + slow
    units = units_of(data, config)
    windows = _windows(data, units, window)
    axes = _axes(windows[:, -1], components)
    read, loc, scale = _reading(windows, axes)
    emission = GaussianEmission(dim, data.dim, depth=0, std=std, initial_std=initial_std, key=emission_key)
    posterior = WindowPosterior(data.dim, 2 * components, window=window, depth=0, key=posterior_key)
    posterior = _that_reads(posterior, read, loc, scale)
    if slow:
        slow_key = jr.fold_in(posterior_key, 1)
        posterior = JoinedPosterior(posterior, FilteringPosterior(data.dim, slow, key=slow_key))
    shape = {"width": width, "layers": layers, "clock": clock, "coupling": coupling}
    periods = [period / units.time_scale for period in periods]
    with_bridge = config.consistency > 0 and not config.one_way
    return LatentFlow(
        StochasticFlow(dim, **shape, periods=periods, key=flow_key),
        _that_shows(emission, axes, loc, scale),
        posterior,
        BridgeFlow(dim, width=min(width, 32), layers=layers, key=bridge_key) if with_bridge else None,
    )


def _check(data, components, window, slow):
    if not 1 <= components <= data.dim:
        raise ValueError(f"`components` must lie between 1 and the {data.dim} channels; got {components}.")
    if slow < 0:
        raise ValueError(f"`slow` must be at least 0; got {slow}.")
    if window < 2:
        raise ValueError(f"`window` must be at least 2, or there is no rate of change; got {window}.")


def _windows(data, units, window) -> Float[np.ndarray, "rows window channels"]:
    """All stretches of `window` rows, in the units that the fit will choose; what is missing is at the mean."""
    series = compact_series(data, units)
    seen = np.asarray(jax.vmap(lambda one: one.seen)(series), np.float64)
    counts = np.asarray(series.present).sum(axis=1)
    found = [
        np.lib.stride_tricks.sliding_window_view(rows[:n], window, axis=0).swapaxes(1, 2)
        for rows, n in zip(seen, counts, strict=True)
        if n >= window
    ]
    if not found:
        raise ValueError(f"no series has the {window} rows that a window needs.")
    return np.concatenate(found)


def _axes(rows, components) -> Float[np.ndarray, "components channels"]:
    return np.linalg.svd(rows - rows.mean(axis=0), full_matrices=False)[2][:components]


def _reading(windows, axes):
    """Weights from a window to components and rates, and the location and scale of what they read."""
    number, window, channels = windows.shape
    steps = np.arange(window) - (window - 1.0)
    line = np.linalg.pinv(np.stack([np.ones(window), steps], axis=1))  # level at the last row, and slope
    read = np.einsum("fw,kc->fkwc", line, axes).reshape(2 * len(axes), window * channels)
    states = windows.reshape(number, -1) @ read.T
    return read, states.mean(axis=0), states.std(axis=0)


def _that_reads(posterior, read, loc, scale):
    """The posterior whose means are the standardised reading of a window."""
    # The second half of what its net puts out is that of the stds.
    weight = np.concatenate([read / scale[:, None], np.zeros_like(read)])
    return with_layer(posterior, weight, np.concatenate([-loc / scale, np.zeros_like(loc)]))


def _that_shows(emission, axes, loc, scale):
    """The emission that puts components back into channels, and does not look at the rest of the state."""
    components, channels = axes.shape
    weight = np.zeros(emission.net.layers[0].weight.shape)
    weight[:channels, :components] = axes.T * scale[:components]
    offset = np.zeros(len(weight))
    offset[:channels] = axes.T @ loc[:components]
    return with_layer(emission, weight, offset)


def with_layer(part, weight: np.ndarray, bias: np.ndarray):
    """A part whose net is linear, with other weights."""
    layer = part.net.layers[0]
    new = jnp.asarray(weight, layer.weight.dtype), jnp.asarray(bias, layer.bias.dtype)
    return eqx.tree_at(lambda p: (p.net.layers[0].weight, p.net.layers[0].bias), part, new)
