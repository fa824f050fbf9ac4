"""`Forecaster`: fit on a data frame, predict at any time, with the manners of scikit-learn."""

import dataclasses
import inspect
import os
import time as clock
from collections.abc import Mapping, Sequence
from typing import Any, cast

import jax.random as jr
import narwhals as nw
import numpy as np

from .backtest import backtest
from .direct import DirectModel, DirectPlan, Past, check_support, fit_direct, make_support
from .evaluate import Fitted, draw_origins, impute_series, score_rows
from .frames import Columns, Panel, as_frame, find_columns, read_panel
from .latent import LatentModel, fit_latent_model
from .learn import Check, LearnConfig
from .outputs import (
    between_frame,
    check_levels,
    filled_frame,
    model_card,
    sample_frame,
    score_frame,
    summary_frame,
)
from .requests import forecast_times, known_ahead
from .times import read_times

KINDS = ("auto", "flow", "latent")
SCALINGS = ("auto", "global", "series")
# Above this share of rows with a channel missing, a law of complete rows would throw too much away.
INCOMPLETE = 0.2
# Draws behind a quantile that was asked for without a number of samples.
DRAWS = 400


class NotFittedError(ValueError, AttributeError):
    """Something was asked of a forecaster that has not been fitted."""


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
        folder: str | os.PathLike | None = None,
    ) -> "Forecaster":
        """Learn from a long data frame, of pandas or polars.

        **Arguments:**

        - `id`, `time`, `values`: columns; `unique_id`, `ds` and `y` need not be named. Without an id there is one
            series. Without values, all other columns of numbers are. A value that is missing is empty (null or NaN).
        - `channel`: for rows of one channel each, the column that says which; `values` is then one column.
        - `static`, `past`, `future`: covariates: one number a series; known when a forecast is made; known ahead.
        - `folder`: a run folder for checkpoints (of a flow): an interrupted fit with the same arguments goes on there.
        """
        self._check_params()
        frame = as_frame(df)
        columns = find_columns(
            frame, id=id, time=time, values=values, channel=channel, static=static, past=past, future=future
        )
        panel, axis, names = read_panel(frame, columns)
        return self._fit_panel(panel, columns, axis, names, frame, folder)

    def _fit_panel(self, panel, columns, axis, names, frame, folder=None) -> "Forecaster":
        self._check_params()
        begin = clock.monotonic()
        kind = self._choose(panel, columns)
        key = jr.key(self.random_state)
        horizon = None if self.horizon is None else axis.length(self.horizon, "horizon")
        intervals = self._intervals(names)
        checks: list[Check] = []
        if kind == "flow":
            own = {"auto": None, "global": False, "series": True}[self.scaling]
            plan = DirectPlan(intervals, horizon, own, self._learning(), folder)
            model, checks = fit_direct(panel, names, plan, progress=self.progress, key=key)
        else:
            support = make_support(np.concatenate(panel.values), names, intervals)
            model = fit_latent_model(
                panel, names, support, horizon=horizon, steps=int(self.steps), progress=self.progress, key=key
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
            if not _is_integer(value) or value < 1:
                raise ValueError(f"`{name}` must be a positive integer; got {value!r}.")
        if not _is_integer(self.folds) or self.folds < 0 or self.folds == 1:
            raise ValueError(f"`folds` must be 0, or an integer of at least 2; got {self.folds!r}.")
        _seed(self.random_state, self)

    def _learning(self) -> LearnConfig:
        plain = lambda value: value.item() if isinstance(value, np.generic) else value
        shared = {field.name for field in dataclasses.fields(LearnConfig)}
        return LearnConfig(
            **{name: plain(value) for name, value in self.get_params().items() if name in shared}
        )

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
        check_levels(quantiles, interval)
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
        drawn, ids, at = self._forecast_panel(
            panel, horizon, every, times, future, samples, paths, random_state
        )
        return drawn, ids, at, like

    def _forecast_panel(self, panel, horizon, every, times, future, samples, paths, random_state):
        """Draws (series, samples, times, dim), ids and times; of the series of the fit if there is no panel."""
        fitted = self._fitted()
        number = DRAWS if samples is None else _count(samples)
        key = jr.key(_seed(random_state, self))
        if isinstance(fitted.model, DirectModel):
            past = self.past_ if panel is None else fitted.model.past(panel)
            assert past is not None
            at = forecast_times(fitted, past.last, past.ids, horizon, every, times)
            ahead = known_ahead(fitted, future, past.ids, at)
            return fitted.model.draw(past, at, ahead, samples=number, joint=paths, key=key), past.ids, at
        for name, x in zip(panel.ids, panel.values, strict=True):
            if np.isnan(x).all():
                raise ValueError(f"series {name!r} has no value to start from: leave it out.")
        last = np.array([t[~np.isnan(x).all(1)][-1] for t, x in zip(panel.times, panel.values, strict=True)])
        at = forecast_times(fitted, last, panel.ids, horizon, every, times)
        known_ahead(fitted, future, panel.ids, at)
        series = zip(panel.times, panel.values, at, panel.ids, strict=True)
        drawn = [fitted.model.draw(t, x, a, n, samples=number, joint=paths, key=key) for t, x, a, n in series]
        return np.stack(drawn), panel.ids, at

    def _own_panel(self) -> Panel:
        if self.panel_ is None:
            raise ValueError("a model that was loaded from a file does not hold its data: pass `df`.")
        return self.panel_

    def _like(self, df) -> nw.DataFrame:
        if df is not None:
            return as_frame(df)
        return nw.from_dict({"empty": [0]}, backend=cast(Any, self.fitted_.frame))

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
        panel = read_panel(frame, there, fitted.axis, channels=fitted.names if c.channel else None)[0]
        support = (
            fitted.model.units.support if isinstance(fitted.model, DirectModel) else fitted.model.support
        )
        check_support(np.concatenate(panel.values), fitted.names, support)
        return panel

    # --- what lies between, and how good it is ------------------------------------------------------------------

    def impute(
        self, df: Any, *, times: Any = None, samples: int = 200, random_state: int | None = None
    ) -> Any:
        """The frame with its missing values filled in by the median of draws given the rows before *and* after, and two
        more columns a channel with the ends of the central 90 %.

        With `times`, rows at these times instead, for each series that they lie within. Values that were observed are
        left as they are; a value before the first complete row of its series, or after the last, stays missing.
        """
        fitted = self._fitted()
        frame, panel = as_frame(df), self._panel(df)
        if fitted.columns.channel is not None:
            raise ValueError(
                "`impute` fills in frames with a column for each channel; pivot the frame first."
            )
        key = jr.key(_seed(random_state, self))
        wanted = None if times is None else np.unique(read_times(times, fitted.axis))
        number = _count(samples)
        draw = lambda i, at: impute_series(fitted, panel, i, at, samples=number, key=key)
        if wanted is None:
            return filled_frame(frame, panel, fitted.names, draw)
        return between_frame(wanted, panel, fitted.names, fitted.columns, fitted.axis, frame, draw)

    def score(
        self,
        df: Any,
        *,
        metric: str = "crps",
        gap: Any = None,
        samples: int = 200,
        random_state: int | None = None,
    ) -> float:
        """A score of forecasts of the rows of `df`, each from the rows before it; the mean over rows and channels.

        - `metric`: `"crps"`, `"energy"`, `"variogram"`, `"log"` (minus the log-density, of a flow), `"mae"` and
            `"rmse"` of the median and mean: lower is better; `"coverage"`: the share within the central 90 %.
        - `gap`: how far ahead, such as `"7d"`; to the next row by default.
        """
        fitted, panel = self._fitted(), self._panel(df)
        length = None if gap is None else fitted.axis.length(gap, "gap")
        number = _count(samples, least=2)
        return score_rows(fitted, panel, metric, length, samples=number, seed=_seed(random_state, self))

    def backtest(
        self,
        df: Any,
        *,
        gaps: Sequence[Any],
        folds: int = 4,
        start: float = 0.6,
        origins: int = 400,
        samples: int = 200,
        period: Any = None,
        random_state: int | None = None,
        **columns: Any,
    ) -> Any:
        """A rolling-origin back-test: a frame with a row a channel and gap, beside persistence with scaled noise, an
        exact Ornstein–Uhlenbeck fit and, with a `period`, the value of a season ago.

        The first fit sees the share `start` of each series; the rest is cut into `folds` stretches, before each of
        which everything is fitted anew. `columns` as for `fit`. This forecaster itself is left as it is.
        """
        if not 0 < start < 1 or folds < 1:
            raise ValueError(
                f"`start` must lie between 0 and 1 and `folds` be at least 1; got {start}, {folds}."
            )
        seed, samples = _seed(random_state, self), _count(samples, least=2)
        frame = as_frame(df)
        found = find_columns(frame, **columns)
        panel, axis, names = read_panel(frame, found)
        fit = lambda known: (
            Forecaster(**self.get_params())._fit_panel(known, found, axis, names, frame).fitted_
        )
        draw = lambda fitted, known, panel, at: draw_origins(
            fitted, known, panel, at, samples=samples, seed=seed
        )
        scores = backtest(
            fit,
            draw,
            panel,
            gaps=[axis.length(gap, "gaps") for gap in gaps],
            show=axis.show_length,
            names=names,
            folds=folds,
            start=start,
            most=origins,
            period=None if period is None else axis.length(period, "period"),
        )
        return score_frame(scores, frame)

    def plot(
        self, df: Any = None, *, horizon: Any = None, every: Any = None, series: Any = None, **options: Any
    ) -> Any:
        """A fan chart of the forecast of one series behind its last rows; returns the axes. Needs the extra `plots`.

        The first series, unless `series` says which, up to the model's horizon, unless `horizon` does. `options`:
        `future` as for `predict`, `paths` (so many whole paths on top), `axes` to draw on, `random_state`.
        """
        from .pictures import plot_forecast

        return plot_forecast(self, df, horizon=horizon, every=every, series=series, **options)

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


def _is_integer(value: Any) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def _count(samples: Any, least: int = 1) -> int:
    if not _is_integer(samples) or samples < least:
        what = "a positive integer" if least == 1 else f"an integer of at least {least}"
        raise ValueError(f"`samples` must be {what}; got {samples!r}.")
    return int(samples)


def _seed(random_state: int | None, forecaster: Forecaster) -> int:
    seed = forecaster.random_state if random_state is None else random_state
    if not _is_integer(seed) or seed < 0:
        raise ValueError(f"`random_state` must be an integer ≥ 0; got {seed!r}.")
    return int(seed)
