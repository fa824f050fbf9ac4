"""`Forecaster`: fit on a data frame, predict at any time, with the manners of scikit-learn."""

import dataclasses
import inspect
import os
import time as clock
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax.random as jr
import narwhals as nw
import numpy as np

from .direct import DirectModel, DirectPlan, Past, fit_direct, make_support
from .frames import Columns, Panel, as_frame, find_columns, read_panel
from .latent import LatentModel, fit_latent_model
from .learn import Check, LearnConfig
from .outputs import model_card, sample_frame, summary_frame
from .times import TimeAxis, read_times

KINDS = ("auto", "flow", "latent")
SCALINGS = ("auto", "global", "series")
# Above this share of rows with a channel missing, a law of complete rows would throw too much away.
INCOMPLETE = 0.2
# Forecasts at one time must not be so many that a slip of the pen fills the memory.
MOST_TIMES = 100_000
# Draws behind a quantile that was asked for without a number of samples.
DRAWS = 400


class NotFittedError(ValueError, AttributeError):
    """Something was asked of a forecaster that has not been fitted."""


class Fitted(NamedTuple):
    """All that a fitted forecaster knows."""

    columns: Columns
    axis: TimeAxis
    names: tuple[str, ...]
    model: DirectModel | LatentModel
    gap: float
    card: dict[str, Any]
    frame: str


