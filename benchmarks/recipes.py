"""One row of docs/notes/lorenz.md: `python -m benchmarks.recipes coupling=spline octaves=3 steps=20000 pairs=root`.

Trains on the Lorenz training paths and prints the log-likelihood per lag on *validation* paths (key 5), which are
neither the training nor the test paths: recipes are chosen by these numbers. Arguments are those of
`StochasticFlow` and `FitConfig`; also `seed`.
"""

import ast
import dataclasses
import inspect
import sys

import jax.numpy as jnp
import jax.random as jr
import numpy as np

from stochflow import FitConfig, StochasticFlow, fit
from stochflow.data.lorenz import FRAME, lorenz_trajectories
from stochflow.experiments.common import log_probs
from stochflow.experiments.lorenz import TRAIN_KEY
from stochflow.experiments.lorenz_scores import LAGS

VALIDATION_KEY = 5
LAGS_FROM_ZERO = (10, 16, 20, 24, 30)


def validation_scores(law, paths) -> dict[str, float]:
    """Mean log-likelihood in standardised units at each lag, from every start and from t = 0; the worst pair."""
    to_standard, scores, worst = float(jnp.log(law.scale).sum()), {}, np.inf
    pairs = {f"lag {lag}": (lag, slice(None)) for lag in LAGS}
    pairs |= {f"t0, lag {lag}": (lag, slice(1)) for lag in LAGS_FROM_ZERO}
    for name, (lag, starts) in pairs.items():
        x_s, x_t = paths[:, :-lag][:, starts].reshape(-1, 3), paths[:, lag:][:, starts].reshape(-1, 3)
        found = np.asarray(log_probs(law, x_t, x_s, jnp.float32(lag * FRAME)), np.float64) + to_standard
        scores[name], worst = float(found.mean()), min(worst, found.min())
    return scores | {"worst pair": float(worst)}


def main(arguments: list[str]) -> None:
    given = {name: _value(text) for name, _, text in (argument.partition("=") for argument in arguments)}
    flow_names = set(inspect.signature(StochasticFlow).parameters) - {"dim", "key"}
    fit_names = {field.name for field in dataclasses.fields(FitConfig)}
    if strangers := sorted(set(given) - flow_names - fit_names - {"seed"}):
        sys.exit(
            f"unknown {', '.join(strangers)}; known are seed, {', '.join(sorted(flow_names | fit_names))}."
        )
    seed = given.pop("seed", 0)
    flow = StochasticFlow(3, **{k: v for k, v in given.items() if k in flow_names}, key=jr.key(seed))
    config = FitConfig(**{k: v for k, v in given.items() if k in fit_names})
    training = lorenz_trajectories(1024, key=jr.key(TRAIN_KEY))
    result = fit(flow, training, config=config, key=jr.key(100 + seed))
    scores = validation_scores(result.flow, lorenz_trajectories(1024, key=jr.key(VALIDATION_KEY)).values)
    print(" ".join(arguments), f"| {result.history[-1]['seconds']:.0f} s |", end=" ")
    print(", ".join(f"{name}: {score:.2f}" for name, score in scores.items()))


def _value(text: str):
    try:
        return ast.literal_eval(text)
    except ValueError:
        return text


if __name__ == "__main__":
    main(sys.argv[1:])
