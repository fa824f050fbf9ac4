"""What a series has done of late, as numbers that a law can read: where it was, and how much it moves."""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Scalar

# Memories fade by half after so many usual gaps.
HALF_LIVES = (2.0, 8.0, 32.0, 128.0)
# That of the size of the moves, which a law's displacements are measured in.
SIZE_HALF_LIFE = 32.0
# Shares of the usual size below which a size is not believed: a series that stood still will not do so for ever.
LEAST_SIZE, LEAST_MEMORY = 0.05, 0.02
# Readings further out than this many standard deviations count as this many: no extrapolation.
FURTHEST = 2.5


class Memory(NamedTuple):
    """What is kept of a series: its last state, fading means, fading variances of its moves a unit of time, those
    around the means (none in models of before), and the variance that is the size's."""

    x: Float[Array, " dim"]
    means: Float[Array, "lives dim"]
    variances: Float[Array, "lives dim"]
    roams: Float[Array, "roams dim"]
    size: Float[Array, " dim"]

    def measured_from(self, centre: Float[Array, " dim"]) -> "Memory":
        """The same, states less this."""
        return self._replace(x=self.x - centre, means=self.means - centre[None])


class History(eqx.Module):
    r"""Fading memories of a series at irregular times, row by row.

    With the gap $\Delta$ to the row before, a memory of half-life $h$ moves by the share $1 - 2^{-\Delta/h}$ towards
    what the row says: its state for means, $(x - x_{\text{before}})^2/(\Delta + \delta)$ for variances, where
    $\delta$ is the usual gap, so that two readings at nearly the same time do not look like a storm. How far a series
    roams within $h$ is its variance around the mean: moves from row to row do not tell it where each row has an error
    of its own, and a seal that travels from one that stays.

    What is read, for each channel: the distance from each mean, in units of the size; each variance over that of the
    size; the state; and the size. They are centred and scaled as `centre` and `width` say, and cut off.

    The state is read as it is or, where each series has units of its own, from the mean of its rows so far: that of all
    rows would tell of those to come.

    - `usual`: the mean variance, a unit of time, of all series.
    """

    usual: Float[Array, " dim"]
    centre: Float[Array, " read"]
    width: Float[Array, " read"]
    gap: float = eqx.field(static=True)

    @classmethod
    def fit(cls, pieces: list[tuple[np.ndarray, np.ndarray]], gap: float, centres=None) -> "History":
        """From complete rows `(times, values)` of each series, the usual gap, and what the state is read from."""
        moves = [rates_of_moves(t, x, gap) for t, x in pieces]
        as_array = lambda array: jnp.asarray(array, jnp.float32)
        usual = as_array(np.maximum(np.concatenate(moves).mean(0), 1e-12))
        dim = usual.shape[0]
        read = (3 * len(HALF_LIVES) + 2) * dim
        plain = cls(usual, as_array(np.zeros(read)), as_array(np.ones(read)), float(gap))
        centres = [None] * len(pieces) if centres is None else centres
        seen = [plain.along(t, x, centre)[:, dim:] for (t, x), centre in zip(pieces, centres, strict=True)]
        seen = np.concatenate(seen)
        width = np.maximum(seen.std(0), 1e-3)
        return cls(usual, as_array(seen.mean(0)), as_array(width), float(gap))

    @property
    def dim(self) -> int:
        return self.usual.shape[0]

    @property
    def size(self) -> int:
        """How many numbers are read, sizes included."""
        return self.dim + self.centre.shape[0]

    @property
    def roams(self) -> int:
        """How many variances around means are kept: none by models that were learnt without."""
        lives = len(HALF_LIVES)
        return lives if self.centre.shape[0] == (3 * lives + 2) * self.dim else 0

    def start(self, x: Float[Array, " dim"]) -> Memory:
        """At the first row nothing is known but the row."""
        lives = len(HALF_LIVES)
        around = jnp.square(self._reach(x.dtype))[: self.roams, None] * self.usual[None] / 3
        return Memory(x, jnp.tile(x, (lives, 1)), jnp.tile(self.usual, (lives, 1)), around, self.usual)

    def _reach(self, dtype) -> Float[Array, " lives"]:
        """How far a walk goes within each half-life, in units of the size."""
        return jnp.sqrt((jnp.asarray(HALF_LIVES, dtype) + 1) * self.gap)

    def update(self, memory: Memory, x: Float[Array, " dim"], gap: Scalar) -> Memory:
        """One more row, `gap` after the one before."""
        share = lambda life: 1 - 0.5 ** (gap / (life * self.gap))
        move = jnp.square(x - memory.x) / (gap + self.gap)
        shares = share(jnp.asarray(HALF_LIVES, x.dtype))[:, None]
        some = slice(self.roams)
        away = jnp.square(x[None] - memory.means)[some]
        return Memory(
            x,
            memory.means + shares * (x[None] - memory.means),
            memory.variances + shares * (move[None] - memory.variances),
            (1 - shares[some]) * (memory.roams + shares[some] * away),
            memory.size + share(SIZE_HALF_LIFE) * (move - memory.size),
        )

    def read(self, memory: Memory, centre: Float[Array, " dim"] | None = None) -> Float[Array, " size"]:
        """The logarithm of each channel's size, then all else."""
        level = memory.x if centre is None else memory.x - centre
        size = jnp.sqrt(memory.size + LEAST_SIZE * self.usual)
        reach = self._reach(size.dtype)
        away = jnp.arcsinh((memory.x[None] - memory.means) / (size[None] * reach[:, None]))
        relative = lambda found: (
            0.5 * jnp.log((found + LEAST_MEMORY * self.usual[None]) / jnp.square(size)[None])
        )
        storms = relative(memory.variances)
        roams = relative(memory.roams / jnp.square(reach)[: self.roams, None])
        seen = jnp.concatenate([away.ravel(), storms.ravel(), roams.ravel(), level, jnp.log(size)])
        seen = jnp.clip((seen - self.centre) / self.width, -FURTHEST, FURTHEST)
        return jnp.concatenate([jnp.log(size), seen])

    def along(
        self, times: np.ndarray, values: np.ndarray, centres: np.ndarray | None = None
    ) -> Float[np.ndarray, "rows size"]:
        """What is read at each complete row of a series."""
        centres = None if centres is None else padded(times, centres)[0]
        return np.asarray(_scan(self, *padded(times, values), centres)[2])[: len(times)]

    def memories(self, times: np.ndarray, values: np.ndarray) -> Memory:
        """The memory at each complete row of a series."""
        found = _scan(self, *padded(times, values))[1]
        return jax.tree.map(lambda leaf: np.asarray(leaf)[: len(times)], found)

    def scan(
        self,
        values: Float[Array, "rows dim"],
        gaps: Float[Array, " rows"],
        keep: Bool[Array, " rows"],
        centres: Float[Array, "rows dim"] | None = None,
    ) -> tuple[Memory, Memory, Float[Array, "rows size"]]:
        """The memory at the last of the rows that are kept, that at each, and what is read at each."""
        return _scan(self, values, gaps, keep, centres)


