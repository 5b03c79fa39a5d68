"""The three streams of the process: all open, and none that libraries write into."""

import io
import os
import sys


def prepare_streams() -> None:
    """Open all three streams, and keep the error stream for our own messages.

    A stream that was closed would be taken by the next file that is opened, and what is
    printed would go into it. polars prints where its reader gives up, before we can say
    what is wrong with the file; with TRUSTDOCTOR_TRACEBACK set that is shown, too.
    """
    if sys.stdin is None:
        _open_nowhere(0, os.O_RDONLY)
    if sys.stdout is None:  # not writable, so that a lost result is an error
        sys.stdout = os.fdopen(_open_nowhere(1, os.O_RDONLY), "w", closefd=False)
    if sys.stderr is None:
        sys.stderr = os.fdopen(_open_nowhere(2, os.O_WRONLY), "w", closefd=False)
    elif not os.environ.get("TRUSTDOCTOR_TRACEBACK"):
        _separate_error_stream()


def _open_nowhere(number: int, mode: int) -> int:
    """Open a closed stream to nowhere; return its number, or another if it is taken."""
    if _is_open(number):  # libffi, for one, opens a file while Python starts
        return os.open(os.devnull, mode)
    _redirect_nowhere(number, mode)
    return number


def _separate_error_stream() -> None:
    """Give Python an error stream that libraries do not write into."""
    try:
        if sys.stderr.fileno() != 2:
            return
    except (OSError, ValueError, io.UnsupportedOperation):  # a stream of a test
        return
    error_stream = os.fdopen(
        os.dup(2),
        "w",
        buffering=1,
        encoding=sys.stderr.encoding,
        errors="backslashreplace",
    )
    _redirect_nowhere(2, os.O_WRONLY)
    sys.stderr = error_stream


def discard_output() -> None:
    """Send the rest of the output nowhere: Python would write its buffer at exit."""
    _redirect_nowhere(sys.stdout.fileno(), os.O_WRONLY)


def _redirect_nowhere(number: int, mode: int) -> None:
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
