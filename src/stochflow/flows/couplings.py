"""Bijections that fade to the identity as their gate goes to zero."""

import abc

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, PRNGKeyArray, Scalar

from ..laws.joins import joined
from .activations import tanh
from .nets import MLP, RingNet
from .splines import (
    rational_quadratic,
    rational_quadratic_inverse,
    rational_quadratic_of_one,
)


class AbstractGatedBijection(eqx.Module):
    """A bijection of a state, given a gate and a condition; the identity, with `==`, where the gate is 0.

    The gate is one number a dimension: a clock's reading of the gap for a transition, $\\tau(1-\\tau)$ for a
    bridge.
    """

    @abc.abstractmethod
    def forward(
        self, x: Float[Array, " dim"], gate: Float[Array, " dim"], c: Float[Array, " cond"]
    ) -> tuple[Float[Array, " dim"], Scalar]:
        """The image and the log-determinant of the Jacobian."""

    @abc.abstractmethod
    def inverse(
        self, y: Float[Array, " dim"], gate: Float[Array, " dim"], c: Float[Array, " cond"]
    ) -> tuple[Float[Array, " dim"], Scalar]:
        """The pre-image and the log-determinant of the *inverse's* Jacobian."""


def alternating_mask(dim: int, layer: int) -> tuple[bool, ...]:
    """Which dimensions layer number `layer` keeps. In one dimension there is nothing to split: none is."""
    return tuple(dim > 1 and (i + layer) % 2 == 0 for i in range(dim))


class AffineCoupling(AbstractGatedBijection):
    r"""Masked affine coupling (the paper's Eq. 7).

    $$y = m x + (1-m)\,(e^{\ell} x + g\,\mu), \qquad \ell = b \tanh(g\,\sigma(m x, c)), \quad
      \mu = \mu(m x, c)$$

    The network sees the whole masked state and returns scale and shift for all dimensions; the bound $b$ of
    the log-scale is learnt. Gate *inside* the tanh: outside it the scale is unbounded in the gap.
    """

    net: MLP | RingNet
    bound: Float[Array, " dim"]
    mask: tuple[bool, ...] = eqx.field(static=True)

    def __init__(
        self,
        mask: tuple[bool, ...],
        cond_size: int,
        *,
        width: int,
        depth: int,
        ring: bool = False,
        key: PRNGKeyArray,
    ):
        dim = len(mask)
        sizes = {"width": width, "depth": depth}
        self.net = (
            RingNet(dim, 2, cond_size - dim, 2, **sizes, key=key)
            if ring
            else MLP(dim + cond_size, 2 * dim, **sizes, key=key)
        )
        self.bound = jnp.ones(dim)
        self.mask = mask

    def forward(self, x, gate, c):
        log_scale, shift = self._log_scale_and_shift(x, gate, c)
        return x * jnp.exp(log_scale) + shift, log_scale.sum()

    def inverse(self, y, gate, c):
        log_scale, shift = self._log_scale_and_shift(y, gate, c)
        return (y - shift) * jnp.exp(-log_scale), -log_scale.sum()

    def _log_scale_and_shift(self, x, gate, c):
        kept = jnp.array(self.mask, x.dtype)
        log_scale, shift = jnp.split(self.net(jnp.concatenate([kept * x, c])), 2)
        return (1 - kept) * self.bound * jnp.tanh(gate * log_scale), (1 - kept) * gate * shift


class SplineCoupling(AbstractGatedBijection):
    r"""Masked rational-quadratic-spline coupling with the same gate.

    Widths, heights and slopes of the spline come from $b \tanh(g\,\theta(m x, c))$, so the spline is the
    identity at $g = 0$. It acts on $[-B, B]$ and is the identity outside. It is meant for *noise* space,
    where $B$ standard deviations are a natural range, and where one layer gives several modes.
    """

    net: MLP | RingNet
    bound: Float[Array, " dim"]
    mask: tuple[bool, ...] = eqx.field(static=True)
    bins: int = eqx.field(static=True)
    half_width: float = eqx.field(static=True)

    def __init__(
        self,
        mask: tuple[bool, ...],
        cond_size: int,
        *,
        width: int,
        depth: int,
        bins: int = 12,
        half_width: float = 5.0,
        ring: bool = False,
        key: PRNGKeyArray,
    ):
        dim, moved = len(mask), mask.count(False)
        sizes, knots = {"width": width, "depth": depth}, 3 * bins - 1
        self.net = (
            RingNet(dim, 2, cond_size - dim, knots, **sizes, key=key)
            if ring
            else MLP(dim + cond_size, knots * moved, **sizes, key=key)
        )
        self.bound = jnp.full(moved, 3.0, jnp.result_type(float))
        self.mask = mask
        self.bins = bins
        self.half_width = half_width

    def forward(self, x, gate, c):
        return self._apply(rational_quadratic, x, gate, c)

    def inverse(self, y, gate, c):
        return self._apply(rational_quadratic_inverse, y, gate, c)

    def _apply(self, spline, x, gate, c):
        moved = [i for i, kept in enumerate(self.mask) if not kept]
        pick = lambda v: jnp.stack([v[i] for i in moved])
        kept = jnp.array(self.mask, x.dtype)
        raw = self.net(jnp.concatenate([kept * x, c]))
        if isinstance(self.net, RingNet):  # knots of all places, of which those that stay have none
            raw = raw.reshape(-1, x.shape[0]).T[jnp.array(moved)]
        raw = raw.reshape(len(moved), 3 * self.bins - 1)
        new, log_slope = _bend(spline, pick(x), raw, pick(gate), self.bound, self.half_width)
        row = {i: new[j] for j, i in enumerate(moved)}
        return jnp.stack([row[i] if i in row else x[i] for i in range(len(self.mask))]), log_slope.sum()


