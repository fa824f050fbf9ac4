"""From an SDE to a flow: `distill` and what tells whether it was worth it.

Here a solver makes pairs on the fly, a flow learns them, and the two are held against each other: distances,
calibration, seconds a sample, and after how many samples the training has paid for itself. What is trained, how, and
how it is measured are the business of the rooms before; nothing is drawn here.
"""

from .compare import compare as compare
from .config import DistillConfig as DistillConfig
from .distill import Distilled as Distilled, distill as distill
from .outcome import Comparison as Comparison, GapComparison as GapComparison
