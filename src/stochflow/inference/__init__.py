"""Inference: what one does with a law once it is there.

Roll-outs, one-step forecasts, interpolation through a bridge, simulated series and fast sampling of large batches
live here.
They take any law or bridge, learnt or exact, and plan their steps in Python; nothing here is trained.
"""

from .latent import (
    LatentDraws as LatentDraws,
    LikelihoodBound as LikelihoodBound,
    forecast_latent as forecast_latent,
    impute_latent as impute_latent,
    likelihood_bound as likelihood_bound,
)
from .linear_gaussian import (
    KalmanResult as KalmanResult,
    LinearGaussianModel as LinearGaussianModel,
    Moments as Moments,
    affine_step as affine_step,
    kalman as kalman,
)
from .past import observed_series as observed_series
from .readout import (
    DriftAndDiffusion as DriftAndDiffusion,
    Field as Field,
    drift_and_diffusion as drift_and_diffusion,
    drift_field as drift_field,
)
from .rollout import forecast as forecast, interpolate as interpolate, rollout as rollout
from .sampler import CPU_OPTIONS as CPU_OPTIONS, Sampler as Sampler, make_sampler as make_sampler
from .series import series_starts as series_starts, simulate as simulate