class TriangularSplines(eqx.Module):
    r"""One gated spline a coordinate, given the condition and the coordinates before it.

    $$y_i = \mathrm{spline}\big(x_i;\; b_i \tanh(\sqrt{g_i}\,\theta_i(y_{<i}, c))\big)$$

    Every law is the image of noise under such a triangular map (Knothe and Rosenblatt). The raw knots $\theta_0$ of the
    first coordinate depend on the condition alone: the caller's network gives them beside its own numbers, so that a
    state of two coordinates takes two networks where a pair of couplings and their Gaussian take three. The root of the
    gate is there as the skewness of a diffusion grows with the root of the gap. `order` says which coordinate is the
    first, the second, and so on.
    """

    nets: tuple[MLP, ...]
    bound: Float[Array, " dim"]
    order: tuple[int, ...] = eqx.field(static=True)
    bins: int = eqx.field(static=True)
    half_width: float = eqx.field(static=True)

    def __init__(
        self,
        dim: int,
        cond_size: int,
        *,
        width: int,
        depth: int,
        order: tuple[int, ...],
        bins: int = 12,
        half_width: float = 5.0,
        key: PRNGKeyArray,
    ):
        keys = jr.split(key, dim)
        self.order = order
        self.nets = tuple(
            MLP(i + cond_size, 3 * bins - 1, width=width, depth=depth, key=keys[i]) for i in range(1, dim)
        )
        self.bound = jnp.full(dim, 3.0, jnp.result_type(float))
        self.bins = bins
        self.half_width = half_width

    def forward(
        self,
        x: Float[Array, " dim"],
        gate: Float[Array, " dim"],
        c: Float[Array, " cond"],
        knots: Float[Array, " knots"],
    ) -> tuple[list[Scalar], Scalar]:
        """The image, one by one, and the log-determinant of the Jacobian; `knots` are the raw ones of the first
        coordinate."""
        y, log_det = {}, jnp.zeros((), x.dtype)
        for i in self.order:
            raw, shut, root = self._raw(i, y, c, knots), gate[i] == 0, jnp.sqrt(_positive(gate[i]))
            # Number by number, which a compiler makes the fastest draws of, and the slowest gradients.
            each = [self.bound[i] * tanh(root * part.reshape(())) for part in jnp.split(raw, raw.shape[0])]
            new, log_slope = rational_quadratic_of_one(x[i], each, self.half_width)
            y[i] = jnp.where(shut, x[i], new)
            log_det += jnp.where(shut, 0.0, log_slope)
        return [y[i] for i in range(x.shape[0])], log_det

    def inverse(
        self,
        y: Float[Array, " dim"],
        gate: Float[Array, " dim"],
        c: Float[Array, " cond"],
        knots: Float[Array, " knots"],
    ) -> tuple[Float[Array, " dim"], Scalar]:
        """The pre-image and the log-determinant of the *inverse's* Jacobian. No coordinate waits for another."""
        found = []
        for i in range(y.shape[0]):
            here = slice(i, i + 1)
            raw = self._raw(i, y, c, knots)[None]
            root, bound = jnp.sqrt(_positive(gate[here])), self.bound[here]
            x, slope = _bend(rational_quadratic_inverse, y[here], raw, root, bound, self.half_width)
            shut = gate[here] == 0
            found.append((jnp.where(shut, y[here], x)[0], jnp.where(shut, 0.0, slope)[0]))
        return joined([x for x, _ in found]), sum((slope for _, slope in found), jnp.zeros((), y.dtype))

    def _raw(self, i, y, c, knots):
        """The raw knots of coordinate `i`, given the images `y` of the coordinates that come before it."""
        place = self.order.index(i)
        return self.nets[place - 1](c, [y[j] for j in self.order[:place]]) if place else knots


def _positive(gate):
    """A gate, or 1 where it is shut: what may be divided by where the result is not used."""
    return jnp.where(gate == 0, 1.0, gate)


def _bend(spline, x, raw, gate, bound, half_width):
    """Each coordinate through the spline of its raw knots, and the log of each slope; the identity at a gate of 0."""
    bins = (raw.shape[1] + 1) // 3
    knots = jnp.split(bound[:, None] * tanh(gate[:, None] * raw), [bins, 2 * bins], axis=1)
    y, log_slope = spline(x, *knots, half_width)
    # Knots that are sums of thirds are off by a rounding error, and so would be the identity.
    return jnp.where(gate == 0, x, y), jnp.where(gate == 0, 0.0, log_slope)
