"""Learn the transition law of a stochastic process; then sample any time gap in one step.

A learnt law has an exact log-density and needs no solver. The curated public names are re-exported here; each
room has more. A room is imported when one of its names is first asked for, so that `import stochflow` costs next to
nothing.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from . import (
        baselines as baselines,
        data as data,
        distillation as distillation,
        experiments as experiments,
        flows as flows,
        forecasting as forecasting,
        inference as inference,
        io as io,
        latent as latent,
        laws as laws,
        metrics as metrics,
        objectives as objectives,
        plots as plots,
        sde as sde,
        training as training,
    )
    from .data import Trajectories as Trajectories
    from .distillation import DistillConfig as DistillConfig, Distilled as Distilled, distill as distill
    from .flows import BridgeFlow as BridgeFlow, StochasticFlow as StochasticFlow
    from .forecasting import Forecaster as Forecaster
    from .inference import forecast as forecast, interpolate as interpolate, rollout as rollout
    from .io import load as load_model, save as save_model
    from .latent import LatentFlow as LatentFlow, latent_flow as latent_flow
    from .laws import AbstractBridge as AbstractBridge, AbstractTransition as AbstractTransition
    from .sde import SDE as SDE
    from .training import (
        FitConfig as FitConfig,
        FitResult as FitResult,
        LatentConfig as LatentConfig,
        LatentFitResult as LatentFitResult,
        fit as fit,
        fit_latent as fit_latent,
        principal_latent_flow as principal_latent_flow,
        rhythmic_latent_flow as rhythmic_latent_flow,
        with_channel_noise as with_channel_noise,
    )

__version__ = "0.1.0"

__all__ = [
    "SDE",
    "AbstractBridge",
    "AbstractTransition",
    "BridgeFlow",
    "DistillConfig",
    "Distilled",
    "FitConfig",
    "FitResult",
    "Forecaster",
    "LatentConfig",
    "LatentFitResult",
    "LatentFlow",
    "StochasticFlow",
    "Trajectories",
    "distill",
    "fit",
    "fit_latent",
    "forecast",
    "interpolate",
    "latent_flow",
    "load_model",
    "principal_latent_flow",
    "rhythmic_latent_flow",
    "rollout",
    "save_model",
    "with_channel_noise",
]

_ROOMS = {
    "baselines": [],
    "data": ["Trajectories"],
    "distillation": ["DistillConfig", "Distilled", "distill"],
    "experiments": [],
    "flows": ["BridgeFlow", "StochasticFlow"],
    "forecasting": ["Forecaster"],
    "inference": ["forecast", "interpolate", "rollout"],
    "io": [],
    "latent": ["LatentFlow", "latent_flow"],
    "laws": ["AbstractBridge", "AbstractTransition"],
    "metrics": [],
    "objectives": [],
    "plots": [],
    "sde": ["SDE"],
    "training": [
        "FitConfig",
        "FitResult",
        "LatentConfig",
        "LatentFitResult",
        "fit",
        "fit_latent",
        "principal_latent_flow",
        "rhythmic_latent_flow",
        "with_channel_noise",
    ],
}
# Where each public name is: its room, and its name there.
_HOMES = {name: (room, name) for room, names in _ROOMS.items() for name in names}
_HOMES |= {"load_model": ("io", "load"), "save_model": ("io", "save")}


if not TYPE_CHECKING:  # or every name would look right to type checkers

    def __getattr__(name: str) -> Any:
        if name in _ROOMS:
            return importlib.import_module(f".{name}", __name__)
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        room, there = _HOMES[name]
        found = globals()[name] = getattr(importlib.import_module(f".{room}", __name__), there)
        return found


def __dir__() -> list[str]:
    return sorted({*globals(), *_ROOMS, *_HOMES})
