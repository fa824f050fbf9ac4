"""The Lorenz table as text, JSON, figures and one HTML page."""

import dataclasses
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np

from .. import plots
from ..data.lorenz import FRAME, lorenz_paths, lorenz_paths_from, lorenz_times
from ..inference import rollout
from ..laws import Standardised
from ..metrics import KLEstimate
from ..training import FitResult
from .lorenz import LorenzSetting
from .lorenz_scores import LAGS, LEVELS, TEST_KEY, LorenzScores, calibration_p_values, paths_at_times
from .paper import HORIZONS, LORENZ_KFLOPS, LORENZ_KL, NSF_ROW, TIMES

# The linear-noise approximation is a reference over short gaps only; over long ones it is off by hundreds of nats.
LONGEST_LINEAR_LAG = 10
LEAST_P = 0.01  # that is printed as a number

Rows = tuple[tuple[str, ...], list[tuple[str, ...]]]


def kl_rows(scores: LorenzScores) -> Rows:
    """Table 1: the paper's rows, ours below them, and the floor."""
    headers = ("", *[f"t = {t:g}" for t in TIMES], "kFLOPs at t = 1")
    cell = lambda mean, std: f"{mean:.2f} ± {std:.2f}"
    rows = [
        (f"paper: {name}", *[f"{m:g} ± {s:g}" for m, s in values], f"{LORENZ_KFLOPS[name][-1]:,}")
        for name, values in LORENZ_KL.items()
    ]
    for max_gap in HORIZONS:
        cells = [cell(e.mean, e.std) for e in scores.kl[max_gap]]
        steps = round(1 / max_gap)
        rows.append((f"stochflow: {NSF_ROW[max_gap][5:]}", *cells, f"{scores.kflops * steps:.0f}"))
    rows.append(("floor: two true samples", *[cell(e.mean, e.std) for e in scores.floor], ""))
    return headers, rows


def shared_kl_rows(scores: LorenzScores) -> Rows:
    """The other reading of the protocol: one bandwidth, that of the truth, for both densities."""
    headers = ("", *[f"t = {t:g}" for t in TIMES])
    cells = lambda row: [f"{e.mean:.2f} ± {e.std:.2f}" for e in row]
    rows = [(f"stochflow: H_pred = {gap:g}", *cells(scores.kl_shared[gap])) for gap in HORIZONS]
    return headers, [*rows, ("floor: two true samples", *cells(scores.floor_shared))]


def beyond_floor(
    kl: dict[float, list[KLEstimate]], floor: list[KLEstimate], *, both: bool = False
) -> list[str]:
    """The cells of a table that are more than one std of the floor above it.

    The floor is itself one noisy draw; with `both`, the std is that of the difference of the two.
    """
    spread = lambda cell, least: np.hypot(cell.std, least.std) if both else least.std
    return [
        f"H_pred = {max_gap:g}, t = {t:g}"
        for max_gap in HORIZONS
        for t, cell, least in zip(TIMES, kl[max_gap], floor, strict=True)
        if cell.mean > least.mean + spread(cell, least)
    ]


def likelihood_rows(scores: LorenzScores) -> Rows:
    headers = (
        "lag",
        "gap",
        "every start",
        "from t = 0",
        "median from t = 0",
        "worst pair",
        "flow, pairs of the truth",
        "simulated truth",
        "linear noise",
    )
    rows = [
        (
            str(lag),
            f"{lag * FRAME:g}",
            f"{s.every_start:.2f} ± {s.every_start_se:.2f}",
            f"{s.from_zero:.2f} ± {s.from_zero_se:.2f}",
            f"{s.median_from_zero:.2f}",
            f"{s.worst:.1f}",
            f"{s.flow_on_reference:.2f}",
            f"{s.reference:.2f} ± {s.reference_error:.2f}",
            f"{s.linear_noise:.2f}" if lag <= LONGEST_LINEAR_LAG else "–",
        )
        for lag, s in scores.log_likelihood.items()
    ]
    return headers, rows


def calibration_rows(scores: LorenzScores) -> Rows:
    p_values = calibration_p_values(scores)
    headers = ("lag", *[f"{q:.0%} region" for q in LEVELS], "uniform? (p)")
    said = lambda p: f"{p:.2f}" if p >= LEAST_P else f"< {LEAST_P:g}"
    rows = [
        (str(lag), *[f"{scores.coverage[lag][q][0]:.1%}" for q in LEVELS], said(p_values[lag]))
        for lag in LAGS
    ]
    return headers, rows


