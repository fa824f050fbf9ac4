"""Four real series, forecast from rolling origins: `python -m benchmarks.series [--only vix] [--out FILE]`.

The files are read from the folder that `STOCHFLOW_DATA` names. For each series and gap: the CRPS of the forecaster over
that of the best of three baselines (the last value with noise scaled to that of earlier moves over the gap, or growing
as the root of it; exact Ornstein–Uhlenbeck), the share of what came that lies within the central 90 %, and the same
with a random half of the rows dropped. There the CRPS is also held against that of a forecaster with all rows, on the
same forecasts (`worse`).
"""

import argparse
import json
import os
import time
from pathlib import Path
from statistics import NormalDist

import jax
import numpy as np
import pandas as pd

from stochflow import Forecaster
from stochflow.metrics import LEVEL, Place, ratio_of_means

# Refits as `Forecaster.backtest` has them by default; origins of each series in all, evenly over them.
REFITS, START, ORIGINS, SEED = 4, 0.6, 800, 0
# Of the CPU, as the commands have them.
DEVICES = 2
# Where the share of what came within central 90 % intervals should lie.
BAND = (0.86, 0.94)
KILOMETRES_PER_DEGREE, LATITUDE = 111.2, 67.0


def vix(folder: Path) -> pd.DataFrame:
    rows = pd.read_csv(folder / "series" / "vix_daily.csv")
    return pd.DataFrame({"ds": pd.to_datetime(rows["Date"], format="%m/%d/%Y"), "VIX": rows["VIX"]})


def rate(folder: Path) -> pd.DataFrame:
    rows = pd.read_csv(folder / "series" / "us10y_daily.csv")
    found = pd.DataFrame({"ds": pd.to_datetime(rows["Date"], format="%m/%d/%Y"), "rate": rows["Rate"]})
    return found.dropna()


def ice(folder: Path) -> pd.DataFrame:
    """Time runs forwards: years before present, negative."""
    rows = pd.read_csv(folder / "series" / "NGRIP_10yr.csv", comment="#")
    return pd.DataFrame({"ds": -rows["Age_BP"], "d18O": rows["d18O"]}).dropna()


def seals(folder: Path) -> pd.DataFrame:
    """Kilometres east and north; fixes of one seal at one time are averaged."""
    rows = pd.read_csv(folder / "series" / "beardedSeals.csv", parse_dates=["date_time"])
    east = KILOMETRES_PER_DEGREE * np.cos(np.deg2rad(LATITUDE)) * (rows["longitude"] + 165)
    found = pd.DataFrame(
        {
            "unique_id": rows["deployid"],
            "ds": rows["date_time"],
            "x": east,
            "y": KILOMETRES_PER_DEGREE * (rows["latitude"] - LATITUDE),
        }
    )
    return found.dropna().groupby(["unique_id", "ds"], as_index=False).mean()


# The frame, the gaps, the horizon and what is known of the channels.
SERIES = {
    "vix": (vix, ["1d", "7d", "28d", "91d", "365d"], "400d", {"VIX": "positive"}),
    "rate": (rate, ["1d", "7d", "28d", "91d", "365d"], "400d", None),
    "ice": (ice, [10, 50, 200, 1000], 1100, None),
    "seals": (seals, ["1h", "6h", "24h", "72h"], "80h", None),
}


def first_rows(frame: pd.DataFrame, share: float) -> pd.DataFrame:
    """The first rows in time of each series."""
    ordered = frame.sort_values("ds")
    of = ordered["unique_id"] if "unique_id" in frame else pd.Series("all", ordered.index)
    place, rows = ordered.groupby(of).cumcount(), of.groupby(of).transform("size")
    return frame.loc[ordered.index[place < (share * rows).astype(int)]].sort_index()


