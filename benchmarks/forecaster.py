"""What a forecaster costs: `python -m benchmarks.forecaster [--only fit-small|fit-large|predict|import] [--out FILE]`.

`fit` on 10³ and 10⁵ rows, `predict` for 10⁴ series × 100 draws × 24 times, with the memory that each takes at its
highest; and the time of `import stochflow` over that of `import jax, equinox, optax`. Each in a process of its own.
"""

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

REPEATS = 5


def walks(series: int, rows: int, seed: int = 0):
    """Ornstein–Uhlenbeck paths at irregular times, as a long frame."""
    import pandas as pd

    rng = np.random.default_rng(seed)
    gaps = rng.exponential(1.0, (series, rows))
    noise = rng.normal(size=(series, rows))
    x = np.zeros((series, rows))
    for i in range(1, rows):
        decay = np.exp(-0.05 * gaps[:, i])
        x[:, i] = decay * x[:, i - 1] + np.sqrt(1 - decay**2) * noise[:, i]
    return pd.DataFrame(
        {
            "unique_id": np.repeat(np.arange(series), rows),
            "ds": np.cumsum(gaps, axis=1).ravel(),
            "y": x.ravel(),
        }
    )


def fit(series: int, rows: int) -> dict:
    from stochflow import Forecaster

    frame = walks(series, rows)
    begin = time.perf_counter()
    Forecaster(progress=False).fit(frame)
    return {"what": f"fit on {len(frame)} rows", "seconds": time.perf_counter() - begin}


def predict(series: int, samples: int, times: int) -> dict:
    from stochflow import Forecaster

    model = Forecaster(progress=False, steps=200, folds=0).fit(walks(64, 50))
    frame = walks(series, 20, seed=1)
    begin = time.perf_counter()
    found = model.predict(frame, horizon=float(times), every=1.0, samples=samples)
    seconds = time.perf_counter() - begin
    assert len(found) == series * samples * times
    return {"what": f"predict {series} series × {samples} draws × {times} times", "seconds": seconds}


JOBS = {
    "fit-small": lambda: fit(1, 1000),
    "fit-large": lambda: fit(100, 1000),
    "predict": lambda: predict(10_000, 100, 24),
}


def measured(name: str) -> dict:
    """A job in a process of its own, with its highest memory."""
    command = [sys.executable, "-m", "benchmarks.forecaster", "--job", name]
    return json.loads(
        subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()[-1]
    )


def import_ratio() -> dict:
    """Interleaved, the least of several. Rooms are imported when they are asked for, so that what a user waits for is
    the import of a name: that is timed too."""
    theirs, ours, names = (
        "import jax, equinox, optax",
        "import stochflow",
        "from stochflow import Forecaster, distill",
    )
    timed = {code: [] for code in (theirs, ours, names)}
    for _ in range(REPEATS):
        for code, seconds in timed.items():
            begin = time.perf_counter()
            subprocess.run([sys.executable, "-c", code], check=True)
            seconds.append(time.perf_counter() - begin)
    least = {code: min(seconds) for code, seconds in timed.items()}
    return {
        "what": f"{ours} over {theirs.removeprefix('import ')}",
        "seconds": least[ours],
        "ratio": least[ours] / least[theirs],
        "ratio_with_names": least[names] / least[theirs],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--job", choices=JOBS, help=argparse.SUPPRESS)
    parser.add_argument("--only", choices=[*JOBS, "import"], action="append")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    if given.job:
        import resource

        found = JOBS[given.job]()
        found["peak_gib"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
        print(json.dumps(found))
        return
    results = []
    for name in given.only or [*JOBS, "import"]:
        results.append(import_ratio() if name == "import" else measured(name))
        print(json.dumps(results[-1]), flush=True)
    if given.out is not None:
        given.out.write_text(json.dumps({"machine": "two cores, CPU", "results": results}, indent=1) + "\n")


if __name__ == "__main__":
    main()
