"""Where a law of the Lorenz system falls short: rows of docs/notes/lorenz.md.

`python -m benchmarks.separatrix layers=4 lenses=0 contested=0 folder=runs/four` trains as `stochflow reproduce lorenz`
does, with what is given in place of the recipe's own (arguments of `StochasticFlow`, settings of `LorenzSetting`; also
`seed`, and a run `folder` to go on in), and prints, on *validation* pairs from t = 0 (key 5),

- how far the law in one step, and the law of the first fit chained in steps of about .1, are below the simulated
  likelihood of the truth, for starts near the stable manifold of the origin and for the others;
- the share of one-step draws that lie further than 1.5 from the nearest of many true ones.
"""

import dataclasses
import inspect
import json
import sys
import tempfile
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from scipy.spatial import cKDTree

from stochflow import StochasticFlow, fit
from stochflow.data.lorenz import FRAME, lorenz_paths, lorenz_trajectories
from stochflow.experiments.common import log_probs
from stochflow.experiments.lorenz import FLOW, TRAIN_KEY, LorenzSetting, train_lorenz
from stochflow.experiments.lorenz_scores import (
    paths_at_times,
    reference_log_probs,
    sample_from_zero,
)
from stochflow.experiments.paper import TIMES

from .recipes import VALIDATION_KEY, _value

LAGS = (20, 24, 30, 36)
PAIRS, PATHS = 128, 8192
# Of the linear system at the origin: starts this near to its stable manifold may take either wing.
NEAR = 0.19
CHAINED_STEP, CHAINED_PATHS = 0.1, 4096
TRUE_DRAWS, DRAWS, ASTRAY = 120_000, 40_000, 1.5


def distance_from_manifold(x):
    """Along the unstable direction of x and y at the origin, in the linear approximation."""
    values, vectors = np.linalg.eig(np.array([[-10.0, 10.0], [28.0, -1.0]]).T)
    unstable = vectors[:, values.argmax()]
    return np.abs(x[:, :2] @ unstable) / np.linalg.norm(unstable)


@eqx.filter_jit
def chained_log_prob(law, x_t, x_s, gap, steps, key):
    """Log-density of `steps` equal steps of a law, by paths of all but the last."""
    h = gap / steps

    def one(key):
        step = lambda x, k: (law.transform(jr.normal(k, x.shape), x, 0.0, h), None)
        x, _ = jax.lax.scan(step, x_s, jr.split(key, steps - 1))
        return law.log_prob(x_t, x, 0.0, h)

    return jax.nn.logsumexp(jax.vmap(one)(jr.split(key, CHAINED_PATHS))) - jnp.log(CHAINED_PATHS)


def shortfalls(law, first, lag: int) -> dict[str, float]:
    """Nats below the truth at one lag."""
    values = lorenz_trajectories(PAIRS, key=jr.key(VALIDATION_KEY)).values
    x_s, x_t, gap = values[:, 0], values[:, lag], jnp.float32(lag * FRAME)
    truth, error, _ = reference_log_probs(x_t, x_s, lag, paths=PATHS, key=jr.key(lag))
    steps = round(lag * FRAME / CHAINED_STEP)
    keys = jr.split(jr.key(lag), PAIRS)
    chained = [chained_log_prob(first, x_t[i], x_s[i], gap, steps, keys[i]) for i in range(PAIRS)]
    short = {"one step": truth - np.asarray(log_probs(law, x_t, x_s, gap))}
    short["first fit, chained"] = truth - np.asarray(chained)
    near = distance_from_manifold(x_s) < NEAR
    found = {"near starts": int(near.sum()), "error of the truth": float(np.sqrt(np.mean(error**2) / PAIRS))}
    for name, values in short.items():
        found |= {name: float(values.mean()), f"{name}, near": float(values[near].mean())}
    return found


def strays(law) -> dict[str, float]:
    """Of one-step draws, the share that is far from all true ones."""
    truth = np.concatenate(
        [paths_at_times(lorenz_paths(TRUE_DRAWS // 3, key=jr.key(100 + i))) for i in range(3)], axis=1
    )
    drawn = sample_from_zero(law, DRAWS, 1.0, key=jr.key(7))
    far = [cKDTree(truth[i]).query(drawn[i], workers=2)[0] > ASTRAY for i in range(len(TIMES))]
    return {f"strays, t = {t:g}": float(share.mean()) for t, share in zip(TIMES, far, strict=True)}


def main(arguments: list[str]) -> None:
    given = {name: _value(text) for name, _, text in (argument.partition("=") for argument in arguments)}
    seed, folder = given.pop("seed", 0), given.pop("folder", None)
    flow_names = set(inspect.signature(StochasticFlow).parameters) - {"dim", "key"}
    setting_names = {field.name for field in dataclasses.fields(LorenzSetting)}
    if strangers := sorted(set(given) - flow_names - setting_names):
        known = ", ".join(sorted(flow_names | setting_names))
        sys.exit(f"unknown {', '.join(strangers)}; known are seed, folder, {known}.")
    options = FLOW | {name: value for name, value in given.items() if name in flow_names}
    setting = LorenzSetting(**{name: value for name, value in given.items() if name in setting_names})
    with tempfile.TemporaryDirectory() as scratch:
        run = Path(scratch if folder is None else folder) / f"seed{seed}"
        trained = train_lorenz(setting, seed=seed, options=options, folder=run)
        flow_key, fit_key, *_ = jr.split(jr.key(seed), 4)  # the first fit again, which is finished
        data = lorenz_trajectories(setting.paths, key=jr.key(TRAIN_KEY))
        again = {"config": setting.fit_config(), "folder": run / "likelihood", "key": fit_key}
        first = fit(StochasticFlow(3, **options, key=flow_key), data, **again)
    found = {"arguments": arguments, "seconds": trained.history[-1]["seconds"], **strays(trained.flow)}
    found["nats below the truth"] = {lag: shortfalls(trained.flow, first.flow, lag) for lag in LAGS}
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    jax.config.update("jax_num_cpu_devices", 2)
    main(sys.argv[1:])
