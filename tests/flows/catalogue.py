"""One line a constructor: every property is tested on all of them."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np

from stochflow.flows import (
    AffineCoupling,
    BridgeFlow,
    Correction,
    LocalFlow,
    SplineCoupling,
    StochasticFlow,
)

COND = 3


def shaken(model, key, scale=0.3):
    """The model with random weights everywhere: the start near zero hides mistakes."""
    rng = np.random.default_rng(int(jr.randint(key, (), 0, 2**31 - 1)))
    params, static = eqx.partition(model, eqx.is_inexact_array)
    shake = lambda leaf: jnp.asarray(np.asarray(leaf) + scale * rng.normal(size=leaf.shape), leaf.dtype)
    return eqx.combine(jax.tree.map(shake, params), static)


def _layer(cls, mask, **kwargs):
    return lambda key: shaken(cls(mask, COND, width=8, depth=2, key=key, **kwargs), key)


LAYERS = {
    "affine, 1 dim": _layer(AffineCoupling, (False,)),
    "affine, 2 dims": _layer(AffineCoupling, (True, False)),
    "affine, 5 dims": _layer(AffineCoupling, (False, True, False, True, False)),
    "spline, 1 dim": _layer(SplineCoupling, (False,)),
    "spline, 5 dims": _layer(SplineCoupling, (True, False, True, False, True)),
    "spline, 3 dims, 3 bins": _layer(SplineCoupling, (True, False, True), bins=3),
}


def _model(cls, dim, **kwargs):
    return lambda key: shaken(cls(dim, width=8, key=key, **kwargs), key)


def _local(dim, corrected=False):
    def make(key):
        flow = StochasticFlow(dim, cond_dim=2, layers=0, coupling="spline", tails=True, width=8, key=key)
        if not corrected:
            return LocalFlow(shaken(flow, key), 0.3 * jnp.ones(dim))
        factors = [jnp.array([[0.5] * dim, [1.5] * dim])] * 3
        process = jnp.ones(dim), 0.3 * jnp.ones(dim), 0.7 * jnp.ones(dim)
        shares = jnp.array([[0.9] * dim, [0.2] * dim])
        correction = Correction(jnp.log(jnp.array([0.1, 1.0])), *factors, shares, *process)
        return LocalFlow(shaken(flow, key), 2 * jnp.ones(dim), half_life=0.5, correction=correction)

    return make


FLOWS = {
    "1 dim": _model(StochasticFlow, 1),
    "3 dims, linear clock": _model(StochasticFlow, 3, clock="linear"),
    "4 dims, no couplings": _model(StochasticFlow, 4, layers=0),
    "2 dims, not autonomous": _model(StochasticFlow, 2, autonomous=False),
    "3 dims, covariates": _model(StochasticFlow, 3, cond_dim=2),
    "2 dims, tails": _model(StochasticFlow, 2, tails=True),
    "3 dims, octaves, not autonomous": _model(StochasticFlow, 3, octaves=2, autonomous=False),
    "2 dims, periods": _model(StochasticFlow, 2, periods=(0.7, 3.0)),
    "3 dims, correlated, tails": _model(StochasticFlow, 3, correlated=True, tails=True),
    "2 dims, correlated, spline": _model(StochasticFlow, 2, correlated=True, coupling="spline", bins=4),
    "2 dims, scales, linear": _model(StochasticFlow, 2, scales=(0.1, 1.0), depth=0, layers=0),
    "3 dims, lenses": _model(StochasticFlow, 3, lenses=4, octaves=1),
    "2 dims, four splines": _model(StochasticFlow, 2, coupling="spline", spline_layers=4, layers=1),
    "3 dims, triangular, another order, tails, covariates": _model(
        StochasticFlow,
        3,
        coupling="triangular",
        bins=5,
        layers=0,
        correlated=True,
        order=(2, 0, 1),
        tails=True,
        cond_dim=2,
    ),
    "6 dims, ring": _model(StochasticFlow, 6, ring=True, scales=(0.5,)),
    "5 dims, ring, spline, not autonomous, covariates": _model(
        StochasticFlow, 5, ring=True, coupling="spline", bins=4, layers=1, autonomous=False, cond_dim=2
    ),
    "1 dim, local": _local(1),
    "2 dims, local, corrected": _local(2, corrected=True),
    "1 dim, spline": _model(StochasticFlow, 1, coupling="spline"),
    "3 dims, spline, not autonomous, covariates": _model(
        StochasticFlow, 3, coupling="spline", autonomous=False, cond_dim=2
    ),
}

BRIDGES = {
    "1 dim": _model(BridgeFlow, 1),
    "3 dims": _model(BridgeFlow, 3),
    "2 dims, not autonomous, covariates": _model(BridgeFlow, 2, autonomous=False, cond_dim=2),
    "3 dims, spline": _model(BridgeFlow, 3, coupling="spline"),
    "2 dims, triangular": _model(BridgeFlow, 2, coupling="triangular"),
}


def covariates(model):
    return jnp.linspace(-1.0, 1.0, model.cond_dim) if model.cond_dim else None


@eqx.filter_jit
def call(model, method, *args, **kwargs):
    """`model.method(...)`, compiled: op by op, JAX would compile each operation of its own."""
    return getattr(model, method)(*args, **kwargs)
