"""What a training run is told: one frozen, checked, serialisable record."""

import dataclasses
import json
from typing import Any

from ..data.pairs import SCHEMES, TRIPLET_SCHEMES

OPTIMISERS = ("muon", "adamw")
DECAYS = ("cosine", "linear", "constant")


@dataclasses.dataclass(frozen=True)
class FitConfig:
    r"""Settings of [`fit`][stochflow.fit]. Frozen; saved with every run.

    **Optimisation**

    - `steps`, `batch_size`: how many updates, of how many pairs each.
    - `optimiser`: `"muon"` (matrices by Muon, the rest by Adam) or `"adamw"`.
    - `learning_rate`, `warmup_steps`, `decay`: linear warm-up, then `"cosine"`, `"linear"` or `"constant"`.
    - `weight_decay`: decoupled, of matrices only.
    - `ema`: decay of the moving average of the weights that `fit` returns; 0 turns it off.
    - `clip`: gradients longer than `clip` times their usual norm are shortened to that.
    - `outlier`: those longer than `outlier` times the usual norm, and non-finite ones, are skipped and counted.

    **Data**

    - `horizon`: the longest gap that is trained, in the data's time units; the longest there is by default.
    - `pairs`: `"lag"` draws lags uniformly, `"pair"` draws pairs uniformly, `"root"` lies between.
    - `start_fraction`: the share of pairs that start at the first row of a series.
    - `standardise`: learn in units of each channel's mean and standard deviation.

    **Consistency** (needs a bridge)

    - `consistency`: the weight λ; 0 turns it off.
    - `one_to_two`, `two_to_one`: the weights of the two directions.
    - `consistency_batch`: how many triplets a step; as many as pairs by default.
    - `consistency_horizon`: the longest gap of a triplet; `horizon` by default. Longer than the data reaches, it
        is what teaches those gaps.
    - `consistency_start`: likelihood alone until this step. Those steps cost much less, and a law that is right at
        the gaps of the data has something to teach the others.
    - `consistency_jitter`: noise added to the starts of triplets, in standard deviations of the data. The loss needs
        no data at its starts, so it can fill the space between the few that a rare region has.
    - `consistency_warmup`: steps over which λ then rises from 0.
    - `triplets`: `"balanced"` or `"paper"`.
    - `bridge_steps`: K inner steps of the bridge a step; 0 updates it along with the flow.

    **Housekeeping**

    - `log_every`: steps between reports; must divide `steps`.
    - `checkpoint_seconds`: at most this much work is lost if the process is killed.
    - `patience`: stop after this many validations in a row without improvement; `None` never stops early.
    """

    steps: int = 20_000
    batch_size: int = 256
    optimiser: str = "muon"
    learning_rate: float = 1e-2
    warmup_steps: int = 500
    decay: str = "cosine"
    weight_decay: float = 0.0
    ema: float = 0.999
    clip: float = 5.0
    outlier: float = 50.0
    horizon: float | None = None
    pairs: str = "lag"
    start_fraction: float = 0.0
    standardise: bool = True
    consistency: float = 0.0
    one_to_two: float = 1.0
    two_to_one: float = 1.0
    consistency_batch: int | None = None
    consistency_horizon: float | None = None
    consistency_start: int = 0
    consistency_warmup: int = 0
    consistency_jitter: float = 0.0
    triplets: str = "balanced"
    bridge_steps: int = 0
    log_every: int = 500
    checkpoint_seconds: float = 30.0
    patience: int | None = None

    def __post_init__(self):
        for name in ("steps", "batch_size", "log_every"):
            _require(name, getattr(self, name), lambda v: isinstance(v, int) and v >= 1, "a positive integer")
        for name in ("warmup_steps", "consistency_start", "consistency_warmup", "bridge_steps"):
            _require(name, getattr(self, name), lambda v: isinstance(v, int) and v >= 0, "an integer ≥ 0")
        for name in ("learning_rate", "clip", "outlier", "checkpoint_seconds"):
            _require(name, getattr(self, name), lambda v: v > 0, "positive")
        for name in ("weight_decay", "consistency", "consistency_jitter", "one_to_two", "two_to_one"):
            _require(name, getattr(self, name), lambda v: v >= 0, "at least 0")
        for name in ("horizon", "consistency_horizon", "consistency_batch", "patience"):
            _require(name, getattr(self, name), lambda v: v is None or v > 0, "positive, or None")
        _require("ema", self.ema, lambda v: 0 <= v < 1, "in [0, 1)")
        _require("start_fraction", self.start_fraction, lambda v: 0 <= v <= 1, "in [0, 1]")
        for name, known in [
            ("optimiser", OPTIMISERS),
            ("decay", DECAYS),
            ("pairs", SCHEMES),
            ("triplets", TRIPLET_SCHEMES),
        ]:
            _require(
                name, getattr(self, name), lambda v, known=known: v in known, f"one of {', '.join(known)}"
            )
        if self.steps % self.log_every:
            raise ValueError(f"`log_every` must divide `steps`; got {self.log_every}, {self.steps}.")

    def to_json(self) -> str:
        return json.dumps(dataclasses.asdict(self), indent=2)

    @classmethod
    def from_json(cls, text: str) -> "FitConfig":
        given = json.loads(text)
        known = {field.name for field in dataclasses.fields(cls)}
        if unknown := sorted(set(given) - known):
            raise ValueError(f"unknown settings {', '.join(unknown)}; known are {', '.join(sorted(known))}.")
        return cls(**given)


def _require(name: str, value: Any, holds, what: str) -> None:
    if isinstance(value, float) and value != value:
        raise ValueError(f"`{name}` must be {what}; got nan.")
    if not holds(value):
        raise ValueError(f"`{name}` must be {what}; got {value!r}.")
