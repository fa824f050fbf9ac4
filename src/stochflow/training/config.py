"""What a training run is told: one frozen, checked, serialisable record."""

import dataclasses
import json
import math
import os
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..data.pairs import SCHEMES, TRIPLET_SCHEMES
from ..objectives import DIRECTIONS

OPTIMISERS = ("muon", "adamw")
DECAYS = ("cosine", "linear", "constant")


@dataclasses.dataclass(frozen=True)
class RunConfig:
    r"""What every training run is told, whatever is trained. Frozen; saved with the run.

    **Optimisation**

    - `steps`: how many updates.
    - `batch_size`: of how many pairs (or series) each.
    - `optimiser`: `"muon"` (matrices by Muon, the rest by Adam) or `"adamw"`.
    - `learning_rate`: the highest, after the warm-up.
    - `warmup_steps`, `decay`: linear warm-up, then `"cosine"`, `"linear"` or `"constant"`.
    - `weight_decay`: decoupled, of matrices only.
    - `ema`: decay of the moving average of the weights that is returned; less in the first steps, so that the average
        forgets where it began. 0 turns it off.
    - `clip`: gradients longer than `clip` times their usual norm are shortened to that.
    - `outlier`: those longer than `outlier` times the usual norm, and non-finite ones, are skipped and counted.
    - `standardise`: learn in units of each channel's mean and standard deviation.

    **Consistency** (needs a bridge, unless `one_way`)

    - `consistency`: the weight λ; 0 turns it off.
    - `one_to_two`, `two_to_one`: the weights of the two directions.
    - `consistency_batch`: how many triplets a step; half of them go each way, or all if one direction has no weight.
    - `one_way`: if not 0, gaps up to the horizon $H$ and longer than $2H/n$ learn from samples of $n$ shorter steps,
        which learn nothing from them, and the rest from the data alone; needs no bridge, and the weights of the
        directions are not used. What to choose where few pairs or none span the long gaps; the steps should be gaps
        that the data has plenty of. Samples that are not finite teach nothing, nor do hidden states of a latent flow
        that leave the range of a batch's by far.
    - `consistency_horizon`: the longest gap of a triplet; the longest of the data by default. Longer than the data
        reaches, it is what teaches those gaps.
    - `triplets`: `"balanced"` or `"paper"`.
    - `bridge_steps`: K inner steps of the bridge a step; 0 updates it along with the flow.

    **Housekeeping**

    - `log_every`: steps between reports; must divide `steps`.
    - `checkpoint_seconds`: a checkpoint is written at the last report before so much time has passed since the one
        before: a kill loses at most so much, or the steps of one report if those take longer.
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
    standardise: bool = True
    consistency: float = 0.0
    one_to_two: float = 1.0
    two_to_one: float = 1.0
    consistency_batch: int | None = None
    consistency_horizon: float | None = None
    triplets: str = "balanced"
    bridge_steps: int = 0
    one_way: int = 0
    log_every: int = 500
    checkpoint_seconds: float = 30.0
    patience: int | None = None

    def __post_init__(self):
        for field in dataclasses.fields(self):
            object.__setattr__(self, field.name, plain(getattr(self, field.name)))
        self._require_all(("steps", "batch_size", "log_every"), is_count, "a positive integer")
        self._require_all(("warmup_steps", "bridge_steps"), is_natural, "an integer ≥ 0")
        self._require_all(
            ("learning_rate", "clip", "outlier", "checkpoint_seconds"), lambda v: v > 0, "positive"
        )
        self._require_all(
            ("weight_decay", "consistency", "one_to_two", "two_to_one"), lambda v: v >= 0, "at least 0"
        )
        self._require_all(("consistency_horizon",), is_positive_or_none, "positive, or None")
        self._require_all(("consistency_batch", "patience"), is_count_or_none, "a positive integer, or None")
        self._require_all(("ema",), lambda v: 0 <= v < 1, "in [0, 1)")
        switches = [field.name for field in dataclasses.fields(self) if field.type is bool]
        for name in switches:
            if not isinstance(value := getattr(self, name), bool):
                raise ValueError(f"`{name}` must be True or False; got {value!r}.")
        self._require_known(optimiser=OPTIMISERS, decay=DECAYS, triplets=TRIPLET_SCHEMES)
        self._require_all(("one_way",), lambda v: is_natural(v) and v not in (1, 2), "0, or an integer ≥ 3")
        if self.consistency > 0 and not self.one_way and not self.directions:
            raise ValueError("`one_to_two` or `two_to_one` must be positive when `consistency` is.")
        if self.one_way and self.consistency == 0:
            raise ValueError("`one_way` asks for a positive `consistency`.")
        if self.one_way and self.bridge_steps:
            raise ValueError("`bridge_steps` must be 0 when `one_way` is set: there is no bridge.")
        if self.steps % self.log_every:
            raise ValueError(
                f"`log_every` must divide `steps`; got {self.log_every}, {self.steps}: give "
                f"`log_every={math.gcd(self.log_every, self.steps)}`, say."
            )

    @property
    def directions(self) -> tuple[str, ...]:
        """Those of the consistency loss that have a weight."""
        return tuple(name for name in DIRECTIONS if getattr(self, name) > 0)

    def _require_all(self, names, holds, what):
        for name in names:
            require(name, getattr(self, name), holds, what)

    def _require_known(self, **choices):
        for name, known in choices.items():
            self._require_all((name,), lambda v, known=known: v in known, f"one of {', '.join(known)}")

    def to_json(self) -> str:
        return json.dumps(dataclasses.asdict(self), indent=2)

    @classmethod
    def from_json(cls, text: str):
        given = json.loads(text)
        known = {field.name for field in dataclasses.fields(cls)}
        if unknown := sorted(set(given) - known):
            raise ValueError(f"unknown settings {', '.join(unknown)}; known are {', '.join(sorted(known))}.")
        return cls(**given)


@dataclasses.dataclass(frozen=True)
class FitConfig(RunConfig):
    r"""Settings of [`fit`][stochflow.training.fit]: those of every run, and

    **Data**

    - `horizon`: the longest gap that is trained, in the data's time units; the longest there is by default.
    - `pairs`: `"lag"` draws lags uniformly, `"pair"` draws pairs uniformly, `"root"` lies between; `"log"` draws the
        logarithm of the lag uniformly.
    - `start_fraction`: the share of pairs that start at the first row of a series.

    **Consistency**

    - `consistency_batch`: how many triplets a step; as many as pairs by default.
    - `consistency_start`: likelihood alone until this step. Those steps cost much less, and a law that is right at
        the gaps of the data has something to teach the others.
    - `consistency_jitter`: noise added to the starts of triplets, in standard deviations of the data. The loss needs
        no data at its starts, so it can fill the space between the few that a rare region has.
    - `consistency_warmup`: steps over which λ then rises from 0.
    - `consistency_growth`: steps over which the longest gap of a triplet then grows from the longest of the data to
        `consistency_horizon`, so that a gap beyond the data is compared with gaps that are known, or were learnt
        before it.
    """

    horizon: float | None = None
    pairs: str = "lag"
    start_fraction: float = 0.0
    consistency_start: int = 0
    consistency_warmup: int = 0
    consistency_growth: int = 0
    consistency_jitter: float = 0.0

    def __post_init__(self):
        RunConfig.__post_init__(self)
        counts = ("consistency_start", "consistency_warmup", "consistency_growth")
        self._require_all(counts, is_natural, "an integer ≥ 0")
        self._require_all(("consistency_jitter",), lambda v: v >= 0, "at least 0")
        self._require_all(("horizon",), is_positive_or_none, "positive, or None")
        self._require_all(("start_fraction",), lambda v: 0 <= v <= 1, "in [0, 1]")
        self._require_known(pairs=SCHEMES)
        if self.one_way and self.consistency_growth:
            raise ValueError(
                "`consistency_growth` must be 0 when `one_way` is set: its short steps are known from the start."
            )


SKIP_SCHEMES = ("uniform", "log", "lag")


@dataclasses.dataclass(frozen=True)
class LatentConfig(RunConfig):
    r"""Settings of [`fit_latent`][stochflow.training.fit_latent]: those of every run (`batch_size` counts series), and

    **Objective**

    - `beta`: the weight of the KL divergence from one row to the next.
    - `beta_skip`: that of the skip-ahead KL divergence, from a row to one further on. Where the states of a posterior
        hang together (`"smooth"`, Kalman), its law of a row given one long before is not known: there the transition
        learns the long steps of its paths by their likelihood, and the paths are not bent to suit it.
    - `forecast`: the weight of the energy score of forecasts over such skips, each from what the past tells of its
        first row: what a forecast is worth in the units of the data. Not for smoothing posteriors.
    - `skip_lag`: the furthest row on, τ; all that there are by default.
    - `skip_scheme`: from a row drawn first, rows on drawn `"uniform"`ly, as in the paper, or by the `"log"` of their
        number; `"lag"` draws the number of rows on first, uniformly, and then a row that has room for it, so that the
        longest skips do not starve.
    - `skip_starts`: from how many rows a step.
    - `skip_samples`: to how many rows further on from each.
    - `transitions`: how many of the steps from row to row are used in an update, drawn anew for each; all by
        default. The cost of an update then does not grow with the length of the series.
    - `weights_warmup`: steps over which `beta`, `beta_skip`, `consistency` and `forecast` rise from 0.
    - `beta_warmup`, `skip_warmup`, `consistency_warmup`, `forecast_warmup`: for one of them alone; as the others by
        default.

    **Data**

    - `common_scale`: one scale for all channels, so that errors count as they do in the data's own units.
    - `time_unit`: the unit of time that the model computes in, in the data's; by default the geometric mean of the
        usual gap and the longest.
    - `window`: rows of each series that an update sees, a random stretch; all by default, up to 512.
    - `input_noise`: noise on what the posterior reads, in standard deviations of the data.
    - `drop_rows`: the share of rows that are hidden from the posterior.
    """

    batch_size: int = 64
    learning_rate: float = 5e-3
    consistency_batch: int | None = 256
    beta: float = 1.0
    beta_skip: float = 1.0
    forecast: float = 0.0
    skip_lag: int | None = None
    skip_scheme: str = "uniform"
    skip_starts: int = 256
    skip_samples: int = 2
    transitions: int | None = None
    weights_warmup: int = 0
    beta_warmup: int | None = None
    skip_warmup: int | None = None
    consistency_warmup: int | None = None
    forecast_warmup: int | None = None
    common_scale: bool = False
    time_unit: float | None = None
    window: int | None = None
    input_noise: float = 0.0
    drop_rows: float = 0.0

    def __post_init__(self):
        RunConfig.__post_init__(self)
        self._require_all(("skip_starts", "skip_samples"), is_count, "a positive integer")
        self._require_all(("weights_warmup",), is_natural, "an integer ≥ 0")
        warmups = ("beta_warmup", "skip_warmup", "consistency_warmup", "forecast_warmup")
        self._require_all(warmups, lambda v: v is None or is_natural(v), "an integer ≥ 0, or None")
        self._require_all(("beta", "beta_skip", "forecast", "input_noise"), lambda v: v >= 0, "at least 0")
        self._require_all(("time_unit",), is_positive_or_none, "positive, or None")
        self._require_all(("transitions",), is_count_or_none, "a positive integer, or None")
        at_least_two = lambda v: v is None or (is_count(v) and v >= 2)
        self._require_all(("skip_lag", "window"), at_least_two, "an integer of at least 2, or None")
        self._require_all(("drop_rows",), lambda v: 0 <= v < 1, "in [0, 1)")
        self._require_known(skip_scheme=SKIP_SCHEMES)


def is_count(value):
    return isinstance(value, int) and value >= 1


def is_natural(value):
    return isinstance(value, int) and value >= 0


def is_count_or_none(value):
    return value is None or is_count(value)


def is_positive_or_none(value):
    return value is None or value > 0


def check_progress(progress: Any) -> None:
    """A bar is shown, or not, or on a terminal only."""
    if not isinstance(progress, bool | None):
        raise ValueError(f"`progress` must be True, False or None; got {progress!r}.")


def check_key(key: Any) -> None:
    """A key of JAX's, of either kind."""
    array = isinstance(key, jax.Array)
    if not array or not (jnp.issubdtype(key.dtype, jax.dtypes.prng_key) or key.dtype == jnp.uint32):
        raise ValueError(f"`key` must be a key of JAX's, such as `jax.random.key(0)`; got {key!r}.")


def checked_path(name: str, path: Any) -> str | os.PathLike:
    """A path of a file or folder, or an error that names the argument."""
    if not isinstance(path, str | os.PathLike):
        raise ValueError(f"`{name}` must be a path; got {path!r}.")
    return path


def plain(value: Any) -> Any:
    """A number of NumPy's as one of Python's own, which is what JSON can write."""
    return value.item() if isinstance(value, np.generic) else value


def require(name: str, value: Any, holds, what: str) -> None:
    if not _is_sensible(value, holds):
        what = f"{what} and finite" if isinstance(value, float) and not math.isfinite(value) else what
        raise ValueError(f"`{name}` must be {what}; got {value!r}.")


def _is_sensible(value, holds) -> bool:
    """Whether `holds` of a setting, which is no truth value and no number without end."""
    if isinstance(value, bool) or (isinstance(value, float) and not math.isfinite(value)):
        return False
    try:
        return holds(value)
    except TypeError:  # a word where a number belongs
        return False
