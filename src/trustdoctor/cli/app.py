"""The command line: parses, calls and prints."""

import os
import sys
import traceback
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
from polars.exceptions import PanicException
from typer.core import TyperCommand

from trustdoctor._version import __version__
from trustdoctor.cli.commands.calibrate import calibrate
from trustdoctor.cli.commands.cascade import cascade
from trustdoctor.cli.commands.check import check
from trustdoctor.cli.commands.compare import compare
from trustdoctor.cli.commands.demo import demo
from trustdoctor.cli.commands.diagnose import diagnose
from trustdoctor.cli.commands.export import export
from trustdoctor.cli.commands.predict import predict
from trustdoctor.cli.commands.reproduce import reproduce
from trustdoctor.cli.commands.screen import screen
from trustdoctor.cli.commands.serve import KEEPING, REACHING, REVIEWING, RUNNING, serve
from trustdoctor.cli.commands.split import split
from trustdoctor.cli.exit_codes import CLOSED, DONE, INTERNAL, MISTAKE, STOPPED
from trustdoctor.cli.guide import examples, exit_codes, overview, unwrapped
from trustdoctor.cli.options import (
    CALIBRATE_COLUMNS,
    COLUMNS,
    COMPARE_COLUMNS,
    COMPARE_LEVEL,
    GATE_COLUMNS,
    MEANS,
    MEMORY,
    PROMISE_LEVEL,
    TARGET,
    takes,
)
from trustdoctor.cli.output import check_places, one_line
from trustdoctor.cli.stages import (
    ASKING,
    CASCADE_LEVEL,
    CASCADE_TARGET,
    STAGE_COLUMNS,
)
from trustdoctor.cli.streams import leave_output, prepare_streams
from trustdoctor.errors import InputError, TrustDoctorError

STEPS_PANEL = "The four steps"
MORE_PANEL = "More"


def make_app() -> typer.Typer:
    """Return the command line, with options for every score, target and engine.

    It is made anew at each call, so that it knows what was registered before.
    """
    app = typer.Typer(
        name="trustdoctor",
        help=overview(),
        epilog=exit_codes(),
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        rich_markup_mode="rich",
    )
    app.callback()(_options)
    for panel, commands in _commands().items():
        for name, command in commands.items():
            app.command(
                name,
                cls=_Command,
                help=unwrapped(command.__doc__),
                epilog=examples(name),
                rich_help_panel=panel,
            )(_guarded(command))
    return app


def _commands() -> dict[str, dict[str, Any]]:
    """Return every command by its name, by the panel that --help shows it in."""
    steps: dict[str, Any] = {
        "diagnose": takes(columns=COLUMNS, means=MEANS)(diagnose),
        "calibrate": takes(
            target=TARGET,
            columns=CALIBRATE_COLUMNS,
            level=PROMISE_LEVEL,
            means=MEANS,
        )(calibrate),
        "screen": takes(columns=GATE_COLUMNS, asking=ASKING, means=MEANS)(screen),
        "check": takes(columns=GATE_COLUMNS, memory=MEMORY)(check),
    }
    more: dict[str, Any] = {
        "demo": demo,
        "split": split,
        "compare": takes(columns=COMPARE_COLUMNS, level=COMPARE_LEVEL, memory=MEMORY)(
            compare
        ),
        "cascade": takes(
            target=CASCADE_TARGET,
            columns=STAGE_COLUMNS,
            level=CASCADE_LEVEL,
            asking=ASKING,
            memory=MEMORY,
        )(cascade),
        "serve": takes(
            running=RUNNING, keeping=KEEPING, reviewing=REVIEWING, reaching=REACHING
        )(serve),
        "predict": predict,
        "export": export,
        "reproduce": reproduce,
    }
    return {STEPS_PANEL: steps, MORE_PANEL: more}


class _Command(TyperCommand):
    """A command that knows what a shell does to a pattern without quotes."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Say that patterns are quoted, where several files came for one."""
        given = list(args)
        try:
            return super().parse_args(ctx, args)
        except Exception as error:
            told = getattr(error, "message", "")
            if not told.startswith("Got unexpected extra argument"):
                raise
            more = [one for one in given if one in told and Path(one).exists()]
            if not more:
                raise
            pattern = Path(more[0]).with_name(f"*{Path(more[0]).suffix}")
            message = (
                f"expected one FILE, got {len(more) + 1}: the shell expanded a "
                f"pattern. Quote it, as '{pattern}', or name the folder."
            )
            raise InputError(message) from None


class _StoppedError(Exception):
    """Ctrl-C, by a name that Typer does not know."""


class _ClosedError(Exception):
    """Nobody reads the output any more, by a name that Typer does not know."""


def _guarded(command: Callable[..., None]) -> Callable[..., None]:
    """Let Ctrl-C and a closed pipe come through to `main`, whatever Typer makes of it.

    Typer ends with exit code 1 there, in some versions, which is an alarm.
    """

    @wraps(command)
    def run(**given: Any) -> None:
        try:
            check_places(given)
            command(**given)
        except KeyboardInterrupt as error:
            raise _StoppedError from error
        except BrokenPipeError as error:
            raise _ClosedError from error

    return run


def _show_version(*, value: bool) -> None:
    if value:
        typer.echo(f"trustdoctor {__version__}")
        raise typer.Exit


def _options(
    *,
    version: Annotated[
        bool,
        typer.Option(
            "--version",
            metavar="",
            callback=_show_version,
            is_eager=True,
            help="Show the version.",
        ),
    ] = False,
) -> None:
    """Hold the options that come before a command."""


def main() -> None:
    """Run the command line; `exit_codes.py` lists how it may end."""
    prepare_streams()
    try:
        code = _run()
        sys.stdout.flush()  # here, where a reader that went away is expected
    except (_ClosedError, BrokenPipeError):
        leave_output()
        sys.exit(CLOSED)
    except (_StoppedError, KeyboardInterrupt):
        _fail("stopped.", STOPPED)
    except (Exception, PanicException) as error:
        if os.environ.get("TRUSTDOCTOR_TRACEBACK"):
            traceback.print_exc()
        if isinstance(error, OSError) and error.filename is None:
            leave_output()
        _fail(*_told(error))
    sys.exit(code)


def _told(error: BaseException) -> tuple[str, int]:
    """Return what to say of an error, and the exit code."""
    if isinstance(error, TrustDoctorError):
        return str(error), MISTAKE
    if isinstance(error, OSError):
        why = (error.strerror or str(error)).lower()
        what = "write the output" if error.filename is None else "open a file"
        return f"cannot {what}: {why}.", MISTAKE
    if isinstance(error, MemoryError):
        told = "the machine ran out of memory. Split the file and run again."
        return told, MISTAKE
    if isinstance(error, PanicException):
        told = f"cannot read the file: {error}. It may be damaged; write it again."
        return told, MISTAKE
    told = (
        f"internal error, {type(error).__name__}: {error}. Please report it; "
        "TRUSTDOCTOR_TRACEBACK=1 shows where."
    )
    return told, INTERNAL


def _run() -> Any:
    try:
        make_app()()
    except SystemExit as ended:
        return ended.code
    return DONE


def _fail(message: str, code: int) -> NoReturn:
    typer.echo(f"trustdoctor: {one_line(message)}", err=True)
    sys.exit(code)
