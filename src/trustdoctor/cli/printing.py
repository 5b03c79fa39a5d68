"""What every command says at its end."""

import sys
from pathlib import Path

from rich.console import Console

from trustdoctor.atomic import write_text


def write_result(text: str, path: str | None) -> None:
    """Write JSON where it was asked for; - prints it."""
    if path == "-":
        sys.stdout.write(text)
    elif path is not None:
        write_text(path, text)


def wrote(console: Console, *paths: Path | None) -> None:
    """Say which files were written."""
    for path in paths:
        if path is not None:
            console.print(f"Wrote {path}", highlight=False, soft_wrap=True)