def run(name: str, folder: Path, keep: float, until: float = 1.0) -> dict:
    """The back-test of one series up to a share of its rows, of which a random share `keep` is kept."""
    read, gaps, horizon, support = SERIES[name]
    frame = first_rows(read(folder), until)
    whole = frame
    if keep < 1:
        frame = frame.sample(frac=keep, random_state=SEED).sort_index()
    begin = time.monotonic()
    model = Forecaster(horizon=horizon, support=support, random_state=SEED, progress=False)
    values = [column for column in frame.columns if column not in ("ds", "unique_id")]
    settings = {
        "gaps": gaps,
        "folds": REFITS,
        "start": START,
        "origins": ORIGINS // REFITS,
        "time": "ds",
        "values": values,
        "id": "unique_id" if "unique_id" in frame else None,
    }
    table, rows = model.backtest(frame, return_forecasts=True, **settings)
    if keep < 1:
        _, beside = model.backtest(whole, among=frame, return_forecasts=True, **settings)
        table = table.join(over(rows, beside), on=["channel", "gap"])
    return {
        "series": name,
        "rows": len(frame),
        "of": len(whole),
        "seconds": round(time.monotonic() - begin, 1),
        "scores": table.to_dict(orient="records"),
    }


def over(rows: pd.DataFrame, beside: pd.DataFrame) -> pd.DataFrame:
    """The CRPS over that of the same forecasts beside it (`whole`), by channel and gap, with its standard error."""
    same = ["unique_id", "ds", "origin", "channel", "gap"]
    same = [column for column in same if column in rows]
    pairs = rows.merge(beside, on=same, suffixes=("", "_whole"), validate="1:1")
    if len(pairs) != len(rows) or len(rows) != len(beside):
        raise RuntimeError(f"{len(rows)} and {len(beside)} forecasts have {len(pairs)} in common.")

    needed = ["crps", "crps_whole", "stretch", "period", "number"]

    def ratio(some: pd.DataFrame) -> pd.Series:
        above, below, stretch, period, series = (some[name].to_numpy() for name in needed)
        worse, error = ratio_of_means(above, below, stretch, Place(series, period))
        return pd.Series({"whole": below.mean(), "worse": worse, "worse_error": error})

    pairs["number"] = pairs.groupby("unique_id").ngroup() if "unique_id" in pairs else 0
    return pairs.groupby(["channel", "gap"])[needed].apply(ratio)


def within(row: dict) -> str:
    """The share within 90 % intervals, with the standard error of as many stretches as lie apart."""
    return f"{row['coverage']:.1%} ± {100 * row['coverage_error']:.1f}"


def relative(row: dict) -> str:
    """The CRPS over that of the best baseline, with such an error."""
    return f"{row['relative']:.3f} ± {row['relative_error']:.3f}"


def worse(row: dict) -> str:
    """The CRPS over that of a forecaster with all rows, with such an error."""
    return f"{row['worse']:.3f} ± {row['worse_error']:.3f}"


def markdown(found: dict) -> str:
    """The table of one series, as the tutorials have it."""
    heads = [
        "channel",
        "gap",
        "forecasts",
        "CRPS",
        "persistence",
        "random walk",
        "Ornstein–Uhlenbeck",
        "relative",
    ]
    halved = "worse" in found["scores"][0]
    heads += ["within 90 %", "over all rows'"] if halved else ["within 90 %"]
    lines = ["| " + " | ".join(heads) + " |", "|---" * len(heads) + "|"]
    for row in found["scores"]:
        numbers = (
            f"{row[name]:.4g}" for name in ("crps", "persistence", "random_walk", "ornstein_uhlenbeck")
        )
        cells = [row["channel"], row["gap"], row["forecasts"], *numbers, relative(row), within(row)]
        cells += [worse(row)] if halved else []
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    return "\n".join(lines)


def outside(results: list[dict]) -> str:
    """How many shares of all rows' forecasts lie outside of the band, and how many would if nothing but chance moved
    them away from 90 %, with the errors that they have; and the mean of those of each series."""
    rows = [row for found in results if found["keep"] == 1 for row in found["scores"]]
    out = [row for row in rows if not BAND[0] <= row["coverage"] <= BAND[1]]
    normal = [NormalDist(LEVEL, row["coverage_error"]) for row in rows if row["coverage_error"] > 0]
    alone = [1 - law.cdf(BAND[1]) + law.cdf(BAND[0]) for law in normal]
    named = ", ".join(f"{row['channel']} {row['gap']} {within(row)}" for row in out) or "none"
    of_series = lambda found: np.mean([row["coverage"] for row in found["scores"]])
    whole = ", ".join(f"{found['series']} {of_series(found):.1%}" for found in results if found["keep"] == 1)
    return (
        f"{len(rows) - len(out)} of {len(rows)} shares lie within {BAND[0]:.0%} to {BAND[1]:.0%}; outside: {named}. By "
        f"chance alone {sum(alone):.1f} would, and all would lie within with a probability of "
        f"{np.prod([1 - each for each in alone]):.0%}. Over all gaps and channels of a series: {whole}."
    )