def rates_of_moves(times: np.ndarray, values: np.ndarray, gap: float) -> Float[np.ndarray, "moves dim"]:
    """The square of each move from row to row, a unit of time."""
    return np.diff(values, axis=0) ** 2 / (np.diff(times) + gap)[:, None]


def means_so_far(values: Float[np.ndarray, "rows dim"]) -> Float[np.ndarray, "rows dim"]:
    """At each row, the mean of the rows up to it."""
    return np.cumsum(values, axis=0) / np.arange(1, len(values) + 1)[:, None]


def padded(
    times: np.ndarray, values: np.ndarray, length: int | None = None
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Values, gaps and which rows are there, up to this length or else a power of two: one program for each serves all
    lengths."""
    spare = (length or padded_length(len(times))) - len(times)
    gaps = np.diff(times, prepend=times[:1]).astype(np.float32)
    repeat = lambda array: np.concatenate([array, np.repeat(array[-1:], spare, axis=0)])
    return (
        repeat(np.asarray(values, np.float32)),
        repeat(gaps),
        np.arange(len(times) + spare) < len(times),
    )


def padded_length(rows: int) -> int:
    return 1 << max(4, (rows - 1).bit_length())


@eqx.filter_jit
def _scan(history: History, values, gaps, keep, centres=None):
    """The memory after all rows, that at each, and what is read at each. The first row must be kept."""

    def step(carry, row):
        memory, since = carry
        x, gap, kept, centre = row
        since = since + gap
        moved = history.update(memory, x, since)
        memory = jax.tree.map(lambda new, old: jnp.where(kept, new, old), moved, memory)
        return (memory, jnp.where(kept, 0.0, since)), (memory, history.read(memory, centre))

    start = history.start(values[0]), jnp.zeros((), gaps.dtype)
    (memory, _), (memories, seen) = jax.lax.scan(step, start, (values, gaps, keep, centres))
    return memory, memories, seen
