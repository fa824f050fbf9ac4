"""Starts and noise that fill their space evenly: scrambled Sobol points, shifted anew for every set of paths."""

import functools

import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jax.scipy.special import ndtri
from jaxtyping import Array, Float, PRNGKeyArray, UInt32

# Stretches of the horizon over which the noise is spread evenly; what it does within them is left to chance.
BLOCKS = 8
# Bits of a number between 0 and 1. Half of the last is added, and a float of single precision holds 24: with one more
# here the largest would be rounded to 1, where a normal quantile is infinite.
BITS = 23


@functools.lru_cache(maxsize=8)
def sobol_points(number: int, dim: int) -> UInt32[np.ndarray, "number dim"]:
    """The first points of one scrambled Sobol sequence, as binary fractions in whole numbers.

    Every run of $2^k$ of them, from a multiple of $2^k$ on, is spread as evenly as the whole (Sobol, 1967; Owen, 1998).
    """
    from scipy.stats import qmc  # slow to import, and nothing else needs it

    sampler = qmc.Sobol(dim, scramble=True, bits=32, rng=np.random.default_rng(0))
    points = sampler.random_base2((number - 1).bit_length())[:number]
    return (points * 2.0**32).astype(np.uint32)


def shifted(
    points: UInt32[Array | np.ndarray, "number dim"], *, key: PRNGKeyArray
) -> Float[Array, "number dim"]:
    """Points within the unit cube, each uniform there: the bits of a coordinate are flipped by a random pattern, which
    leaves the points as even as they were."""
    pattern = jr.bits(key, (1, points.shape[1]), jnp.uint32)
    high = jnp.right_shift(points ^ pattern, jnp.uint32(32 - BITS))
    return (high.astype(jnp.float32) + 0.5) * 2.0**-BITS


def block_increments(
    shares: Float[Array, "number size"], noise_dim: int, blocks: int, length: float
) -> Float[Array, "blocks number noise"]:
    """Increments of Brownian motion over `blocks` stretches of one `length`, from uniform numbers.

    The first numbers set the end of the path, the next its middle, and so on by halves: what matters most comes from
    the coordinates of a Sobol sequence that are spread best (Caflisch, Morokoff and Owen, 1997).
    """
    normal = ndtri(shares).reshape(shares.shape[0], blocks, noise_dim)
    ends = {0: jnp.zeros_like(normal[:, 0]), blocks: np.sqrt(blocks * length) * normal[:, 0]}
    used, step = 1, blocks
    while step > 1:
        for left in range(0, blocks, step):
            middle = (ends[left] + ends[left + step]) / 2
            ends[left + step // 2] = middle + np.sqrt(step * length / 4) * normal[:, used]
            used += 1
        step //= 2
    return jnp.stack([ends[i + 1] - ends[i] for i in range(blocks)])


def number_of_blocks(rows: int) -> int:
    """Into how many stretches a horizon of so many rows is cut: a power of two that divides it."""
    return next(blocks for blocks in (BLOCKS, 4, 2, 1) if rows % blocks == 0)