def consistency_rows(scores: LorenzScores) -> Rows:
    headers = ("gap", *[f"one step against {steps}" for steps in scores.consistency])
    rows = []
    for i, t in enumerate(TIMES):
        cells = [f"{float(e.mean[i]):.4f} ± {float(e.se[i]):.4f}" for e in scores.consistency.values()]
        rows.append((f"{t:g}", *cells))
    return headers, rows


def scores_json(scores: LorenzScores, setting: LorenzSetting, extra: dict[str, Any]) -> dict[str, Any]:
    """All figures as plain numbers."""
    estimate = lambda e: {"mean": float(e.mean), "std": float(e.std)}
    return {
        "setting": dataclasses.asdict(setting),
        **extra,
        "kl": {f"{h:g}": [estimate(e) for e in row] for h, row in scores.kl.items()},
        "floor": [estimate(e) for e in scores.floor],
        "beyond_floor": beyond_floor(scores.kl, scores.floor),
        "kl_shared_bandwidth": {f"{h:g}": [estimate(e) for e in row] for h, row in scores.kl_shared.items()},
        "floor_shared_bandwidth": [estimate(e) for e in scores.floor_shared],
        "beyond_floor_shared_bandwidth": beyond_floor(scores.kl_shared, scores.floor_shared),
        "kflops": scores.kflops,
        "log_likelihood": {lag: dataclasses.asdict(s) for lag, s in scores.log_likelihood.items()},
        "coverage": {lag: {f"{q:g}": c[0] for q, c in row.items()} for lag, row in scores.coverage.items()},
        "calibration_p": calibration_p_values(scores),
        "consistency": {
            steps: {"gaps": list(TIMES), "mean": np.asarray(e.mean).tolist(), "se": np.asarray(e.se).tolist()}
            for steps, e in scores.consistency.items()
        },
    }


def draw_figures(
    law: Standardised,
    scores: LorenzScores,
    history: list[dict[str, Any]],
    setting: LorenzSetting,
    *,
    seed: int,
):
    """Each figure of the report, by name, with its caption."""
    drawn = _figures_of_draws(law, key=jr.fold_in(jr.key(seed), 2))
    return drawn | _figures_of_scores(scores) | {"training": _training_figure(history, setting)}


def _figures_of_draws(law, *, key):
    """Paths, marginals and forecasts, beside those of the true SDE."""
    times = lorenz_times()
    path_key, one_key, walk_key, fan_key = jr.split(key, 4)
    truth = lorenz_paths(64, key=jr.key(TEST_KEY))
    one_step = _draws(law, truth[:, 0], times, key=one_key)
    trajectories = plots.trajectories_side_by_side(
        np.asarray(truth),
        np.asarray(_paths(law, truth[:, 0], times, key=jr.fold_in(key, 1))),
        np.asarray(one_step),
        times=times,
        titles=("truth: a solver, 800 steps a path", "flow: 40 steps a path", "flow: one step a point"),
    )
    many = lorenz_paths(2048, key=path_key)
    slices = plots.density_slices(
        np.asarray(paths_at_times(many)),
        np.asarray(_draws(law, many[:, 0], np.asarray(TIMES), key=walk_key)).swapaxes(0, 1),
        times=TIMES,
        names=("x", "y", "z"),
    )
    start = truth[:1, 0].repeat(512, axis=0)
    fan = plots.fan_chart(
        times,
        np.asarray(_paths(law, start, times, key=fan_key)),
        np.asarray(lorenz_paths_from(start[:1], times, key=path_key))[0],
        names=("x", "y", "z"),
    )
    return {
        "trajectories": (
            trajectories,
            "64 paths from the same starts: simulated, drawn from frame to frame, and every point drawn in one step "
            "from its start. Nothing asks points of the last kind to follow one another, so no line joins them.",
        ),
        "densities": (
            slices,
            "The marginal at four times: true samples, and one-step samples from the same starts. The outlines of both "
            "rows hold 50 and 90 % of the truth.",
        ),
        "fan": (fan, "One start, 512 chained forecasts (50, 80 and 95 % bands) and one true path."),
    }


