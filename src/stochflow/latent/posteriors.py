"""Amortised posteriors: from the observations of a series to a law of its states."""

import abc
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, PRNGKeyArray

from ..flows.activations import softplus
from ..laws import AbstractTransition, Gaussian
from .emissions import AbstractEmission
from .initial import InitialLaw
from .series import Series
from .small import cholesky

# No posterior is surer than this, in standard deviations of the state: a floor for the logarithm.
LEAST_STD = 1e-4
# A new posterior's std: small beside the states of one series, so that the emission can tell them apart from the start.
# With that of softplus(0), 0.7, a thousand updates went by before any state meant anything.
RAW_STD_OFFSET = -2.25  # softplus of it is 0.1
LOG_2PI = 1.8378770664093453


class PathSample(NamedTuple):
    """States at all rows and the log-density of each under the posterior, given the row before where that matters.

    The log-densities add up to that of the path. Rows before the posterior's `context`, and padding, mean nothing.
    """

    x: Float[Array, "rows dim"]
    log_prob: Float[Array, " rows"]


class Marginals(NamedTuple):
    """Mean and standard deviation of the state at each row."""

    mean: Float[Array, "rows dim"]
    std: Float[Array, "rows dim"]


class Reading(NamedTuple):
    """A path, and the law of each state given the rows up to it; `None` where the posterior reads the future too."""

    path: PathSample
    filtered: Gaussian | None  # with the rows in front


class AbstractPosterior(eqx.Module):
    r"""$q(x_{t_0}, \dots, x_{t_n} \mid o)$ for one series.

    `context` is how many rows are read before there is a first state: zero, unless the posterior reads windows.
    `independent` tells whether states are independent of each other given the observations.
    """

    dim: eqx.AbstractVar[int]
    context: eqx.AbstractVar[int]
    independent: eqx.AbstractVar[bool]

    @property
    def channels(self) -> int | None:
        """How many channels it reads; `None` if it takes as many as a model's emission has."""
        return None

    @abc.abstractmethod
    def sample_and_log_prob(self, series: Series, *, key: PRNGKeyArray) -> PathSample:
        """A path of states."""

    @abc.abstractmethod
    def marginals(self, series: Series) -> Marginals:
        """The law of each state on its own."""

    def read(self, series: Series, *, key: PRNGKeyArray) -> "Reading":
        """A path of states, and what the past alone tells of each, where the posterior knows."""
        path = self.sample_and_log_prob(series, key=key)
        if not self.independent:
            return Reading(path, None)
        mean, std = self.marginals(series)
        return Reading(path, jax.vmap(lambda mean, std: Gaussian(mean, jnp.diag(std)))(mean, std))

    def last(self, series: Series) -> Gaussian:
        """The law of the state at the last row that is no padding, where a forecast starts from."""
        (mean, std), at = self.marginals(series), series.present.sum() - 1
        return Gaussian(mean[at], jnp.diag(std[at]))

    def of(
        self, transition: AbstractTransition, emission: AbstractEmission, initial: InitialLaw
    ) -> "AbstractPosterior":
        """The posterior of a model with these parts. An amortised one has learnt what to make of them and is
        returned as it is; one that computes with them takes them from here."""
        del transition, emission, initial
        return self


class WindowPosterior(AbstractPosterior):
    r"""$q(x_{t_i} \mid o_{t_{i-w+1}}, \dots, o_{t_i})$ by a perceptron on a window of rows: the paper's set-up 1.

    It knows nothing of gaps: the rows of a window should be evenly spaced. States are independent given the windows.
    """

    net: eqx.nn.MLP
    dim: int = eqx.field(static=True)
    window: int = eqx.field(static=True)
    mask_input: bool = eqx.field(static=True)
    independent: bool = eqx.field(static=True)

    def __init__(
        self,
        channels: int,
        dim: int,
        *,
        window: int = 3,
        width: int = 30,
        depth: int = 2,
        mask_input: bool = False,
        key: PRNGKeyArray,
    ):
        if window < 1:
            raise ValueError(f"`window` must be at least 1; got {window}.")
        size = window * channels * (2 if mask_input else 1)
        self.net = eqx.nn.MLP(size, 2 * dim, width, depth, softplus, key=key)
        self.dim = dim
        self.window = window
        self.mask_input = mask_input
        self.independent = True

    @property
    def context(self) -> int:
        return self.window - 1

    @property
    def channels(self) -> int:
        return int(self.net.in_size) // (self.window * (2 if self.mask_input else 1))

    def marginals(self, series):
        rows = [series.seen, series.mask.astype(series.seen.dtype)] if self.mask_input else [series.seen]
        rows = jnp.concatenate(rows, axis=1)
        before = jnp.concatenate([jnp.zeros((self.context, rows.shape[1]), rows.dtype), rows])
        windows = jnp.concatenate([before[i : i + len(rows)] for i in range(self.window)], axis=1)
        return _mean_and_std(jax.vmap(self.net)(windows))

    def sample_and_log_prob(self, series, *, key):
        return _independent_path(self.marginals(series), key)


