"""Series whose law is known: `python -m benchmarks.known [--sets 16] [--rows 400] [--steps 1000] [--horizon ROWS]
[--out FILE]`.

How much the central 90 % intervals of a forecaster really hold, by the law that the series were drawn from; forecasts
start in the second half of the rows of the fit, and go as far as one row, a quarter and three quarters of the horizon.
An Ornstein–Uhlenbeck process, a random walk, and two walks that go together.
"""

import argparse
import json
from pathlib import Path
from statistics import NormalDist

import numpy as np
import pandas as pd

from stochflow import Forecaster
from stochflow.forecasting.direct import HORIZON_SHARE

RATE, CORRELATION = 0.05, 0.95
# Rows between two origins, and draws behind each interval: of so many its ends are known to a per cent or two.
EVERY, DRAWS = 20, 2000
# Rate and correlation of the noise of each channel.
WORLDS = {
    "Ornstein–Uhlenbeck": (RATE, None),
    "walk": (0.0, None),
    "two walks": (0.0, CORRELATION),
}


def simulate(rate: float, correlation: float | None, rows: int, seed: int) -> np.ndarray:
    """Rows a unit of time apart; noise has variance one a row."""
    rng = np.random.default_rng(seed)
    noise = rng.normal(size=(rows, 1 if correlation is None else 2))
    if correlation is not None:
        noise[:, 1] = correlation * noise[:, 0] + np.sqrt(1 - correlation**2) * noise[:, 1]
    x = np.zeros_like(noise)
    for i in range(1, rows):
        x[i] = np.exp(-rate) * x[i - 1] + noise[i]
    return x


def gaps_of(rows: int, horizon: int | None) -> tuple[int, int, int]:
    horizon = horizon or rows // HORIZON_SHARE
    return 1, horizon // 4, 3 * horizon // 4


def held(
    rate: float, correlation: float | None, rows: int, steps: int, horizon: int | None, seed: int
) -> np.ndarray:
    """The probability of the intervals, a mean over origins, for each gap and channel."""
    gaps = gaps_of(rows, horizon)
    x = simulate(rate, correlation, rows, seed)
    names = ["x", "y"][: x.shape[1]]
    frame = pd.DataFrame(x, columns=names).assign(t=np.arange(rows))
    model = Forecaster(steps=steps, horizon=horizon, progress=False).fit(frame, time="t", values=names)
    found = []
    for origin in range(rows // 2, rows, EVERY):
        times = [origin - 1 + gap for gap in gaps]
        said = model.predict(frame[:origin], times=times, interval=0.9, samples=DRAWS)
        for gap, row in zip(gaps, said.to_dict("records"), strict=True):
            faded = np.exp(-rate * np.arange(gap))
            mean, law = np.exp(-rate * gap) * x[origin - 1], NormalDist(0, float(np.sqrt((faded**2).sum())))
            found.append(
                [
                    law.cdf(row[f"{name}_hi90"] - mean[c]) - law.cdf(row[f"{name}_lo90"] - mean[c])
                    for c, name in enumerate(names)
                ]
            )
    return np.reshape(found, (-1, len(gaps), len(names))).mean(axis=0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sets", type=int, default=16)
    parser.add_argument("--rows", type=int, default=400)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--horizon", type=int)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    results, gaps = [], gaps_of(given.rows, given.horizon)
    for name, (rate, correlation) in WORLDS.items():
        sets = np.stack(
            [
                held(rate, correlation, given.rows, given.steps, given.horizon, 100 + i)
                for i in range(given.sets)
            ]
        )
        for c in range(sets.shape[2]):
            mean, error = sets[..., c].mean(axis=0), sets[..., c].std(axis=0, ddof=1) / np.sqrt(given.sets)
            cells = ", ".join(f"{m:.1%} ± {100 * e:.1f}" for m, e in zip(mean, error, strict=True))
            print(f"{name}, channel {c + 1}: 90 % intervals hold {cells} at gaps {gaps}", flush=True)
            results.append(
                {"law": name, "channel": c + 1, "gaps": gaps, "held": mean.tolist(), "error": error.tolist()}
            )
    if given.out is not None:
        asked = {name: getattr(given, name) for name in ("sets", "rows", "steps", "horizon")}
        about = {"machine": "two cores, CPU"} | asked
        given.out.write_text(json.dumps(about | {"results": results}, indent=1) + "\n")


if __name__ == "__main__":
    main()
