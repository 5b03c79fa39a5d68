"""The memory of a watch: a record per update, and the ids that were counted."""

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec

from trustdoctor.envelope import Count, Document, Rate
from trustdoctor.watch.rate_tests import RateEstimate, Time

if TYPE_CHECKING:
    import polars as pl

COUNTED, DRAWN, SETTLED, NOT_DRAWN, EXPIRED = range(5)
"""The status of a row in the ledger: counted, and a label may come; drawn for review,
and its label is waited for; its label was counted; not drawn for review, so that its
label does not count; expired, as its label did not come in time."""

LogEvidence = Annotated[float, msgspec.Meta(gt=-1e300, lt=1e300)]


class HistoryEntry(Document, frozen=True):
    """What an update counted, and how every test stood after it.

    Attributes
    ----------
    time : float
        In seconds since 1970.
    kind : str
        "update", or "labels" if only late labels were counted.
    batch : str
        Its name; empty if it has none.
    rows, accepted : int
        Rows counted, and those of them that the gate accepts.
    repeated : int
        Rows that an earlier update counted, and this one did not.
    labels : int
        Labels counted.
    unresolved : int
        Reviewed rows that will not get a label: their deadline passed, or nobody can
        decide.
    waiting : int
        Rows drawn for review that wait for a label.
    ignored_labels : int
        Labels that do not count, as their rows were not drawn for review.
    evidence : dict of str to float
        Of each test: the logarithm of its evidence.
    estimates : dict of str to RateEstimate
        Of each test; of a test with groups by "name[group]", for the groups with the
        largest evidence.
    alarms : tuple of str
        The tests that alarmed with this update.
    expected : dict of str to (float, float, float)
        Accuracy and risk that the model expects of itself, with intervals. No
        guarantee.
    """

    time: Time
    kind: Literal["update", "labels"]
    batch: str = ""
    rows: Count = 0
    accepted: Count = 0
    repeated: Count = 0
    labels: Count = 0
    unresolved: Count = 0
    waiting: Count = 0
    ignored_labels: Count = 0
    evidence: dict[str, LogEvidence] = msgspec.field(default_factory=dict)
    estimates: dict[str, RateEstimate] = msgspec.field(default_factory=dict)
    alarms: tuple[str, ...] = ()
    expected: dict[str, tuple[Rate, Rate, Rate]] = msgspec.field(default_factory=dict)

    @property
    def when(self) -> datetime:
        """The time, in UTC."""
        return datetime.fromtimestamp(self.time, UTC)

    def to_dict(self) -> dict[str, Any]:
        """Return the entry as plain values."""
        return dict(msgspec.to_builtins(self))


class Totals(Document, frozen=True):
    """Sums over all updates; see `HistoryEntry`."""

    updates: Count = 0
    rows: Count = 0
    accepted: Count = 0
    repeated: Count = 0
    labels: Count = 0
    unresolved: Count = 0
    ignored_labels: Count = 0

    def add(self, entry: HistoryEntry) -> "Totals":
        """Add an update."""
        counts = msgspec.structs.asdict(self)
        return Totals(
            counts.pop("updates") + 1,
            **{name: count + getattr(entry, name) for name, count in counts.items()},
        )


_COLUMNS = (
    *("batch", "rows", "accepted", "repeated", "labels", "unresolved", "waiting"),
    "ignored_labels",
)


def as_table(entries: Iterable[HistoryEntry]) -> "pl.DataFrame":
    """Return entries as a table: one row per update, in order.

    For each test its evidence (`frr_evidence`, a logarithm), and its estimate with its
    interval (`frr`, `frr_low`, `frr_high`).
    """
    import polars as pl

    rows = [_table_row(entry) for entry in entries]
    names = list(dict.fromkeys(name for row in rows for name in row))
    return pl.DataFrame({name: [row.get(name) for row in rows] for name in names})


def _table_row(entry: HistoryEntry) -> dict[str, Any]:
    row: dict[str, Any] = {"time": entry.when, "kind": entry.kind}
    row |= {name: getattr(entry, name) for name in _COLUMNS}
    row["alarms"] = ", ".join(entry.alarms)
    for name, log_evidence in entry.evidence.items():
        row[f"{name}_evidence"] = log_evidence
    for name, estimate in entry.estimates.items():
        rate = f"{name}_rate" if name in row else name  # "accepted" is a count, too
        row |= {
            rate: estimate.value,
            f"{rate}_low": estimate.low,
            f"{rate}_high": estimate.high,
        }
    for name, (value, low, high) in entry.expected.items():
        rate = f"expected_{name}"
        row |= {rate: value, f"{rate}_low": low, f"{rate}_high": high}
    return row


class Ledger:
    """The status of each row and batch by its key, in memory, so that each counts once.

    Keys are "r:" and an id, "b:" and the name of a batch, and "l:" and the name of a
    batch whose labels were counted.
    """

    def __init__(self, statuses: dict[str, int] | None = None) -> None:
        self.statuses = statuses or {}

    def find(self, keys: Iterable[str]) -> list[int | None]:
        """Return the status of each key; None of those that are new."""
        return [self.statuses.get(key) for key in keys]

    def note(self, keys: Iterable[str], status: int) -> None:
        """Set the status of keys."""
        self.statuses.update(dict.fromkeys(keys, status))

    def items(self) -> Iterator[tuple[str, int]]:
        """Yield all keys with their statuses."""
        yield from self.statuses.items()