def _figures_of_scores(scores):
    """Calibration, likelihood and consistency."""
    by_lag = list(scores.log_likelihood.values())
    lags = np.array([lag * FRAME for lag in LAGS])
    gaps = {f"one step against {steps}": e for steps, e in scores.consistency.items()}
    return {
        "pit": (
            plots.pit_histograms(
                {f"lag {lag}": pit for lag, pit in scores.pits.items()}, names=("x", "y", "z")
            ),
            "Probability integral transform per lag and channel: flat if the law is as sure as it should be. Of a "
            "right law 99 % of the bars lie in the band.",
        ),
        "reliability": (
            plots.reliability({f"lag {lag}": levels for lag, levels in scores.levels.items()}),
            "Share of test transitions inside the highest-density region of each level. Of a right law 99 % of the "
            "points lie in the band; a curve above it is of a law that is too wide.",
        ),
        "likelihood": (
            plots.likelihood_per_lag(
                lags,
                np.array([s.flow_on_reference for s in by_lag]),
                np.array([s.reference for s in by_lag]),
                reference_name="true SDE, simulated likelihood",
            ),
            "Conditional log-likelihood from t = 0, on the same test transitions, in standardised units.",
        ),
        "consistency": (
            plots.consistency_against_gap(gaps),
            "Energy distance between one long step and several short ones, mean over starts, with two standard errors.",
        ),
    }


def _training_figure(history, setting):
    curve = {
        "step": [row["step"] for row in history],
        "negative log-likelihood": [row["nll"] for row in history],
    }
    return (
        plots.training_curve(curve, marks={"all gaps, and paths of its own": setting.steps}),
        f"Training loss: {setting.steps:,} steps on gaps up to {setting.short_gaps:g}, then on all gaps and paths of "
        "the law's own, at the full rate again.",
    )


def _draws(law, x0, times, *, key):
    """A one-step draw at each time, with one noise vector a path, as in the paper's Figure 2."""
    noise = jr.normal(key, x0.shape, x0.dtype)
    gaps = jnp.asarray(times, x0.dtype)

    @eqx.filter_jit
    def draw(law, noise, x0):
        one = lambda n, x: jax.vmap(lambda t: law.transform(n, x, jnp.zeros_like(t), t))(gaps)
        return jax.vmap(one)(noise, x0)

    return draw(law, noise, x0)


def _paths(law, x0, times, *, key):
    one = lambda x, k: rollout(law, x, times, key=k)
    return eqx.filter_jit(lambda law, x0, keys: jax.vmap(one)(x0, keys))(law, x0, jr.split(key, len(x0)))


def write_lorenz_report(
    folder: Path, result: FitResult, scores: LorenzScores, setting: LorenzSetting, *, seed: int
) -> Path:
    """Figures as PNG, and the page that holds them all."""
    figures = draw_figures(result.flow, scores, result.history, setting, seed=seed)
    (folder / "figures").mkdir(parents=True, exist_ok=True)
    for name, (axes, _) in figures.items():
        plots.save(plots.figure_of(axes), folder / "figures" / f"{name}.png")
    table = lambda rows, caption: plots.Table(rows[0], rows[1], caption)
    picture = lambda name: plots.Picture(plots.figure_of(figures[name][0]), figures[name][1])
    seconds = result.history[-1]["seconds"]
    sections = [
        plots.Text(
            f"Learnt from {setting.paths:,} paths in {seconds:.0f} s ({setting.steps:,} steps of {setting.batch_size} "
            f"pairs, then {setting.taught_steps:,} with {setting.taught_paths:,} paths of its own; seed {seed}), on a "
            "CPU. The paper trains for 1,000 epochs on a GPU."
        ),
        picture("trajectories"),
        table(
            kl_rows(scores),
            "KL by kernel density estimate, the paper's protocol, and operations a draw at t = 1. The floor is what "
            "two true samples score.",
        ),
        table(shared_kl_rows(scores), "The same with one bandwidth, that of the truth, for both densities."),
        table(
            likelihood_rows(scores),
            "Test log-likelihood in nats, standardised units. The KDE above is blunt; this is not.",
        ),
        picture("likelihood"),
        picture("densities"),
        picture("fan"),
        table(
            calibration_rows(scores),
            "Coverage of highest-density regions, and a Kolmogorov–Smirnov test of all levels.",
        ),
        picture("pit"),
        picture("reliability"),
        table(
            consistency_rows(scores),
            "Energy distance between one step and several (squared units of the state).",
        ),
        picture("consistency"),
        picture("training"),
    ]
    path = folder / "report.html"
    plots.write_report(path, "The stochastic Lorenz system, in one step", sections)
    return path
