"""The paper's tables by one command each.

An experiment is short: a frozen setting, `fit`, and metrics; its figures and report stand beside it. The command
line calls these; nothing else imports them.
"""

from .lorenz import (
    LorenzScores as LorenzScores,
    LorenzSetting as LorenzSetting,
    score_lorenz as score_lorenz,
    train_lorenz as train_lorenz,
)
