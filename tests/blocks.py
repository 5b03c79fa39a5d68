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
    bare = BLOCK.sub("", page)
    if "```" in bare:
        _refuse("a block is indented or titled", bare[bare.index("```") :])
    runner = _Runner(folder)
    with contextlib.chdir(folder):
        found = BLOCK.sub(runner, page)
    runner.expect_nothing_printed()
    return found


def _refuse(what, body):
    message = f"{what}: {body[:60]!r}"
    raise PageError(message)


class _Runner:
    """Runs one block after another."""

    def __init__(self, folder):
        self.folder, self.printed = folder, None
        self.scope = {"__name__": "__page__"}

    def expect_nothing_printed(self):
        if self.printed:
            _refuse("what a python block prints is not shown", self.printed)

    def __call__(self, match):
        kind, body = match["kind"], match["body"]
        if match["skip"]:
            return match[0]
        if kind not in RUN:
            _refuse(f"a block of kind {kind!r} is neither run nor excused", body)
        return f"```{kind}\n{getattr(self, kind)(body)}```"

    def text(self, body):
        if self.printed is None:
            _refuse("a text block follows no python block", body)
        shown, self.printed = self.printed, None
        return shown

    def console(self, body):
        self.expect_nothing_printed()
        return _console(body, self.folder)

    def python(self, body):
        self.expect_nothing_printed()
        self.printed = _python(body, self.scope)
        return body


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
