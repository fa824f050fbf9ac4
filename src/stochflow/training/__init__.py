"""Training: one `fit`, one pure step, one loop, and checkpoints that resume bit for bit.

What lives here turns a model, data and a frozen config into a trained model. The step is pure and wholly inside
one `jit`; Python runs only between chunks of steps, to log, save and stop.
"""

from .checkpoint import CheckpointError as CheckpointError, RunFolder as RunFolder
from .config import FitConfig as FitConfig, LatentConfig as LatentConfig, RunConfig as RunConfig
from .fit import FitResult as FitResult, FlowAndBridge as FlowAndBridge, fit as fit
from .latent import LatentFitResult as LatentFitResult, fit_latent as fit_latent
from .loop import Problem as Problem, Trained as Trained, train as train
from .muon import muon as muon
from .noise import with_channel_noise as with_channel_noise
from .rhythm import rhythmic_latent_flow as rhythmic_latent_flow
from .start import principal_latent_flow as principal_latent_flow
