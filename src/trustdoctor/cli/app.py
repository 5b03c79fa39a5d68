"""The command line: parses, calls and prints."""

import os
import sys
import traceback
from typing import Annotated, Any

import typer

from trustdoctor._version import __version__
from trustdoctor.cli.experiments import reproduce
from trustdoctor.cli.gating import calibrate, check, screen
from trustdoctor.cli.measuring import compare, demo, diagnose
from trustdoctor.cli.models import export, predict
from trustdoctor.cli.options import COLUMNS, GATE_COLUMNS, MEANS, MEMORY, TARGET, takes
from trustdoctor.errors import TrustDoctorError


def make_app() -> typer.Typer:
    """Return the command line, with options for every score, target and engine.

    It is made anew at each call, so that it knows what was registered before.
    """
    app = typer.Typer(
        name="trustdoctor",
        help="Should this prediction be trusted? Reads a classifier's predictions, "
        "measures how far they can be trusted, and decides which to accept.",
        add_completion=False,
        no_args_is_help=True,
        pretty_exceptions_enable=False,
    )
    app.callback()(_options)
    commands: dict[str, Any] = {
        "demo": demo,
        "diagnose": takes(columns=COLUMNS, means=MEANS)(diagnose),
        "calibrate": takes(target=TARGET, columns=GATE_COLUMNS, means=MEANS)(calibrate),
        "check": takes(columns=GATE_COLUMNS, memory=MEMORY)(check),
        "screen": takes(columns=GATE_COLUMNS, means=MEANS)(screen),
        "compare": takes(columns=COLUMNS, memory=MEMORY)(compare),
        "predict": predict,
        "export": export,
        "reproduce": reproduce,
    }
    for name, command in commands.items():
        app.command(name)(command)
    return app


def _show_version(*, value: bool) -> None:
    if value:
        typer.echo(f"trustdoctor {__version__}")
        raise typer.Exit


def _options(
    *,
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_show_version, is_eager=True, help="Show it."
        ),
    ] = False,
) -> None:
    """Hold the options that come before a command."""


def main() -> None:
    """Run the command line; 0 done, 1 a failure of ours, 2 the user's mistake."""
    try:
        make_app()()
    except TrustDoctorError as error:
        _fail(str(error), 2)
    except OSError as error:
        _fail(f"cannot write the output: {(error.strerror or str(error)).lower()}.", 2)
    except MemoryError:
        _fail("the machine ran out of memory. Split the file and run again.", 2)
    except Exception as error:
        if os.environ.get("TRUSTDOCTOR_TRACEBACK"):
            traceback.print_exc()
        _fail(
            f"internal error, {type(error).__name__}: {error}. Please report it; "
            "TRUSTDOCTOR_TRACEBACK=1 shows where.",
            1,
        )


def _fail(message: str, code: int) -> None:
    typer.echo(f"trustdoctor: {' '.join(message.split())}", err=True)
    sys.exit(code)
