"""Runs the code blocks of a page and puts what they print into it.

In a ``console`` block lines after ``$ `` are commands, the others what they print. What
a ``python`` block prints stands in the ``text`` block right after it. The blocks of a
page run in order, in one folder. ``<!-- not run: why -->`` before a block leaves it
out. ``python tests/blocks.py PAGE...`` brings pages up to date.
"""

import contextlib
import io
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

BLOCK = re.compile(
    r"(?P<skip><!-- not run: .+? -->\n)?^```(?P<kind>\w*)\n(?P<body>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
RUN = ("console", "python", "text")


class PageError(AssertionError):
    """A block that cannot be run."""


def updated(page, folder):
    """Return the page's text with what its blocks print now."""
    scope, printed = {"__name__": "__page__"}, None

    def renew(match):
        nonlocal printed
        kind, body = match["kind"], match["body"]
        if match["skip"]:
            return match[0]
        if kind not in RUN:
            message = (
                f"a block of kind {kind!r} is neither run nor excused: {body[:60]}"
            )
            raise PageError(message)
        if kind == "text":
            if printed is None:
                message = f"a text block follows no python block: {body[:60]}"
                raise PageError(message)
            body, printed = printed, None
        elif kind == "console":
            body = _console(body, folder)
        else:
            printed = _python(body, scope)
        return f"```{kind}\n{body}```"

    with contextlib.chdir(folder):
        return BLOCK.sub(renew, page)


def _console(body, folder):
    bin_folder = str(Path(sys.executable).parent)
    environment = os.environ | {
        "PATH": f"{bin_folder}{os.pathsep}{os.environ['PATH']}",
        "COLUMNS": "80",
    }
    out = []
    for command in re.findall(r"^\$ ((?:.*\\\n)*.*)$", body, re.MULTILINE):
        done = subprocess.run(
            command,
            shell=True,
            cwd=folder,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        lines = "".join(f"{line.rstrip()}\n" for line in done.stdout.splitlines())
        out.append(f"$ {command}\n{lines}")
        if done.returncode not in (0, 2):
            message = f"{command} failed: {done.stdout}"
            raise PageError(message)
    return "".join(out)


def _python(body, scope):
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(compile(body, "page", "exec"), scope)
    return out.getvalue()


if __name__ == "__main__":
    for name in sys.argv[1:]:
        path = Path(name)
        with tempfile.TemporaryDirectory() as scratch:
            path.write_text(updated(path.read_text(), scratch))
