"""A progress bar that appears on the terminal only when work takes long."""

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

SLOW = 2.0
"""Seconds before a bar appears."""

Tell = Callable[[float, str], None]


@contextmanager
def bar(*, quiet: bool = False) -> Iterator[Tell]:
    """Yield a function that takes the share of the work done and what comes next.

    The bar goes to the error stream and vanishes at the end. Nothing is shown when
    `quiet`, or where the error stream is not a terminal.
    """
    if quiet or not _is_terminal():
        yield lambda _share, _what: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    shown = Progress(
        TextColumn("{task.description:<28}"),
        BarColumn(),
        TimeRemainingColumn(elapsed_when_finished=True),
        console=Console(stderr=True),
        transient=True,
    )
    task = shown.add_task("", total=1.0)
    timer = threading.Timer(SLOW, shown.start)
    timer.daemon = True
    timer.start()
    try:
        yield lambda share, what: shown.update(task, completed=share, description=what)
    finally:
        timer.cancel()
        timer.join()
        shown.stop()


class Pace:
    """Tells a progress bar how many rows are done, and how fast."""

    def __init__(self, tell: Tell | None, what: str, total: int) -> None:
        self.tell, self.what, self.total = tell, what, max(total, 1)
        self.done, self.began = 0, time.monotonic()

    def add(self, rows: int) -> None:
        """Count rows that are done."""
        self.done += rows
        if self.tell is not None:
            rate = self.done / max(time.monotonic() - self.began, 1e-9)
            share = min(self.done / self.total, 1.0)
            self.tell(share, f"{self.what}, {_short(rate)} rows/s")


def _short(number: float) -> str:
    for unit, name in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if number >= unit:
            return f"{number / unit:.1f}{name}"
    return f"{number:.0f}"


def _is_terminal() -> bool:
    return sys.stderr.isatty()
