"""What the transition flow and the bridge flow share: noise → splines → Gaussian → couplings → state."""

import operator
from typing import NamedTuple, SupportsIndex

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, PRNGKeyArray, Scalar

from ..laws import check_states
from ..laws.joins import joined
from .couplings import (
    AbstractGatedBijection,
    AffineCoupling,
    SplineCoupling,
    TriangularSplines,
    alternating_mask,
)
from .tails import stretch_tails, unstretch_tails

# Two spline layers with opposite masks touch every dimension once.
SPLINE_LAYERS = 2
BINS = 12
COUPLINGS = ("affine", "spline", "triangular")


class Base(NamedTuple):
    """The Gaussian that the couplings start from, and what conditions them.

    `tail` is the heaviness of the stretched tails, or `None` for normal ones; `mixing` the strictly lower triangle, row
    by row, of what correlates the noise, or `None` where it is not; `knots` the raw ones of the first of triangular
    splines, or `None` where there are none.
    """

    mean: Float[Array, " dim"]
    std: Float[Array, " dim"]
    gate: Float[Array, " dim"]
    c: Float[Array, " cond"]
    tail: Float[Array, " dim"] | None = None
    mixing: Float[Array, " pairs"] | None = None
    knots: Float[Array, " knots"] | None = None


class GatedStack(eqx.Module):
    """A gated normalising flow on top of a Gaussian whose mean and std the caller supplies."""

    noise_layers: tuple[SplineCoupling, ...]
    triangle: TriangularSplines | None
    layers: tuple[AbstractGatedBijection, ...]
    order: tuple[int, ...] = eqx.field(static=True)

    def __init__(
        self,
        dim: int,
        cond_size: int,
        *,
        width: int,
        depth: int,
        layers: int,
        coupling: str,
        bins: int = BINS,
        spline_layers: int = SPLINE_LAYERS,
        order: tuple[int, ...] = (),
        ring: bool = False,
        key: PRNGKeyArray,
    ):
        self.order = order or tuple(range(dim))
        noise_key, layers_key = jr.split(key)
        if coupling not in COUPLINGS:
            raise ValueError(f"`coupling` must be one of {', '.join(COUPLINGS)}; got {coupling!r}.")
        build = lambda cls, number, key, **options: tuple(
            cls(alternating_mask(dim, i), cond_size, width=width, depth=depth, ring=ring, key=k, **options)
            for i, k in enumerate(jr.split(key, number) if number else [])
        )
        number = 0 if coupling != "spline" else 1 if dim == 1 else spline_layers
        self.noise_layers = build(SplineCoupling, number, noise_key, bins=bins)
        self.layers = build(AffineCoupling, layers, layers_key)
        sizes = {"width": width, "depth": depth, "bins": bins, "order": self.order}
        triangular = coupling == "triangular"
        self.triangle = TriangularSplines(dim, cond_size, **sizes, key=noise_key) if triangular else None

    @property
    def coupling(self) -> str:
        """By the name that it was made with."""
        return "spline" if self.noise_layers else "affine" if self.triangle is None else "triangular"

    @property
    def bins(self) -> int:
        """Of each spline, or what they would have by default."""
        splines = [layer for layer in (*self.noise_layers, self.triangle) if layer is not None]
        return splines[0].bins if splines else BINS

    @property
    def knots(self) -> int:
        """How many raw knots the caller's network must give."""
        return 0 if self.triangle is None else 3 * self.triangle.bins - 1

    def forward(self, noise: Float[Array, " dim"], base: Base) -> tuple[Float[Array, " dim"], Scalar]:
        """The state that `noise` is sent to, and its log-density."""
        x, log_prob = noise, _log_normal(noise)
        for layer in self.noise_layers:
            x, log_det = layer.forward(x, base.gate, base.c)
            log_prob -= log_det
        parts = None  # of `x`, while it is dear to join them
        if self.triangle is not None:
            parts, log_det = self.triangle.forward(x, base.gate, base.c, _knots(base))
            log_prob -= log_det
        if base.tail is not None:
            x, log_slope = stretch_tails(x if parts is None else joined(parts), base.tail)
            log_prob, parts = log_prob - log_slope.sum(), None
        if base.mixing is not None:
            parts = _mix(list(x) if parts is None else parts, base.mixing, self.order)
        x = base.mean + base.std * (x if parts is None else joined(parts))
        log_prob -= jnp.log(base.std).sum()
        for layer in self.layers:
            x, log_det = layer.forward(x, base.gate, base.c)
            log_prob -= log_det
        return x, log_prob

    def inverse(self, x: Float[Array, " dim"], base: Base) -> tuple[Float[Array, " dim"], Scalar]:
        """The noise that is sent to `x`, and the log-density of `x`."""
        log_prob = -jnp.log(base.std).sum()
        for layer in reversed(self.layers):
            x, log_det = layer.inverse(x, base.gate, base.c)
            log_prob += log_det
        noise = (x - base.mean) / base.std
        noise = noise if base.mixing is None else _unmix(noise, base.mixing, self.order)
        if base.tail is not None:
            noise, log_slope = unstretch_tails(noise, base.tail)
            log_prob += log_slope.sum()
        if self.triangle is not None:
            noise, log_det = self.triangle.inverse(noise, base.gate, base.c, _knots(base))
            log_prob += log_det
        for layer in reversed(self.noise_layers):
            noise, log_det = layer.inverse(noise, base.gate, base.c)
            log_prob += log_det
        return noise, log_prob + _log_normal(noise)