def pooled(windows: list[list[dict]]) -> list[dict]:
    """The shares of all rows' forecasts of several stretches of the same series, each forecast counting alike; the
    stretches do not overlap, so their errors add in squares."""
    found = []
    for name in SERIES:
        tables = [result["scores"] for rows in windows for result in rows if of_all_rows(result, name)]
        scores = []
        for same in zip(*tables, strict=True):
            number = np.array([row["forecasts"] for row in same], float)
            share, error = (np.array([row[key] for row in same]) for key in ("coverage", "coverage_error"))
            together = {"coverage": float(number @ share / number.sum())}
            together["coverage_error"] = float(np.sqrt(np.square(number * error).sum()) / number.sum())
            scores.append(same[0] | together | {"windows": same})
        found.append({"series": name, "keep": 1.0, "scores": scores})
    return found


def of_all_rows(found: dict, name: str) -> bool:
    return (found["series"], found["keep"]) == (name, 1)


def together(windows: dict[str, list[dict]]) -> str:
    """Shares of each window, by its name, and of all of them together."""
    heads = ["channel", "gap", *(f"within 90 %, {name}" for name in windows), "together"]
    lines = ["| " + " | ".join(heads) + " |", "|---" * len(heads) + "|"]
    all_of = pooled(list(windows.values()))
    for found in all_of:
        for row in found["scores"]:
            cells = [row["channel"], row["gap"], *map(within, row["windows"]), within(row)]
            lines.append("| " + " | ".join(cells) + " |")
    return "\n".join([*lines, "", outside(all_of)])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=SERIES, action="append")
    parser.add_argument(
        "--keep", type=float, action="append", help="shares of the rows to keep; 1 and 0.5 by default"
    )
    parser.add_argument(
        "--until",
        type=float,
        default=1.0,
        help="only the first rows of each series, this share: with 0.6 all lie before the tests without it, "
        "and rules can be chosen by them",
    )
    parser.add_argument("--out", type=Path)
    parser.add_argument(
        "--show",
        type=Path,
        nargs="+",
        help="print the tables of such a file, and do nothing else; of several that end where the next begins, the "
        "shares of all of them together too",
    )
    given = parser.parse_args()
    if given.show is not None:
        windows = {file.stem: json.loads(file.read_text())["results"] for file in given.show}
        for kept in windows.values():
            for found in kept:
                print(f"\n{found['series']}, {found['rows']} of {found['of']} rows\n\n{markdown(found)}")
            print(f"\n{outside(kept)}")
        if len(windows) > 1:
            print(f"\nTogether:\n\n{together(windows)}")
        return
    jax.config.update("jax_num_cpu_devices", DEVICES)
    if "STOCHFLOW_DATA" not in os.environ:
        parser.error("set STOCHFLOW_DATA to the folder with the data: `series/vix_daily.csv` and the others.")
    folder = Path(os.environ["STOCHFLOW_DATA"])
    done = []
    if given.out is not None and given.out.is_file():
        done = json.loads(given.out.read_text())["results"]
    for keep in given.keep or [1.0, 0.5]:
        for name in given.only or SERIES:
            found = {"keep": keep} | run(name, folder, keep, given.until)
            done = [row for row in done if (row["series"], row["keep"]) != (name, keep)] + [found]
            print(f"{name}, {found['rows']} of {found['of']} rows, {found['seconds']} s", flush=True)
            for row in found["scores"]:
                print(
                    f"  {row['channel']:>5} {row['gap']:>6}  {row['forecasts']:>5} forecasts  CRPS {row['crps']:.4f}  "
                    f"persistence {row['persistence']:.4f}  walk {row['random_walk']:.4f}  "
                    f"OU {row['ornstein_uhlenbeck']:.4f}  "
                    f"relative {relative(row)}  within 90 % {within(row)}"
                    + (f"  over all rows' {worse(row)}" if "worse" in row else ""),
                    flush=True,
                )
            if given.out is not None:
                about = {
                    "machine": "two cores, CPU",
                    "seed": SEED,
                    "refits": REFITS,
                    "start": START,
                    "until": given.until,
                }
                given.out.write_text(json.dumps(about | {"results": done}, indent=1) + "\n")


if __name__ == "__main__":
    main()
