"""Which files of a folder are done, so that a stopped run can go on."""

import json
from dataclasses import asdict
from hashlib import blake2b
from pathlib import Path
from typing import Any

from trustdoctor.atomic import write_text
from trustdoctor.errors import FileError
from trustdoctor.files.formats import suffix_of
from trustdoctor.files.source import Source
from trustdoctor.gates import Gate, Outcome
from trustdoctor.metrics import Confusion
from trustdoctor.predictions import Intake

JOURNAL = ".trustdoctor-screen.json"
"""In an output folder: which files are done, and what was counted in them."""


class Journal:
    """Which files of a folder are done, and what was counted in them."""

    def __init__(
        self, folder: Path, gate: Gate, source: Source, only: str | None = None
    ) -> None:
        self.path = folder / JOURNAL
        job = gate.to_json() + repr(source.columns) + (only or "")
        self.job = blake2b(job.encode(), digest_size=12).hexdigest()
        self.done: dict[str, Outcome] = {}

    def begin(self, *, resume: bool) -> None:
        """Take over what an earlier run of the same job noted, or forget it."""
        if not resume:
            self.path.unlink(missing_ok=True)
        elif self.path.exists():
            self._read()

    def _read(self) -> None:
        try:
            content = json.loads(self.path.read_text(encoding="utf-8"))
            job, entries = content["job"], content["done"]
            self.done = {stamp: _outcome(*entry) for stamp, entry in entries.items()}
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            message = (
                f"cannot read the journal {self.path}. Remove it, and run without "
                "--resume."
            )
            raise FileError(message) from error
        if job != self.job:
            message = (
                f"{self.path.parent} was written with another gate or other columns. "
                "Choose another folder, or leave --resume out to write it anew."
            )
            raise FileError(message)

    def find(self, file: Path) -> Outcome | None:
        """Return what was counted in a file, unless it changed or is not done."""
        return self.done.get(_stamp(file))

    def note(self, file: Path, outcome: Outcome) -> None:
        """Note that a file is done."""
        self.done[_stamp(file)] = outcome
        entries = {stamp: _entry(known) for stamp, known in self.done.items()}
        write_text(self.path, json.dumps({"job": self.job, "done": entries}) + "\n")


def _stamp(file: Path) -> str:
    beside = [file]
    if suffix_of(file) == ".npy":
        beside += sorted(other for other in file.parent.glob("*.npy") if other != file)
    states = [one.stat() for one in beside]
    sizes = [f"{state.st_size} {state.st_mtime_ns}" for state in states]
    return " ".join([str(file.resolve()), *sizes])


def _entry(outcome: Outcome) -> list[Any]:
    counts = outcome.counts and list(asdict(outcome.counts).values())
    return [outcome.rows, outcome.accepted, counts, *asdict(outcome.intake).values()]


def _outcome(
    rows: int, accepted: int, counts: list[int] | None, *intake: Any
) -> Outcome:
    known = None if counts is None else Confusion(*counts)
    return Outcome(rows, accepted, known, Intake(*intake))
