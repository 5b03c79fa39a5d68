"""The command line in this process, with all that reaches the descriptors 1 and 2.

Libraries write there by themselves, past `sys.stderr`.
"""

import os
import signal
import sys
import tempfile
import unicodedata
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any
from unittest.mock import patch

from typer.main import get_command

from fuzz.verdicts import report
from trustdoctor.cli import app
from trustdoctor.errors import TrustDoctorError

LIMIT = 60.0
"""Seconds that one command, or one call, may take."""


class HangError(BaseException):
    """The time is up; no Exception, so that no handler swallows it."""


@dataclass
class Execution:
    """How a command, or a call, ended, and what it wrote.

    Attributes
    ----------
    code : int, or None
        The exit code, None of a call.
    value : Any
        What a call returned.
    error : BaseException or None
        What it raised.
    out, err : str
        What was written to the descriptors 1 and 2.
    """

    code: int | None = None
    value: Any = None
    error: BaseException | None = None
    out: str = ""
    err: str = ""


@contextmanager
def _redirected(number: int) -> Iterator[Any]:
    """Send a descriptor, and Python's stream of it, into a file."""
    name = {1: "stdout", 2: "stderr"}[number]
    before, duplicate = getattr(sys, name), os.dup(number)
    errors = "strict" if number == 1 else "backslashreplace"
    with tempfile.TemporaryFile() as file:
        os.dup2(file.fileno(), number)
        stream = os.fdopen(number, "w", encoding="utf-8", errors=errors, closefd=False)
        setattr(sys, name, stream)
        try:
            yield file
        finally:
            getattr(sys, name).close()  # the command line may have made another
            setattr(sys, name, before)
            os.dup2(duplicate, number)
            os.close(duplicate)


def _content(file: Any) -> str:
    file.seek(0)
    return file.read().decode("utf-8", "replace")


@contextmanager
def _limited() -> Iterator[None]:
    """Raise HangError when the time is up, wherever Python is then."""

    def stop(*_: Any) -> None:
        message = f"not done after {LIMIT:g} s"
        raise HangError(message)

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, LIMIT)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def call(work: Callable[[], Any]) -> Execution:
    """Call a function, and return how that ended."""
    ran = Execution()
    with warnings.catch_warnings(), _redirected(1) as out, _redirected(2) as err:
        warnings.simplefilter("always")  # as in a process of its own
        for kind in (DeprecationWarning, PendingDeprecationWarning, ResourceWarning):
            warnings.simplefilter("ignore", kind)
        try:
            with _limited():
                ran.value = work()
        except SystemExit as exit_error:
            ran.code = exit_error.code if isinstance(exit_error.code, int) else 0
        except BaseException as error:
            ran.error = error
        sys.stdout.flush()
        sys.stderr.flush()
        ran.out, ran.err = _content(out), _content(err)
    return ran


@cache
def _commands() -> Any:
    """Return the parser of the command line, which takes long to make."""
    return get_command(app.make_app())


def command(*arguments: str | Path) -> Execution:
    """Run the command line with these arguments."""
    argv = ["trustdoctor", *map(str, arguments)]
    commands = _commands()
    with (
        patch.object(sys, "argv", argv),
        patch.dict(os.environ, COLUMNS="100"),
        patch.object(app, "make_app", lambda: commands),
    ):
        return call(app.main)


def check_clean(ran: Execution) -> None:
    """Report panics, tracebacks, hangs and control characters."""
    if isinstance(ran.error, HangError):
        report("hang", str(ran.error))
    if ran.error is not None:
        message = f"{type(ran.error).__name__}: {ran.error}"
        report("an error that is not ours", message)
    for words in ("panicked at", "Traceback (most", "internal error", "Warning:"):
        if words in ran.err:
            report(words, ran.err)
    for sign in ran.out + ran.err:
        if unicodedata.category(sign) == "Cc" and sign != "\n":
            report("a control character is printed", repr(ran.out + ran.err))


def check_line(ran: Execution) -> None:
    """Report errors that are not one line beginning with the program's name."""
    lines = ran.err.split("\n")
    if len(lines) != 2 or lines[1] or not lines[0].startswith("trustdoctor: "):
        report("not one line", ran.err)


def called(work: Callable[[], Any]) -> Any:
    """Return the result of a call of the library, or the error that refused it."""
    ran = call(work)
    if isinstance(ran.error, TrustDoctorError):
        return ran.error
    if "panicked at" in ran.err:  # polars says so itself; a command keeps it quiet
        ran.err = ""
    check_clean(ran)
    if ran.err:
        report("stderr of a call", ran.err)
    return ran.value


def refusal(value: Any) -> str:
    """Return the message of a refusal that `called` returned, else an empty string."""
    return str(value) if isinstance(value, TrustDoctorError) else ""
