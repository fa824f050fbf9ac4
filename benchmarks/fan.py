"""The picture of the page on forecasting: `python -m benchmarks.fan [--out docs/assets/forecast-fan.png]`.

Reads `series/vix_daily.csv` in the folder that the environment variable `STOCHFLOW_DATA` names. The forecaster sees
the VIX up to the end of 2020, and forecasts three months; what came is drawn over the fan.
"""

import argparse
import os
from pathlib import Path

import numpy as np
import pandas as pd

import stochflow
from stochflow.plots.style import ORANGE

LAST_SEEN, DAYS = "2020-12-31", 90


def main(out: Path, steps: int) -> None:
    frame = pd.read_csv(Path(os.environ["STOCHFLOW_DATA"]) / "series" / "vix_daily.csv")
    frame["Date"] = pd.to_datetime(frame["Date"], format="%m/%d/%Y")
    known = frame[frame["Date"] <= LAST_SEEN]
    model = stochflow.Forecaster(support={"VIX": "positive"}, steps=steps)
    model.fit(known, time="Date", values="VIX")
    ax = model.plot(horizon=f"{DAYS}d")[0]
    end = known["Date"].iloc[-1] + pd.Timedelta(days=DAYS)
    came = frame[(frame["Date"] >= LAST_SEEN) & (frame["Date"] <= end)]
    dates = came["Date"].to_numpy(np.dtype("datetime64[us]"))
    ax.plot(dates, came["VIX"].to_numpy(), color=ORANGE, linewidth=1.3)
    ax.annotate("what came", (dates[-1], came["VIX"].iloc[-1]), xytext=(4, 0), textcoords="offset points",
                color=ORANGE, fontsize=8.5, va="center", annotation_clip=False)  # fmt: skip
    ax.figure.savefig(out, dpi=160, bbox_inches="tight")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("docs/assets/forecast-fan.png"))
    parser.add_argument("--steps", type=int, default=3000)
    main(**vars(parser.parse_args()))
