"""The linear clock against the saturating one: `python -m benchmarks.clocks`, the table of docs/method.md.

Each law is learnt with both clocks from two seeds, by the very same data, network and steps:

- the four laws of `stochflow reproduce four-laws`, and an Ornstein–Uhlenbeck process whose longest gap is twenty times
  its relaxation time: nats below the exact law on held-out transitions;
- the Lorenz system by the paper's flow, 20,000 steps on lags drawn by the root of their number: nats on *validation*
  paths.

The figures go to results/clocks.json (`--out` names another file).
"""

import argparse
import itertools
import json
from pathlib import Path

import jax
import jax.random as jr
import numpy as np

from stochflow import FitConfig, StochasticFlow, fit
from stochflow.data.lorenz import lorenz_trajectories
from stochflow.experiments.four_laws import exact, known_laws, learn
from stochflow.experiments.lorenz import TRAIN_KEY
from stochflow.laws import OrnsteinUhlenbeck

from .recipes import VALIDATION_KEY, validation_scores
from .report import machine

CLOCKS = ("linear", "saturating")
SEEDS = (0, 1)
LORENZ_STEPS = 20_000
LORENZ_SHOWN = ("lag 1", "lag 20", "lag 40", "t0, lag 20")


def settled_law():
    """Twenty relaxation times to the longest gap tested: it has long forgotten its start."""
    return exact(OrnsteinUhlenbeck([10.0, 5.0], [0.5, -1.0], [2.0, 1.0]), [0.5, -1.0], "affine")


def four_laws(clock: str, seed: int) -> dict[str, float]:
    laws = known_laws() | {"Ornstein–Uhlenbeck, twenty relaxation times": settled_law()}
    return {
        f"{name}, nats short": learn(known, clock=clock, seed=seed, progress=False).shortfall
        for name, known in laws.items()
    }


def lorenz(clock: str, seed: int) -> dict[str, float]:
    flow = StochasticFlow(3, clock=clock, key=jr.key(seed))
    config = FitConfig(steps=LORENZ_STEPS, pairs="root")
    data = lorenz_trajectories(1024, key=jr.key(TRAIN_KEY))
    law = fit(flow, data, config=config, progress=False, key=jr.key(100 + seed)).flow
    scores = validation_scores(law, lorenz_trajectories(1024, key=jr.key(VALIDATION_KEY)).values)
    return {f"Lorenz, {name}, nats": scores[name] for name in LORENZ_SHOWN}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("results/clocks.json"))
    out = parser.parse_args().out
    rows: dict[str, dict[str, list[float]]] = {}
    for study, clock, seed in itertools.product((four_laws, lorenz), CLOCKS, SEEDS):
        for name, value in study(clock, seed).items():
            rows.setdefault(name, {}).setdefault(clock, []).append(value)
        out.write_text(json.dumps({"machine": machine(), "seeds": SEEDS, "rows": rows}, indent=1) + "\n")
    print(f"| | {' | '.join(CLOCKS)} |\n|---|---|---|")
    for name, found in rows.items():
        print(f"| {name} | {' | '.join(', '.join(f'{v:.3f}' for v in found[clock]) for clock in CLOCKS)} |")
    short = [name for name in rows if name.endswith("short")]
    for clock in CLOCKS:
        print(
            f"{clock}: {np.mean([rows[name][clock] for name in short]):.4f} nats short of the five laws on average"
        )


if __name__ == "__main__":
    jax.config.update("jax_num_cpu_devices", 2)
    main()
