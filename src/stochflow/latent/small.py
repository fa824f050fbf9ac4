"""Inverses and roots of small symmetric matrices, in operations that XLA fuses.

A filter needs many of them, one a row and series. LAPACK's routines work on a pool of threads, and on a processor with
two cores several batches of such calls within one program were seen to wait for each other for ever (jaxlib 0.10). A
state has few enough dimensions for its columns to be written out.
"""

import jax.numpy as jnp
from jaxtyping import Array, Float, Scalar


def inverse_and_log_det(matrix: Float[Array, "dim dim"]) -> tuple[Float[Array, "dim dim"], Scalar]:
    """Of a positive definite matrix, by Gauss and Jordan: every pivot is positive, so none is looked for.

    Rows and columns are first brought to a diagonal of ones: what is then lost to rounding is what is truly ill
    conditioned, and not what has other units.
    """
    scale = 1 / jnp.sqrt(jnp.diagonal(matrix))
    left = matrix * scale[:, None] * scale[None]
    log_det = -2 * jnp.log(scale).sum()
    for k, unit in enumerate(jnp.eye(matrix.shape[0], dtype=matrix.dtype)):
        pivot = left[k, k]
        left = left - (left[:, k] - unit)[:, None] * ((left[k] + unit) / pivot)[None]
        log_det = log_det + jnp.log(pivot)
    return left * scale[:, None] * scale[None], log_det


def cholesky(matrix: Float[Array, "dim dim"]) -> Float[Array, "dim dim"]:
    """The lower triangular root of a positive definite matrix, column by column."""
    left, columns = matrix, []
    for j in range(matrix.shape[0]):
        column = jnp.where(jnp.arange(len(left)) >= j, left[:, j], 0.0) / jnp.sqrt(left[j, j])
        left = left - column[:, None] * column[None]
        columns.append(column)
    return jnp.stack(columns, axis=1)
