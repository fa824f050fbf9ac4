"""Five SDEs distilled: finance, a switch, an ecosystem, a neuron, a chain of particles."""

import dataclasses
import os
import platform
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, PRNGKeyArray

from ..distillation import Comparison, DistillConfig, Distilled, compare, distill
from ..distillation.outcome import kl_cell
from ..distillation.starts import Starts
from ..laws.transformed import Interval
from ..sde import SDE, double_well, fitzhugh_nagumo, heston, langevin_chain, lotka_volterra


@dataclasses.dataclass(frozen=True)
class Example:
    """An SDE, where it starts, how far it is to be taken, and what it is distilled and compared with."""

    sde: SDE
    starts: Starts
    horizon: float
    config: DistillConfig
    support: tuple[Interval, ...] | None = None
    samples: int = 16_384


CHAIN = 20


def _thermal(key: PRNGKeyArray) -> Float[Array, " dim"]:
    """Particles of the chain in either well, with a spread."""
    side_key, spread_key = jr.split(key)
    return jr.rademacher(side_key, (CHAIN,), jnp.result_type(float)) * 0.8 + 0.4 * jr.normal(
        spread_key, (CHAIN,)
    )


def examples() -> dict[str, Example]:
    """The five, by name."""
    return {
        "heston": Example(
            heston(),
            ([-0.2, 0.005], [0.2, 0.15]),
            1.0,
            DistillConfig(
                dt=1 / 1024,
                coarse=4,
                layers=0,
                coupling="triangular",
                scales=3,
                width=24,
                ema=0.9995,
                batch_size=4096,
                paths=131_072,
                onward=0.125,
                start_fraction=0.75,
                patience=None,
            ),
            ("real", "positive"),
            samples=262_144,
        ),
        "double-well": Example(
            double_well(strength=2.0, noise=0.8),
            ([-2.0], [2.0]),
            2.0,
            DistillConfig(layers=0, coupling="triangular", steps=6000),
        ),
        "lotka-volterra": Example(
            lotka_volterra(),
            ([0.3, 0.3], [2.5, 2.5]),
            4.0,
            DistillConfig(octaves=2, layers=0, coupling="triangular", scales=1, steps=12_000),
            ("positive", "positive"),
        ),
        "fitzhugh-nagumo": Example(
            fitzhugh_nagumo(),
            ([-2.2, -0.6], [2.2, 1.6]),
            5.0,
            DistillConfig(octaves=2, layers=0, coupling="triangular", scales=1, steps=12_000),
        ),
        "langevin": Example(
            langevin_chain(CHAIN),
            _thermal,
            1.0,
            DistillConfig(width=24, bins=6, scales=1, paths=8192, rows=32, batch_size=512, steps=4000),
            samples=4096,
        ),
    }


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What distilling an example gave."""

    distilled: Distilled
    comparison: Comparison

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        d = self.distilled
        return {
            "config": dataclasses.asdict(d.config),
            "horizon": d.horizon,
            "dt": d.dt,
            "solver": d.solver,
            "relative": list(d.relative),
            "steps": d.history[-1]["step"],
            "stopped_early": d.stopped_early,
            "lost": d.lost,
            "folded": d.folded,
            "held_out_loss": min(row["validation_loss"] for row in d.history),
            "comparison": self.comparison.as_dict(),
        }


def run_example(
    example: Example,
    *,
    steps: int | None = None,
    folder: str | os.PathLike | None = None,
    progress: bool | None = None,
    report: Callable[[str], None] = lambda sentence: None,
    seed: int = 0,
) -> Outcome:
    """Distil an example and hold it against its solver; `steps` in place of its own budget."""
    config = example.config
    if steps is not None:
        config = dataclasses.replace(config, steps=steps, log_every=_divisor(steps, config.log_every))
    train_key, compare_key = jr.split(jr.key(seed))
    distilled = distill(
        example.sde,
        starts=example.starts,
        horizon=example.horizon,
        support=example.support,
        config=config,
        folder=folder,
        progress=progress,
        key=train_key,
    )
    report(f"trained in {distilled.seconds:.0f} s; comparing with the solver")
    return Outcome(distilled, compare(distilled, samples=example.samples, key=compare_key))


def _divisor(number: int, most: int) -> int:
    """The largest number that divides `number` and is no larger than `most`."""
    return max(each for each in range(1, min(number, most) + 1) if number % each == 0)


def machine() -> dict[str, Any]:
    """What the figures were taken on."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return {
        "backend": jax.default_backend(),
        "cores": cores,
        "processor": platform.machine(),
        "jax": jax.__version__,
    }


def outcome_rows(outcomes: dict[str, dict[str, Any]]) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """The docs' table, from what `Outcome.as_dict` returned: one row an example and gap."""
    headers = (
        "SDE", "gap", "KL (floor)", "energy distance", "worst PIT", "EM steps", "times faster", "trained, s",
        "break-even",
    )  # fmt: skip
    rows = []
    for name, outcome in outcomes.items():
        comparison = outcome["comparison"]
        for gap in comparison["gaps"]:
            kl = kl_cell(*(gap.get(name) for name in ("kl", "kl_std", "kl_floor", "kl_floor_std")))
            last = gap is comparison["gaps"][-1]
            pays = "never" if comparison["break_even"] is None else f"{comparison['break_even']:.1e}"
            rows.append(
                (
                    name,
                    f"{gap['gap']:g}",
                    kl,
                    f"{gap['energy']:.1e} ± {gap['energy_se']:.1e}",
                    f"{max(gap['pit']):.3f}",
                    str(gap["solver_steps"]) + ("" if gap.get("matched", True) else "+"),
                    f"{gap['speedup']:.2g}",
                    f"{comparison['train_seconds']:.0f}" if last else "",
                    pays if last else "",
                )
            )
    return headers, rows
