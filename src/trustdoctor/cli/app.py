"""The command line: parses, calls and prints."""

import os
import pkgutil
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
from polars.exceptions import PanicException
from typer.core import TyperCommand, TyperGroup

from trustdoctor._version import __version__
from trustdoctor.cli.exit_codes import CLOSED, DONE, INTERNAL, MISTAKE, STOPPED
from trustdoctor.cli.guide import EXIT_CODE_LINES, OVERVIEW, examples, unwrapped
from trustdoctor.cli.options import CommandSignature
from trustdoctor.cli.output import check_output_paths, one_line
from trustdoctor.cli.streams import discard_output, prepare_streams
from trustdoctor.errors import InputError, TrustDoctorError

STEPS_PANEL = "The four steps"
MORE_PANEL = "More"
COMMANDS = {
    "diagnose": STEPS_PANEL,
    "calibrate": STEPS_PANEL,
    "screen": STEPS_PANEL,
    "check": STEPS_PANEL,
    "demo": MORE_PANEL,
    "split": MORE_PANEL,
    "draw": MORE_PANEL,
    "compare": MORE_PANEL,
    "cascade": MORE_PANEL,
    "serve": MORE_PANEL,
    "predict": MORE_PANEL,
    "export": MORE_PANEL,
    "reproduce": MORE_PANEL,
}
"""Every command, and the panel of --help that shows it.

The command NAME is the function NAME of `trustdoctor.cli.commands.NAME`.
"""


class _WithoutTypeOfFlags:
    """Shows no type behind options that take no value, as --help."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the parameters; Typer would show `<bool>` behind flags."""
        params: list[Any] = super().get_params(ctx)  # type: ignore[misc]
        for param in params:
            if getattr(param, "is_bool_flag", False):
                param.metavar = ""
        return params


class _Command(_WithoutTypeOfFlags, TyperCommand):
    """A command that knows what a shell does to a pattern without quotes."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse; if several files came where one is expected, say how to quote."""
        arguments = list(args)  # parsing consumes them
        try:
            return super().parse_args(ctx, args)
        except Exception as error:
            reason = getattr(error, "message", "")
            if not reason.startswith("Got unexpected extra argument"):
                raise
            extra = [path for path in arguments if path in reason]
            files = [path for path in extra if Path(path).exists()]
            if not files:
                raise
            pattern = Path(files[0]).with_name(f"*{Path(files[0]).suffix}")
            message = (
                f"expected one FILE, got {len(files) + 1}: the shell expanded a "
                f"pattern. Quote it, as '{pattern}', or name the folder."
            )
            raise InputError(message) from None


class _Commands(Mapping[str, TyperCommand]):
    """All commands by name; each is imported and built when it is looked up."""

    def __init__(self) -> None:
        self._built: dict[str, TyperCommand] = {}

    def __getitem__(self, name: str) -> TyperCommand:
        panel = COMMANDS[name]
        if name not in self._built:
            self._built[name] = _build(name, panel)
        return self._built[name]

    def __iter__(self) -> Iterator[str]:
        return iter(COMMANDS)

    def __len__(self) -> int:
        return len(COMMANDS)


def _build(name: str, panel: str) -> TyperCommand:
    """Return a command with its parser."""
    # The linter of layers does not see this import, which is within the room.
    command = pkgutil.resolve_name(f"trustdoctor.cli.commands.{name}:{name}")
    app = typer.Typer(add_completion=False, rich_markup_mode="rich")
    app.command(
        name,
        cls=_Command,
        help=unwrapped(command.__doc__),
        epilog=examples(name),
        rich_help_panel=panel,
    )(_callback(command))
    built = typer.main.get_command(app)
    assert isinstance(built, TyperCommand)
    return built


class _StoppedError(Exception):
    """Ctrl-C, by a name that Typer does not know."""


class _ClosedError(Exception):
    """Nobody reads the output any more, by a name that Typer does not know."""


def _callback(command: Callable[..., None]) -> Callable[..., None]:
    """Return what Typer calls with the values of all options.

    Ctrl-C and a closed pipe come through to `main`: Typer ends with exit code 1 there,
    in some versions, which is an alarm.
    """
    signature = CommandSignature.of(command)

    @wraps(command)
    def run(**values: Any) -> None:
        try:
            check_output_paths(values)
            command(**signature.arguments(values))
        except KeyboardInterrupt as error:
            raise _StoppedError from error
        except BrokenPipeError as error:
            raise _ClosedError from error

    run.__signature__ = signature.flat()  # type: ignore[attr-defined]
    return run


class _Program(_WithoutTypeOfFlags, TyperGroup):
    """All commands, of which a run builds the one that is called."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        self.commands: Any = _Commands()

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names of all commands."""
        del ctx
        return list(COMMANDS)


def make_app() -> typer.Typer:
    """Return the command line, with options for every score, target and engine.

    It is made anew at each call, so that it knows what was registered before.
    """
    app = typer.Typer(
        name="trustdoctor",
        cls=_Program,
        help=OVERVIEW,
        epilog=EXIT_CODE_LINES,
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        rich_markup_mode="rich",
    )
    app.callback()(_program_options)
    return app


def _show_version(*, value: bool) -> None:
    if value:
        typer.echo(f"trustdoctor {__version__}")
        raise typer.Exit


def _program_options(
    *,
    version: Annotated[
        bool,
        typer.Option(
            "--version",
            callback=_show_version,
            is_eager=True,
            help="Show the version and exit.",
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
        discard_output()
        sys.exit(CLOSED)
    except (_StoppedError, KeyboardInterrupt):
        _fail("stopped.", STOPPED)
    except (Exception, PanicException) as error:
        if os.environ.get("TRUSTDOCTOR_TRACEBACK"):
            traceback.print_exc()
        if isinstance(error, OSError) and error.filename is None:
            discard_output()
        _fail(*_message_and_code(error))
    sys.exit(code)


def _run() -> Any:
    """Return the exit code."""
    try:
        make_app()()
    except SystemExit as exit_:
        return exit_.code
    return DONE


def _message_and_code(error: BaseException) -> tuple[str, int]:
    if isinstance(error, TrustDoctorError):
        return str(error), MISTAKE
    if isinstance(error, OSError):
        reason = (error.strerror or str(error)).lower()
        task = "write the output" if error.filename is None else "open a file"
        return f"cannot {task}: {reason}.", MISTAKE
    if isinstance(error, MemoryError):
        return "the machine ran out of memory. Split the file and run again.", MISTAKE
    if isinstance(error, PanicException):  # how polars fails on some damaged files
        message = f"cannot read the file: {error}. It may be damaged; write it again."
        return message, MISTAKE
    message = (
        f"internal error, {type(error).__name__}: {error}. Please report it; "
        "TRUSTDOCTOR_TRACEBACK=1 shows where."
    )
    return message, INTERNAL


def _fail(message: str, code: int) -> NoReturn:
    typer.echo(f"trustdoctor: {one_line(message)}", err=True)
    sys.exit(code)
