"""Where to start a latent flow with a rhythm from: a phase, a closed curve, and what departs from it."""

from typing import NamedTuple

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Float, PRNGKeyArray

from ..data import Trajectories
from ..data.batches import compact_series
from ..latent import GaussianEmission, KalmanPosterior, LatentFlow, PeriodicEmission
from ..laws import Rhythm
from .config import LatentConfig
from .latent import units_of
from .start import with_layer

STYLES = 8
# Traits that sway the phase and are not seen otherwise: a pace of one's own, and a stumble that is over within a cycle.
PACE_TRAITS = 2
# The stumble to begin with, and the noise of the phase, as a share of the pace and of its root.
STUMBLE, PHASE_NOISE = 0.1, 0.05
# What is kept of a style from row to row, at least and at most: its rate must be positive and finite.
KEPT = (0.05, 0.999)
# No channel is trusted more than this, in standard deviations of the data.
LEAST_STD = 0.02
TURN = 2 * np.pi


def rhythmic_latent_flow(
    data: Trajectories,
    *,
    config: LatentConfig,
    styles: int | None = None,
    harmonics: int = 6,
    std: str = "fixed",
    initial_std: float | None = None,
    rounds: int = 1,
    starts: int = 12,
    key: PRNGKeyArray,
) -> LatentFlow:
    r"""A latent flow for what comes round and round at a pace of its own: a walk, a heartbeat, a day.

    Its state is a phase, `styles` that fade and come anew, and two traits that sway the pace; its transition is a
    [`Rhythm`][stochflow.laws.Rhythm], the same law in one step or in many, and its posterior is computed
    ([`KalmanPosterior`][stochflow.latent.KalmanPosterior]). To begin with the phase is the angle in the plane in which
    the data move most, made to run evenly, what is seen is a closed curve with `harmonics` plus the leading
    principal components of what departs from it, and all rates are those of the data. All of it is trained on from
    there.

    **Arguments:**

    - `config`: what [`fit_latent`][stochflow.training.fit_latent] will be given; it decides the units.
    - `styles`: how many; eight, or as many as there are channels, by default.
    - `std`, `initial_std`: of the emission; by default what the curve and the styles leave.
    - `rounds`, `starts`: of the posterior.
    - `key`: not used for more than weights that are then replaced.
    """
    styles = min(STYLES, data.dim) if styles is None else styles
    _check(data, styles, harmonics)
    rows = _rows(data, config)
    phases = _phases(rows)
    curve = np.linalg.lstsq(_fourier(phases, harmonics), np.concatenate(rows.values), rcond=None)[0]
    departures = _departures(rows, phases, curve, styles)
    noise = float(np.clip(departures.left, LEAST_STD, 1.0)) if initial_std is None else initial_std
    emission = GaussianEmission(
        styles + 2 * harmonics, data.dim, depth=0, std=std, initial_std=noise, key=key
    )
    weight = np.concatenate([departures.axes, curve[1:].T], axis=1)
    dim = PACE_TRAITS + styles + 1
    flow = LatentFlow(
        _law(rows, phases, departures),
        PeriodicEmission(with_layer(emission, weight, curve[0]), harmonics=harmonics, unseen=PACE_TRAITS),
        KalmanPosterior(dim, rounds=rounds, phases=1, starts=starts),
    )
    anywhere = flow.initial.log_std.at[-1].set(np.log(np.pi / np.sqrt(3)))
    return eqx.tree_at(lambda f: f.initial.log_std, flow, anywhere)


class _Rows(NamedTuple):
    """Times and values of each series, in the units that the fit will choose; what is missing is at the mean."""

    times: list[Float[np.ndarray, " rows"]]
    values: list[Float[np.ndarray, "rows channels"]]


class _Departures(NamedTuple):
    """What departs from the curve: axes as long as their std, rates of forgetting, and the std of what is left."""

    axes: Float[np.ndarray, "channels styles"]
    rates: Float[np.ndarray, " styles"]
    left: float


