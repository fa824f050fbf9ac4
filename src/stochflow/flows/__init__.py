"""The learnt laws: networks, clocks, gated couplings, the transition flow and the bridge flow.

What lives here maps noise and a condition to a state and knows its exact log-density. It sees one example at
a time and imports only the interfaces of `laws`: no data, no training, no batches.
"""

from .bridge import BridgeFlow as BridgeFlow
from .clocks import (
    AbstractClock as AbstractClock,
    LinearClock as LinearClock,
    SaturatingClock as SaturatingClock,
)
from .couplings import (
    AbstractGatedBijection as AbstractGatedBijection,
    AffineCoupling as AffineCoupling,
    SplineCoupling as SplineCoupling,
)
from .flow import StochasticFlow as StochasticFlow
from .lenses import Lenses as Lenses
from .local import Correction as Correction, LocalFlow as LocalFlow
from .nets import MLP as MLP
