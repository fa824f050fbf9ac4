"""What a transition law is, and the laws that are known exactly.

The two interfaces live here, with the wrappers that are true of every law (units, standardisation) and the
exact laws that tests, docs and demos use as truth. Nothing learnt, nothing random at import, no data.
"""

from .base import AbstractBridge as AbstractBridge, AbstractTransition as AbstractTransition
from .bessel import log_ive as log_ive
from .brownian import BrownianBridge as BrownianBridge, BrownianMotion as BrownianMotion
from .checks import check_state as check_state, check_states as check_states
from .cir import CIR as CIR
from .gaps import (
    bridge_gaps as bridge_gaps,
    hold_log_prob as hold_log_prob,
    hold_sample as hold_sample,
    pinned_end as pinned_end,
    point_mass_log_prob as point_mass_log_prob,
    positive_gap as positive_gap,
    require_order as require_order,
    time_gap as time_gap,
    times_in_order as times_in_order,
)
from .gaussian import (
    AbstractGaussianBridge as AbstractGaussianBridge,
    AbstractGaussianTransition as AbstractGaussianTransition,
    AffineGaussian as AffineGaussian,
    Gaussian as Gaussian,
)
from .geometric import (
    GeometricBrownianBridge as GeometricBrownianBridge,
    GeometricBrownianMotion as GeometricBrownianMotion,
)
from .horizon import (
    BRIDGE_LESS as BRIDGE_LESS,
    HorizonWarning as HorizonWarning,
    warn_beyond_horizon as warn_beyond_horizon,
    warn_beyond_latest as warn_beyond_latest,
)
from .linear import (
    LinearBridge as LinearBridge,
    LinearSDE as LinearSDE,
    MatrixOrnsteinUhlenbeck as MatrixOrnsteinUhlenbeck,
)
from .ornstein_uhlenbeck import (
    OrnsteinUhlenbeck as OrnsteinUhlenbeck,
    OrnsteinUhlenbeckBridge as OrnsteinUhlenbeckBridge,
)
from .relative import Relative as Relative
from .rhythm import Rhythm as Rhythm
from .standardised import Standardised as Standardised, StandardisedBridge as StandardisedBridge
from .transformed import (
    Support as Support,
    Transformed as Transformed,
    horizon_of as horizon_of,
    latest_of as latest_of,
)
