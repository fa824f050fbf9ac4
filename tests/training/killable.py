"""A small run in a process of its own, to be killed: `python killable.py FOLDER STEPS`."""

import sys

import jax.random as jr
import numpy as np

import stochflow


def main(folder, steps):
    rng = np.random.default_rng(0)
    times = np.sort(rng.uniform(0, 3, (8, 20)), axis=1)
    values = np.cumsum(rng.normal(size=(8, 20, 2)), axis=1)
    data = stochflow.Trajectories.from_arrays(times, values)
    config = stochflow.FitConfig(
        steps=steps, batch_size=16, log_every=20, checkpoint_seconds=0.05, consistency=0.2, bridge_steps=1
    )
    result = stochflow.fit(
        stochflow.StochasticFlow(2, width=8, layers=1, key=jr.key(0)),
        data,
        bridge=stochflow.BridgeFlow(2, width=8, layers=1, key=jr.key(1)),
        config=config,
        validation=data,
        folder=folder,
        key=jr.key(2),
    )
    print(result.history[-1]["step"])


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