class Forecaster:
    """Forecasts of irregular series from a data frame, at any time, as samples, quantiles or intervals.

    ```python
    model = stochflow.Forecaster()
    model.fit(df, id="seal", time="date_time", values=["x", "y"])
    model.predict(horizon="7d", every="6h", quantiles=[0.05, 0.5, 0.95])
    ```

    **Arguments:**

    - `kind`: `"flow"` learns the law of the observed values, each row given those before it; `"latent"` that of a
        hidden state seen through noise, and reads rows of which channels are missing; `"auto"` takes the flow unless
        more than a fifth of the rows are incomplete, and `card_` says which.
    - `horizon`: the longest gap that is learnt in one step, such as `"30d"`; a twentieth of all the time observed by
        default. Forecasts further ahead are chained.
    - `support`: for channels that cannot be anything: `{"price": "positive", "share": (0, 1)}`.
    - `scaling`: `"global"` measures all series alike, `"series"` each in its own mean and spread; `"auto"` decides.
    - `steps`, `batch_size`, `learning_rate`, `weight_decay`, `width`, `depth`: of the training. `depth` 0, the
        default, is a law whose parameters are linear in what is read of the past; more is for many series.
    - `folds`: parts that are held out in turn, to see how far the law's drift and spread are to be believed; 0 for
        none.
    - `random_state`: seed of the training and, unless they are given one, of forecasts.
    - `progress`: show a bar; by default on a terminal only.

    Attributes that end in `_` are there after `fit`: `columns_`, `horizon_`, `kind_`, `card_`, `model_`.
    """

    def __init__(
        self,
        *,
        kind: str = "auto",
        horizon: Any = None,
        support: Mapping[str, Any] | None = None,
        scaling: str = "auto",
        steps: int = 3000,
        batch_size: int = 384,
        learning_rate: float = 1e-2,
        weight_decay: float = 1.0,
        width: int = 32,
        depth: int = 0,
        folds: int = 3,
        random_state: int = 0,
        progress: bool | None = None,
    ):
        self.kind = kind
        self.horizon = horizon
        self.support = support
        self.scaling = scaling
        self.steps = steps
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay
        self.width = width
        self.depth = depth
        self.folds = folds
        self.random_state = random_state
        self.progress = progress

    @classmethod
    def _names(cls) -> list[str]:
        return [name for name in inspect.signature(cls.__init__).parameters if name != "self"]

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The arguments that it was made with, by name."""
        return {name: getattr(self, name) for name in self._names()}

    def set_params(self, **params: Any) -> "Forecaster":
        """Change some of them; what has been fitted stays until `fit` is called again."""
        known = self._names()
        for name, value in params.items():
            if name not in known:
                raise ValueError(f"there is no parameter {name!r}; they are {', '.join(known)}.")
            setattr(self, name, value)
        return self

    def __repr__(self) -> str:
        defaults = inspect.signature(type(self).__init__).parameters
        changed = [
            f"{n}={v!r}"
            for n, v in self.get_params().items()
            if v is not (d := defaults[n].default) and v != d
        ]
        return f"Forecaster({', '.join(changed)})"

    # --- fitting -----------------------------------------------------------------------------------------------

    def fit(
        self,
        df: Any,
        *,
        id: str | None = None,
        time: str | None = None,
        values: Sequence[str] | str | None = None,
        channel: str | None = None,
        static: Sequence[str] | str = (),
        past: Sequence[str] | str = (),
        future: Sequence[str] | str = (),
    ) -> "Forecaster":
        """Learn from a long data frame, of pandas or polars.

        **Arguments:**

        - `id`, `time`, `values`: columns; `unique_id`, `ds` and `y` need not be named. Without an id there is one
            series. Without values, all other columns of numbers are. A value that is missing is empty (null or NaN).
        - `channel`: for rows of one channel each, the column that says which; `values` is then one column.
        - `static`, `past`, `future`: covariates: one number a series; known when a forecast is made; known ahead.
        """
        self._check_params()
        begin = clock.monotonic()
        frame = as_frame(df)
        columns = find_columns(
            frame, id=id, time=time, values=values, channel=channel, static=static, past=past, future=future
        )
        panel, axis, names = read_panel(frame, columns)
        kind = self._choose(panel, columns)
        key = jr.key(self.random_state)
        horizon = None if self.horizon is None else axis.length(self.horizon, "horizon")
        intervals = self._intervals(names)
        checks: list[Check] = []
        if kind == "flow":
            own = {"auto": None, "global": False, "series": True}[self.scaling]
            plan = DirectPlan(intervals, horizon, own, self._learning())
            model, checks = fit_direct(panel, names, plan, progress=self.progress, key=key)
        else:
            support = make_support(np.concatenate(panel.values), names, intervals)
            model = fit_latent_model(
                panel, names, support, horizon=horizon, steps=self.steps, progress=self.progress, key=key
            )
        gap = float(np.median(np.concatenate([np.diff(t) for t in panel.times])))
        card = model_card(panel, axis, names, kind, model, checks, clock.monotonic() - begin)
        frame_kind = str(frame.implementation)
        self._set(Fitted(columns, axis, names, model, gap, card, frame_kind), panel)
        return self

    def _set(self, fitted: Fitted, panel: Panel | None, past: Past | None = None) -> None:
        self.fitted_ = fitted
        self.columns_, self.model_, self.card_ = fitted.columns, fitted.model, fitted.card
        self.horizon_ = fitted.axis.show_length(fitted.model.horizon)
        self.kind_ = fitted.card["kind"]
        self.panel_ = panel
        if isinstance(fitted.model, DirectModel):
            self.past_ = fitted.model.past(panel) if panel is not None else past

    def _check_params(self) -> None:
        for name, known in (("kind", KINDS), ("scaling", SCALINGS)):
            if getattr(self, name) not in known:
                raise ValueError(f"`{name}` must be one of {', '.join(known)}; got {getattr(self, name)!r}.")
        for name in ("steps", "batch_size", "width"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise ValueError(f"`{name}` must be a positive integer; got {value!r}.")
        if (
            isinstance(self.folds, bool)
            or not isinstance(self.folds, int)
            or self.folds < 0
            or self.folds == 1
        ):
            raise ValueError(f"`folds` must be 0, or an integer of at least 2; got {self.folds!r}.")
        _seed(self.random_state, self)

    def _learning(self) -> LearnConfig:
        shared = {field.name for field in dataclasses.fields(LearnConfig)}
        return LearnConfig(**{name: value for name, value in self.get_params().items() if name in shared})

    def _choose(self, panel: Panel, columns: Columns) -> str:
        if self.kind != "auto":
            kind = self.kind
        else:
            present = np.concatenate([~np.isnan(x).all(1) for x in panel.values])
            whole = np.concatenate([~np.isnan(x).any(1) for x in panel.values])
            kind = "latent" if whole.sum() < (1 - INCOMPLETE) * present.sum() else "flow"
        if kind == "latent" and (columns.static or columns.past or columns.future):
            raise ValueError(
                "covariates are for `kind='flow'`; leave them out, or the rows with missing channels."
            )
        return kind

    def _intervals(self, names: tuple[str, ...]) -> list[Any]:
        support = dict(self.support or {})
        if strangers := sorted(set(support) - set(names)):
            raise ValueError(
                f"`support` names {strangers[0]!r}, which is no value; they are {', '.join(names)}."
            )
        return [support.get(name, "real") for name in names]

    def _fitted(self) -> Fitted:
        if not hasattr(self, "fitted_"):
            raise NotFittedError("this Forecaster has not been fitted: call `fit` first.")
        return self.fitted_

    # --- forecasts ---------------------------------------------------------------------------------------------

    def predict(
        self,
        df: Any = None,
        *,
        horizon: Any = None,
        every: Any = None,
        times: Any = None,
        future: Any = None,
        samples: int | None = None,
        quantiles: Sequence[float] | None = None,
        interval: float | None = None,
        paths: bool = False,
        random_state: int | None = None,
    ) -> Any:
        """Forecasts of each series after its last row, as a data frame of the kind that was fitted.

        **Arguments:**

        - `df`: the past of series to forecast, with the columns of the fit; those of the fit by default. New ones need
            no new fit.
        - `horizon`, `every`: at each `every` up to `horizon` after a series' last row, such as `"7d"` and `"6h"`;
            `every` is the usual gap by default. Or `times`: at these, the same for all series.
        - `future`: a frame with the covariates known ahead at those times.
        - `samples`: so many draws, a row each; `quantiles`: a column each; `interval`: the median and the ends of the
            central interval of this probability (0.9 if nothing else is asked for).
        - `paths`: draw whole paths, from each time to the next, and not each time straight from the last row: for
            questions about several times together. It takes longer.
        - `random_state`: seed of the draws.
        """
        fitted = self._fitted()
        draws, ids, at, like = self._forecast(df, horizon, every, times, future, samples, paths, random_state)
        if samples is not None and quantiles is None and interval is None:
            return sample_frame(draws, ids, at, fitted.names, fitted.columns, fitted.axis, like)
        return summary_frame(
            draws, ids, at, fitted.names, fitted.columns, fitted.axis, like, quantiles, interval
        )

    def _forecast(self, df, horizon, every, times, future, samples, paths, random_state):
        fitted = self._fitted()
        like = self._like(df)
        panel = None if df is None else self._panel(df)
        if panel is None and isinstance(fitted.model, LatentModel):
            panel = self._own_panel()
        if samples is not None and (isinstance(samples, bool) or not isinstance(samples, int) or samples < 1):
            raise ValueError(f"`samples` must be a positive integer; got {samples!r}.")
        number = DRAWS if samples is None else samples
        key = jr.key(_seed(random_state, self))
        if isinstance(fitted.model, DirectModel):
            past = self.past_ if panel is None else fitted.model.past(panel)
            at = self._times(past.last, past.ids, horizon, every, times)
            ahead = self._ahead(future, past.ids, at)
            drawn = fitted.model.draw(past, at, ahead, samples=number, joint=paths, key=key)
            return drawn, past.ids, at, like
        assert panel is not None
        last = np.array([t[~np.isnan(x).all(1)][-1] for t, x in zip(panel.times, panel.values, strict=True)])
        at = self._times(last, panel.ids, horizon, every, times)
        drawn = np.stack(
            [
                fitted.model.draw(t, x, a, name, samples=number, joint=paths, key=key)
                for t, x, a, name in zip(panel.times, panel.values, at, panel.ids, strict=True)
            ]
        )
        return drawn, panel.ids, at, like

    def _own_panel(self) -> Panel:
        if self.panel_ is None:
            raise ValueError("a latent model that was loaded from a file does not hold its data: pass `df`.")
        return self.panel_

    def _like(self, df) -> nw.DataFrame:
        if df is not None:
            return as_frame(df)
        return nw.from_dict({"empty": [0]}, backend=self.fitted_.frame)

    def _panel(self, df: Any) -> Panel:
        fitted = self._fitted()
        frame = as_frame(df)
        c = fitted.columns
        there = find_columns(
            frame,
            id=c.id,
            time=c.time,
            values=c.values,
            channel=c.channel,
            static=c.static,
            past=c.past,
            future=c.future,
        )
        return read_panel(frame, there, fitted.axis, channels=fitted.names if c.channel else None)[0]

    def _times(self, last, ids, horizon, every, times) -> np.ndarray:
        axis = self.fitted_.axis
        if (times is None) == (horizon is None):
            raise ValueError("pass either `horizon` (and `every`), or `times`.")
        if horizon is not None:
            step = self.fitted_.gap if every is None else axis.length(every, "every")
            span = axis.length(horizon, "horizon")
            number = int(np.floor(span / step + 1e-9))
            if not 1 <= number <= MOST_TIMES:
                raise ValueError(
                    f"`every` must go between once and {MOST_TIMES} times into `horizon`; "
                    f"{axis.show_length(step)} goes {number} times into {axis.show_length(span)}."
                )
            return last[:, None] + step * np.arange(1, number + 1)
        if every is not None:
            raise ValueError("`every` goes with `horizon`; with `times` leave it out.")
        wanted = np.unique(read_times(times, axis))
        late = last > wanted[0]
        if late.any():
            i = int(late.argmax())
            raise ValueError(
                f"`times` must not lie before the last row of a series; series {ids[i]!r} ends at "
                f"{axis.show(last[i])} and the first is {axis.show(wanted[0])}: for times within a series use `impute`."
            )
        return np.tile(wanted, (len(last), 1))

    def _ahead(self, future, ids, at) -> np.ndarray:
        fitted = self.fitted_
        names = fitted.columns.future
        if not names:
            if future is not None:
                raise ValueError("the model was fitted without covariates that are known ahead.")
            return np.zeros((*at.shape, 0))
        if future is None:
            raise ValueError(
                f"`future` must be a frame with {', '.join(names)} at the times of the forecast."
            )
        frame = as_frame(future)
        columns = find_columns(frame, id=fitted.columns.id, time=fitted.columns.time, values=names)
        panel, _, _ = read_panel(frame, columns, fitted.axis)
        known = dict(zip(panel.ids, range(len(panel)), strict=True))
        out = np.empty((*at.shape, len(names)))
        for i, name in enumerate(ids):
            if name not in known:
                raise ValueError(f"`future` has no rows of series {name!r}.")
            t, x = panel.times[known[name]], panel.values[known[name]]
            place = np.clip(np.searchsorted(t, at[i] - 1e-6), 0, len(t) - 1)
            off = (np.abs(t[place] - at[i]) > 1e-6 * (1 + np.abs(at[i]))) | np.isnan(x[place]).any(1)
            if off.any():
                when = fitted.axis.show(at[i][off.argmax()])
                raise ValueError(f"`future` has no complete row of series {name!r} at {when}.")
            out[i] = x[place]
        return out

    # --- files -------------------------------------------------------------------------------------------------

    def save(self, path: str | os.PathLike) -> None:
        """Write the model to one file that holds no code and is checked when it is read."""
        from .files import save_forecaster

        save_forecaster(self, path)

    @classmethod
    def load(cls, path: str | os.PathLike) -> "Forecaster":
        """A forecaster from a file that `save` wrote."""
        from .files import load_forecaster

        return load_forecaster(cls, path)


def _seed(random_state: int | None, forecaster: Forecaster) -> int:
    seed = forecaster.random_state if random_state is None else random_state
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or seed < 0:
        raise ValueError(f"`random_state` must be an integer ≥ 0; got {seed!r}.")
    return int(seed)
