"""A distilled law beside the solver that it replaces: how far apart, and what each costs."""

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import PRNGKeyArray

from ..inference import make_sampler
from ..inference.sampler import CPU_OPTIONS
from ..metrics import (
    interleave,
    kde_floor,
    kde_kl,
    pit,
    projected_energy_distance,
    uniformity_test,
)
from ..sde import EulerMaruyama
from ..training.config import check_key, is_count, require
from .distill import Distilled
from .pool import advance

# The reference takes steps this much shorter than those that the pairs were made with.
FINER = 2
# Of the horizon.
GAPS = (0.125, 0.5, 1.0)
KDE_DIM, KDE_SAMPLES = 3, 10_000
PIT_STARTS, PIT_SAMPLES = 2048, 255
REPEATS = 20
# Euler–Maruyama is not tried in more steps than these.
MOST_STEPS = 2048
# The search for as many steps as are needed begins with so few.
FIRST_STEPS = 4
# Of a timed batch: one for each of two cores.
CHUNKS = 2
# In the plane so many lines give the distance to a hundredth; beyond it they are drawn at random.
DIRECTIONS = 8
# Of the paths from each start so many must be finite: a law is not compared with what is left of a start that explodes.
MOST_FINITE = 0.9
# A share that is shown as zero is not told of.
LEAST_TOLD = 5e-4
# Samples of a start, below which kernel densities have too few points a fold.
LEAST_SAMPLES = 64


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

    @property
    def speedup(self) -> float:
        return self.solver_seconds / self.flow_seconds


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
        last = self.gaps[-1]
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
                f"{g.gap:g}",
                kl_cell(g.kl, g.kl_std, g.kl_floor, g.kl_floor_std),
                f"{g.energy:.1e} ± {g.energy_se:.1e}",
                f"{g.floor:.1e} ± {g.floor_se:.1e}",
                f"{max(g.pit):.3f}",
                f"{min(g.pit_p):.2f}",
                f"{1e9 * g.flow_seconds:.0f}",
                str(g.solver_steps),
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


def compare(
    distilled: Distilled,
    *,
    gaps: Sequence[float] | None = None,
    groups: int = 16,
    samples: int = 16_384,
    batch: int = 10_000,
    key: PRNGKeyArray,
) -> Comparison:
    """Hold a distilled law against the solver.

    **Arguments:**

    - `gaps`: up to the horizon; an eighth, a half and all of it by default.
    - `groups`, `samples`: from so many starts, so many draws of each. The more, the smaller the distance that can be
        seen, and so the finer the solver that the flow is held against.
    - `batch`: samples at a time when the two are timed.
    - `key`: for starts and draws.
    """
    if not isinstance(distilled, Distilled):
        raise ValueError(f"`distilled` must be what `distill` returned; got {distilled!r}.")
    check_key(key)
    for name, number, least in (
        ("groups", groups, 2),
        ("samples", samples, LEAST_SAMPLES),
        ("batch", batch, 1),
    ):
        require(
            name, number, lambda v, least=least: is_count(v) and v >= least, f"an integer of at least {least}"
        )
    gaps = (
        [share * distilled.horizon for share in GAPS]
        if gaps is None
        else _checked_gaps(gaps, distilled.horizon)
    )
    bench = _Bench(distilled, groups, samples, batch)
    compared = [bench.at(gap, jr.fold_in(key, i)) for i, gap in enumerate(gaps)]
    fine_dt = distilled.dt / FINER
    shares = distilled.lost, distilled.folded
    return Comparison(tuple(compared), distilled.seconds, groups, samples, fine_dt, batch, *shares)


def _checked_gaps(gaps: Any, horizon: float) -> list[float]:
    try:
        found = [float(gap) for gap in gaps]
    except (TypeError, ValueError):
        found = []
    if isinstance(gaps, str) or not found or not all(0 < gap <= horizon for gap in found):
        raise ValueError(
            f"`gaps` must be numbers between 0 and the horizon {horizon:g}, in a list; got {gaps!r}."
        )
    return found


