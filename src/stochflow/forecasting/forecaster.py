"""`Forecaster`: fit on a data frame, predict at any time, with the manners of scikit-learn."""

import dataclasses
import inspect
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

import jax.random as jr
import narwhals as nw
import numpy as np

from ..training.config import check_progress, checked_path
from .arguments import Seed, checked_seed, count, seed_of
from .backtest import check_backtest, summarise
from .draws import require_finite
from .evaluate import backtest_table, score_rows
from .fitting import ForecasterConfig, fit_table, require_support, with_starts
from .frames import Columns, Panel, as_frame, find_columns
from .model import Fitted, Past, Table
from .outputs import (
    between_frame,
    check_forecasts,
    check_request,
    filled_frame,
    forecast_frame,
    furthest_level,
    sample_frame,
    score_frame,
    summary_frame,
)
from .requests import forecast_times, known_ahead, number_of_draws, read_table, warn_of_cut
from .times import moments_asked_for
from .units import check_support


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
    - `scaling`: `"global"` measures all series alike, `"series"` each from the mean of its rows so far and by how far
        it moves; `"auto"` decides.
    - `steps`: how many updates, of a flow or of a latent model.
    - `batch_size`: how many pairs an update, of a flow alone.
    - `learning_rate`, `weight_decay`: of the optimiser, of a flow alone.
    - `width`, `depth`: of the networks, of a flow alone. `depth` 0, the default, is a law whose parameters are linear
        in what is read of the past; more is for many series.
    - `folds`: parts that are held out in turn, to see how far the law's drift and spread are to be believed; 0 for
        none.
    - `random_state`: seed of the training and, unless they are given one, of forecasts; or a generator of NumPy's.
        With `None` no two calls are alike.
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
        random_state: Seed = 0,
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
        static: Sequence[str] | str | None = (),
        past: Sequence[str] | str | None = (),
        future: Sequence[str] | str | None = (),
        folder: str | os.PathLike | None = None,
    ) -> "Forecaster":
        """Learn from a long data frame, of pandas or polars.

        **Arguments:**

        - `id`, `time`, `values`: columns; `unique_id`, `ds` and `y` need not be named. Without an id there is one
            series. Without values, all other columns of numbers are. A value that is missing is empty (null or NaN).
        - `channel`: for rows of one channel each, the column that says which; `values` is then one column.
        - `static`, `past`, `future`: covariates: one number a series; known when a forecast is made; known ahead.
        - `folder`: a run folder for checkpoints: an interrupted fit with the same arguments goes on there.
        """
        config = self._config()
        folder = None if folder is None else checked_path("folder", folder)
        table = read_table(
            df, id=id, time=time, values=values, channel=channel, static=static, past=past, future=future
        )
        self._set(self._fit_table(table, config, folder), table.panel)
        self._no_rows = as_frame(df).head(0)
        return self

    def _fit_table(self, table: Table, config: ForecasterConfig, folder: Any = None) -> Fitted:
        return fit_table(
            table,
            config,
            horizon=self.horizon,
            support=self.support,
            seed=seed_of(None, self.random_state),
            progress=self.progress,
            folder=folder,
        )

    def _config(self) -> ForecasterConfig:
        """The parameters that are plain numbers and words, checked."""
        plain = lambda value: value.item() if isinstance(value, np.generic) else value
        names = [field.name for field in dataclasses.fields(ForecasterConfig)]
        checked_seed(self.random_state)
        check_progress(self.progress)
        return ForecasterConfig(**{name: plain(getattr(self, name)) for name in names})

    def _set(self, fitted: Fitted, panel: Panel | None, past: Past | None = None) -> None:
        self.fitted_ = fitted
        self.columns_, self.model_, self.card_ = fitted.columns, fitted.model, fitted.card
        self.horizon_ = fitted.horizon
        self.kind_ = fitted.card["kind"]
        self.panel_ = panel
        self.past_ = fitted.model.past(panel) if panel is not None else past
        self._no_rows = nw.from_dict({}, backend=cast(Any, fitted.frame))  # what frames are made like

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
        random_state: Seed = None,
    ) -> Any:
        """Forecasts of each series after its last complete row, as a data frame of the kind that was fitted.

        **Arguments:**

        - `df`: the past of series to forecast, with the columns of the fit; those of the fit by default. New ones need
            no new fit.
        - `horizon`, `every`: at each `every` up to `horizon` after a series' last row, such as `"7d"` and `"6h"`;
            `every` is the usual gap by default. Or `times`: at these, the same for all series.
        - `future`: a frame with the covariates known ahead at those times.
        - `samples`: so many draws, a row each; `quantiles`: a column each; `interval`: the median and the ends of the
            central interval of this probability (0.9 if nothing else is asked for). Behind either are 400 draws, more
            if a level is so far out that fewer than twenty would lie beyond it, or as many as `samples` says.
        - `paths`: draw whole paths, from each time to the next, and not each time straight from the last row: for
            questions about several times together. It takes longer.
        - `random_state`: seed of the draws.
        """
        fitted = self._fitted()
        if not isinstance(paths, bool | np.bool_):
            raise ValueError(
                f"`paths` must be True or False; got {paths!r}: how many there are is what `samples` says."
            )
        rows = samples is not None and quantiles is None and interval is None
        check_request(quantiles, interval, fitted.names, fitted.columns, rows=rows)
        panel = None if df is None else self._panel(df)
        furthest = furthest_level(quantiles, interval)
        draws, ids, at = self._forecast(
            panel, horizon, every, times, future, samples, paths, random_state, furthest
        )
        frame = self._like(df)
        if not rows:
            warn_of_cut(draws.shape[1], furthest)
        if rows:
            return sample_frame(draws, ids, at, fitted.names, fitted.columns, fitted.axis, frame)
        return summary_frame(
            draws, ids, at, fitted.names, fitted.columns, fitted.axis, frame, quantiles, interval
        )

    def _forecast(self, panel, horizon, every, times, future, samples, paths, random_state, furthest=0.5):
        """Draws (series, samples, times, dim), ids and moments; of the series of the fit if there is no panel."""
        fitted = self._fitted()
        key = jr.key(seed_of(random_state, self.random_state))
        past = self.past_ if panel is None else fitted.model.past(panel)
        assert past is not None
        rows = self.panel_ if panel is None else panel
        moments = forecast_times(fitted, past, rows, horizon, every, times)
        at = fitted.axis.numbers(moments)
        number = number_of_draws(samples, furthest, at, len(fitted.names))
        ahead = known_ahead(fitted, future, past.ids, at)
        draws = fitted.model.draw(past, at, ahead, samples=number, joint=paths, key=key)
        say = lambda lost: f"the forecast of series {past.ids[lost.argmax()]!r} has draws that are not finite"
        return require_finite(draws, say), past.ids, moments

    def _own_panel(self) -> Panel:
        if self.panel_ is None:
            raise ValueError("a model that was loaded from a file does not hold its data: pass `df`.")
        return self.panel_

    def _like(self, df) -> nw.DataFrame:
        return self._no_rows if df is None else as_frame(df)

    def _panel(self, df: Any) -> Panel:
        fitted = self._fitted()
        columns = self._columns_in(df)
        panel = read_table(df, like=fitted, **dataclasses.asdict(columns)).panel
        check_support(np.concatenate(panel.values), fitted.names, fitted.model.support)
        return panel

    def _columns_in(self, df: Any) -> Columns:
        """Those of the fit; of a model of rows of one channel each, also those of a frame with a column for each."""
        columns, names = self.fitted_.columns, self.fitted_.names
        there = as_frame(df).columns
        if columns.channel is None or columns.channel in there or not set(names) <= set(there):
            return columns
        return dataclasses.replace(columns, values=names, channel=None)

    # --- what lies between, and how good it is ------------------------------------------------------------------

    def impute(self, df: Any, *, times: Any = None, samples: int = 200, random_state: Seed = None) -> Any:
        """The frame with its missing values filled in by the median of draws given the rows before *and* after, and two
        more columns a channel with the ends of the central 90 %.

        Of a frame of rows of one channel each, its rows whose value is empty are filled in, with two more columns.

        With `times`, rows at these times instead, for each series that they lie within. Values that were observed are
        left as they are; a value before the first complete row of its series, or after the last, stays missing. (Of a
        latent model: before the first row with any value, or after the last.)
        """
        fitted = self._fitted()
        frame, panel, columns = as_frame(df), self._panel(df), self._columns_in(df)
        key = jr.key(seed_of(random_state, self.random_state))
        wanted = None if times is None else np.unique(moments_asked_for(times, fitted.axis))
        number = count(samples, least=2)  # an interval has two ends
        partial = fitted.model.reads_partial
        say = lambda i: f"what is filled in of series {panel.ids[i]!r} has draws that are not finite"
        draw = lambda i, at: require_finite(
            fitted.model.impute(panel, i, at, samples=number, key=key)[None], lambda _: say(i)
        )[0]
        if wanted is None:
            return filled_frame(frame, panel, fitted.names, columns, draw, partial=partial)
        return between_frame(wanted, panel, fitted.names, columns, fitted.axis, frame, draw, partial=partial)

    def score(
        self,
        df: Any,
        *,
        metric: str = "crps",
        gap: Any = None,
        samples: int = 200,
        random_state: Seed = None,
    ) -> float:
        """A score of forecasts of the rows of `df`, each from the rows before it; the mean over rows and channels.

        - `metric`: `"crps"`, `"energy"`, `"variogram"`, `"log"` (minus the log-density), `"mae"` and
            `"rmse"` of the median and mean: lower is better; `"coverage"`: the share within the central 90 %; `"pit"`:
            how far from uniform the places of what came among the draws are (Kolmogorov and Smirnov), 0 at best.
        - `gap`: how far ahead, such as `"7d"`; to the next row by default.
        """
        fitted, panel = self._fitted(), self._panel(df)
        length = None if gap is None else fitted.axis.length(gap, "gap")
        number = count(samples, least=2)
        return score_rows(
            fitted, panel, metric, length, samples=number, seed=seed_of(random_state, self.random_state)
        )

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
        among: Any = None,
        return_forecasts: bool = False,
        random_state: Seed = None,
        **columns: Any,
    ) -> Any:
        """A rolling-origin back-test: a frame with a row a channel and gap, beside persistence with scaled noise, an
        exact Ornstein–Uhlenbeck fit and, with a `period`, the value of a season ago.

        The first fit sees the share `start` of each series; the rest is cut into `folds` stretches, before each of
        which everything is fitted anew, on the series that have a row to start from by then. `columns` as for `fit`.
        This forecaster itself is left as it is.

        - `among`: a frame with some of the rows of `df`. Stretches are cut, and forecasts start and end, as if there
            were no others, though all rows are read: so two tables of rows are held against each other on the same
            forecasts.
        - `return_forecasts`: a second frame too, with a row a forecast and channel: the last time that was known
            (`origin`), the time that was forecast, what came (`value`), median and central 90 %, the CRPS of all laws,
            and `stretch`, the same for forecasts that overlap.
        """
        gaps = list(gaps) if isinstance(gaps, Iterator) else gaps
        check_backtest(gaps, folds, start, origins)
        _require_columns(columns)
        config, seed = self._config(), seed_of(random_state, self.random_state)
        table, frame = read_table(df, **columns), as_frame(df)
        require_support(table, self.support)
        if return_forecasts:
            check_forecasts(table.columns, seasonal=period is not None)
        tested = backtest_table(
            table,
            lambda known: self._fit_table(with_starts(table._replace(panel=known), config), config),
            gaps=gaps,
            folds=folds,
            start=start,
            origins=origins,
            samples=count(samples, least=2),
            period=period,
            among=None if among is None else read_table(among, like=table, **columns).panel,
            seed=seed,
        )
        scores = score_frame(summarise(tested, table.names, table.axis.show_length), frame)
        return (scores, forecast_frame(tested, table, frame)) if return_forecasts else scores

    def plot(
        self,
        df: Any = None,
        *,
        horizon: Any = None,
        every: Any = None,
        series: Any = None,
        future: Any = None,
        paths: int = 0,
        axes: Any = None,
        random_state: Seed = None,
    ) -> Any:
        """A fan chart of the forecast of one series behind its last rows; returns the axes. Needs the extra `plots`.

        The first series, unless `series` says which, up to the model's horizon, unless `horizon` does. `future` as for
        `predict`; `paths` draws so many whole paths on top of the fan; `axes` are those to draw on.
        """
        from .pictures import plot_forecast

        return plot_forecast(
            self,
            df,
            horizon=horizon,
            every=every,
            series=series,
            future=future,
            paths=count(paths, least=0, name="paths"),
            axes=axes,
            random_state=random_state,
        )

    # --- files -------------------------------------------------------------------------------------------------

    def save(self, path: str | os.PathLike, *, folder: bool = False) -> None:
        """Write the model to one file, or to a new folder with `folder=True`: it holds no code and is checked when it
        is read."""
        from .files import save_forecaster

        if not isinstance(folder, bool):
            raise ValueError(
                f"`folder` must be True or False; got {folder!r}: where it goes is what `path` says."
            )
        save_forecaster(self, checked_path("path", path), folder=folder)

    @classmethod
    def load(cls, path: str | os.PathLike) -> "Forecaster":
        """A forecaster from a file or folder that `save` wrote."""
        from .files import load_forecaster

        return load_forecaster(cls, checked_path("path", path))


def _require_columns(given: dict[str, Any]) -> None:
    known = [name for name in inspect.signature(find_columns).parameters if name != "frame"]
    for name in given:
        if name not in known:
            raise TypeError(
                f"backtest() has no argument {name!r}; those that name columns are {', '.join(known)}."
            )