def _check(data, styles, harmonics):
    if not 1 <= styles <= data.dim:
        raise ValueError(f"`styles` must lie between 1 and the {data.dim} channels; got {styles}.")
    if harmonics < 1:
        raise ValueError(f"`harmonics` must be at least 1; got {harmonics}.")
    if data.dim < 2:
        raise ValueError("a rhythm needs two channels at least: there is no phase in one.")
    seen = np.where(data.mask, data.values, np.nan).reshape(-1, data.dim)
    if ((np.nanmax(seen, axis=0) - np.nanmin(seen, axis=0)) > 0).sum() < 2:
        raise ValueError("a rhythm needs two channels that move: there is no phase in these data.")


def _rows(data, config) -> _Rows:
    series = compact_series(data, units_of(data, config))
    seen = np.asarray(jax.vmap(lambda one: one.seen)(series), np.float64)
    times, counts = np.asarray(series.times, np.float64), np.asarray(series.present).sum(axis=1)
    long = [i for i, count in enumerate(counts) if count >= 2]
    return _Rows([times[i, : counts[i]] for i in long], [seen[i, : counts[i]] for i in long])


def _phases(rows: _Rows) -> list[Float[np.ndarray, " rows"]]:
    """The angle in the plane in which the data move most, bent so that all angles are as common as any other."""
    pooled = np.concatenate(rows.values)
    plane = np.linalg.svd(pooled - pooled.mean(axis=0), full_matrices=False)[2][:2]
    flat = [(values - pooled.mean(axis=0)) @ plane.T for values in rows.values]
    across, along = np.concatenate(flat).std(axis=0)
    angles = [np.unwrap(np.arctan2(part[:, 1] / along, part[:, 0] / across)) for part in flat]
    if sum(angle[-1] - angle[0] for angle in angles) < 0:
        angles = [-angle for angle in angles]
    known = np.sort(np.concatenate(angles) % TURN)
    share = np.linspace(0, 1, len(known))
    return [TURN * (np.floor(angle / TURN) + np.interp(angle % TURN, known, share)) for angle in angles]


def _fourier(phases, harmonics) -> Float[np.ndarray, "rows features"]:
    angles = np.concatenate(phases)[:, None] * np.arange(1, harmonics + 1)
    return np.concatenate([np.ones((len(angles), 1)), np.cos(angles), np.sin(angles)], axis=1)


def _departures(rows, phases, curve, styles) -> _Departures:
    left = np.concatenate(rows.values) - _fourier(phases, (len(curve) - 1) // 2) @ curve
    _, sizes, axes = np.linalg.svd(left, full_matrices=False)
    stds = np.maximum(sizes[:styles] / np.sqrt(len(left)), 1e-6)
    scores = left @ axes[:styles].T / stds
    lengths = [len(times) for times in rows.times]
    same_series = np.delete(np.arange(len(scores) - 1), np.cumsum(lengths)[:-1] - 1)
    kept = (scores[same_series] * scores[same_series + 1]).mean(axis=0)
    gap = np.concatenate([np.diff(times) for times in rows.times]).mean()
    rest = np.sqrt((sizes[styles:] ** 2).sum() / left.size)
    return _Departures((axes[:styles] * stds[:, None]).T, -np.log(np.clip(kept, *KEPT)) / gap, rest)


def _law(rows, phases, departures) -> Rhythm:
    lengths = np.array([times[-1] - times[0] for times in rows.times])
    paces = np.array([phase[-1] - phase[0] for phase in phases]) / lengths
    pace = float(np.abs(paces.mean())) or 1.0
    rates = np.concatenate([[1 / lengths.max(), pace], departures.rates])
    sway = np.zeros(len(rates))
    sway[:PACE_TRAITS] = paces.std(), STUMBLE * pace
    return Rhythm(rates, sway, pace, PHASE_NOISE * np.sqrt(pace))
