"""Inference: what one does with a law once it is there.

Roll-outs, one-step forecasts, interpolation through a bridge, simulated series and fast sampling of large batches
live here.
They take any law or bridge, learnt or exact, and plan their steps in Python; nothing here is trained.
"""

from .rollout import forecast as forecast, interpolate as interpolate, rollout as rollout
from .sampler import Sampler as Sampler, make_sampler as make_sampler
from .series import simulate as simulate