class _Bench:
    """Draws of the flow and of solvers, for one distilled law."""

    def __init__(self, distilled: Distilled, groups: int, samples: int, batch: int):
        self.distilled, self.groups, self.samples, self.batch = distilled, groups, samples, batch
        self.sampler = make_sampler(distilled.flow, chunk=math.ceil(batch / CHUNKS))

        @eqx.filter_jit
        def run(scheme, x0, gap, steps, key):
            sde = distilled.simulator.sde
            ends = advance(sde, scheme, x0, jnp.zeros(()), gap / steps, steps, key=key)
            return jax.vmap(distilled.support.fold)(ends)

        # Arrays, so that one program serves every gap and every number of steps.
        self.run = lambda scheme, x0, gap, steps, key: run(
            scheme, x0, jnp.asarray(gap, x0.dtype), jnp.asarray(steps), key
        )

    def at(self, gap: float, key: PRNGKeyArray) -> GapComparison:
        start_key, one_key, two_key, flow_key, em_key, line_key, kl_key, pit_key = jr.split(key, 8)
        x0 = self.distilled.simulator.starts.draw(self.groups, key=start_key)
        truth, again = self.fine(x0, gap, one_key), self.fine(x0, gap, two_key)
        _require_finite(truth, x0, gap)
        std = np.sqrt(np.nanmean(np.nanvar(np.where(np.isfinite(truth), truth, np.nan), axis=1), axis=0))
        floor = _distance(truth / std, again / std, line_key)
        both = (
            np.concatenate([truth, again], axis=1) / std
        )  # the less chance in it, the less is taken for an error
        distance = lambda ends: _distance(both, ends / std, line_key)
        flow = distance(self.flow(x0, gap, flow_key))
        steps, energy = self._match(x0, gap, max(flow[0], flow[1]), distance, em_key)
        kl = self._kl(gap, kl_key)
        pit_statistic, pit_p = self._pit(gap, pit_key)
        timing = self._time(gap, steps)
        return GapComparison(
            gap, *kl, *flow, *floor, pit_statistic, pit_p, steps, energy, *timing
        )  # fmt: skip

    def fine(self, x0, gap, key):
        steps = math.ceil(FINER * gap / self.distilled.dt)
        return self.solve(self.distilled.simulator.scheme, x0, gap, steps, key)

    def solve(self, scheme, x0, gap, steps, key):
        keys = jr.split(key, len(x0))
        one = lambda x, k: self.run(
            scheme, jnp.tile(x, (self.samples, 1)), jnp.asarray(gap, x.dtype), steps, k
        )
        return np.stack([np.asarray(one(x, k)) for x, k in zip(x0, keys, strict=True)])

    def flow(self, x0, gap, key):
        rows = np.repeat(np.asarray(x0), self.samples, axis=0)
        return np.asarray(self.sampler(rows, 0.0, gap, key=key)).reshape(len(x0), self.samples, -1)

    def _match(self, x0, gap, aim, distance, key):
        """The fewest Euler–Maruyama steps whose distance is no larger than `aim`, and the distance measured there.

        The distance falls with the square of the number of steps, as the weak error is of order one. So a few of them
        say where to look; doubling and halving from there give the last number whose distance is larger, twice which is
        enough; and the square says how many more than that one are.
        """
        found: dict[int, float] = {}

        def error(steps):
            if steps not in found:
                ends = self.solve(EulerMaruyama(), x0, gap, steps, jr.fold_in(key, steps))
                found[steps] = distance(ends)[0]
            return found[steps]

        steps = FIRST_STEPS
        if math.isfinite(error(steps)):
            steps = round(steps * math.sqrt(max(error(steps), aim / 16) / aim))
        steps = min(max(steps, 1), MOST_STEPS)
        while error(steps) > aim and steps < MOST_STEPS:
            steps = min(2 * steps, MOST_STEPS)
        while steps > 1 and error(steps // 2) <= aim:
            steps //= 2
        if steps > 2 and error(steps) <= aim and math.isfinite(error(steps // 2)):
            steps = min(steps, math.ceil(steps // 2 * math.sqrt(error(steps // 2) / aim)))
        return steps, error(steps)

    def _kl(self, gap, key):
        if self.distilled.flow.dim > KDE_DIM:
            return None, None, None, None
        start_key, one_key, two_key, flow_key, fold_key, floor_key = jr.split(key, 6)
        number = min(KDE_SAMPLES, self.groups * self.samples)
        x0 = self.distilled.simulator.starts.draw(number, key=start_key)
        steps = math.ceil(FINER * gap / self.distilled.dt)
        scheme = self.distilled.simulator.scheme
        truth, again = (self.run(scheme, x0, gap, steps, k) for k in (one_key, two_key))
        ours = self.sampler(np.asarray(x0), 0.0, gap, key=flow_key)
        truth, again, ours = (_finite(np.asarray(a)[None])[0] for a in (truth, again, ours))
        found = kde_kl(truth, ours, key=fold_key), kde_floor(truth, again, key=floor_key)
        return found[0].mean, found[0].std, found[1].mean, found[1].std

    def _pit(self, gap, key):
        start_key, end_key, pit_key = jr.split(key, 3)
        number = min(PIT_STARTS, self.groups * self.samples)
        x0 = self.distilled.simulator.starts.draw(number, key=start_key)
        steps = math.ceil(FINER * gap / self.distilled.dt)
        ends = self.run(self.distilled.simulator.scheme, x0, gap, steps, end_key)
        kept = jnp.isfinite(ends).all(axis=1)
        pits = pit(self.distilled.flow, ends[kept], x0[kept], 0.0, gap, samples=PIT_SAMPLES, key=pit_key)
        tests = [uniformity_test(column) for column in pits.T]
        return tuple(float(t.statistic) for t in tests), tuple(float(t.p_value) for t in tests)

    def _time(self, gap, steps):
        """Seconds a sample, of the flow and of Euler–Maruyama in so many steps, compiled in the faster of two ways."""
        x0 = self.distilled.simulator.starts.draw(self.batch, key=jr.key(0))
        host, key, gap_array = np.asarray(x0), jr.key(1), jnp.asarray(gap, x0.dtype)
        scheme = EulerMaruyama()
        sde = self.distilled.simulator.sde
        plain = lambda x, gap, key: advance(sde, scheme, x, jnp.zeros(()), gap / steps, steps, key=key)
        on_cpu = jax.default_backend() == "cpu"
        solvers = [jax.jit(plain), *([jax.jit(plain, compiler_options=CPU_OPTIONS)] if on_cpu else [])]
        rivals = {
            f"solver {i}": lambda solver=solver: solver(x0, gap_array, key)
            for i, solver in enumerate(solvers)
        }
        ours = {"flow": lambda: self.sampler(host, 0.0, gap, key=key)}
        least = {name: timing.min for name, timing in interleave(ours | rivals, repeats=REPEATS).items()}
        return least["flow"] / self.batch, min(least[name] for name in rivals) / self.batch


def _require_finite(ends, x0, gap):
    """Of each start, or what is compared is the law of those paths that stay finite."""
    share = np.isfinite(ends).all(axis=2).mean(axis=1)
    if (share < MOST_FINITE).any():
        where = ", ".join(f"{number:.4g}" for number in np.asarray(x0[int(share.argmin())]))
        raise ValueError(
            f"{1 - share.min():.0%} of the solver's paths from ({where}) are not finite after {gap:g}, and what is "
            "left of them is no law to compare with: distil the SDE anew from `starts` from which it does not explode."
        )


def _distance(truth, ends, key) -> tuple[float, float]:
    """Energy distance and its error; infinite where a tenth of the states is not finite."""
    if np.isfinite(ends).all(axis=2).mean() < 0.9:
        return math.inf, math.inf
    mean, se = projected_energy_distance(_finite(truth), _finite(ends), directions=DIRECTIONS, key=key)
    return float(mean), float(se)


def _finite(groups):
    """The finite rows of each group, as many as the poorest has."""
    kept = [group[np.isfinite(group).all(axis=1)] for group in groups]
    size = min(map(len, kept))
    return np.stack([group[:size] for group in kept])
