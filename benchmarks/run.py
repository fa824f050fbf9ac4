"""All benchmarks: `python -m benchmarks.run [--quick] [--out results/bench.json]`."""

import argparse
from pathlib import Path

from rich.console import Console

from .forecasts import whole_forecasts
from .hardware import against_matmul
from .report import FULL, QUICK, Effort, Section, Target, machine, show, summarise, write
from .rivals import against_solvers
from .sampling import draws_and_densities, gaps_and_chains, single_call
from .training import steps_on_two_devices

BENCHMARKS = {
    "sampling": draws_and_densities,
    "gaps": gaps_and_chains,
    "single": single_call,
    "hardware": against_matmul,
    "training": steps_on_two_devices,
    "rivals": against_solvers,
    "forecasts": whole_forecasts,
}

TARGETS = [
    Target("kflops", "kFLOPs of a one-step draw", 53),
    Target("gap ratio", "time of a step at t = 1 over t = 0.25", 1.05),
    Target("share", "% of a bare matmul's GFLOP/s, 10⁴ rows in one jit, wide vectors", 55, at_least=True),
    Target("share of many", "% of a bare matmul's GFLOP/s, 10⁶ rows in chunks", 55, at_least=True),
    Target("single", "one draw through jit over an empty jit", 10),
    # As many triplets as rows, half of them each way; and, below, as many each way.
    Target("consistency, 256, 2", "step with consistency over likelihood alone, 256 rows, two devices", 5),
    Target("consistency, 512, 2", "the same, 512 rows, two devices", 5),
    Target("consistency, 256, 1", "the same, 256 rows, one device", 5),
    Target("consistency, 512, 1", "the same, 512 rows, one device", 5),
    Target("consistency, as many each way, 256, 2", "256 rows, 256 triplets each way, two devices", 5),
    Target("consistency, as many each way, 512, 2", "512 rows, 512 triplets each way, two devices", 5),
    Target("forecast", "latent SDE by plain scan over our latent flow, a whole forecast", 50, at_least=True),
    Target("forecast, paper's size", "the same over a latent flow of the paper's size", 50, at_least=True),
    Target("compile, 1", "seconds to trace, lower and compile a step, one device", 10),
    Target("compile, 2", "the same, two devices", 10),
]

# Of the tables, at least: a name that is cut is no name.
WIDTH = 110


def run(effort: Effort, names: list[str], console: Console) -> list[Section]:
    """The chosen benchmarks, each shown as it is done."""
    sections = []
    for name in names:
        section = BENCHMARKS[name](effort)
        show(console, section.title, section.rows)
        sections.append(section)
    return sections


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.run", description=__doc__)
    parser.add_argument(
        "--quick", action="store_true", help="a few turns of small batches, to see that it works"
    )
    parser.add_argument(
        "--out", type=Path, default=Path("results/bench.json"), help="where the JSON file goes"
    )
    parser.add_argument(
        "--only", nargs="+", choices=BENCHMARKS, default=list(BENCHMARKS), help="some of them"
    )
    options = parser.parse_args(arguments)
    console = Console()
    console.width = max(console.width, WIDTH)
    about = machine()
    sections = run(QUICK if options.quick else FULL, options.only, console)
    summary = summarise(TARGETS, sections)
    about["load_average_after"] = machine()["load_average"]
    show(
        console,
        "Targets",
        {row["figure"]: {k: row[k] for k in ("target", "reached", "met")} for row in summary},
    )
    console.print(f"load average {about['load_average']} before, {about['load_average_after']} after")
    write(options.out, sections, summary, about)
    console.print(f"written to {options.out}")


if __name__ == "__main__":
    main()
