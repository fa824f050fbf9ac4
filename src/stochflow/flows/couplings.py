"""Bijections that fade to the identity as their gate goes to zero."""

import abc

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray, Scalar

from .nets import MLP
from .splines import rational_quadratic, rational_quadratic_inverse


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

    net: MLP
    bound: Float[Array, " dim"]
    mask: tuple[bool, ...] = eqx.field(static=True)

    def __init__(self, mask: tuple[bool, ...], cond_size: int, *, width: int, depth: int, key: PRNGKeyArray):
        dim = len(mask)
        self.net = MLP(dim + cond_size, 2 * dim, width=width, depth=depth, key=key)
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

    net: MLP
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
        key: PRNGKeyArray,
    ):
        dim, moved = len(mask), mask.count(False)
        self.net = MLP(dim + cond_size, (3 * bins - 1) * moved, width=width, depth=depth, key=key)
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
        old, closed = pick(x), pick(gate) == 0
        new, log_slope = spline(old, *self._knots(x, pick(gate), c), self.half_width)
        # Knots that are sums of thirds are off by a rounding error, and so would be the identity.
        new, log_slope = jnp.where(closed, old, new), jnp.where(closed, 0.0, log_slope)
        row = {i: new[j] for j, i in enumerate(moved)}
        return jnp.stack([row[i] if i in row else x[i] for i in range(len(self.mask))]), log_slope.sum()

    def _knots(self, x, gate, c):
        kept = jnp.array(self.mask, x.dtype)
        raw = self.net(jnp.concatenate([kept * x, c])).reshape(gate.shape[0], 3 * self.bins - 1)
        raw = self.bound[:, None] * jnp.tanh(gate[:, None] * raw)
        return jnp.split(raw, [self.bins, 2 * self.bins], axis=1)
