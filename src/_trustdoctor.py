"""Starts the command line.

It stands apart from the package, so that Ctrl-C ends quietly while that is imported.
"""

import sys


def main() -> None:
    """Import the command line, and run it."""
    try:
        from trustdoctor.cli import main as run

        run()
    except KeyboardInterrupt:
        if sys.stderr is not None:
            sys.stderr.write("trustdoctor: stopped.\n")
        sys.exit(130)
