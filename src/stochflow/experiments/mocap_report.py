"""Motion capture as figures, an animation and one HTML page."""

import os
from pathlib import Path
from typing import NamedTuple

import jax.random as jr
import numpy as np
from jaxtyping import Float, PRNGKeyArray

from .. import plots
from ..data import Trajectories
from ..data.mocap import FRAME
from ..latent import ObservedFlow
from ..metrics import interleave
from .mocap import SETUPS, MocapSetting, draws
from .mocap_scores import STEPS, MocapScores, mocap_rows, quality_rows, step_name

# Joint angles that are drawn: those that move most.
SHOWN = 4
# Forecasts in the animation, and frames between its pictures.
CLOUD, EVERY = 60, 4
TIMED_SAMPLES = 100


class Cost(NamedTuple):
    """What a forecast of the whole horizon costs at one longest step, and how far it is from the truth."""

    step: str
    milliseconds: float
    mse: float


def costs(
    flow: ObservedFlow,
    setting: MocapSetting,
    scores: list[MocapScores],
    test: Trajectories,
    *,
    repeats: int = 5,
    key: PRNGKeyArray,
) -> list[Cost]:
    """The paper's Figure 4: the mean error over seeds against time, from one step to frame by frame; 100 samples of the
    first sequence."""
    given = SETUPS[setting.setup].given
    times, values = test.times[0].astype(np.float64), test.values[0]
    forecast = lambda step: (
        lambda: draws(flow, times, values, given, step=step, samples=TIMED_SAMPLES, key=key).means
    )
    timings = interleave({step_name(step): forecast(step) for step in STEPS}, repeats=repeats, min_time=0.05)
    return [
        Cost(name, 1e3 * timing.median, float(np.mean([score.mse[name] for score in scores])))
        for name, timing in timings.items()
    ]


def write_mocap_report(
    out: str | os.PathLike,
    flow: ObservedFlow,
    setting: MocapSetting,
    scores: list[MocapScores],
    data: dict[str, Trajectories],
    *,
    seconds: float,
    key: PRNGKeyArray,
) -> Path:
    """Fan charts of the test sequences, the phase portrait, error against cost, the animation and the tables."""
    out = Path(out)
    out.mkdir(parents=True, exist_ok=True)
    test = data["test"]
    truth, cloud = _plane(flow, test, setting, key)
    pictures = {f"fan-{i}": _fan(flow, setting, test, i, jr.fold_in(key, 100 + i)) for i in range(len(test))}
    pictures["phase"] = plots.Picture(
        plots.figure_of(plots.phase_portrait(truth, cloud)),
        "The plane in which the last test sequence moves most: forecast paths, their mean and the truth.",
    )
    pictures["cost"] = _cost_picture(costs(flow, setting, scores, test, key=key))
    for name, picture in pictures.items():
        plots.save(picture.figure, out / f"{name}.png")
    start = SETUPS[setting.setup].given * FRAME
    plots.animate_forecast(
        out / "walk.gif", truth[::EVERY], cloud[:, ::EVERY], every=EVERY * FRAME, start=start
    )
    return plots.write_report(
        out / "report.html",
        f"Motion capture, set-up {setting.setup}",
        [
            plots.Table(*mocap_rows(scores, setting.setup), caption="Mean over seeds, 95 % t-interval."),
            plots.Table(
                *quality_rows(scores), caption="One-step forecasts with their noise, mean over seeds."
            ),
            *pictures.values(),
        ],
        subtitle=f"{len(scores)} seeds; the last was trained in {seconds:.0f} s. The animation is `walk.gif`.",
    )


def _fan(flow, setting, test, i, key) -> plots.Picture:
    given = SETUPS[setting.setup].given
    times, values = test.times[i].astype(np.float64), test.values[i]
    found = draws(flow, times, values, given, step=None, samples=setting.samples, key=key)
    moving = np.argsort(-values[given:].std(axis=0))[:SHOWN]
    axes = plots.fan_chart(
        times[given:],
        np.asarray(found.values)[:, :, moving],
        values[given:][:, moving],
        names=[f"channel {j}" for j in moving],
    )
    return plots.Picture(
        plots.figure_of(axes),
        f"Test sequence {i}: the {SHOWN} channels that move most, in degrees, every frame in one step.",
    )


def _cost_picture(curve: list[Cost]) -> plots.Picture:
    steps, milliseconds, errors = zip(*curve, strict=True)
    return plots.Picture(
        plots.figure_of(plots.error_against_cost(milliseconds, errors, steps)),
        f"Error against the time of a forecast of all frames, {TIMED_SAMPLES} samples: every frame by a chain of its "
        "own, but for steps of one, which are one path.",
    )


def _plane(
    flow: ObservedFlow, test: Trajectories, setting: MocapSetting, key: PRNGKeyArray
) -> tuple[Float[np.ndarray, "frames 2"], Float[np.ndarray, "samples frames 2"]]:
    """The last test sequence and forecasts of it, in the plane in which the truth moves most."""
    given = SETUPS[setting.setup].given
    times, values = test.times[-1].astype(np.float64), test.values[-1]
    found = draws(flow, times, values, given, step=None, samples=CLOUD, joint=True, key=key)
    centre = values.mean(axis=0)
    plane = np.linalg.svd(values - centre, full_matrices=False)[2][:2].T
    return (values[given:] - centre) @ plane, (np.asarray(found.means) - centre) @ plane
