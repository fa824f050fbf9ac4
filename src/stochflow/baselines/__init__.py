"""What a learnt law has to beat: simple laws of a series, fitted exactly.

Persistence with noise that grows as the root of the gap, the Ornstein–Uhlenbeck process by maximum likelihood at
irregular times, and the value of a season ago. The first two are transition laws like any other, so every score takes
them. Nothing here is trained by gradients.
"""

from .simple import (
    SeasonalNaive as SeasonalNaive,
    fit_ornstein_uhlenbeck as fit_ornstein_uhlenbeck,
    fit_persistence as fit_persistence,
    log_likelihood as log_likelihood,
)
