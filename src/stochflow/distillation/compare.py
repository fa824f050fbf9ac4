"""A distilled law beside the solver that it replaces: how far apart, and what each costs."""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import PRNGKeyArray

from ..inference import make_sampler
from ..inference.sampler import CPU_OPTIONS
from ..metrics import (
    interleave,
    kde_floor,
    kde_kl,
    pit,
    projected_energy_distance,
    uniformity_test,
)
from ..sde import EulerMaruyama
from ..training.config import check_key, is_count, require
from .distill import Distilled
from .outcome import Comparison, GapComparison
from .pool import advance

# The reference takes steps this much shorter than those that the pairs were made with.
FINER = 2
# Of the horizon.
GAPS = (0.125, 0.5, 1.0)
KDE_DIM, KDE_SAMPLES = 3, 10_000
PIT_STARTS, PIT_SAMPLES = 2048, 255
REPEATS = 20
# Euler–Maruyama is not tried in more steps than these.
MOST_STEPS = 2048
# By so much more steps are taken where those that the square law named are too few.
MORE = 1.1
# The search for as many steps as are needed begins with so few.
FIRST_STEPS = 4
# Of a timed batch: one for each of two cores.
CHUNKS = 2
# In the plane so many lines give the distance to a hundredth; beyond it they are drawn at random.
DIRECTIONS = 8
# Of the paths from each start so many must be finite: a law is not compared with what is left of a start that explodes.
MOST_FINITE = 0.9
# Of the latest time: a start plus a gap is rounded.
ROUNDING = 1e-6
# Samples of a start, below which kernel densities have too few points a fold.
LEAST_SAMPLES = 64


def compare(
    distilled: Distilled,
    *,
    gaps: Sequence[float] | None = None,
    since: Sequence[float] | None = None,
    groups: int = 16,
    samples: int = 16_384,
    batch: int = 10_000,
    key: PRNGKeyArray,
) -> Comparison:
    """Hold a distilled law against the solver.

    **Arguments:**

    - `gaps`: up to the horizon; an eighth, a half and all of it by default.
    - `since`: times that the gaps start at. By default zero and, of an SDE that depends on the time itself, the latest
        from which a gap ends within the law's time.
    - `groups`, `samples`: from so many starts, so many draws of each. The more, the smaller the distance that can be
        seen, and so the finer the solver that the flow is held against.
    - `batch`: samples at a time when the two are timed.
    - `key`: for starts and draws.
    """
    if not isinstance(distilled, Distilled):
        raise ValueError(f"`distilled` must be what `distill` returned; got {distilled!r}.")
    check_key(key)
    for name, number, least in (
        ("groups", groups, 2),
        ("samples", samples, LEAST_SAMPLES),
        ("batch", batch, 1),
    ):
        require(
            name, number, lambda v, least=least: is_count(v) and v >= least, f"an integer of at least {least}"
        )
    gaps = (
        [share * distilled.horizon for share in GAPS]
        if gaps is None
        else _checked_gaps(gaps, distilled.horizon)
    )
    latest = distilled.latest
    at = [(start, gap) for gap in gaps for start in _starts(since, gap, latest)]
    bench = _Bench(distilled, groups, samples, batch)
    compared = [bench.at(start, gap, jr.fold_in(key, i)) for i, (start, gap) in enumerate(at)]
    fine_dt = distilled.dt / FINER
    shares = distilled.lost, distilled.folded
    return Comparison(tuple(compared), distilled.seconds, groups, samples, fine_dt, batch, *shares)


def _checked_gaps(gaps: Any, horizon: float) -> list[float]:
    try:
        found = [float(gap) for gap in gaps]
    except (TypeError, ValueError):
        found = []
    if isinstance(gaps, str) or not found or not all(0 < gap <= horizon for gap in found):
        raise ValueError(
            f"`gaps` must be numbers between 0 and the horizon {horizon:g}, in a list; got {gaps!r}."
        )
    if len(set(found)) < len(found):
        raise ValueError(f"`gaps` must differ; got {gaps!r}.")
    return found


def _starts(since: Any, gap: float, latest: float | None) -> list[float]:
    """The times that a gap starts at."""
    if since is None:
        return [0.0] if latest is None else sorted({0.0, max(0.0, latest - gap)})
    try:
        found = [float(start) for start in since]
    except (TypeError, ValueError):
        found = []
    most = math.inf if latest is None else latest
    if (
        isinstance(since, str)
        or not found
        or not all(s >= 0 and s + gap <= most * (1 + ROUNDING) for s in found)
    ):
        within = (
            "" if latest is None else f" from which a gap of {gap:g} ends by {latest:g}, when the law does"
        )
        raise ValueError(f"`since` must be times of at least 0{within}, in a list; got {since!r}.")
    return found


