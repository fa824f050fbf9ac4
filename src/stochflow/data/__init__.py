"""Data: checked trajectories, the drawing of pairs and triplets, and data sets.

What lives here turns arrays, files or simulations into `Trajectories` and batches of transitions. Models never
import it.
"""

from .pairs import (
    Pairs as Pairs,
    PairSampler as PairSampler,
    Triplets as Triplets,
    draw_pairs_and_triplets as draw_pairs_and_triplets,
    draw_triplets as draw_triplets,
    long_gaps as long_gaps,
)
from .speeds import at_speeds as at_speeds, thinned as thinned
from .trajectories import CompleteRows as CompleteRows, Trajectories as Trajectories
