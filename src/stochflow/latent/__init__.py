"""Latent flows: states that are not seen, laws that move them, and what is seen of them.

What lives here is models: the series they read, amortised posteriors (from observations to states), emissions (from
states to observations) and `LatentFlow`, which holds them together with a transition law. Nothing here trains or
reads data; every part is swappable through a small interface and sees one series, or one state, at a time.
"""

from .emissions import (
    AbstractEmission as AbstractEmission,
    BernoulliEmission as BernoulliEmission,
    GaussianEmission as GaussianEmission,
    PeriodicEmission as PeriodicEmission,
    PoissonEmission as PoissonEmission,
    StudentTEmission as StudentTEmission,
)
from .initial import InitialLaw as InitialLaw
from .kalman import KalmanPosterior as KalmanPosterior
from .model import LatentFlow as LatentFlow, latent_flow as latent_flow
from .posteriors import (
    AbstractPosterior as AbstractPosterior,
    FilteringPosterior as FilteringPosterior,
    JoinedPosterior as JoinedPosterior,
    PathSample as PathSample,
    SmoothingPosterior as SmoothingPosterior,
    WindowPosterior as WindowPosterior,
)
from .series import Series as Series
from .units import LatentUnits as LatentUnits, ObservedFlow as ObservedFlow
