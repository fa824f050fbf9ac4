"""Reference log-likelihoods of an SDE whose transition law has no closed form, in any dimension.

Each is an approximation with a name and a limit that is stated. For one dimension there is a better one:
`grid`.
"""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jax.scipy.linalg import cho_solve
from jax.scipy.special import logsumexp
from jaxtyping import Array, Float, PRNGKeyArray, Scalar, ScalarLike

from ..laws import Gaussian, hold_log_prob, positive_gap, time_gap
from .model import SDE
from .solve import solve
from .solvers import AbstractSolver


class Moments(NamedTuple):
    """Mean, covariance and the derivative of the mean by where it started, along a linear-noise solution."""

    mean: Float[Array, " dim"]
    cov: Float[Array, "dim dim"]
    flow: Float[Array, "dim dim"]


class Estimate(NamedTuple):
    """A log-likelihood estimated from weighted particles.

    `standard_error` is that of the log, by the delta method: trust it only while `effective_samples` (Kish)
    is large, say above 100. With few effective samples the estimate is usually too low.
    """

    log_prob: Scalar
    standard_error: Scalar
    effective_samples: Scalar


def linear_noise(
    sde: SDE,
    x_s: Float[Array, " dim"],
    s: ScalarLike,
    t: ScalarLike,
    u: Float[Array, " cond"] | None = None,
    *,
    steps: int,
) -> Moments:
    r"""The linear-noise approximation: an ODE for the mean, Lyapunov's equation for the covariance,
    $$\dot m = f(m), \qquad \dot P = J P + P J^\top + g g^\top, \qquad \dot F = J F,
      \qquad J = \partial f(m),$$
    with $m = x_s$, $P = 0$ and $F = I$ at $s$, by the classical Runge–Kutta method in `steps` steps.
    """
    if steps < 1:
        raise ValueError(f"`steps` must be at least 1; got {steps}.")
    h = time_gap(s, t) / steps

    def rates(time, state):
        drift = lambda x: sde.ito_drift(time, x, u)
        jacobian, g = jax.jacfwd(drift)(state.mean), sde.diffusion_matrix(time, state.mean, u)
        half = jacobian @ state.cov
        return Moments(drift(state.mean), half + half.T + g @ g.T, jacobian @ state.flow)

    def step(state, k):
        time = s + k * h
        move = lambda rate, length: jax.tree.map(lambda x, r: x + length * r, state, rate)
        first = rates(time, state)
        second = rates(time + h / 2, move(first, h / 2))
        third = rates(time + h / 2, move(second, h / 2))
        last = rates(time + h, move(third, h))
        mean_rate = jax.tree.map(lambda a, b, c, d: (a + 2 * b + 2 * c + d) / 6, first, second, third, last)
        return move(mean_rate, h), None

    eye = jnp.eye(sde.dim, dtype=x_s.dtype)
    return jax.lax.scan(step, Moments(x_s, jnp.zeros_like(eye), eye), jnp.arange(steps))[0]


def linear_noise_log_prob(
    sde: SDE,
    x_t: Float[Array, " dim"],
    x_s: Float[Array, " dim"],
    s: ScalarLike,
    t: ScalarLike,
    u: Float[Array, " cond"] | None = None,
    *,
    steps: int,
) -> Scalar:
    r"""$\log \mathcal N(x_t; m, P)$ with the moments of `linear_noise`.

    Exact (up to the error of Runge–Kutta, $O(h^4)$) if the drift is linear and the noise additive. Else it is
    the leading term for small noise or short gaps: it has no skewness, and fails once the spread of the law
    is comparable to the scale over which the drift bends, as for a chaotic system over a long gap.
    """
    gap = time_gap(s, t)
    moments = linear_noise(sde, x_s, s, s + positive_gap(gap), u, steps=steps)
    return hold_log_prob(gap == 0, x_s, x_t, _gaussian(moments).log_prob(x_t))


def simulated_log_prob(
    sde: SDE,
    x_t: Float[Array, " dim"],
    x_s: Float[Array, " dim"],
    s: ScalarLike,
    t: ScalarLike,
    u: Float[Array, " cond"] | None = None,
    *,
    steps: int,
    samples: int,
    last: float = 0.1,
    solver: str | AbstractSolver = "euler_maruyama",
    key: PRNGKeyArray,
) -> Estimate:
    r"""Simulated likelihood (Pedersen, 1995) with a linear-noise last segment.

    $$p(x_t \mid x_s) = \mathbb E\,[\,p(x_t \mid X_{t-\delta})\,]
      \approx \frac1N\sum_i \mathrm{LNA}(x_t \mid X^i_{t-\delta}),
      \qquad \delta = \mathtt{last}\cdot(t - s),$$
    with $N$ = `samples` paths to $t - \delta$ in `steps` steps of `solver`. The bias is that of the solver
    and of the linear-noise law over $\delta$ only; the variance grows as $\delta$ shrinks, because few
    paths end near $x_t$. It needs no guess of how the path went, so it is the robust choice when the law is
    bent or has several modes (and, for a contracting flow such as Lorenz's, the paths are where they are
    needed); it is poor in the tails, for which see `guided_log_prob`. For $t > s$ only.
    """
    if not 0 < last < 1:
        raise ValueError(f"`last` must lie between 0 and 1; got {last}.")
    gap = time_gap(s, t)
    gap = eqx.error_if(gap, gap == 0, "`t` must be later than `s`.")
    middle = s + (1 - last) * gap

    def log_weight(key):
        x = solve(sde, x_s, s, middle, u, steps=steps, solver=solver, key=key)
        return linear_noise_log_prob(sde, x_t, x, middle, t, u, steps=max(2, round(last * steps)))

    return _estimate(jax.vmap(log_weight)(jr.split(key, samples)))


