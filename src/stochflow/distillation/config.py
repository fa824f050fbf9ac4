"""What a distillation is told: one frozen, checked, serialisable record."""

import dataclasses
from typing import Any

from ..flows.clocks import CLOCKS
from ..flows.stack import COUPLINGS, check_sizes
from ..sde.solvers import SOLVERS
from ..training import RunConfig
from ..training.config import is_count, is_positive_or_none, plain, require

# As shares of the horizon, from the one that helps the most on.
SCALES = (0.125, 0.5, 0.03125)


@dataclasses.dataclass(frozen=True)
class DistillConfig:
    r"""Settings of [`distill`][stochflow.distillation.distill]. Frozen; saved with the run.

    **The flow** (see [`StochasticFlow`][stochflow.flows.StochasticFlow])

    - `width`, `depth`, `layers`, `coupling`, `bins`, `tails`, `octaves`, `clock`: of the flow. Smaller is faster to
        sample: a flow need only be as exact as the solver that it replaces.
    - `ring`: networks that see the neighbours of a coordinate, with the same weights everywhere. By default they do if
        the SDE is such a ring: each coordinate is driven by those near it, and as all others are.
    - `scales`: at how many scales of its own the networks see the gap, of 1/8, 1/2 and 1/32 of the horizon. Laws change
        the fastest at short gaps.

    **Training**

    - `steps`: at most so many updates.
    - `batch_size`: of so many pairs each, an even number: each path comes with its mirror image.
    - `learning_rate`, `warmup_steps`: Muon's rate, reached after the warm-up; it then falls to zero along a cosine.
    - `ema`: the decay of the moving average of the weights.
    - `log_every`: steps between validations, and between two sets of paths; must divide `steps`.
    - `patience`: stop after this many validations in a row without a better held-out likelihood; `None`, or 0, never
        does.
    - `checkpoint_seconds`: a checkpoint is written at the first validation after this time.

    **Solver**

    - `dt`: the solver's step. By default the coarsest that moves no mean and no standard deviation at the horizon by
        more than a few thousandths of a standard deviation.
    - `coarse`: for the first three quarters of the updates the solver's steps are about so many times as long. What
        they get wrong is unlearnt in the last quarter, and paths cost less. Needs a `patience` of None, or 0.
    - `solver`: a name that [`solve`][stochflow.sde.solve] knows; by default the one of the highest order that fits the
        noise.
    - `paths`: how many are simulated anew for each `log_every` steps.
    - `rows`: states kept of each path, per horizon. The shortest gap that is learnt is the horizon over `rows`.
    - `onward`: how long paths go on beyond the horizon, in horizons: pairs start along them too, so that steps can be
        chained.
    - `start_fraction`: the share of pairs that start where the paths do.
    """

    width: int = 32
    depth: int = 2
    layers: int = 2
    coupling: str = "spline"
    bins: int = 8
    tails: bool = False
    octaves: int = 0
    scales: int = 0
    ring: bool | None = None
    clock: str = "saturating"
    steps: int = 20_000
    batch_size: int = 1024
    learning_rate: float = 1e-2
    warmup_steps: int = 200
    ema: float = 0.998
    log_every: int = 250
    patience: int | None = 20
    checkpoint_seconds: float = 30.0
    dt: float | None = None
    coarse: int = 1
    solver: str | None = None
    paths: int = 32_768
    rows: int = 64
    onward: float = 0.5
    start_fraction: float = 0.5

    def __post_init__(self):
        for field in dataclasses.fields(self):
            object.__setattr__(self, field.name, plain(getattr(self, field.name)))
        if self.patience == 0 and not isinstance(self.patience, bool):
            object.__setattr__(self, "patience", None)
        self.run()  # checks what every run has
        check_sizes(**{name: getattr(self, name) for name in ("width", "depth", "layers", "bins", "octaves")})
        if not isinstance(self.tails, bool):
            raise ValueError(f"`tails` must be True or False; got {self.tails!r}.")
        if not isinstance(self.ring, bool | None):
            raise ValueError(f"`ring` must be True, False or None; got {self.ring!r}.")
        if self.ring and (self.tails or self.coupling == "triangular"):
            raise ValueError("`ring` does not go with `tails` or triangular splines.")
        known = {"coupling": COUPLINGS, "clock": CLOCKS, "solver": (None, *SOLVERS)}
        for name, names in known.items():
            listed = ", ".join(map(str, names))
            require(name, getattr(self, name), lambda v, names=names: v in names, f"one of {listed}")
        for name in ("paths", "rows", "batch_size"):
            even = lambda v: is_count(v) and v % 2 == 0
            require(name, getattr(self, name), even, "a positive even integer")
        up_to = lambda v: isinstance(v, int) and 0 <= v <= len(SCALES)
        require("scales", self.scales, up_to, f"an integer from 0 to {len(SCALES)}")
        require("coarse", self.coarse, is_count, "a positive integer")
        if self.coarse > 1 and self.patience is not None:
            raise ValueError(
                "`coarse` needs a `patience` of None, or 0: a run that stops early would end with coarse steps."
            )
        require("dt", self.dt, is_positive_or_none, "positive, or None")
        require("onward", self.onward, lambda v: v >= 0, "at least 0")
        require("start_fraction", self.start_fraction, lambda v: 0 <= v <= 1, "in [0, 1]")

    def run(self) -> RunConfig:
        """The part that the training loop reads."""
        shared = {field.name for field in dataclasses.fields(RunConfig)} & set(dataclasses.asdict(self))
        return RunConfig(**{name: getattr(self, name) for name in shared})

    def flow(self) -> dict[str, Any]:
        """The part that the flow is made from."""
        names = ("width", "depth", "layers", "coupling", "bins", "tails", "octaves", "clock")
        return {name: getattr(self, name) for name in names} | {"scales": SCALES[: self.scales]}