class _Over(NamedTuple):
    """When a gap starts, and how long it is."""

    start: float
    gap: float

    @property
    def times(self) -> tuple[float, float]:
        return self.start, self.start + self.gap


class _Bench:
    """Draws of the flow and of solvers, for one distilled law."""

    def __init__(self, distilled: Distilled, groups: int, samples: int, batch: int):
        self.distilled, self.groups, self.samples, self.batch = distilled, groups, samples, batch
        self.sampler = make_sampler(distilled.flow, chunk=math.ceil(batch / CHUNKS))

        @eqx.filter_jit
        def run(scheme, x0, start, gap, steps, key):
            sde = distilled.simulator.sde
            ends = advance(sde, scheme, x0, start, gap / steps, steps, key=key)
            return jax.vmap(distilled.support.fold)(ends)

        # Arrays, so that one program serves every gap and every number of steps.
        as_array = lambda number, x0: jnp.asarray(number, x0.dtype)
        self.run = lambda scheme, x0, over, steps, key: run(
            scheme, x0, as_array(over.start, x0), as_array(over.gap, x0), jnp.asarray(steps), key
        )

    def at(self, start: float, gap: float, key: PRNGKeyArray) -> GapComparison:
        start_key, one_key, two_key, flow_key, em_key, line_key, kl_key, pit_key = jr.split(key, 8)
        x0 = self.distilled.simulator.starts.draw(self.groups, key=start_key)
        over = _Over(start, gap)
        truth, again = self.fine(x0, over, one_key), self.fine(x0, over, two_key)
        _require_finite(truth, x0, gap)
        std = np.sqrt(np.nanmean(np.nanvar(np.where(np.isfinite(truth), truth, np.nan), axis=1), axis=0))
        floor = _distance(truth / std, again / std, line_key)
        both = (
            np.concatenate([truth, again], axis=1) / std
        )  # the less chance in it, the less is taken for an error
        distance = lambda ends: _distance(both, ends / std, line_key)
        ours = self.flow(x0, over, flow_key)
        _require_draws(ours, gap)
        flow = distance(ours)
        aim = max(flow[0], flow[1])
        steps, energy = self._match(x0, over, aim, distance, em_key)
        kl = self._kl(over, kl_key)
        pit_statistic, pit_p = self._pit(over, pit_key)
        timing = self._time(over, steps)
        rest: tuple[Any, ...] = pit_statistic, pit_p, steps, energy, *timing, start, energy <= aim
        return GapComparison(gap, *kl, *flow, *floor, *rest)

    def fine(self, x0, over, key):
        return self.solve(self.distilled.simulator.scheme, x0, over, self._fine_steps(over), key)

    def _fine_steps(self, over):
        return math.ceil(FINER * over.gap / self.distilled.dt)

    def solve(self, scheme, x0, over, steps, key):
        keys = jr.split(key, len(x0))
        one = lambda x, k: self.run(scheme, jnp.tile(x, (self.samples, 1)), over, steps, k)
        return np.stack([np.asarray(one(x, k)) for x, k in zip(x0, keys, strict=True)])

    def flow(self, x0, over, key):
        rows = np.repeat(np.asarray(x0), self.samples, axis=0)
        return np.asarray(self.sampler(rows, *over.times, key=key)).reshape(len(x0), self.samples, -1)

    def _match(self, x0, over, aim, distance, key):
        """The fewest Euler–Maruyama steps whose distance is no larger than `aim`, and the distance measured there.

        The distance falls with the square of the number of steps, as the weak error is of order one. So a few of them
        say where to look; doubling and halving from there give the last number whose distance is larger, twice which is
        enough; and the square says how many more than that one are. Distances have errors, so that it may say too few:
        then more are taken until they are enough.
        """
        found: dict[int, float] = {}

        def error(steps):
            if steps not in found:
                ends = self.solve(EulerMaruyama(), x0, over, steps, jr.fold_in(key, steps))
                found[steps] = distance(ends)[0]
            return found[steps]

        steps = FIRST_STEPS
        if math.isfinite(error(steps)):
            steps = round(steps * math.sqrt(max(error(steps), aim / 16) / aim))
        steps = min(max(steps, 1), MOST_STEPS)
        while error(steps) > aim and steps < MOST_STEPS:
            steps = min(2 * steps, MOST_STEPS)
        while steps > 1 and error(steps // 2) <= aim:
            steps //= 2
        enough = steps
        if steps > 2 and error(steps) <= aim and math.isfinite(error(steps // 2)):
            steps = min(steps, math.ceil(steps // 2 * math.sqrt(error(steps // 2) / aim)))
        while error(steps) > aim and steps < enough:
            steps = min(math.ceil(MORE * steps), enough)
        return steps, error(steps)

    def _kl(self, over, key):
        if self.distilled.flow.dim > KDE_DIM:
            return None, None, None, None
        start_key, one_key, two_key, flow_key, fold_key, floor_key = jr.split(key, 6)
        number = min(KDE_SAMPLES, self.groups * self.samples)
        x0 = self.distilled.simulator.starts.draw(number, key=start_key)
        steps = self._fine_steps(over)
        scheme = self.distilled.simulator.scheme
        truth, again = (self.run(scheme, x0, over, steps, k) for k in (one_key, two_key))
        ours = self.sampler(np.asarray(x0), *over.times, key=flow_key)
        truth, again, ours = (_finite(np.asarray(a)[None])[0] for a in (truth, again, ours))
        found = kde_kl(truth, ours, key=fold_key), kde_floor(truth, again, key=floor_key)
        return found[0].mean, found[0].std, found[1].mean, found[1].std

    def _pit(self, over, key):
        start_key, end_key, pit_key = jr.split(key, 3)
        number = min(PIT_STARTS, self.groups * self.samples)
        x0 = self.distilled.simulator.starts.draw(number, key=start_key)
        ends = self.run(self.distilled.simulator.scheme, x0, over, self._fine_steps(over), end_key)
        kept = jnp.isfinite(ends).all(axis=1)
        pits = pit(self.distilled.flow, ends[kept], x0[kept], *over.times, samples=PIT_SAMPLES, key=pit_key)
        tests = [uniformity_test(column) for column in pits.T]
        return tuple(float(t.statistic) for t in tests), tuple(float(t.p_value) for t in tests)

    def _time(self, over, steps):
        """Seconds a sample, of the flow and of Euler–Maruyama in so many steps, compiled in the faster of two ways."""
        x0 = self.distilled.simulator.starts.draw(self.batch, key=jr.key(0))
        host, key = np.asarray(x0), jr.key(1)
        start, gap = (jnp.asarray(each, x0.dtype) for each in over)
        scheme = EulerMaruyama()
        sde = self.distilled.simulator.sde
        plain = lambda x, start, gap, key: advance(sde, scheme, x, start, gap / steps, steps, key=key)
        on_cpu = jax.default_backend() == "cpu"
        solvers = [jax.jit(plain), *([jax.jit(plain, compiler_options=CPU_OPTIONS)] if on_cpu else [])]
        rivals = {
            f"solver {i}": lambda solver=solver: solver(x0, start, gap, key)
            for i, solver in enumerate(solvers)
        }
        ours = {"flow": lambda: self.sampler(host, *over.times, key=key)}
        least = {name: timing.min for name, timing in interleave(ours | rivals, repeats=REPEATS).items()}
        return least["flow"] / self.batch, min(least[name] for name in rivals) / self.batch


def _require_finite(ends, x0, gap):
    """Of each start, or what is compared is the law of those paths that stay finite."""
    share = np.isfinite(ends).all(axis=2).mean(axis=1)
    if (share < MOST_FINITE).any():
        where = ", ".join(f"{number:.4g}" for number in np.asarray(x0[int(share.argmin())]))
        raise ValueError(
            f"{1 - share.min():.0%} of the solver's paths from ({where}) are not finite after {gap:g}, and what is "
            "left of them is no law to compare with: distil the SDE anew from `starts` from which it does not explode."
        )


def _require_draws(draws, gap):
    """Distances are of what is finite: a law of which some draws are not would look better than it is."""
    share = 1 - np.isfinite(draws).all(axis=2).mean()
    if share > 0:
        raise ValueError(
            f"{share:.2%} of the law's draws over {gap:g} are not finite: distil the SDE anew, with a lower "
            "`learning_rate`, or with `starts` that the draws do not leave so far behind."
        )


def _distance(truth, ends, key) -> tuple[float, float]:
    """Energy distance and its error; infinite where a tenth of the states is not finite."""
    if np.isfinite(ends).all(axis=2).mean() < 0.9:
        return math.inf, math.inf
    mean, se = projected_energy_distance(_finite(truth), _finite(ends), directions=DIRECTIONS, key=key)
    return float(mean), float(se)


def _finite(groups):
    """The finite rows of each group, as many as the poorest has."""
    kept = [group[np.isfinite(group).all(axis=1)] for group in groups]
    size = min(map(len, kept))
    return np.stack([group[:size] for group in kept])
