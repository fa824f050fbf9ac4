"""One pure training step: gradients, the guard, the optimiser, the moving average."""

import functools
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import optax
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree, Scalar

from .config import RunConfig
from .devices import mean_of_all
from .muon import muon
from .packing import pack

# The guard knows what is usual after this many steps; until then it refuses only non-finite updates.
GUARD_WARMUP = 100
GUARD_MEMORY = 0.99

Loss = Callable[[PyTree, Int[Array, ""], PRNGKeyArray], tuple[Scalar, dict[str, Scalar]]]


class Guard(eqx.Module):
    """The usual length of a gradient, and how many updates were refused; `inner` counts those of the inner steps,
    which are refused where they are not finite."""

    usual: Float[Array, ""]
    seen: Int[Array, ""]
    non_finite: Int[Array, ""]
    outlying: Int[Array, ""]
    inner: Int[Array, ""]

    def __init__(self):
        self.usual = jnp.zeros(())
        self.seen = self.non_finite = self.outlying = self.inner = jnp.zeros((), jnp.int32)

    def judge(
        self, loss: Scalar, norm: Scalar, clip: float, outlier: float
    ) -> tuple["Guard", Bool[Array, ""], Scalar]:
        """The guard after this step, whether to take it, and what to multiply the gradient by."""
        usual = self.usual / jnp.maximum(1 - GUARD_MEMORY**self.seen, 1 - GUARD_MEMORY)
        finite = jnp.isfinite(loss) & jnp.isfinite(norm)
        warm = self.seen >= GUARD_WARMUP
        outlying = finite & warm & (norm > outlier * usual)
        take = finite & ~outlying
        limit = jnp.where(warm, clip * usual, jnp.inf)
        shorten = jnp.where(finite, jnp.minimum(1.0, limit / jnp.maximum(norm, 1e-30)), 0.0)
        # A limited share of a long gradient counts towards what is usual, so a real change of scale is followed.
        counted = jnp.where(finite, jnp.minimum(norm, limit), usual)
        guard = eqx.tree_at(
            lambda g: (g.usual, g.seen, g.non_finite, g.outlying),
            self,
            (
                GUARD_MEMORY * self.usual + (1 - GUARD_MEMORY) * counted,
                self.seen + 1,
                self.non_finite + ~finite,
                self.outlying + outlying,
            ),
        )
        return guard, take, shorten


class TrainState(eqx.Module):
    """All that changes while training; what a checkpoint holds."""

    params: PyTree
    ema: PyTree
    opt_state: Any
    inner_opt_state: Any
    guard: Guard
    step: Int[Array, ""]
    best: PyTree
    best_score: Float[Array, ""]
    stale: Int[Array, ""]


def make_optimiser(config: RunConfig) -> optax.GradientTransformation:
    """The chosen optimiser at a learning rate of one: `make_step` multiplies its updates by `make_schedule`'s."""
    matrices = lambda params: jax.tree.map(lambda p: p.ndim >= 2, params)
    optimisers = {
        "muon": lambda: muon(1.0, weight_decay=config.weight_decay),
        "adamw": lambda: optax.adamw(1.0, weight_decay=config.weight_decay, mask=matrices),
    }
    return optimisers[config.optimiser]()


