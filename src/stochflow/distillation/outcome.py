"""What a comparison of a law with its solver found: figures a gap, and the table of them."""

import dataclasses
import math
from typing import Any

# A share that is shown as zero is not told of.
LEAST_TOLD = 5e-4


@dataclasses.dataclass(frozen=True)
class GapComparison:
    """At one gap: the flow against the fine solver, and against the coarsest Euler–Maruyama that is no worse.

    - `kl`, `kl_floor`: by kernel densities over all starts, in nats, and what two true samples score; `kl_std` and
        `kl_floor_std` are the spread of ten folds. `None` above three dimensions, where kernels say nothing.
    - `energy`, `energy_se`: energy distance to two samples of the fine solver, a mean over starts, in units of the
        coordinates' standard deviations; `floor`, `floor_se`: of the two samples to each other.
    - `pit`, `pit_p`: for each coordinate, Kolmogorov–Smirnov distance of the PIT to the uniform law, and its p-value.
    - `solver_steps`, `solver_energy`: of that Euler–Maruyama; an energy distance below its own error counts as the
        error.
    - `flow_seconds`, `solver_seconds`: a sample, in turns, in batches; `speedup` is their ratio.
    - `start`: the time that the gap starts at.
    - `matched`: whether that Euler–Maruyama is no worse than the flow. If not, so many steps are all that were tried,
        and the flow is faster still than `speedup` says.
    """

    gap: float
    kl: float | None
    kl_std: float | None
    kl_floor: float | None
    kl_floor_std: float | None
    energy: float
    energy_se: float
    floor: float
    floor_se: float
    pit: tuple[float, ...]
    pit_p: tuple[float, ...]
    solver_steps: int
    solver_energy: float
    flow_seconds: float
    solver_seconds: float
    start: float = 0.0
    matched: bool = True

    @property
    def speedup(self) -> float:
        return self.solver_seconds / self.flow_seconds

    @property
    def over(self) -> str:
        """The gap and, unless it is zero, when it starts."""
        return f"{self.gap:g}" + (f" from {self.start:g}" if self.start else "")

    @property
    def steps_shown(self) -> str:
        """How many steps; with a plus, if they were not enough."""
        return str(self.solver_steps) + ("" if self.matched else "+")


@dataclasses.dataclass(frozen=True)
class Comparison:
    """A [`GapComparison`][stochflow.distillation.GapComparison] a gap, and how they were taken. Prints as a table.

    `lost` and `folded` are shares of the paths that the law was learnt from: those that were not finite and left out,
    and of states beyond the support that were mirrored back. The solver's draws are held against the law after the
    same.
    """

    gaps: tuple[GapComparison, ...]
    train_seconds: float
    groups: int
    samples: int
    fine_dt: float
    batch: int
    lost: float
    folded: float

    @property
    def break_even(self) -> float:
        """After how many samples at the longest gap training has paid for itself; infinite if the solver is faster."""
        last = max(self.gaps, key=lambda each: each.gap)
        saved = last.solver_seconds - last.flow_seconds
        return self.train_seconds / saved if saved > 0 else math.inf

    def as_dict(self) -> dict[str, Any]:
        """For JSON, which has no infinity: a break-even that never comes is `None`."""
        break_even = self.break_even if math.isfinite(self.break_even) else None
        gaps = [dataclasses.asdict(gap) | {"speedup": gap.speedup} for gap in self.gaps]
        return dataclasses.asdict(self) | {"gaps": gaps, "break_even": break_even}

    def rows(self) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
        """Headers, and a row a gap."""
        headers = (
            "gap", "KL (floor)", "energy distance", "of a true sample", "worst PIT", "p",
            "flow, ns", "EM steps", "EM, ns", "times faster",
        )  # fmt: skip
        rows = [
            (
                g.over,
                kl_cell(g.kl, g.kl_std, g.kl_floor, g.kl_floor_std),
                f"{g.energy:.1e} ± {g.energy_se:.1e}",
                f"{g.floor:.1e} ± {g.floor_se:.1e}",
                f"{max(g.pit):.3f}",
                f"{min(g.pit_p):.2f}",
                f"{1e9 * g.flow_seconds:.0f}",
                g.steps_shown,
                f"{1e9 * g.solver_seconds:.0f}",
                f"{g.speedup:.1f}",
            )
            for g in self.gaps
        ]
        return headers, rows

    def __str__(self) -> str:
        headers, rows = self.rows()
        widths = [max(map(len, column)) for column in zip(headers, *rows, strict=True)]
        lines = [
            "  ".join(cell.rjust(w) for cell, w in zip(row, widths, strict=True)) for row in (headers, *rows)
        ]
        return "\n".join([*lines, self.summary()])

    def summary(self) -> str:
        """What training cost and when it has paid, and what was left out or mirrored."""
        said = f"trained {self.train_seconds:.0f} s; break-even {_samples(self.break_even)}"
        said += f"; {self.lost:.1%} of the paths were not finite and left out" if self.lost else ""
        beyond = f"; {self.folded:.1%} of the states lay beyond the support and were mirrored back"
        return said + (beyond if self.folded >= LEAST_TOLD else "")


def kl_cell(kl: float | None, std: float | None, floor: float | None, floor_std: float | None) -> str:
    """A KL divergence with the spread of its folds, and in brackets what two true samples score."""
    spread = lambda mean, std: f"{mean:.3f}" + ("" if std is None else f" ± {std:.3f}")
    return "–" if kl is None else f"{spread(kl, std)} ({spread(floor, floor_std)})"


def _samples(number: float) -> str:
    return f"{number:.2g} samples" if math.isfinite(number) else "never"
