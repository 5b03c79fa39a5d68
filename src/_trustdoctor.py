"""Starts the command line.

It stands apart from the package, so that what goes wrong while that is imported, Ctrl-C
included, ends in one line.
"""

import sys


def main() -> None:
    """Import the command line, and run it."""
    try:
        from trustdoctor.cli import main as run
    except KeyboardInterrupt:
        _end("stopped.", 130)
    except ValueError as error:  # of a variable of the environment
        _end(str(error), 2)
    run()


def _end(message: str, code: int) -> None:
    if sys.stderr is not None:
        sys.stderr.write(f"trustdoctor: {message}\n")
    sys.exit(code)
