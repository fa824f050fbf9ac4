"""How far a law is from being one law, whatever the number of steps."""

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, PRNGKeyArray, Scalar, ScalarLike

from ..laws import AbstractBridge, AbstractTransition

DIRECTIONS = ("one_to_two", "two_to_one")


def one_to_two_gap(
    law: AbstractTransition,
    bridge: AbstractBridge,
    x_s: Float[Array, " dim"],
    s: ScalarLike,
    r: ScalarLike,
    t: ScalarLike,
    u: Float[Array, " cond"] | None = None,
    *,
    key: PRNGKeyArray,
) -> Scalar:
    r"""$\log p(x_t|x_s)\,b(x_r|x_s,x_t) - \log p(x_r|x_s)\,p(x_t|x_r)$ at a *one-step* sample.

    Its mean bounds the KL divergence of two steps from one (the paper's $\mathcal L_{\text{1-to-2}}$); it is
    zero at every sample if the law is Markov and the bridge is its own.
    """
    end_key, middle_key = jr.split(key)
    x_t, long = law.sample_and_log_prob(x_s, s, t, u, key=end_key)
    x_r, middle = bridge.sample_and_log_prob(x_s, x_t, s, r, t, u, key=middle_key)
    return long + middle - law.log_prob(x_r, x_s, s, r, u) - law.log_prob(x_t, x_r, r, t, u)


def two_to_one_gap(
    law: AbstractTransition,
    bridge: AbstractBridge,
    x_s: Float[Array, " dim"],
    s: ScalarLike,
    r: ScalarLike,
    t: ScalarLike,
    u: Float[Array, " cond"] | None = None,
    *,
    key: PRNGKeyArray,
) -> Scalar:
    r"""$\log p(x_r|x_s)\,p(x_t|x_r) - \log p(x_t|x_s)\,b(x_r|x_s,x_t)$ at a *two-step* sample.

    Its mean bounds the KL divergence of one step from two (the paper's $\mathcal L_{\text{2-to-1}}$).
    """
    middle_key, end_key = jr.split(key)
    x_r, first = law.sample_and_log_prob(x_s, s, r, u, key=middle_key)
    x_t, second = law.sample_and_log_prob(x_r, r, t, u, key=end_key)
    return first + second - law.log_prob(x_t, x_s, s, t, u) - bridge.log_prob(x_r, x_s, x_t, s, r, t, u)


class Gaps(NamedTuple):
    """The gaps of the rows that went each way, and the log-likelihood of the data rows that were evaluated along with
    them."""

    one_to_two: Float[Array, " rows"] | None
    two_to_one: Float[Array, " others"] | None
    log_prob: Float[Array, " pairs"]

    def means(self) -> dict[str, Scalar]:
        """The mean of each direction, by its name."""
        found = {name: getattr(self, name) for name in DIRECTIONS}
        return {name: gap.mean() for name, gap in found.items() if gap is not None}


def stacked_gaps(
    law, bridge, triplets, pairs, *, directions: Sequence[str] = DIRECTIONS, key: PRNGKeyArray
) -> Gaps:
    """[`one_to_two_gap`][stochflow.objectives.one_to_two_gap] of the first half of a batch,
    [`two_to_one_gap`][stochflow.objectives.two_to_one_gap] of the rest, and the likelihood of `pairs`.

    A triplet goes one way only, so that for the same work twice as many of them are seen as if each went both ways.
    Calls that share weights are stacked into one, and what depends on a start and a
    gap alone is computed once: the same numbers as the three functions give with the same noise, in fewer and larger
    products. `triplets` is `(x_s, s, r, t, u)` and `pairs` is `(x_s, x_t, s, t, u)`, arrays with the batch in front.

    With one of the `directions` all triplets go that way, and the other is not evaluated: samples that nothing trains
    may be anywhere, and a NaN times a weight of zero is NaN. A single triplet goes both ways.
    """
    x_s, s, r, t, u = triplets
    if set(directions) != set(DIRECTIONS) or x_s.shape[0] < 2:
        return _gaps_row_by_row(law, bridge, triplets, pairs, directions, key)
    number = x_s.shape[0]
    half = number // 2
    one, two = _part(tuple(triplets), 0, half), _part(tuple(triplets), half)
    noise, on_noise = jr.normal(key, (2, *x_s.shape), x_s.dtype)
    prepare = jax.vmap(law.prepare, in_axes=(0, 0, 0, _axis(u)))
    transform = jax.vmap(law.prepared_transform_and_log_prob)
    bridge_axes = (0, 0, 0, 0, 0, 0, _axis(u))

    # From x_s: to t in one step or to r, and where the other way will lead; and the data, while we are at it.
    starts = prepare(_cat(x_s, x_s, pairs.x_s), _cat(s, s, pairs.s), _cat(t, r, pairs.t), _cat(u, u, pairs.u))
    to_t, to_r, to_data = (
        _part(starts, *ends) for ends in [(0, number), (number, 2 * number), (2 * number, None)]
    )
    ends, end_log_probs = transform(noise, _join(_part(to_t, 0, half), _part(to_r, half)))
    (long_t, two_r), (long, first) = _halves(ends, half), _halves(end_log_probs, half)
    one_r, one_middle = jax.vmap(bridge.transform_and_log_prob, in_axes=bridge_axes)(
        on_noise[:half], one[0], long_t, *one[1:]
    )
    # On from r: from where the bridge, and where the first of two steps, has led.
    middles = prepare(_cat(one_r, two_r), r, t, u)
    two_t, second = transform(on_noise[half:], _part(middles, half))
    two_middle = jax.vmap(bridge.log_prob, in_axes=bridge_axes)(two_r, two[0], two_t, *two[1:])
    conditions = _join(_part(to_r, 0, half), _part(middles, 0, half), _part(to_t, half), to_data)
    log_probs = jax.vmap(law.prepared_log_prob)(_cat(one_r, long_t, two_t, pairs.x_t), conditions)
    one_first, one_second, two_long, data = jnp.split(log_probs, [half, 2 * half, half + number])
    return Gaps(
        one_to_two=long + one_middle - one_first - one_second,
        two_to_one=first + second - two_long - two_middle,
        log_prob=data,
    )


