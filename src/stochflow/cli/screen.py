"""The console of all commands: as wide as the terminal, or wide enough for every table where there is none."""

import os
from typing import Any

from rich.console import Console
from rich.text import Text

# The widest table, that of the likelihoods of `reproduce lorenz`, fits without a line break.
WIDTH = 124

console = Console()
if not console.is_terminal and "COLUMNS" not in os.environ:
    console.width = WIDTH


def printable(said: Any) -> str:
    """A value out of a file as text without control characters: nothing that a terminal would obey."""
    return "".join(letter for letter in str(said) if letter.isprintable())


def as_text(said: Any) -> Text:
    """A value out of a file as it stands: no mark-up, no emoji, no escape."""
    return Text(printable(said))
