"""The three streams of the process: none missing, and none that others write into."""

import io
import os
import sys


def prepare_streams() -> None:
    """Have all three streams open, and keep the error stream for our own messages.

    A stream that was closed would be taken by the next file that is opened, and what is
    printed would go into it. polars prints where its reader gives up, before we can say
    what is wrong with the file; with TRUSTDOCTOR_TRACEBACK set that is shown, too.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None and not _is_open(number):
            # Nothing can be written to the first two, so that a result is not lost.
            mode = os.O_WRONLY if name == "stderr" else os.O_RDONLY
            _lead(number, mode)
    if sys.stdout is None:
        sys.stdout = os.fdopen(1, "w", closefd=False)
    if sys.stderr is None:
        sys.stderr = os.fdopen(2, "w", closefd=False)
    elif not os.environ.get("TRUSTDOCTOR_TRACEBACK"):
        _keep_errors()


def _keep_errors() -> None:
    """Lead Python's error stream past the one that libraries write into."""
    try:
        if sys.stderr.fileno() != 2:
            return
    except (OSError, ValueError, io.UnsupportedOperation):  # a test's own stream
        return
    own = os.fdopen(
        os.dup(2),
        "w",
        buffering=1,
        encoding=sys.stderr.encoding,
        errors="backslashreplace",
    )
    _lead(2, os.O_WRONLY)
    sys.stderr = own


def leave_output() -> None:
    """Give up on the output, so that nothing tries to write it once more."""
    _lead(sys.stdout.fileno(), os.O_WRONLY)


def _lead(number: int, mode: int) -> None:
    """Lead a stream nowhere."""
    opened = os.open(os.devnull, mode)
    if opened != number:
        os.dup2(opened, number)
        os.close(opened)


def _is_open(number: int) -> bool:
    try:
        os.fstat(number)
    except OSError:
        return False
    return True
