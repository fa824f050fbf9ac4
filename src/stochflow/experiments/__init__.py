"""The paper's tables by one command each.

An experiment is short: a frozen setting, `fit`, and metrics; its figures and report stand beside it. The command
line calls these; nothing else imports them.
"""

from .lorenz import LorenzSetting as LorenzSetting, train_lorenz as train_lorenz
from .lorenz_scores import LorenzScores as LorenzScores, score_lorenz as score_lorenz