def _gaps_row_by_row(law, bridge, triplets, pairs, directions, key) -> Gaps:
    """Every triplet in each of the `directions`."""
    axes = (0, 0, 0, 0, _axis(triplets[-1]))
    keys = jr.split(key, triplets[0].shape[0])
    each = lambda gap: jax.vmap(lambda k, *row: gap(law, bridge, *row, key=k), in_axes=(0, *axes))(
        keys, *triplets
    )
    log_prob = jax.vmap(law.log_prob, in_axes=axes)(pairs.x_t, pairs.x_s, pairs.s, pairs.t, pairs.u)
    return Gaps(
        each(one_to_two_gap) if "one_to_two" in directions else None,
        each(two_to_one_gap) if "two_to_one" in directions else None,
        log_prob,
    )


def bridge_loss(law, bridge, triplets, *, key: PRNGKeyArray) -> Scalar:
    """Maximum likelihood of the bridge at two-step samples, a batch of triplets: all that the second direction asks of
    the bridge, without a gradient through the law."""
    x_s, s, r, t, u = triplets
    noise = jr.normal(key, (2, *x_s.shape), x_s.dtype)
    transform = jax.vmap(law.transform, in_axes=(0, 0, 0, 0, _axis(u)))
    x_r = transform(noise[0], x_s, s, r, u)
    x_t = transform(noise[1], x_r, r, t, u)
    x_r, x_t = jax.lax.stop_gradient((x_r, x_t))
    log_prob = jax.vmap(bridge.log_prob, in_axes=(0, 0, 0, 0, 0, 0, _axis(u)))
    return -log_prob(x_r, x_s, x_t, s, r, t, u).mean()


def one_way_loss(
    law,
    triplets,
    *,
    steps: int,
    within: tuple[Float[Array, " dim"], Float[Array, " dim"]] | None = None,
    key: PRNGKeyArray,
) -> Scalar:
    r"""Maximum likelihood of the law in one step at its own samples in `steps` equal ones, a batch of triplets.

    Up to a constant the KL divergence of one step from many, as the law stands: no bridge and no bound. The samples are
    taken as they are, so that the long gap learns from the short ones and they learn nothing from it. Middle times are
    not used.

    A chain that has left all bounds teaches nothing, and would lead the law after it: samples that are not finite, or
    not `within` a lowest and a highest state, are left out.
    """
    x_s, s, _, t, u = triplets
    transform = jax.vmap(law.transform, in_axes=(0, 0, 0, 0, _axis(u)))

    def step(x, now):
        i, noise = now
        later = lambda i: s + (t - s) * i / steps
        return transform(noise, x, later(i), later(i + 1), u).astype(x.dtype), None

    noise = jr.normal(key, (steps, *x_s.shape), x_s.dtype)
    x_t = jax.lax.stop_gradient(jax.lax.scan(step, x_s, (jnp.arange(steps), noise))[0])
    good = jnp.isfinite(x_t).all(axis=1)
    if within is not None:
        good &= ((x_t >= within[0][None]) & (x_t <= within[1][None])).all(axis=1)
    x_t = jnp.where(good[:, None], x_t, x_s)  # a finite place, for finite gradients; it does not count
    log_prob = jax.vmap(law.log_prob, in_axes=(0, 0, 0, 0, _axis(u)))(x_t, x_s, s, t, u)
    return -jnp.where(good, log_prob, 0.0).sum() / jnp.maximum(good.sum(), 1)


def _axis(u):
    return None if u is None else 0


def _cat(*arrays):
    return None if arrays[0] is None else jnp.concatenate(arrays)


def _part(tree, first, last=None):
    return jax.tree.map(lambda leaf: leaf[first:last], tree)


def _join(*trees):
    return jax.tree.map(lambda *parts: jnp.concatenate(parts), *trees)


def _halves(array, batch):
    return array[:batch], array[batch:]
