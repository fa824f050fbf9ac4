"""Objectives: small pure functions that read like the equations.

Each takes interfaces (`AbstractTransition`, `AbstractBridge`), one example at a time, and returns a number;
the caller applies weights. A batched form stands beside them only where stacking calls makes it faster, and a
test holds the two together.
"""

from .consistency import (
    DIRECTIONS as DIRECTIONS,
    Gaps as Gaps,
    bridge_loss as bridge_loss,
    one_to_two_gap as one_to_two_gap,
    one_way_loss as one_way_loss,
    stacked_gaps as stacked_gaps,
    two_to_one_gap as two_to_one_gap,
)
from .elbo import (
    Terms as Terms,
    elbo_terms as elbo_terms,
    forecast_energy as forecast_energy,
    path_terms as path_terms,
    skip_ahead_gap as skip_ahead_gap,
    state_rows as state_rows,
)
from .likelihood import negative_log_likelihood as negative_log_likelihood
