"""One line a class that files may hold. All are small, with random weights."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np

from stochflow.flows import BridgeFlow, Correction, LocalFlow, StochasticFlow
from stochflow.latent import (
    BernoulliEmission,
    FilteringPosterior,
    GaussianEmission,
    JoinedPosterior,
    KalmanPosterior,
    LatentFlow,
    LatentUnits,
    ObservedFlow,
    PeriodicEmission,
    PoissonEmission,
    Series,
    SmoothingPosterior,
    StudentTEmission,
    WindowPosterior,
)
from stochflow.latent.emissions import STDS
from stochflow.laws import Relative, Standardised, StandardisedBridge, Support, Transformed

from ..laws.law_catalogue import BRIDGES as EXACT_BRIDGES, LAWS as EXACT_LAWS

DIM, CHANNELS = 2, 3


def drawn(cls, *args, **options):
    """A module with random weights. Only shapes come from its constructor: nothing is compiled."""
    like = eqx.filter_eval_shape(lambda: cls(*args, **options, key=jr.key(0)))
    rng = np.random.default_rng(len(jax.tree.leaves(like)))
    fill = lambda leaf: (
        jnp.asarray(rng.normal(0, 0.3, leaf.shape)) if isinstance(leaf, jax.ShapeDtypeStruct) else leaf
    )
    return jax.tree.map(fill, like)


def _flow(dim=DIM, **options):
    return drawn(StochasticFlow, dim, **{"width": 8, "layers": 2} | options)


def _bridge(dim=DIM, **options):
    return drawn(BridgeFlow, dim, **{"width": 8, "layers": 2} | options)


LAWS = {
    **{f"exact, {name}": law for name, law in EXACT_LAWS.items()},
    "1 dim": _flow(1),
    "1 dim, spline": _flow(1, coupling="spline"),
    "no couplings": _flow(4, layers=0),
    "saturating clock": _flow(clock="saturating"),
    "deep": _flow(depth=5),
    "tails and periods": _flow(tails=True, octaves=3, periods=(0.7, 3.0)),
    "spline, not autonomous, covariates": _flow(3, coupling="spline", autonomous=False, cond_dim=2),
    "correlated, scales, bins": _flow(coupling="spline", correlated=True, scales=(0.1, 1.0), bins=5),
    "lenses, four splines": _flow(coupling="spline", lenses=3, spline_layers=4),
    "linear": _flow(depth=0, layers=0),
    "ring": _flow(6, ring=True),
    "ring, spline": _flow(6, ring=True, coupling="spline", depth=1),
    "on a support": Transformed(_flow(), Support(["positive", (-2.0, 9.0)], [3.0, 1.0])),
    "relative": Relative(_flow(), (1,)),
    "standardised flow": Standardised(_flow(), [1.0, 2.0], [0.5, 3.0], 2.5, 10.0),
    "standardised, not autonomous": Standardised(
        _flow(autonomous=False), [1.0, 2.0], [0.5, 3.0], 2.5, 10.0, latest=15.0
    ),
    "standardised twice": Standardised(Standardised(_flow(), [1.0, 2.0], [0.5, 3.0]), [0.0, 1.0], [2.0, 2.0]),
}
BRIDGES = {
    **{f"exact, {name}": bridge for name, (_, bridge) in EXACT_BRIDGES.items()},
    "1 dim": _bridge(1),
    "not autonomous, covariates": _bridge(autonomous=False, cond_dim=2),
    "spline": _bridge(3, coupling="spline"),
    "standardised flow": StandardisedBridge(_bridge(), [1.0, 2.0], [0.5, 3.0], 2.5, 10.0),
}


def _posterior(cls, dim=DIM, **options):
    return drawn(cls, CHANNELS, dim, **{"width": 8} | options)


POSTERIORS = {
    "window": _posterior(WindowPosterior, window=2),
    "window, linear": _posterior(WindowPosterior, depth=0, mask_input=True),
    "filter": _posterior(FilteringPosterior, hidden=5),
    "filter, mask": _posterior(FilteringPosterior, hidden=5, mask_input=True, autonomous=False),
    "smooth": _posterior(SmoothingPosterior, hidden=5, depth=1, autonomous=False),
    "smooth, mask": _posterior(SmoothingPosterior, hidden=5, mask_input=True),
    "joined": JoinedPosterior(
        _posterior(WindowPosterior, 1), _posterior(FilteringPosterior, 1, hidden=5, depth=0)
    ),
}


def _emission(cls, **options):
    return drawn(cls, DIM, CHANNELS, **{"width": 8} | options)


EMISSIONS = {
    **{f"normal, {std}": _emission(GaussianEmission, std=std) for std in STDS},
    "linear": _emission(GaussianEmission, depth=0, initial_std=0.3),
    "student": _emission(StudentTEmission, degrees=3.5),
    "bernoulli": _emission(BernoulliEmission),
    "poisson": _emission(PoissonEmission),
    "periodic": PeriodicEmission(drawn(GaussianEmission, 4, CHANNELS, width=8), harmonics=2, unseen=1),
}
LATENT = {
    "with a bridge": LatentFlow(_flow(), EMISSIONS["normal, channel"], POSTERIORS["smooth"], _bridge()),
    "rhythm": LatentFlow(
        EXACT_LAWS["rhythm"], EMISSIONS["periodic"], KalmanPosterior(DIM, phases=1, starts=3)
    ),
    "rhythm, noise": LatentFlow(
        EXACT_LAWS["rhythm"], EMISSIONS["periodic"], KalmanPosterior(DIM, phases=1, starts=3, std=0.15)
    ),
    "without": LatentFlow(EXACT_LAWS["ornstein_uhlenbeck"], EMISSIONS["student"], POSTERIORS["joined"]),
}
UNITS = LatentUnits(np.array([0.1, 0.2, 0.3]), np.array([1.0, 2.0, 3.0]), 1.5, 4.0)
OBSERVED = ObservedFlow(LATENT["with a bridge"], UNITS)

CORRECTION = Correction(
    jnp.array([-2.0, 0.0]),
    *[jnp.array([[0.5] * DIM, [1.0] * DIM])] * 4,
    jnp.ones(DIM),
    jnp.zeros(DIM),
    jnp.ones(DIM),
)
LOCAL = _flow(layers=0, cond_dim=3, coupling="spline")

ALL = {
    **{f"law: {name}": law for name, law in LAWS.items()},
    **{f"bridge: {name}": bridge for name, bridge in BRIDGES.items()},
    **{f"posterior: {name}": part for name, part in POSTERIORS.items()},
    **{f"emission: {name}": part for name, part in EMISSIONS.items()},
    **{f"latent: {name}": model for name, model in LATENT.items()},
    "units": UNITS,
    "support": Support(["real", "positive"], [1.0, 3.0]),
    "correction": CORRECTION,
    "local": LocalFlow(LOCAL, jnp.ones(DIM)),
    "local, corrected": LocalFlow(LOCAL, jnp.ones(DIM), correction=CORRECTION),
    "observed": OBSERVED,
}


def series(key) -> Series:
    """Four rows of three channels, all of them observed."""
    values = jr.uniform(key, (4, CHANNELS))
    return Series(jnp.arange(4.0), values, values > -1, jnp.ones(4, bool))
