"""Runs the code blocks of a page and puts what they print into it.

In a ``console`` block lines after ``$ `` are commands, the others what they print. What
a ``python`` block prints stands in the ``text`` block right after it. A ``yaml`` block
is a file, named in its first line. The blocks of a page run in order, in one folder.
``<!-- not run: why -->`` before a block leaves it out. ``python tests/blocks.py
PAGE...`` brings pages up to date.

A command that ends in ``&`` goes on until the page is done; what it prints is not
shown. Ports after ``--port`` and of a ``--webhook`` stand for some that are free
here, all over the page.
"""

import contextlib
import io
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

import yaml

BLOCK = re.compile(
    r"(?P<skip><!-- not run: .+? -->\n)?^```(?P<kind>\w*)\n(?P<body>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
_PORT = re.compile(r"(?:--port |--webhook http://127\.0\.0\.1:)(\d+)")
_LONG = re.compile(r"-?\d+\.\d{9,}(?:e[+-]?\d+)?")
RUN = ("console", "python", "text", "yaml")


class PageError(AssertionError):
    """A block that cannot be run."""


def updated(page, folder):
    """Return the page's text with what its blocks print now."""
    bare = BLOCK.sub("", page)
    if "```" in bare:
        _refuse("a block is indented or titled", bare[bare.index("```") :])
    runner = _Runner(folder, page)
    try:
        with contextlib.chdir(folder):
            new_page = BLOCK.sub(runner, page)
    finally:
        runner.stop()
    runner.expect_nothing_printed()
    return new_page


def steady(text):
    """Return a page with long numbers to eight digits, as processors differ beyond."""
    return _LONG.sub(lambda match: f"{float(match[0]):.8g}", text)


def _refuse(defect, body):
    message = f"{defect}: {body[:60]!r}"
    raise PageError(message)


class _Runner:
    """Runs one block after another."""

    def __init__(self, folder, page):
        self.folder, self.printed, self.going_on = folder, None, []
        self.scope = {"__name__": "__page__"}
        self.ports = dict(_free_ports(sorted(set(_PORT.findall(page)))))

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

    def yaml(self, body):
        name = re.match(r"# ([\w-]+\.ya?ml)\n", body)
        if name is None:
            _refuse("a yaml block does not begin with the name of its file", body)
        yaml.safe_load(body)
        (Path(self.folder) / name[1]).write_text(body)
        return body

    def console(self, body):
        self.expect_nothing_printed()
        out = []
        for command in re.findall(r"^\$ ((?:.*\\\n)*.*)$", body, re.MULTILINE):
            here = _replaced(command, self.ports)
            if command.endswith("&"):
                self.going_on.append(_begun(here, self.folder))
                out.append(f"$ {command}\n")
            else:
                shown_ports = {free: shown for shown, free in self.ports.items()}
                out.append(
                    f"$ {command}\n{_replaced(_run(here, self.folder), shown_ports)}"
                )
        return "".join(out)

    def python(self, body):
        self.expect_nothing_printed()
        self.printed = _python(_replaced(body, self.ports), self.scope)
        return body

    def stop(self):
        """End what goes on, with all that it started."""
        for process in self.going_on:
            os.killpg(process.pid, signal.SIGTERM)
        for process in self.going_on:
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()


def _free_ports(ports):
    """Return a port that nobody uses for each of these."""
    with contextlib.ExitStack() as stack:
        for port in ports:
            listener = stack.enter_context(socket.socket())
            listener.bind(("127.0.0.1", 0))
            yield port, str(listener.getsockname()[1])


def _replaced(text, ports):
    if not ports:
        return text
    pattern = "|".join(ports)
    return re.sub(rf"\b({pattern})\b", lambda match: ports[match[0]], text)


def _environment():
    bin_folder = str(Path(sys.executable).parent)
    return os.environ | {
        "PATH": f"{bin_folder}{os.pathsep}{os.environ['PATH']}",
        "COLUMNS": "80",
    }


def _begun(command, folder):
    return subprocess.Popen(
        command.removesuffix("&"),
        shell=True,
        cwd=folder,
        env=_environment(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def _run(command, folder):
    completed = subprocess.run(
        command,
        shell=True,
        cwd=folder,
        env=_environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if completed.returncode not in (0, 2):
        message = f"{command} failed: {completed.stdout}"
        raise PageError(message)
    return "".join(f"{line.rstrip()}\n" for line in completed.stdout.splitlines())


def _python(body, scope):
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(compile(body, "page", "exec"), scope)
    return out.getvalue()


if __name__ == "__main__":
    for name in sys.argv[1:]:
        path = Path(name)
        with tempfile.TemporaryDirectory() as scratch:
            old = path.read_text()
            new = updated(old, scratch)
        if steady(new) != steady(old):  # processors differ in the last digits
            path.write_text(new)
