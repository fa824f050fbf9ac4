"""Learn the transition law of a stochastic process; then sample any time gap in one step.

A learnt law has an exact log-density and needs no solver. The curated public names are re-exported here; each
room has more.
"""

from . import (
    data as data,
    distillation as distillation,
    flows as flows,
    inference as inference,
    io as io,
    latent as latent,
    laws as laws,
    metrics as metrics,
    objectives as objectives,
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
