"""The classes that a model file may name.

A class is listed with what its constructor needs and how to tell that from an instance, where it is not simply a field
of the same name. No class is found by its import path: a name that is not here is an error. A new class is one new
entry, and one line in the catalogue of the tests.
"""

import dataclasses
import math
from collections.abc import Callable, Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np

from ..flows import BridgeFlow, Correction, LinearClock, LocalFlow, SaturatingClock, StochasticFlow
from ..flows.stack import BINS, COUPLINGS, SPLINE_LAYERS
from ..latent import (
    AbstractEmission,
    AbstractPosterior,
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
    SmoothingPosterior,
    StudentTEmission,
    WindowPosterior,
)
from ..latent.emissions import STDS
from ..laws import (
    CIR,
    AbstractBridge,
    AbstractGaussianTransition,
    AbstractTransition,
    BrownianBridge,
    BrownianMotion,
    GeometricBrownianBridge,
    GeometricBrownianMotion,
    LinearBridge,
    LinearSDE,
    MatrixOrnsteinUhlenbeck,
    OrnsteinUhlenbeck,
    OrnsteinUhlenbeckBridge,
    Relative,
    Rhythm,
    Standardised,
    StandardisedBridge,
    Support,
    Transformed,
)
from .errors import ModelFileError, quote
from .fields import (
    LARGEST,
    Choice,
    Field,
    Flag,
    Intervals,
    Part,
    Parts,
    Positive,
    Positives,
    Whole,
    Wholes,
    as_interval,
    as_pair,
)

# Larger than any model of ours by far, and small enough that the shapes of one can be written down.
DIM, SIZE = Whole(1, 4096), Whole(1, 2**16)
DEPTH, LAYERS, OCTAVES = Whole(0, 32), Whole(0, 128), Whole(0, 32)
# The least number above zero in single precision, and what rounding may add to one.
LEAST, ROUNDING = float(np.finfo(np.float32).tiny), 1e-6
# Of a correction: no share of a drift, no logarithm of a width or of a gap in horizons is further from zero; nor is any
# number in the law's units, the square of which must be one of single precision, too.
FURTHEST_SHARE, FURTHEST_LOG, FURTHEST = 100.0, 100.0, 1e15
# Of a clock, no rate is larger, or smaller than one over it: the inverse softplus of such a number is itself, or its
# logarithm.
RATES = -math.log(FURTHEST), FURTHEST
# Of scales and the like, which may be read in single precision.
SMALLEST = (1 - ROUNDING) / LARGEST
CLOCKS = {LinearClock: "linear", SaturatingClock: "saturating"}


@dataclasses.dataclass(frozen=True)
class Entry:
    """A class of which files may hold instances.

    - `fields`: the arguments of its constructor that decide which arrays it has, and of which shapes.
    - `derive`: how to tell those that are not a field of the same name.
    - `make`: the constructor, given the fields and a key; only the shapes of what it makes are used.
    - `positive`: arrays that must be positive, and not next to nothing, on the diagonal if they are matrices.
    - `within`: arrays of which each number must lie between two, where there are such arrays.
    - `rising`: arrays of numbers each of which must be above the one before.
    - `later`: fields that the class did not have at first, and what a file without them means.
    """

    cls: type
    fields: Mapping[str, Field]
    make: Callable[..., Any]
    derive: Mapping[str, Callable[[Any], Any]] = dataclasses.field(default_factory=dict)
    positive: tuple[str, ...] = ()
    within: Mapping[str, tuple[float, float]] = dataclasses.field(default_factory=dict)
    rising: tuple[str, ...] = ()
    later: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def config(self, module: Any) -> dict[str, Any]:
        """The fields of an instance."""
        return {name: self.derive.get(name, lambda m, n=name: getattr(m, n))(module) for name in self.fields}


