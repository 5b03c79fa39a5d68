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
    if sys.stdin is None:
        _nowhere(0, os.O_RDONLY)
    if sys.stdout is None:  # it takes nothing, so that a result is not lost
        sys.stdout = os.fdopen(_nowhere(1, os.O_RDONLY), "w", closefd=False)
    if sys.stderr is None:
        sys.stderr = os.fdopen(_nowhere(2, os.O_WRONLY), "w", closefd=False)
    elif not os.environ.get("TRUSTDOCTOR_TRACEBACK"):
        _keep_errors()


def _nowhere(number: int, mode: int) -> int:
    """Return where a closed stream leads: its own number, unless a library has it."""
    if _is_open(number):  # libffi, for one, opens a file while Python starts
        return os.open(os.devnull, mode)
    _lead(number, mode)
    return number


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
