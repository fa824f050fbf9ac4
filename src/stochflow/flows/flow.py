"""The learnt transition law."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, PRNGKeyArray, Scalar, ScalarLike

from ..laws import AbstractTransition, point_mass_log_prob, time_gap
from .clocks import AbstractClock, make_clock
from .nets import MLP
from .stack import Base, GatedStack, check_sizes, make_condition

# A new flow has normal tails, and stretches them only where that pays: softplus(-4) is 0.02.
TAIL_OFFSET = 4.0


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
    - `width`, `depth`: of each network; `layers`: the number of couplings.
    - `clock`: `"linear"` (the paper's; on Lorenz the two are level) or `"saturating"`, which settles at long gaps.
    - `coupling`: `"affine"` (the paper's) or `"spline"`, which adds rational-quadratic splines in noise space
        for laws with several modes or skew.
    - `tails`: let the condition stretch the tails of the noise, so that a start from which the law is hard to
        tell (near a separatrix, say) costs a few nats and not hundreds.
    - `key`: for the initial weights.
    """

    net: MLP
    stack: GatedStack
    clock: AbstractClock
    dim: int = eqx.field(static=True)
    cond_dim: int = eqx.field(static=True)
    autonomous: bool = eqx.field(static=True)
    tails: bool = eqx.field(static=True)

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
        tails: bool = False,
        key: PRNGKeyArray,
    ):
        check_sizes(dim, cond_dim, width, depth, layers)
        net_key, stack_key = jr.split(key)
        cond_size = dim + 1 + (not autonomous) + cond_dim
        self.net = MLP(cond_size, (3 if tails else 2) * dim, width=width, depth=depth, key=net_key)
        self.stack = GatedStack(
            dim, cond_size, width=width, depth=depth, layers=layers, coupling=coupling, key=stack_key
        )
        self.clock = make_clock(clock, dim)
        self.dim = dim
        self.cond_dim = cond_dim
        self.autonomous = autonomous
        self.tails = tails

    def transform_and_log_prob(self, noise, x_s, s, t, u=None):
        dt = time_gap(s, t)
        return self.stack.forward(noise, self._base(x_s, s, dt, u))

    def log_prob(self, x_t, x_s, s, t, u=None):
        _, log_prob = self.noise_and_log_prob(x_t, x_s, s, t, u)
        return log_prob

    def noise_and_log_prob(
        self,
        x_t: Float[Array, " dim"],
        x_s: Float[Array, " dim"],
        s: ScalarLike,
        t: ScalarLike,
        u: Float[Array, " cond"] | None = None,
    ) -> tuple[Float[Array, " dim"], Scalar]:
        """The noise that `transform` sends to `x_t`, and the log-density there. If the law is right the noise
        is standard normal, which is what calibration checks rest on."""
        x_t = jnp.asarray(x_t, jnp.result_type(x_t, float))
        dt = time_gap(s, t)
        at_rest = dt == 0
        base = self._base(x_s, s, jnp.where(at_rest, 1.0, dt), u)  # any gap will do where it is not used
        noise, log_prob = self.stack.inverse(x_t, base)
        return noise, jnp.where(at_rest, point_mass_log_prob(x_t, x_s), log_prob)

    def _base(self, x_s, s, dt, u):
        """Mean and std of the Gaussian, the gate of the couplings, and the condition: all that time enters."""
        x_s = jnp.asarray(x_s, jnp.result_type(x_s, float))
        dt = dt.astype(x_s.dtype)
        scalars = [dt] if self.autonomous else [dt, jnp.asarray(s, x_s.dtype)]
        c = make_condition({"x_s": x_s}, scalars, u, dim=self.dim, cond_dim=self.cond_dim)
        rate, raw_std, *raw_tail = jnp.split(self.net(c), 3 if self.tails else 2)
        gate = self.clock.drift_gate(dt)
        return Base(
            mean=x_s + gate * rate,
            std=self.clock.noise_gate(dt) * jax.nn.softplus(raw_std),
            gate=gate,
            c=c,
            tail=jnp.tanh(gate * jax.nn.softplus(raw_tail[0] - TAIL_OFFSET)) if self.tails else None,
        )
