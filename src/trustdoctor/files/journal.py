"""Which files of a folder are done, so that a stopped run can go on."""

from collections.abc import Iterable
from dataclasses import asdict
from hashlib import blake2b
from pathlib import Path
from typing import Any

from trustdoctor import envelope
from trustdoctor.atomic import locked, write_text
from trustdoctor.errors import FileError
from trustdoctor.files.formats import suffix_of
from trustdoctor.files.output_paths import plan_targets
from trustdoctor.files.source import Source
from trustdoctor.gates import Gate, ListCounts, Outcome
from trustdoctor.metrics import Confusion
from trustdoctor.predictions import Intake

JOURNAL = ".trustdoctor-screen.json"
"""In an output folder: which files are done, and what was counted in them."""

SCHEMA = 1
LIMIT = 1_000_000_000
"""Bytes of a journal at most; a file takes about 150."""


class Journal:
    """Which files of a folder are done, and what was counted in them.

    A file is done as long as it and what was written for it stay as they were.
    """

    def __init__(
        self, folder: Path, gate: Gate, source: Source, only: str | None = None
    ) -> None:
        self.path = folder / JOURNAL
        truth = source.columns.truth
        beside = [] if truth is None else _states([Path(truth)])
        words = [gate.to_json(), repr(source.columns), only or "", *beside]
        words += ["for spreadsheets"] if source.for_spreadsheets else []
        self.job = _digest(words)
        self.done: dict[str, Outcome] = {}
        self._targets = plan_targets(source, folder)
        self._inputs = {file: _states(_parts(file)) for file in self._targets}
        self._left: list[str] = []

    def begin(self, *, resume: bool) -> None:
        """Take over what an earlier run of the same job noted, or forget it."""
        if not resume or self.path.is_symlink():
            self.path.unlink(missing_ok=True)
        elif self.path.exists():
            self.done = self._read()

    def _read(self) -> dict[str, Outcome]:
        try:
            content = envelope.load(
                self.path, "journal", schemas=(SCHEMA,), limit=LIMIT
            )
            envelope.check_fields(content, {"schema", "job", "done"})
            done = {stamp: _outcome(entry) for stamp, entry in content["done"].items()}
        except (ValueError, TypeError, AttributeError) as error:
            message = (
                f"cannot read the journal {self.path}. Remove it, and run without "
                "--resume."
            )
            raise FileError(message) from error
        if content["job"] != self.job:
            message = (
                f"{self.path.parent} was written with another gate or other columns. "
                "Choose another folder, or leave --resume out to write it anew."
            )
            raise FileError(message)
        return done

    def find(self, file: Path) -> Outcome | None:
        """Return what was counted in a file, unless it changed or is not done."""
        if self._targets[file].is_symlink():  # it is to be replaced
            return None
        return self.done.get(self._stamp(file))

    def note(self, file: Path, outcome: Outcome) -> None:
        """Note that a file is done, beside what other processes note."""
        with locked(self.path):
            if self.path.exists() and _states([self.path]) != self._left:
                self.done = self._read() | self.done
            self.done[self._stamp(file)] = outcome
            entries = {stamp: _entry(known) for stamp, known in self.done.items()}
            content = {"job": self.job, "done": entries}
            write_text(self.path, envelope.dump("journal", SCHEMA, content, indent=0))
            self._left = _states([self.path])

    def _stamp(self, file: Path) -> str:
        """Say what a file was before it was read, and what its output is now."""
        target = self._targets[file]
        written = _states([target]) if target.is_file() else []
        return _digest([str(file.resolve()), *self._inputs[file], *written])


def _parts(file: Path) -> list[Path]:
    """Return a file, with arrays that lie beside it and are part of it."""
    if suffix_of(file) != ".npy":
        return [file]
    others = sorted(other for other in file.parent.glob("*.npy") if other != file)
    return [file, *others]


def _states(files: list[Path]) -> list[str]:
    found = [file.stat() for file in files]
    return [f"{state.st_size} {state.st_mtime_ns}" for state in found]


def _digest(words: Iterable[str]) -> str:
    content = "\0".join(words).encode("utf-8", "surrogatepass")
    return blake2b(content, digest_size=12).hexdigest()


def _entry(outcome: Outcome) -> list[Any]:
    counts = outcome.counts and list(asdict(outcome.counts).values())
    intake = asdict(outcome.intake).values()
    lists = [] if outcome.lists is None else [list(asdict(outcome.lists).values())]
    return [outcome.rows, outcome.accepted, counts, *intake, *lists]


def _outcome(entry: Any) -> Outcome:
    rows, accepted, counts, *intake = envelope.read_list(entry)
    known = None if counts is None else Confusion(*counts)
    lists = _lists(intake.pop()) if intake and type(intake[-1]) is list else None
    found = Outcome(rows, accepted, known, Intake(*intake), lists)
    part = [] if known is None else list(asdict(known).values())
    seen = found.intake
    whole = [
        accepted,
        *part,
        seen.unlabelled,
        seen.ambiguous,
        seen.unknown_groups,
        rows,
    ]
    whole += [seen.unanswered, seen.without_confidence, seen.overruled]
    if (
        any(type(one) is not int or not 0 <= one <= rows for one in whole)
        or not (lists is None or _can_be(lists, rows - accepted))
        or seen.rows not in (0, rows)
        or (type(seen.decided_by), type(seen.one_vs_rest)) != (str, bool)
        or not 0 <= envelope.read_number(seen.sum_error) < float("inf")
        or not _adds_up(found)
    ):
        message = f"expected counts of rows, got {envelope.shown(entry)}."
        raise FileError(message)
    return found


def _adds_up(found: Outcome) -> bool:
    """Tell whether no two counts of an outcome contradict each other."""
    counts, seen = found.counts or Confusion(0, 0, 0, 0), found.intake
    rejected, labelled = found.rows - found.accepted, counts.n_rejected
    return (
        counts.n_accepted <= found.accepted
        and labelled <= rejected
        and seen.always_rejected <= rejected
        and seen.unanswered + seen.overruled <= found.rows
        and (seen.decided_by != "" or not seen.overruled)
        and seen.rows in (0, counts.n + seen.unlabelled)
        and (found.lists is None or found.lists.labelled == labelled)
    )


def _lists(entry: list[Any]) -> ListCounts:
    rows, classes, full, labelled, held = entry
    return ListCounts(rows, classes, full, labelled, held)


def _can_be(lists: ListCounts, rejected: int) -> bool:
    """Tell whether so many rejected rows can have such lists."""
    sizes = [
        lists.rows,
        lists.classes,
        lists.full_reviews,
        lists.labelled,
        lists.with_true_class,
    ]
    return (
        all(type(one) is int for one in sizes)
        and lists.rows == rejected <= lists.classes
        and 0 <= lists.full_reviews <= rejected
        and 0 <= lists.with_true_class <= lists.labelled <= rejected
    )
