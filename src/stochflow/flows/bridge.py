"""The learnt bridge law."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import PRNGKeyArray

from ..laws import (
    AbstractBridge,
    bridge_gaps,
    check_states,
    hold_log_prob,
    hold_sample,
    pinned_end,
    positive_gap,
)
from .nets import MLP
from .stack import Base, GatedStack, check_sizes, make_condition


class BridgeFlow(AbstractBridge):
    r"""A bridge law $b(x_r \mid x_s, x_t)$ learnt as a conditional normalising flow (the paper's A.2).

    With $\Delta t = t - s$, $\tau = (r - s)/\Delta t$ and $\alpha = \tau(1-\tau)$,

    $$z = x_s + \tau (x_t - x_s) + \alpha\,\mu(c) + \sqrt{\alpha\,\Delta t}\,\sigma(c)\,\varepsilon, \qquad
      x_r = f_L \circ \dots \circ f_1(z), \qquad c = (x_s, x_t, \Delta t, \tau\,[, s]\,[, u])$$

    and the couplings are gated by $\alpha$, so both ends are met exactly. Arguments as for
    [`StochasticFlow`][stochflow.flows.StochasticFlow].
    """

    net: MLP
    stack: GatedStack
    dim: int = eqx.field(static=True)
    cond_dim: int = eqx.field(static=True)
    autonomous: bool = eqx.field(static=True)

    def __init__(
        self,
        dim: int,
        *,
        cond_dim: int = 0,
        autonomous: bool = True,
        width: int = 64,
        depth: int = 2,
        layers: int = 4,
        coupling: str = "affine",
        key: PRNGKeyArray,
    ):
        dim, cond_dim = check_sizes(dim=dim, cond_dim=cond_dim)
        width, depth, layers = check_sizes(width=width, depth=depth, layers=layers)
        net_key, stack_key = jr.split(key)
        cond_size = 2 * dim + 2 + (not autonomous) + cond_dim
        self.stack = GatedStack(
            dim, cond_size, width=width, depth=depth, layers=layers, coupling=coupling, key=stack_key
        )
        self.net = MLP(cond_size, 2 * dim + self.stack.knots, width=width, depth=depth, key=net_key)
        self.dim = dim
        self.cond_dim = cond_dim
        self.autonomous = autonomous

    @property
    def homogeneous(self) -> bool:
        return self.autonomous

    def transform_and_log_prob(self, noise, x_s, x_t, s, r, t, u=None):
        noise, x_s, x_t = check_states(self.dim, noise=noise, x_s=x_s, x_t=x_t)
        before, after = bridge_gaps(s, r, t)
        found = self.stack.forward(noise, self._base(x_s, x_t, s, before, after, u))
        return hold_sample(*pinned_end(before, after, x_s, x_t), *found)

    def log_prob(self, x_r, x_s, x_t, s, r, t, u=None):
        x_r, x_s, x_t = check_states(self.dim, x_r=x_r, x_s=x_s, x_t=x_t)
        before, after = bridge_gaps(s, r, t)
        _, log_prob = self.stack.inverse(x_r, self._base(x_s, x_t, s, before, after, u))
        return hold_log_prob(*pinned_end(before, after, x_s, x_t), x_r, log_prob)

    def _base(self, x_s, x_t, s, before, after, u):
        # At either end the law is held there, and what is computed here must only be finite.
        before, after = (positive_gap(gap).astype(x_s.dtype) for gap in (before, after))
        dt = before + after
        tau = before / dt
        scalars = [dt, tau] if self.autonomous else [dt, tau, jnp.asarray(s, x_s.dtype)]
        c = make_condition({"x_s": x_s, "x_t": x_t}, scalars, u, dim=self.dim, cond_dim=self.cond_dim)
        shift, raw_std, knots = jnp.split(self.net(c), [self.dim, 2 * self.dim])
        gate = jnp.broadcast_to(tau * (1 - tau), (self.dim,))
        mean = x_s + tau * (x_t - x_s) + gate * shift
        std = jnp.sqrt(gate * dt) * jax.nn.softplus(raw_std)
        return Base(mean, std, gate, c, knots=knots if self.stack.knots else None)