def entry_named(name: Any) -> Entry:
    """The class with that name in files."""
    if not isinstance(name, str) or name not in REGISTRY:
        raise ModelFileError(
            f"it asks for the class {quote(name)}; known are {', '.join(sorted(REGISTRY))}; upgrade stochflow "
            "if a later one knows it."
        )
    return REGISTRY[name]


def later_fields(name: Any) -> Mapping[str, Any]:
    """The fields that a class of that name did not always have; none for a name that is not known."""
    return REGISTRY[name].later if isinstance(name, str) and name in REGISTRY else {}


def entry_of(module: Any) -> Entry:
    """The entry of an instance: of its very class, as ours are final."""
    found = REGISTRY.get(type(module).__name__)
    if found is None or found.cls is not type(module):
        raise ModelFileError(
            f"{type(module).__name__} cannot be saved; known are {', '.join(sorted(REGISTRY))}."
        )
    return found


def _learnt(cls: type, fields: dict[str, Field], **more: Any) -> Entry:
    return Entry(cls, fields, make=lambda key, **config: cls(**config, key=key), **more)


def _flow(
    cls: type,
    fields: dict[str, Field],
    later: dict[str, Any] | None = None,
    within: dict[str, tuple[float, float]] | None = None,
    **derive: Callable[[Any], Any],
) -> Entry:
    shared = {"dim": DIM, "cond_dim": Whole(0, DIM.most), "autonomous": Flag(), "width": SIZE, "depth": DEPTH}
    shared |= {"layers": LAYERS, "coupling": Choice(COUPLINGS)}
    derive |= {
        "width": lambda flow: flow.net.weights[0].shape[1],
        "depth": lambda flow: len(flow.net.weights) - 1,
        "layers": lambda flow: len(flow.stack.layers),
        "coupling": lambda flow: flow.stack.coupling,
    }
    return _learnt(cls, {**shared, **fields}, derive=derive, later=later or {}, within=within or {})


def _emission(cls: type, **fields: Field) -> Entry:
    shared = {"dim": DIM, "channels": SIZE, "width": SIZE, "depth": Whole(0, DEPTH.most)}
    derive = {"width": lambda part: part.net.width_size, "depth": lambda part: part.net.depth}
    return _learnt(cls, {**shared, **fields}, derive=derive)


def _recurrent(cls: type, reader: str) -> Entry:
    """A posterior that reads by GRUs, of which `reader` is one."""
    fields = {"channels": SIZE, "dim": DIM, "hidden": SIZE, "width": SIZE, "depth": Whole(0, DEPTH.most)}
    read = lambda part: getattr(part, reader)
    derive = {
        "hidden": lambda part: read(part).cell.hidden_size,
        "width": lambda part: part.head.width_size,
        "depth": lambda part: part.head.depth,
        "autonomous": lambda part: read(part).autonomous,
        "mask_input": lambda part: read(part).mask_input,
    }
    return _learnt(cls, {**fields, "autonomous": Flag(), "mask_input": Flag()}, derive=derive)


WINDOW = {"channels": SIZE, "dim": DIM, "window": SIZE, "width": SIZE, "depth": Whole(0, DEPTH.most)}
UNITS = {"time_scale": Positive(), "horizon": Positive(optional=True)}


def _exact(cls: type, arguments: int, positive: tuple[str, ...]) -> Entry:
    """A law of so many vectors, all of which may be ones."""
    return Entry(cls, {"dim": DIM}, lambda key, dim: cls(*[jnp.ones(dim)] * arguments), positive=positive)


def _bridge_of(cls: type, law: type) -> Entry:
    return Entry(cls, {"law": Part(law)}, lambda key, law: cls(law))


def _observed(key: Any, model: LatentFlow, units: LatentUnits) -> ObservedFlow:
    if units.loc.shape != (model.channels,):
        raise ValueError(f"`units` are of {units.loc.size} channels where `model` has {model.channels}")
    return ObservedFlow(model, units)


