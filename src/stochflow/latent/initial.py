"""The law of a first state."""

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, PRNGKeyArray, Scalar

LOG_2PI = 1.8378770664093453


class InitialLaw(eqx.Module):
    """The law of the first state: a learnt normal, one mean and one standard deviation a dimension."""

    mean: Float[Array, " dim"]
    log_std: Float[Array, " dim"]

    def __init__(self, dim: int):
        self.mean = jnp.zeros(dim)
        self.log_std = jnp.zeros(dim)

    def log_prob(self, x: Float[Array, " dim"]) -> Scalar:
        distance = (x - self.mean) * jnp.exp(-self.log_std)
        return -(0.5 * (distance**2 + LOG_2PI) + self.log_std).sum()

    def sample(self, *, key: PRNGKeyArray) -> Float[Array, " dim"]:
        return self.mean + jnp.exp(self.log_std) * jr.normal(key, self.mean.shape, self.mean.dtype)
