"""What two devices do, in a process that has them: `python two_devices.py FOLDER`, with answers as JSON.

With a number after the folder: go on, on so many devices, with the run that is there.
"""

import json
import sys
from pathlib import Path

import jax

jax.config.update("jax_num_cpu_devices", int(sys.argv[2]) if len(sys.argv) > 2 else 2)

import equinox as eqx  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import jax.random as jr  # noqa: E402
import numpy as np  # noqa: E402

import stochflow  # noqa: E402
from stochflow.training.devices import (  # noqa: E402
    mean_of_all,
    my_key,
    my_rows,
    on_devices,
    usable_devices,
)

STEPS, EVERY = 40, 20


def small_data():
    rng = np.random.default_rng(0)
    times = np.sort(rng.uniform(0, 3, (8, 20)), axis=1)
    values = np.cumsum(rng.normal(size=(8, 20, 2)), axis=1)
    return stochflow.Trajectories.from_arrays(times, values)


def fit_small(folder):
    data = small_data()
    flow = stochflow.StochasticFlow(2, width=8, layers=1, key=jr.key(0))
    bridge = stochflow.BridgeFlow(2, width=8, layers=1, key=jr.key(1))
    config = stochflow.FitConfig(
        steps=STEPS, batch_size=16, log_every=EVERY, consistency=0.2, bridge_steps=1, warmup_steps=5
    )
    return stochflow.fit(
        flow,
        data,
        bridge=bridge,
        config=config,
        validation=data,
        folder=folder,
        progress=False,
        key=jr.key(2),
    )


def gradients_agree() -> bool:
    """Of a mean over rows: the mean over devices of the gradients of their own rows is the gradient of all."""
    weights, rows = jr.normal(jr.key(3), (5,)), jr.normal(jr.key(4), (16, 5))
    loss = lambda weights, rows: jnp.mean(jnp.tanh(rows @ weights) ** 2)
    shared = on_devices(lambda w, rows: mean_of_all(jax.grad(loss)(w, my_rows(rows))), 2)
    return bool(np.allclose(shared(weights, rows), jax.grad(loss)(weights, rows), atol=1e-6))


def keys_differ() -> bool:
    both = on_devices(lambda key: mean_of_all(jr.normal(my_key(key), (3,))), 2)(jr.key(5))
    each = [jr.normal(jr.fold_in(jr.key(5), i), (3,)) for i in range(2)]
    return bool(np.allclose(both, (each[0] + each[1]) / 2, atol=1e-6))


def leaves(model):
    return [np.asarray(leaf) for leaf in jax.tree.leaves(eqx.filter(model, eqx.is_array))]


def resumes(folder) -> bool:
    """A run that was interrupted after its first report ends as one that was not, bit for bit."""
    whole = fit_small(folder / "whole")
    interrupt_after_first_report(folder / "cut")
    again = fit_small(folder / "cut")
    same = zip(leaves((whole.flow, whole.bridge)), leaves((again.flow, again.bridge)), strict=True)
    return len(again.history) == STEPS // EVERY and all(np.array_equal(a, b) for a, b in same)


def interrupt_after_first_report(folder):
    from stochflow.training.checkpoint import RunFolder

    append = RunFolder.append_metrics

    def stop(self, row):
        append(self, row)
        raise KeyboardInterrupt

    RunFolder.append_metrics = stop
    try:
        fit_small(folder)
    except KeyboardInterrupt:
        pass
    finally:
        RunFolder.append_metrics = append


def latent_is_finite() -> bool:
    model = stochflow.latent_flow(2, 2, width=8, layers=1, hidden=8, key=jr.key(6))
    config = stochflow.LatentConfig(
        steps=4, log_every=2, batch_size=4, skip_starts=8, consistency=0.1, consistency_batch=8
    )
    found = stochflow.fit_latent(model, small_data(), config=config, progress=False, key=jr.key(7))
    return bool(np.isfinite(found.history[-1]["loss"]))


def main(folder):
    answers = {
        "devices": jax.local_device_count(),
        "usable": [usable_devices(16, None), usable_devices(16, 5)],
        "gradients agree": gradients_agree(),
        "keys differ": keys_differ(),
        "resumes": resumes(Path(folder)),
        "latent": latent_is_finite(),
        "on one device": all(len(leaf.devices()) == 1 for leaf in _arrays(fit_small(None).flow)),
    }
    print(json.dumps(answers))


def _arrays(model):
    return jax.tree.leaves(eqx.filter(model, eqx.is_array))


if __name__ == "__main__":
    fit_small(Path(sys.argv[1]) / "whole") if len(sys.argv) > 2 else main(sys.argv[1])
