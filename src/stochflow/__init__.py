"""Learn the transition law of a stochastic process; then sample any time gap in one step.

A learnt law has an exact log-density and needs no solver. The curated public names are re-exported here.
"""

__version__ = "0.1.0"
