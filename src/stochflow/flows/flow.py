"""The learnt transition law."""

from collections.abc import Sequence
from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Bool, Float, PRNGKeyArray, Scalar

from ..laws import AbstractTransition, check_state, hold_log_prob, hold_sample, positive_gap, time_gap
from .activations import softplus
from .clocks import AbstractClock, make_clock
from .lenses import Lenses
from .nets import MLP, RingNet
from .stack import BINS, SPLINE_LAYERS, Base, GatedStack, check_sizes, make_condition
from .tails import tail_weight


class Prepared(NamedTuple):
    """A condition, ready for draws and densities; where the gap is zero the base is that of some other gap."""

    base: Base
    x_s: Float[Array, " dim"]
    at_rest: Bool[Array, ""]


class StochasticFlow(AbstractTransition):
    r"""A transition law $p(x_t \mid x_s)$ learnt as a conditional normalising flow (the paper's Eqs. 5–7).

    $$z = x_s + g_\mu(\Delta t)\,\mu(c) + g_\sigma(\Delta t)\,\sigma(c)\,\varepsilon, \qquad
      x_t = f_L \circ \dots \circ f_1(z), \qquad c = (x_s, \Delta t\,[, s]\,[, u])$$

    $g_\mu, g_\sigma$ are the clock's gates and each $f_i$ is a coupling that is the identity where the gate is
    zero. So the law is the identity at $\Delta t = 0$, whatever the weights.

    **Arguments:**

    - `dim`: the size of the state, at least 1. In one dimension there is nothing to split and the couplings
        become affine maps given the condition alone: choose `coupling="spline"` for laws that are not normal.
    - `cond_dim`: the size of the covariates `u`; 0 for none.
    - `autonomous`: whether the law depends on $t - s$ only; otherwise `s` enters the network.
    - `width`, `depth`: of each network, of which one with no hidden layer is a linear map; `layers`: the number of
        couplings.
    - `clock`: `"linear"` (the paper's; within the gaps of the training the two are level) or `"saturating"`, which
        settles at long gaps.
    - `coupling`: `"affine"` (the paper's); `"spline"`, which adds rational-quadratic splines in noise space for laws
        with several modes or skew; or `"triangular"`, with one spline a coordinate in noise space, given those before
        it: with `layers=0` the fastest to draw from in one to three dimensions.
    - `bins`: of each spline; `spline_layers`: how many couplings are splines, where `coupling="spline"` and there is
        more than one dimension.
    - `correlated`: correlated noise already in the Gaussian. Without it the noise is uncorrelated in the limit of short
        gaps, which is right for diagonal noise only.
    - `tails`: power-law tails, as heavy as the condition asks for, so that a surprise (a start near a separatrix, or
        far from all that was seen) costs tens of nats and not thousands.
    - `octaves`: how many sines and cosines of the gap the networks see beside the gap itself, at periods of 2, 1,
        1/2, … time units (after `fit` has scaled the horizon to one). Laws that turn and fold as the gap grows are
        learnt in fewer steps.
    - `periods`: sines and cosines of the gap at these periods too, in the law's own units of time, for what comes back:
        a day, a week, a gait.
    - `scales`: $\Delta t/(\Delta t + h)$ and $e^{-\Delta t/h}$ for each of these $h$, in the units of time of the law,
        for gaps that span several orders of magnitude.
    - `lenses`: how many [`Lenses`][stochflow.flows.Lenses] the networks see the start through beside the start
        itself, for laws that are decided near a saddle.
    - `order`: of the coordinates, for triangular splines and correlated noise, both of which see each coordinate given
        those before it: best from what moves by itself to what is driven by it. As they are numbered by default.
    - `ring`: the coordinates stand in a ring, each is driven by those near it, and the law is the same everywhere along
        it: particles in a chain, a field on a circle. Networks then see the neighbours of a coordinate, with the same
        weights for all. Not with `tails`, `correlated`, `lenses` or triangular splines.
    - `key`: for the initial weights.
    """

    net: MLP | RingNet
    stack: GatedStack
    clock: AbstractClock
    lenses: Lenses | None
    dim: int = eqx.field(static=True)
    cond_dim: int = eqx.field(static=True)
    autonomous: bool = eqx.field(static=True)
    tails: bool = eqx.field(static=True)
    correlated: bool = eqx.field(static=True)
    octaves: int = eqx.field(static=True)
    periods: tuple[float, ...] = eqx.field(static=True)
    scales: tuple[float, ...] = eqx.field(static=True)

    def __init__(
        self,
        dim: int,
        *,
        cond_dim: int = 0,
        autonomous: bool = True,
        width: int = 64,
        depth: int = 2,
        layers: int = 4,
        clock: str = "linear",
        coupling: str = "affine",
        bins: int = BINS,
        spline_layers: int = SPLINE_LAYERS,
        correlated: bool = False,
        tails: bool = False,
        octaves: int = 0,
        periods: Sequence[float] = (),
        scales: Sequence[float] = (),
        lenses: int = 0,
        order: Sequence[int] = (),
        ring: bool = False,
        key: PRNGKeyArray,
    ):
        dim, cond_dim = check_sizes(dim=dim, cond_dim=cond_dim)
        width, depth, layers = check_sizes(width=width, depth=depth, layers=layers)
        octaves, bins, lenses = check_sizes(octaves=octaves, bins=bins, lenses=lenses)
        (spline_layers,) = check_sizes(spline_layers=spline_layers)
        net_key, stack_key = jr.split(key)
        for name, lengths in (("periods", periods), ("scales", scales)):
            if not all(length > 0 for length in lengths):
                raise ValueError(f"`{name}` must be positive; got {tuple(lengths)}.")
        if ring and (tails or correlated or lenses or coupling == "triangular"):
            raise ValueError("`ring` does not go with `tails`, `correlated`, `lenses` or triangular splines.")
        waves_and_scales = 2 * (octaves + len(periods) + len(scales))
        cond_size = dim + lenses + 1 + waves_and_scales + (not autonomous) + cond_dim
        out_size = (3 if tails else 2) * dim + (dim * (dim - 1) // 2 if correlated else 0)
        self.stack = GatedStack(
            dim,
            cond_size,
            width=width,
            depth=depth,
            layers=layers,
            coupling=coupling,
            bins=bins,
            spline_layers=spline_layers,
            order=_checked_order(order, dim),
            ring=ring,
            key=stack_key,
        )
        sizes = {"width": width, "depth": depth}
        self.net = (
            RingNet(dim, 1, cond_size - dim, 2, **sizes, key=net_key)
            if ring
            else MLP(cond_size, out_size + self.stack.knots, **sizes, key=net_key)
        )
        self.clock = make_clock(clock, dim)
        self.lenses = Lenses(dim, lenses, key=jr.fold_in(key, 2)) if lenses else None
        self.dim = dim
        self.cond_dim = cond_dim
        self.autonomous = autonomous
        self.tails = tails
        self.correlated = correlated and dim > 1
        self.octaves = octaves
        self.periods = tuple(float(period) for period in periods)
        self.scales = tuple(float(scale) for scale in scales)

    @property
    def homogeneous(self) -> bool:
        return self.autonomous

    @property
    def ring(self) -> bool:
        """Whether it was made for coordinates that stand in a ring."""
        return isinstance(self.net, RingNet)

    def transform_and_log_prob(self, noise, x_s, s, t, u=None):
        return self.prepared_transform_and_log_prob(noise, self.prepare(x_s, s, t, u))

    def log_prob(self, x_t, x_s, s, t, u=None):
        return self.prepared_log_prob(x_t, self.prepare(x_s, s, t, u))

    def noise_and_log_prob(self, x_t, x_s, s, t, u=None):
        return self._noise_and_log_prob(x_t, self.prepare(x_s, s, t, u))

    def prepare(self, x_s, s, t, u=None):
        """The Gaussian and the condition of the couplings: what the base network makes of a start and a gap."""
        x_s = check_state("x_s", x_s, self.dim)
        dt = time_gap(s, t)
        at_rest = dt == 0
        return Prepared(self._base(x_s, s, positive_gap(dt), u), x_s, at_rest)

    def prepared_transform_and_log_prob(self, noise, prepared):
        x_t, log_prob = self.stack.forward(check_state("noise", noise, self.dim), prepared.base)
        return hold_sample(prepared.at_rest, prepared.x_s, x_t, log_prob)

    def prepared_log_prob(self, x_t, prepared):
        _, log_prob = self._noise_and_log_prob(x_t, prepared)
        return log_prob

    def _noise_and_log_prob(self, x_t, prepared):
        x_t = check_state("x_t", x_t, self.dim)
        noise, log_prob = self.stack.inverse(x_t, prepared.base)
        return noise, hold_log_prob(prepared.at_rest, prepared.x_s, x_t, log_prob)

    def _base(self, x_s, s, dt, u):
        """Mean and std of the Gaussian, the gate of the couplings, and the condition: all that time enters."""
        dt = dt.astype(x_s.dtype)
        scalars = [dt, *waves(dt, self.octaves, self.periods), *saturations(dt, self.scales)]
        if not self.autonomous:
            scalars.append(jnp.asarray(s, x_s.dtype))
        if self.lenses is not None:
            scalars = [self.lenses(x_s), *scalars]
        c = make_condition({"x_s": x_s}, scalars, u, dim=self.dim, cond_dim=self.cond_dim)
        out = self.net(c)
        ends = [self.dim, 2 * self.dim, (2 + self.tails) * self.dim, out.shape[0] - self.stack.knots]
        rate, raw_std, raw_tail, mixing, knots = jnp.split(out, ends)
        gate = self.clock.drift_gate(dt)
        return Base(
            mean=x_s + gate * rate,
            std=self.clock.noise_gate(dt) * softplus(raw_std),
            gate=gate,
            c=c,
            tail=tail_weight(raw_tail) if self.tails else None,
            mixing=mixing if self.correlated else None,
            knots=knots if self.stack.knots else None,
        )


def _checked_order(order: Sequence[int], dim: int) -> tuple[int, ...]:
    if not order:
        return tuple(range(dim))
    if sorted(order) != list(range(dim)):
        raise ValueError(f"`order` must hold each of 0 to {dim - 1} once; got {tuple(order)}.")
    return tuple(int(i) for i in order)


def waves(dt: Scalar, octaves: int, periods: tuple[float, ...] = ()) -> list[Scalar]:
    """Sine and cosine of the gap at each octave and each period."""
    angles = [2**k * jnp.pi * dt for k in range(octaves)] + [2 * jnp.pi / period * dt for period in periods]
    return [wave(angle) for angle in angles for wave in (jnp.sin, jnp.cos)]


def saturations(dt: Scalar, scales: tuple[float, ...]) -> list[Scalar]:
    """Two ways from 0 to 1, or back, at each scale: a slow one and a quick one."""
    return [feature for scale in scales for feature in (dt / (dt + scale), jnp.exp(-dt / scale))]
