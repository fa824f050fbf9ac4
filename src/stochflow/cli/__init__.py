"""The command `stochflow`.

Commands parse, call one function of `experiments`, print, and turn errors into one sentence and an exit code.
Their flags are made from the frozen configs.
"""

from .main import app as app, main as main
