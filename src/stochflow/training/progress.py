"""A progress bar with loss, rate and time left; silent where nobody is watching."""

import contextlib
from collections.abc import Callable, Iterator

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

Report = Callable[[int, float, float], None]


@contextlib.contextmanager
def progress_bar(steps: int, done: int, *, show: bool | None, label: str = "training") -> Iterator[Report]:
    """Yields `report(step, loss, steps_per_second)`. `show=None` shows the bar on a terminal only."""
    console = Console(stderr=True)
    if not (console.is_terminal if show is None else show):
        yield lambda step, loss, rate: None
        return
    columns = (
        TextColumn("[bold]{task.description}"),
        BarColumn(),
        TextColumn("{task.completed:,}/{task.total:,}"),
        TextColumn("loss {task.fields[loss]:.3f}"),
        TextColumn("{task.fields[rate]:,.0f} steps/s"),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console) as progress:
        task = progress.add_task(label, total=steps, completed=done, loss=float("nan"), rate=0.0)
        yield lambda step, loss, rate: progress.update(task, completed=step, loss=loss, rate=rate)
