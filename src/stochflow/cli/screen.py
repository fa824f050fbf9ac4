"""The console of all commands: as wide as the terminal, or wide enough for every table where there is none."""

import os

from rich.console import Console

# The widest table, that of the likelihoods of `reproduce lorenz`, fits without a line break.
WIDTH = 124

console = Console()
if not console.is_terminal and "COLUMNS" not in os.environ:
    console.width = WIDTH