def _knots(base: Base) -> Float[Array, " knots"]:
    assert base.knots is not None, "a stack with triangular splines needs a base with their first knots"
    return base.knots


def _mix(x: list[Scalar], mixing: Float[Array, " pairs"], order: tuple[int, ...]) -> list[Scalar]:
    r"""$(I + M)\,x$ with $M$ strictly lower triangular in that order: a volume keeps its size."""
    y = list(x)
    for place, i in enumerate(order):
        for j, weight in zip(order[:place], _row(mixing, place), strict=True):
            y[i] = y[i] + weight * x[j]
    return y


def _unmix(
    y: Float[Array, " dim"], mixing: Float[Array, " pairs"], order: tuple[int, ...]
) -> Float[Array, " dim"]:
    """The inverse of `_mix`, by forward substitution."""
    x = {order[0]: y[order[0]]}
    for place, i in enumerate(order[1:], 1):
        x[i] = y[i] - _row(mixing, place) @ jnp.stack([x[j] for j in order[:place]])
    return joined([x[i] for i in range(len(order))])


def _row(mixing, i):
    return mixing[i * (i - 1) // 2 : i * (i + 1) // 2]


def _log_normal(noise: Float[Array, " dim"]) -> Scalar:
    return -0.5 * (noise**2).sum() - 0.5 * noise.shape[0] * jnp.log(2 * jnp.pi)


LEAST = {"dim": 1, "cond_dim": 0, "width": 1, "depth": 0, "layers": 0, "octaves": 0, "lenses": 0}
LEAST |= {"bins": 2, "spline_layers": 1}


def check_sizes(**sizes: SupportsIndex) -> tuple[int, ...]:
    """Each size by its argument's name, as Python's own integer; an error names the first that is too small or none."""
    return tuple(_check_size(name, value) for name, value in sizes.items())


def _check_size(name, value):
    try:
        size = LEAST[name] - 1 if isinstance(value, bool) else operator.index(value)
    except TypeError:
        size = LEAST[name] - 1
    if size < LEAST[name]:
        raise ValueError(f"`{name}` must be an integer of at least {LEAST[name]}; got {value!r}.")
    return size


def make_condition(
    states: dict[str, Array],
    scalars: list[Array],
    u: Array | None,
    *,
    dim: int,
    cond_dim: int,
) -> Float[Array, " size"]:
    """States, then scalars (or short vectors), then covariates, in one vector.

    Shapes are checked and errors name the argument.
    """
    if (u is None) != (cond_dim == 0) or (u is not None and jnp.shape(u) != (cond_dim,)):
        got = "none" if u is None else f"shape {jnp.shape(u)}"
        hint = f": make the flow with `cond_dim={jnp.size(u)}`" if u is not None and jnp.ndim(u) == 1 else ""
        raise ValueError(f"`u` must have shape ({cond_dim},), as `cond_dim` says; got {got}{hint}.")
    parts = [*check_states(dim, **states), *[jnp.atleast_1d(scalar) for scalar in scalars]]
    return jnp.concatenate(parts if u is None else [*parts, u])