def guided_log_prob(
    sde: SDE,
    x_t: Float[Array, " dim"],
    x_s: Float[Array, " dim"],
    s: ScalarLike,
    t: ScalarLike,
    u: Float[Array, " cond"] | None = None,
    *,
    steps: int,
    samples: int,
    inflation: float = 1.0,
    key: PRNGKeyArray,
) -> Estimate:
    r"""Simulated likelihood with paths that are guided to $x_t$ by the linear-noise law.

    The path is a chain of `steps` short Gaussian steps $p_k(x_{k+1} \mid x_k)$ (one linear-noise step each).
    Along the noiseless path $m_k$ from $x_s$ the guide $\psi_k(x) = \mathcal N(x_t;\, m_n + F_k(x - m_k),\, c
    P_k)$ says how likely $x_t$ is from $x$, with $F_k, P_k$ the linear-noise flow and covariance of the rest
    and $c$ = `inflation`. Each step is drawn from $p_k\psi_{k+1}$, which is Gaussian, and weighted by its
    mass over $\psi_{k+1}$ at the draw:
    $$\hat p = \frac1N\sum_i p_{n-1}(x_t \mid x_{n-1})
      \prod_{k<n-1} \frac{\int p_k\,\psi_{k+1}}{\psi_{k+1}(x_{k+1})}.$$

    Unbiased for the chain, whose own error is $O(h)$ (smaller, the weaker the noise). Every path does arrive,
    so it is accurate in the tails and for small noise, where few free paths would. It degenerates where the
    law is far from its linear-noise approximation (several modes, strong bending): look at
    `effective_samples`, inflate the guide, or use `simulated_log_prob`. For $t > s$ only. Reference: Whitaker
    et al., "Improved bridge constructs for stochastic differential equations", 2017.
    """
    if steps < 2:
        raise ValueError(f"`steps` must be at least 2; got {steps}.")
    gap = time_gap(s, t)
    h = eqx.error_if(gap, gap == 0, "`t` must be later than `s`.") / steps
    one_step = lambda x, k: linear_noise(sde, x, s + k * h, s + (k + 1) * h, u, steps=1)
    end, guides = _guides(one_step, x_s, steps, inflation)

    def log_weight(key):
        def step(carry, item):
            x, total = carry
            k, guide, noise = item
            short = one_step(x, k)
            predicted = end + guide.flow @ (short.mean - guide.mean)
            reach = guide.flow @ short.cov
            whole = Gaussian(predicted, jnp.linalg.cholesky(reach @ guide.flow.T + guide.cov))
            gain = cho_solve((whole.scale_tril, True), reach).T
            cov = short.cov - gain @ reach
            new = short.mean + gain @ (x_t - predicted) + jnp.linalg.cholesky(cov) @ noise
            at_new = Gaussian(end + guide.flow @ (new - guide.mean), jnp.linalg.cholesky(guide.cov))
            return (new, total + whole.log_prob(x_t) - at_new.log_prob(x_t)), None

        noises = jr.normal(key, (steps - 1, sde.dim), x_s.dtype)
        start = x_s, jnp.zeros((), x_s.dtype)
        (x, total), _ = jax.lax.scan(step, start, (jnp.arange(steps - 1), guides, noises))
        return total + _gaussian(one_step(x, steps - 1)).log_prob(x_t)

    return _estimate(jax.vmap(log_weight)(jr.split(key, samples)))


def _guides(one_step, x_s, steps, inflation):
    """The end of the noiseless path and, at each point but the first, mean, flow and cov of the rest."""

    def forwards(x, k):
        short = one_step(x, k)
        return short.mean, (x, short)

    def backwards(rest, item):
        x, short = item
        cov = rest.cov + rest.flow @ short.cov @ rest.flow.T
        rest = Moments(x, cov, rest.flow @ short.flow)
        return rest, rest._replace(cov=inflation * cov)

    end, path = jax.lax.scan(forwards, x_s, jnp.arange(steps))
    eye = jnp.eye(x_s.size, dtype=x_s.dtype)
    _, guides = jax.lax.scan(backwards, Moments(end, jnp.zeros_like(eye), eye), path, reverse=True)
    return end, jax.tree.map(lambda g: g[1:], guides)


def _gaussian(moments):
    return Gaussian(moments.mean, jnp.linalg.cholesky(moments.cov))


def _estimate(log_weights):
    count = log_weights.size
    log_prob = logsumexp(log_weights) - jnp.log(count)
    relative = jnp.exp(log_weights - log_prob)
    error = jnp.std(relative, ddof=1) / jnp.sqrt(count)
    return Estimate(log_prob, error, count**2 / jnp.sum(relative**2))