ENTRIES = (
    _flow(
        StochasticFlow,
        {
            "clock": Choice(tuple(CLOCKS.values())),
            "tails": Flag(),
            "octaves": OCTAVES,
            "periods": Positives(),
            "bins": Whole(2, 256),
            "correlated": Flag(),
            "scales": Positives(),
            "lenses": Whole(0, 256),
            "spline_layers": Whole(1, LAYERS.most),
            "order": Wholes(0, DIM.most),
            "ring": Flag(),
        },
        later={
            "bins": BINS,
            "correlated": False,
            "scales": [],
            "lenses": 0,
            "spline_layers": SPLINE_LAYERS,
            "order": [],
            "ring": False,
        },
        within={"clock.raw_rate": RATES},
        order=lambda flow: [] if flow.stack.order == tuple(range(flow.dim)) else list(flow.stack.order),
        bins=lambda flow: flow.stack.bins,
        lenses=lambda flow: 0 if flow.lenses is None else flow.lenses.places.size,
        spline_layers=lambda flow: len(flow.stack.noise_layers) or SPLINE_LAYERS,
        clock=lambda flow: CLOCKS.get(type(flow.clock)),
    ),
    _flow(BridgeFlow, {}),
    Entry(
        Standardised,
        {"law": Part(AbstractTransition), **UNITS, "latest": Positive(optional=True)},
        lambda key, law, **units: Standardised(law, jnp.zeros(law.dim), jnp.ones(law.dim), **units),
        positive=("scale",),
        later={"latest": None},
    ),
    Entry(
        StandardisedBridge,
        {"bridge": Part(AbstractBridge), **UNITS},
        lambda key, bridge, **units: StandardisedBridge(
            bridge, jnp.zeros(bridge.dim), jnp.ones(bridge.dim), **units
        ),
        positive=("scale",),
    ),
    Entry(
        Support,
        {"bounds": Intervals()},
        lambda key, bounds: Support([as_interval(*pair) for pair in bounds]),
        derive={"bounds": lambda support: [as_pair(*bound) for bound in support.bounds]},
        positive=("scale",),
    ),
    Entry(
        Transformed,
        {"law": Part(AbstractTransition), "support": Part(Support)},
        lambda key, law, support: Transformed(law, support),
    ),
    Entry(
        Relative,
        {"law": Part(AbstractTransition), "coordinates": Wholes(0, DIM.most)},
        lambda key, law, coordinates: Relative(law, tuple(coordinates)),
    ),
    Entry(
        Correction,
        {"dim": DIM, "knots": Whole(1, 256)},
        lambda key, dim, knots: Correction(
            log_gaps=jnp.zeros(knots),
            trust=jnp.zeros((knots, dim)),
            pull=jnp.zeros((knots, dim)),
            spread=jnp.zeros((knots, dim)),
            share=jnp.ones((knots, dim)),
            rate=jnp.zeros(dim),
            level=jnp.zeros(dim),
            noise=jnp.ones(dim),
        ),
        derive={
            "dim": lambda correction: correction.rate.size,
            "knots": lambda correction: correction.log_gaps.size,
        },
        within={
            "log_gaps": (-FURTHEST_LOG, FURTHEST_LOG),
            "trust": (-FURTHEST_SHARE, FURTHEST_SHARE),
            "pull": (-FURTHEST_SHARE, FURTHEST_SHARE),
            "spread": (LEAST, LARGEST),
            "share": (LEAST, 1 + ROUNDING),
            "rate": (0.0, FURTHEST),
            "level": (-FURTHEST, FURTHEST),
            "noise": (0.0, FURTHEST),
            "witness": (-FURTHEST_LOG, FURTHEST_LOG),
        },
        rising=("log_gaps",),
    ),
    Entry(
        LocalFlow,
        {"law": Part(StochasticFlow), "correction": Part(Correction, optional=True)},
        lambda key, law, correction: LocalFlow(law, jnp.ones(law.dim), correction=correction),
        positive=("usual",),
    ),
    Entry(
        LatentFlow,
        {
            "transition": Part(AbstractTransition),
            "emission": Part(AbstractEmission),
            "posterior": Part(AbstractPosterior),
            "bridge": Part(AbstractBridge, optional=True),
        },
        lambda key, **parts: LatentFlow(**parts),
    ),
    Entry(
        LatentUnits,
        {"channels": SIZE, **UNITS, "gap": Positive(optional=True)},
        lambda key, channels, **units: LatentUnits(jnp.zeros(channels), jnp.ones(channels), **units),
        derive={"channels": lambda units: units.loc.size},
        positive=("scale",),
        later={"gap": None},
    ),
    Entry(ObservedFlow, {"model": Part(LatentFlow), "units": Part(LatentUnits)}, _observed),
    _learnt(
        WindowPosterior,
        {**WINDOW, "mask_input": Flag()},
        derive={
            "width": lambda part: part.net.width_size,
            "depth": lambda part: part.net.depth,
        },
    ),
    _recurrent(FilteringPosterior, "reader"),
    _recurrent(SmoothingPosterior, "forward"),
    Entry(JoinedPosterior, {"parts": Parts(AbstractPosterior)}, lambda key, parts: JoinedPosterior(*parts)),
    Entry(
        KalmanPosterior,
        {
            "dim": DIM,
            "rounds": Whole(1, 64),
            "phases": Whole(0, 8),
            "starts": Whole(1, 64),
            "std": Positive(optional=True),
        },
        lambda key, **config: KalmanPosterior(**config),
        later={"std": None},
    ),
    Entry(
        PeriodicEmission,
        {
            "emission": Part(AbstractEmission),
            "phases": Whole(1, 8),
            "harmonics": Whole(1, 256),
            "unseen": Whole(0, DIM.most),
        },
        lambda key, emission, **config: PeriodicEmission(emission, **config),
    ),
    _emission(GaussianEmission, std=Choice(STDS), initial_std=Positive()),
    _emission(StudentTEmission, degrees=Positive()),
    _emission(BernoulliEmission),
    _emission(PoissonEmission),
    _exact(BrownianMotion, 2, ("scale_tril",)),
    _exact(OrnsteinUhlenbeck, 3, ("std",)),
    _exact(GeometricBrownianMotion, 2, ("log_motion.scale_tril",)),
    _exact(CIR, 3, ("rate", "mean", "volatility")),
    Entry(
        MatrixOrnsteinUhlenbeck,
        {"dim": DIM},
        lambda key, dim: MatrixOrnsteinUhlenbeck(jnp.eye(dim), jnp.zeros(dim), jnp.ones(dim)),
        positive=("scale_tril",),
    ),
    Entry(
        LinearSDE,
        {"dim": DIM, "noise": SIZE, "cond_dim": Whole(1, DIM.most, optional=True)},
        lambda key, dim, noise, cond_dim: LinearSDE(
            jnp.eye(dim),
            jnp.zeros(dim),
            jnp.ones((dim, noise)),
            None if cond_dim is None else jnp.ones((dim, cond_dim)),
        ),
        derive={
            "noise": lambda law: law.scale.shape[1],
            "cond_dim": lambda law: None if law.control is None else law.control.shape[1],
        },
    ),
    Entry(
        Rhythm,
        {"traits": DIM},
        lambda key, traits: Rhythm(jnp.ones(traits), jnp.zeros(traits), 1.0, 1.0),
        derive={"traits": lambda law: law.log_rate.size},
    ),
    _bridge_of(BrownianBridge, BrownianMotion),
    _bridge_of(OrnsteinUhlenbeckBridge, OrnsteinUhlenbeck),
    _bridge_of(GeometricBrownianBridge, GeometricBrownianMotion),
    _bridge_of(LinearBridge, AbstractGaussianTransition),
)
REGISTRY = {entry.cls.__name__: entry for entry in ENTRIES}
