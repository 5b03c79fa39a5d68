"""A progress bar that appears on the terminal only if the work takes long."""

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

SLOW = 2.0
"""Seconds before a bar appears."""

Tell = Callable[[float, str], None]
"""Takes the share of the work that is done, and what comes next."""


@contextmanager
def bar(*, quiet: bool = False) -> Iterator[Tell]:
    """Yield a function that takes the share of the work done and what comes next.

    The bar goes to the error stream and vanishes at the end. Nothing is shown if
    `quiet`, or if the error stream is not a terminal.
    """
    if quiet or not _is_terminal():
        yield lambda _share, _step: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    progress = Progress(
        TextColumn("{task.description:<28}"),
        BarColumn(),
        TimeRemainingColumn(elapsed_when_finished=True),
        console=Console(stderr=True),
        transient=True,
    )
    task = progress.add_task("", total=1.0)
    timer = threading.Timer(SLOW, progress.start)
    timer.daemon = True
    timer.start()
    try:
        yield lambda share, step: progress.update(
            task, completed=share, description=step
        )
    finally:
        timer.cancel()
        timer.join()  # a timer that fires now would start the bar after its end
        progress.stop()


class Pace:
    """Tells a progress bar how many rows are done, and how fast."""

    def __init__(self, tell: Tell | None, step: str, total: int) -> None:
        self.tell, self.step, self.total = tell, step, max(total, 1)
        self.rows, self.start = 0, time.monotonic()

    def add(self, rows: int) -> None:
        """Count rows that are done."""
        self.rows += rows
        if self.tell is not None:
            rate = self.rows / max(time.monotonic() - self.start, 1e-9)
            share = min(self.rows / self.total, 1.0)
            self.tell(share, f"{self.step}, {_with_prefix(rate)} rows/s")


def _with_prefix(number: float) -> str:
    """Return a number with a metric prefix, such as 1.2M."""
    for factor, prefix in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if number >= factor:
            return f"{number / factor:.1f}{prefix}"
    return f"{number:.0f}"


def _is_terminal() -> bool:
    return sys.stderr.isatty()
