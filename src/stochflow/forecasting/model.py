"""What a forecaster asks of the model behind it, whichever it is."""

import abc
from typing import Any, NamedTuple, Protocol, runtime_checkable

import equinox as eqx
import numpy as np
from jaxtyping import Float, PRNGKeyArray

from ..laws import Support
from .frames import Columns, Panel
from .times import TimeAxis


@runtime_checkable
class Past(Protocol):
    """What forecasts of several series start from; what else it holds is the model's business."""

    @property
    def ids(self) -> list[Any]: ...

    @property
    def last(self) -> Float[np.ndarray, " series"]: ...


class AbstractModel(eqx.Module):
    """A fitted law of series. Times, values and covariates are in the user's units.

    - `support`: where values may lie.
    - `horizon`: the longest gap that is crossed in one step.
    - `own_scale`: whether each series is measured from its own mean and by its own moves.
    - `reads_partial`: whether a row of which some channels are missing is one that forecasts can start from.
    """

    support: eqx.AbstractVar[Support]
    horizon: eqx.AbstractVar[float]
    own_scale: eqx.AbstractVar[bool]
    reads_partial: eqx.AbstractVar[bool]

    @property
    def dim(self) -> int:
        return self.support.dim

    @abc.abstractmethod
    def past(self, panel: Panel) -> Any:
        """Read each series up to its last row that a forecast can start from."""

    @abc.abstractmethod
    def draw(
        self,
        past: Any,
        at: Float[np.ndarray, "series times"],
        future: Float[np.ndarray, "series times ahead"],
        *,
        samples: int,
        joint: bool,
        key: PRNGKeyArray,
    ) -> Float[np.ndarray, "series samples times dim"]:
        """Draws at later times: each straight from the past or, if `joint`, from the time before.

        Those of a series depend on the key and on its id alone.
        """

    @abc.abstractmethod
    def impute(
        self, panel: Panel, i: int, at: Float[np.ndarray, " times"], *, samples: int, key: PRNGKeyArray
    ) -> Float[np.ndarray, "samples times dim"]:
        """Draws at times within series number `i`, given its rows before and after."""

    @abc.abstractmethod
    def log_prob(
        self,
        past: Any,
        x_t: Float[np.ndarray, "series dim"],
        at: Float[np.ndarray, " series"],
        future: Float[np.ndarray, "series ahead"],
    ) -> Float[np.ndarray, " series"]:
        """The log-density of one later row of each series, in one step."""


class Table(NamedTuple):
    """The series of a data frame, and how to get back to one."""

    panel: Panel
    columns: Columns
    axis: TimeAxis
    names: tuple[str, ...]
    frame: str


class Fitted(NamedTuple):
    """All that a fitted forecaster knows."""

    columns: Columns
    axis: TimeAxis
    names: tuple[str, ...]
    model: AbstractModel
    gap: float
    card: dict[str, Any]
    frame: str

    @property
    def horizon(self) -> str | float:
        """The longest gap of one step, as it can be asked for: in words, or as a number where times are numbers."""
        longest = self.model.horizon
        return self.axis.show_length(longest) if self.axis.is_calendar else longest
