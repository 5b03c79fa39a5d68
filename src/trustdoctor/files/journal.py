"""Which files of a folder are done, so that a stopped run can be resumed."""

from collections.abc import Iterable
from dataclasses import asdict, astuple
from hashlib import blake2b
from pathlib import Path
from typing import Annotated, Any

import msgspec

from trustdoctor import envelope
from trustdoctor.atomic import locked, write_text
from trustdoctor.envelope import Count
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
        truth_state = [] if truth is None else _file_states([Path(truth)])
        options = [gate.to_json(), repr(source.columns), only or "", *truth_state]
        options += ["for spreadsheets"] if source.for_spreadsheets else []
        self.job = _digest(options)
        self.outcomes: dict[str, Outcome] = {}
        self._targets = plan_targets(source, folder)
        # Taken now, so that a file that changes while it is read is read again.
        self._inputs = {
            file: _file_states(_with_neighbours(file)) for file in self._targets
        }
        self._own_state: list[str] = []

    def begin(self, *, resume: bool) -> None:
        """Load what an earlier run of the same job noted, or forget it."""
        if not resume or self.path.is_symlink():
            self.path.unlink(missing_ok=True)
        elif self.path.exists():
            self.outcomes = self._read()

    def _read(self) -> dict[str, Outcome]:
        try:
            content = envelope.load(
                self.path, "journal", schemas=(SCHEMA,), limit=LIMIT
            )
            document = envelope.convert(content, _JournalDocument)
            outcomes = {key: entry.outcome() for key, entry in document.done.items()}
        except ValueError as error:
            message = (
                f"cannot read the journal {self.path}. Remove it, and run without "
                "--resume."
            )
            raise FileError(message) from error
        if document.job != self.job:
            message = (
                f"{self.path.parent} was written with another gate or other columns. "
                "Choose another folder, or leave --resume out to write it anew."
            )
            raise FileError(message)
        return outcomes

    def find(self, file: Path) -> Outcome | None:
        """Return what was counted in a file, unless it changed or is not done."""
        if self._targets[file].is_symlink():  # the link is to be replaced by a file
            return None
        return self.outcomes.get(self._key(file))

    def note(self, file: Path, outcome: Outcome) -> None:
        """Note that a file is done, beside what other processes note."""
        with locked(self.path):
            # Rereading takes longer the more files are done, so only if another wrote.
            if self.path.exists() and _file_states([self.path]) != self._own_state:
                self.outcomes = self._read() | self.outcomes
            self.outcomes[self._key(file)] = outcome
            entries = {key: _entry(outcome) for key, outcome in self.outcomes.items()}
            content = {"job": self.job, "done": entries}
            write_text(self.path, envelope.dump("journal", SCHEMA, content, indent=0))
            self._own_state = _file_states([self.path])

    def _key(self, file: Path) -> str:
        """Return a digest of what a file was before it was read, and its output now."""
        target = self._targets[file]
        written = _file_states([target]) if target.is_file() else []
        return _digest([str(file.resolve()), *self._inputs[file], *written])


def _with_neighbours(file: Path) -> list[Path]:
    """Return a file, and for an NPY file the arrays beside it, which belong to it."""
    if suffix_of(file) != ".npy":
        return [file]
    others = sorted(other for other in file.parent.glob("*.npy") if other != file)
    return [file, *others]


def _file_states(files: list[Path]) -> list[str]:
    states = [file.stat() for file in files]
    return [f"{state.st_size} {state.st_mtime_ns}" for state in states]


def _digest(words: Iterable[str]) -> str:
    content = "\0".join(words).encode("utf-8", "surrogatepass")
    return blake2b(content, digest_size=12).hexdigest()


def _entry(outcome: Outcome) -> list[Any]:
    """Return counts as a list: a folder may have a million files."""
    counts = None if outcome.counts is None else list(astuple(outcome.counts))
    lists = [] if outcome.lists is None else [list(astuple(outcome.lists))]
    intake = astuple(outcome.intake)
    return [outcome.rows, outcome.accepted, counts, *intake, *lists]


class _JournalEntry(
    msgspec.Struct, array_like=True, frozen=True, forbid_unknown_fields=True
):
    """What `_entry` wrote: an outcome, the fields of its intake, and its lists."""

    rows: Count
    accepted: Count
    counts: tuple[Count, Count, Count, Count] | None
    intake_rows: Count = 0
    unlabelled: Count = 0
    sum_error: Annotated[float, msgspec.Meta(ge=0)] = 0.0
    ambiguous: Count = 0
    unknown_groups: Count = 0
    unanswered: Count = 0
    without_confidence: Count = 0
    overruled: Count = 0
    decided_by: str = ""
    one_vs_rest: bool = False
    lists: tuple[Count, Count, Count, Count, Count] | msgspec.UnsetType = msgspec.UNSET

    def outcome(self) -> Outcome:
        """Return the outcome, refusing counts that contradict each other."""
        intake = Intake(
            self.intake_rows,
            self.unlabelled,
            self.sum_error,
            self.ambiguous,
            self.unknown_groups,
            self.unanswered,
            self.without_confidence,
            self.overruled,
            self.decided_by,
            self.one_vs_rest,
        )
        counts = None if self.counts is None else Confusion(*self.counts)
        lists = None
        if not isinstance(self.lists, msgspec.UnsetType):
            lists = ListCounts(*self.lists)
        outcome = Outcome(self.rows, self.accepted, counts, intake, lists)
        if not _is_consistent(outcome):
            message = f"expected counts of rows, got {envelope.shown(self)}."
            raise FileError(message)
        return outcome


class _JournalDocument(envelope.Document, frozen=True):
    """A journal."""

    schema: int
    job: str
    done: dict[str, _JournalEntry]


def _is_consistent(outcome: Outcome) -> bool:
    """Tell whether no two counts of an outcome contradict each other."""
    counts, intake = outcome.counts or Confusion(0, 0, 0, 0), outcome.intake
    rejected, lists = outcome.rows - outcome.accepted, outcome.lists
    intake_counts = [n for n in asdict(intake).values() if type(n) is int]
    return (
        max(outcome.accepted, *astuple(counts), *intake_counts) <= outcome.rows
        and counts.n_accepted <= outcome.accepted
        and counts.n_rejected <= rejected
        and intake.always_rejected <= rejected
        and intake.unanswered + intake.overruled <= outcome.rows
        and (intake.decided_by != "" or not intake.overruled)
        and intake.rows in (0, outcome.rows)
        and intake.rows in (0, counts.n + intake.unlabelled)
        and (lists is None or lists.labelled == counts.n_rejected)
        and (lists is None or _lists_fit(lists, rejected))
    )


def _lists_fit(lists: ListCounts, rejected: int) -> bool:
    """Tell whether this number of rejected rows can have such lists."""
    return (
        lists.rows == rejected <= lists.classes
        and lists.full_reviews <= rejected
        and lists.with_true_class <= lists.labelled <= rejected
    )