def make_schedule(config: RunConfig) -> optax.Schedule:
    """Warm-up, then decay, by the number of updates that were taken."""
    warmup = min(config.warmup_steps, config.steps // 2)
    rest = config.steps - warmup
    schedules = {
        "cosine": lambda: optax.cosine_decay_schedule(config.learning_rate, rest),
        "linear": lambda: optax.linear_schedule(config.learning_rate, 0.0, rest),
        "constant": lambda: optax.constant_schedule(config.learning_rate),
    }
    rise = optax.linear_schedule(config.learning_rate / max(warmup, 1), config.learning_rate, max(warmup, 1))
    return optax.join_schedules([rise, schedules[config.decay]()], [warmup])


def init_state(
    params: PyTree, inner_params: PyTree, optim: optax.GradientTransformation, *, keep_best: bool
) -> TrainState:
    state = TrainState(
        params=params,
        ema=params,
        opt_state=optim.init(params),
        inner_opt_state=optim.init(inner_params),
        guard=Guard(),
        step=jnp.zeros((), jnp.int32),
        best=params if keep_best else None,
        best_score=jnp.array(jnp.inf),
        stale=jnp.zeros((), jnp.int32),
    )
    # A weak type (that of `jnp.full(n, 3.0)`, say) is lost in the first step, and the second would be compiled anew.
    return jax.tree.map(lambda leaf: jax.lax.convert_element_type(leaf, leaf.dtype), state)


def make_step(
    loss: Loss,
    optim: optax.GradientTransformation,
    config: RunConfig,
    *,
    inner_loss: Loss | None = None,
    inner_filter: PyTree = None,
) -> Callable[[TrainState, PRNGKeyArray], tuple[TrainState, dict[str, Scalar]]]:
    """A pure step. `inner_loss`, if any, is first minimised for `bridge_steps` steps over the parameters that
    `inner_filter` marks, at the same learning rate; the step itself then leaves those alone, as in the paper's
    Algorithm 1."""
    schedule = make_schedule(config)
    has_inner = inner_loss is not None and config.bridge_steps > 0

    def outer_loss(params, step, key):
        if has_inner:
            inner, outer = eqx.partition(params, inner_filter)
            params = eqx.combine(jax.lax.stop_gradient(inner), outer)
        return loss(params, step, key)

    update = functools.partial(_update, optim)

    def inner_step(carry, key):
        params, opt_state, step, rate = carry
        assert inner_loss is not None
        inner, outer = eqx.partition(params, inner_filter)
        objective = inner_loss
        grads = jax.grad(lambda p: objective(eqx.combine(p, outer), step, key)[0])(inner)
        grads = mean_of_all(grads)
        finite = jnp.isfinite(optax.tree.norm(pack(grads)))
        inner, opt_state = update(finite, inner, opt_state, grads, jnp.ones(()), rate)
        return (eqx.combine(inner, outer), opt_state, step, rate), ~finite

    def step(state: TrainState, key: PRNGKeyArray):
        loss_key, inner_key = jr.split(jr.fold_in(key, state.step))
        params, inner_opt_state, guard = state.params, state.inner_opt_state, state.guard
        rate = jnp.asarray(schedule(state.step - guard.non_finite - guard.outlying))
        if has_inner:
            carry = params, inner_opt_state, state.step, rate
            (params, inner_opt_state, _, _), refused = jax.lax.scan(
                inner_step, carry, jr.split(inner_key, config.bridge_steps)
            )
            guard = eqx.tree_at(lambda g: g.inner, guard, guard.inner + refused.sum(dtype=guard.inner.dtype))
        found = jax.value_and_grad(outer_loss, has_aux=True)(params, state.step, loss_key)
        (value, metrics), grads = mean_of_all(found)
        norm = optax.tree.norm(pack(grads))
        guard, take, shorten = guard.judge(value, norm, config.clip, config.outlier)
        params, opt_state = update(take, params, state.opt_state, grads, shorten, rate)
        state = eqx.tree_at(
            lambda s: (s.params, s.ema, s.opt_state, s.inner_opt_state, s.guard, s.step),
            state,
            (
                params,
                _averaged(state.ema, params, state.step, config.ema),
                opt_state,
                inner_opt_state,
                guard,
                state.step + 1,
            ),
            is_leaf=lambda x: x is None,
        )
        return state, metrics | {"loss": value}

    return step


def _averaged(ema, params, step, decay):
    """The moving average after one more step. Early on it forgets faster than `decay` says: else a short run would
    return little but its initial weights."""
    decay = jnp.minimum(decay, (1 + step) / (10 + step))
    return jax.tree.map(lambda e, p: e + (1 - decay).astype(p.dtype) * (p - e), ema, params)


def _update(optim, take, params, opt_state, grads, shorten, rate):
    """A branch, and not a choice leaf by leaf: XLA would work out guard and schedule anew for every leaf."""

    def go(params, opt_state, grads, shorten, rate):
        grads = jax.tree.map(lambda g: g * shorten.astype(g.dtype), grads)
        updates, opt_state = optim.update(grads, opt_state, params)
        return jax.tree.map(lambda p, d: p + rate.astype(p.dtype) * d, params, updates), opt_state

    stay = lambda params, opt_state, *_: (params, opt_state)
    return jax.lax.cond(take, go, stay, params, opt_state, grads, shorten, rate)
