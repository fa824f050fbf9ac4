"""Checks of parameters, at construction: a `ValueError` for static facts, else an error at run time."""

import equinox as eqx
import jax.numpy as jnp
from jax.core import Tracer
from jaxtyping import Array, ArrayLike, Bool, Float


def require(name: str, value: Array, ok: Bool[Array, "*shape"], sentence: str) -> Array:
    """`value`, if `ok` holds everywhere: else a `ValueError` now or, if traced, an error at run time."""
    bad = jnp.logical_not(jnp.all(ok))
    if isinstance(bad, Tracer):
        return eqx.error_if(value, bad, f"`{name}` must {sentence}.")
    if bad:
        raise ValueError(f"`{name}` must {sentence}; got {value}.")
    return value


def as_vector(name: str, value: ArrayLike | list, size: int | None = None) -> Float[Array, " size"]:
    """A finite vector of at least one number, of length `size` if that is given."""
    vector = _as_float(value)
    wanted = "a vector of at least one number" if size is None else f"a vector of length {size}"
    if vector.ndim != 1 or vector.size == 0 or size not in (None, vector.size):
        raise ValueError(f"`{name}` must be {wanted}; got shape {vector.shape}.")
    return require(name, vector, jnp.isfinite(vector), "be finite")


def check_state(name: str, x: ArrayLike | list, dim: int) -> Float[Array, " dim"]:
    """One state as an array of floats, or a `ValueError` if it has another shape."""
    state = _as_float(x)
    if state.shape != (dim,):
        raise ValueError(
            f"`{name}` must have shape ({dim},); got {state.shape}. A law sees one state at a time: use `jax.vmap` "
            "for a batch."
        )
    return state


def check_states(dim: int, **states: ArrayLike | list) -> list[Float[Array, " dim"]]:
    """Several states, each by its argument's name."""
    return [check_state(name, x, dim) for name, x in states.items()]


def as_matrix(
    name: str, value: ArrayLike | list, rows: int | None = None, columns: int | None = None
) -> Float[Array, "rows columns"]:
    """A finite matrix with at least one entry, and with so many rows and columns if they are given."""
    matrix = _as_float(value)
    wanted = f"({rows or 'n'}, {columns or 'm'})"
    if matrix.ndim != 2 or matrix.size == 0:
        raise ValueError(f"`{name}` must be a matrix of shape {wanted}; got shape {matrix.shape}.")
    if rows not in (None, matrix.shape[0]) or columns not in (None, matrix.shape[1]):
        raise ValueError(f"`{name}` must be a matrix of shape {wanted}; got shape {matrix.shape}.")
    return require(name, matrix, jnp.isfinite(matrix), "be finite")


def as_square(name: str, value: ArrayLike | list) -> Float[Array, "dim dim"]:
    """A finite square matrix."""
    matrix = as_matrix(name, value)
    return as_matrix(name, matrix, matrix.shape[0], matrix.shape[0])


def as_positive(name: str, value: ArrayLike | list, size: int | None = None) -> Float[Array, " size"]:
    """A vector of positive numbers."""
    vector = as_vector(name, value, size)
    return require(name, vector, vector > 0, "be positive")


def as_cholesky(name: str, value: ArrayLike | list, dim: int) -> Float[Array, "dim dim"]:
    r"""The lower-triangular $T$ with $T T^\top = L L^\top$, of a matrix $L$ or of a vector of standard
    deviations."""
    if _as_float(value).ndim == 1:
        return jnp.diag(as_positive(name, value, dim))
    matrix = as_matrix(name, value, dim, dim)
    upper = jnp.linalg.qr(matrix.T)[1]  # L Lᵀ = Rᵀ R, without squaring the condition number
    pivots = jnp.diagonal(upper)
    smallest = jnp.abs(matrix).max() * dim * jnp.finfo(matrix.dtype).eps
    upper = require(name, upper, jnp.abs(pivots) > smallest, "be an invertible matrix")
    return (jnp.sign(pivots)[:, None] * upper).T


def _as_float(value: ArrayLike | list) -> Array:
    array = jnp.asarray(value)
    return array if jnp.issubdtype(array.dtype, jnp.floating) else array.astype(jnp.result_type(float))
