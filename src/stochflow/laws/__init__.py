"""What a transition law is, and the laws that are known exactly.

The two interfaces live here, with the wrappers that are true of every law (units, standardisation) and the
exact laws that tests, docs and demos use as truth. Nothing learnt, nothing random at import, no data.
"""

from .base import AbstractBridge as AbstractBridge, AbstractTransition as AbstractTransition
from .gaps import point_mass_log_prob as point_mass_log_prob, time_gap as time_gap