class Reader(eqx.Module):
    r"""A GRU over the rows of a series, $[o, \Delta t\,[, t]\,[, \text{mask}]]$ a row.

    `mask_input` tells it which channels were observed; without it a missing value is a zero, the mean of standardised
    data. `reverse` reads from the end, where a row's gap is that to the row after it.
    """

    cell: eqx.nn.GRUCell
    autonomous: bool = eqx.field(static=True)
    mask_input: bool = eqx.field(static=True)
    reverse: bool = eqx.field(static=True)

    def __init__(
        self,
        channels: int,
        hidden: int,
        *,
        autonomous: bool,
        mask_input: bool,
        reverse: bool = False,
        key: PRNGKeyArray,
    ):
        size = channels * (2 if mask_input else 1) + 1 + (not autonomous)
        self.cell = eqx.nn.GRUCell(size, hidden, key=key)
        self.autonomous = autonomous
        self.mask_input = mask_input
        self.reverse = reverse

    @property
    def channels(self) -> int:
        return (self.cell.input_size - 1 - (not self.autonomous)) // (2 if self.mask_input else 1)

    def __call__(self, series: Series) -> Float[Array, "rows hidden"]:
        """What it remembers at each row; padding leaves its memory as it was."""

        def step(hidden, now):
            row, here = now
            hidden = jnp.where(here, self.cell(row, hidden), hidden)
            return hidden, hidden

        rows = self._rows(series).astype(self.cell.weight_hh.dtype)
        start = jnp.zeros(self.cell.hidden_size, rows.dtype)
        return jax.lax.scan(step, start, (rows, series.present), reverse=self.reverse)[1]

    def _rows(self, series):
        gaps = series.gaps
        if self.reverse:
            gaps = jnp.concatenate([gaps[1:], jnp.zeros_like(gaps[:1])])
        columns = [series.seen, gaps[:, None]]
        if not self.autonomous:
            columns.append(series.times[:, None])
        if self.mask_input:
            columns.append(series.mask)
        return jnp.concatenate([column.astype(series.seen.dtype) for column in columns], axis=1)


class FilteringPosterior(AbstractPosterior):
    r"""$q(x_{t_i} \mid o_{\le t_i})$ by a GRU over the past (the paper's Eq. 14).

    States are independent given what the GRU has read. With `mask_input` it is told which channels were observed.
    """

    reader: Reader
    head: eqx.nn.MLP
    dim: int = eqx.field(static=True)
    context: int = eqx.field(static=True)
    independent: bool = eqx.field(static=True)

    def __init__(
        self,
        channels: int,
        dim: int,
        *,
        hidden: int = 32,
        width: int = 32,
        depth: int = 2,
        autonomous: bool = True,
        mask_input: bool = False,
        key: PRNGKeyArray,
    ):
        reader_key, head_key = jr.split(key)
        self.reader = Reader(channels, hidden, autonomous=autonomous, mask_input=mask_input, key=reader_key)
        self.head = eqx.nn.MLP(hidden, 2 * dim, width, depth, softplus, key=head_key)
        self.dim = dim
        self.context = 0
        self.independent = True

    @property
    def channels(self) -> int:
        return self.reader.channels

    def marginals(self, series):
        return _mean_and_std(jax.vmap(self.head)(self.reader(series)))

    def sample_and_log_prob(self, series, *, key):
        return _independent_path(self.marginals(series), key)


