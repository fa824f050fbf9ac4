"""`Forecaster`: a data frame in, forecasts at any time out as a data frame of the same kind.

Here frames become series and series frames, what a series has done becomes numbers that a law can read, and a law is
learnt, checked on held-out rows and put to use, with the manners of scikit-learn. How laws are built and trained is the
business of the rooms before; what is drawn and how files are checked that of `plots` and `io`.
"""

from .fitting import ForecasterConfig as ForecasterConfig
from .forecaster import Forecaster as Forecaster, NotFittedError as NotFittedError
from .learn import LearnConfig as LearnConfig
from .model import AbstractModel as AbstractModel