class SmoothingPosterior(AbstractPosterior):
    r"""$q(x_{t_i} \mid x_{t_{i-1}}, o)$, normal and affine in the state before, by a GRU in either direction.

    $$x_{t_i} = A(h_i)\,x_{t_{i-1}} + b(h_i) + \sigma(h_i)\,\varepsilon_i$$

    Paths are Markov, as they are under the true posterior of a state-space model, and of a linear-Gaussian one this
    family holds the exact posterior; a posterior whose states are independent is too sure of each. Means and
    covariances follow by recursion. At the last row smoothing is filtering: for the law of the present state, give
    the series up to it.
    """

    forward: Reader
    backward: Reader
    head: eqx.nn.MLP
    dim: int = eqx.field(static=True)
    context: int = eqx.field(static=True)
    independent: bool = eqx.field(static=True)

    def __init__(
        self,
        channels: int,
        dim: int,
        *,
        hidden: int = 32,
        width: int = 32,
        depth: int = 2,
        autonomous: bool = True,
        mask_input: bool = False,
        key: PRNGKeyArray,
    ):
        forward_key, backward_key, head_key = jr.split(key, 3)
        inputs = {"autonomous": autonomous, "mask_input": mask_input}
        self.forward = Reader(channels, hidden, **inputs, key=forward_key)
        self.backward = Reader(channels, hidden, **inputs, reverse=True, key=backward_key)
        # Beside what the GRUs have read: the gap to the row before, over which the state has moved.
        self.head = eqx.nn.MLP(2 * hidden + 1, dim * (dim + 2), width, depth, softplus, key=head_key)
        self.dim = dim
        self.context = 0
        self.independent = False

    @property
    def channels(self) -> int:
        return self.forward.channels

    def marginals(self, series):
        mean, covariance = self._moments(series)
        return Marginals(mean, jnp.sqrt(jnp.diagonal(covariance, axis1=1, axis2=2)))

    def last(self, series):
        (mean, covariance), at = self._moments(series), series.present.sum() - 1
        return Gaussian(mean[at], cholesky(covariance[at]))

    def _moments(self, series):
        matrices, shifts, stds = self._kernels(series)

        def step(carry, kernel):
            mean, covariance = carry
            matrix, shift, std = kernel
            mean = matrix @ mean + shift
            covariance = matrix @ covariance @ matrix.T + jnp.diag(std**2)
            return (mean, covariance), (mean, covariance)

        start = jnp.zeros(self.dim, shifts.dtype), jnp.zeros((self.dim, self.dim), shifts.dtype)
        return jax.lax.scan(step, start, (matrices, shifts, stds))[1]

    def sample_and_log_prob(self, series, *, key):
        matrices, shifts, stds = self._kernels(series)
        noise = jr.normal(key, shifts.shape, shifts.dtype)

        def step(x, kernel):
            matrix, shift, std, noise = kernel
            x = matrix @ x + shift + std * noise
            return x, x

        _, x = jax.lax.scan(step, jnp.zeros(self.dim, shifts.dtype), (matrices, shifts, stds, noise))
        return PathSample(x, _log_normal(noise, stds))

    def _kernels(self, series):
        inputs = [self.forward(series), self.backward(series), series.gaps[:, None]]
        inputs = jnp.concatenate([part.astype(inputs[0].dtype) for part in inputs], axis=1)
        raw = jax.vmap(self.head)(inputs)
        matrix, shift, raw_std = jnp.split(raw, [self.dim**2, self.dim**2 + self.dim], axis=1)
        first = jnp.arange(len(raw)) == 0
        matrix = jnp.where(first[:, None, None], 0.0, matrix.reshape(-1, self.dim, self.dim))
        return matrix, shift, _std(raw_std)


class JoinedPosterior(AbstractPosterior):
    """States in parts, each read by a posterior of its own: what a window of rows shows at once, say, and what takes a
    long look to tell. The parts' states must be independent given the observations."""

    parts: tuple[AbstractPosterior, ...]

    def __init__(self, *parts: AbstractPosterior):
        if not parts:
            raise ValueError("`parts` must be one posterior at least.")
        if not all(part.independent for part in parts):
            raise ValueError(
                "`parts` must be posteriors with `independent` states, such as windows and filters."
            )
        read = {part.channels for part in parts if part.channels is not None}
        if len(read) > 1:
            raise ValueError(f"`parts` must read the same channels; got {', '.join(map(str, sorted(read)))}.")
        self.parts = parts

    @property
    def channels(self) -> int | None:
        return next((part.channels for part in self.parts if part.channels is not None), None)

    @property
    def dim(self) -> int:
        return sum(part.dim for part in self.parts)

    @property
    def context(self) -> int:
        return max(part.context for part in self.parts)

    @property
    def independent(self) -> bool:
        return True

    def marginals(self, series):
        found = [part.marginals(series) for part in self.parts]
        return Marginals(*(jnp.concatenate(both, axis=1) for both in zip(*found, strict=True)))

    def sample_and_log_prob(self, series, *, key):
        return _independent_path(self.marginals(series), key)


def _mean_and_std(raw):
    mean, raw_std = jnp.split(raw, 2, axis=-1)
    return Marginals(mean, _std(raw_std))


def _std(raw):
    return LEAST_STD + jax.nn.softplus(raw + RAW_STD_OFFSET)


def _independent_path(marginals, key):
    mean, std = marginals
    noise = jr.normal(key, mean.shape, mean.dtype)
    return PathSample(mean + std * noise, _log_normal(noise, std))


def _log_normal(noise, std):
    return -(0.5 * (noise**2 + LOG_2PI) + jnp.log(std)).sum(axis=-1)
