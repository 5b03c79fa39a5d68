"""The history of a watch: one record per update."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from trustdoctor.watch.rate_tests import Seen

if TYPE_CHECKING:
    import polars as pl


@dataclass(frozen=True)
class Entry:
    """What an update counted, and how every test stood after it.

    Attributes
    ----------
    time : float
        In seconds since 1970.
    what : str
        "update", or "labels" (late ones).
    batch : str
        Its name; empty where it has none.
    rows, accepted : int
        Rows counted, and how many of these the gate accepts.
    repeated : int
        Rows that were counted before, and not again.
    labels : int
        Labels counted.
    unsaid : int
        Rows given up on: their deadline passed, or nobody can say.
    waiting : int
        Rows drawn for review that wait for a label.
    undrawn : int
        Labels left out, of rows that were not drawn for review.
    evidence : dict of str to float
        Of each test: the logarithm of its evidence.
    estimates : dict of str to Seen
        Of each test; of those with groups by "name[group]", for the groups with the
        largest evidence.
    alarms : tuple of str
        The tests that alarmed now.
    expected : dict of str to (float, float, float)
        Accuracy and risk that the model expects of itself: no guarantee.
    """

    time: float
    what: str
    batch: str = ""
    rows: int = 0
    accepted: int = 0
    repeated: int = 0
    labels: int = 0
    unsaid: int = 0
    waiting: int = 0
    undrawn: int = 0
    evidence: dict[str, float] = field(default_factory=dict)
    estimates: dict[str, Seen] = field(default_factory=dict)
    alarms: tuple[str, ...] = ()
    expected: dict[str, tuple[float, float, float]] = field(default_factory=dict)

    @property
    def when(self) -> datetime:
        """The time, in UTC."""
        return datetime.fromtimestamp(self.time, UTC)


@dataclass(frozen=True)
class Totals:
    """Counts of all updates; see `Entry`."""

    updates: int = 0
    rows: int = 0
    accepted: int = 0
    repeated: int = 0
    labels: int = 0
    unsaid: int = 0
    undrawn: int = 0

    def add(self, entry: Entry) -> "Totals":
        """Count an update."""
        counts = asdict(self)
        return Totals(
            counts.pop("updates") + 1,
            **{name: count + getattr(entry, name) for name, count in counts.items()},
        )


_PLAIN = (
    *("batch", "rows", "accepted", "repeated", "labels", "unsaid", "waiting"),
    "undrawn",
)


def as_table(entries: Iterable[Entry]) -> "pl.DataFrame":
    """Return records as a table: one row per update, in order.

    For each test its evidence (`frr_evidence`, a logarithm), and its estimate with the
    ends of the interval (`frr`, `frr_low`, `frr_high`).
    """
    import polars as pl

    flat = [_flat(entry) for entry in entries]
    names = list(dict.fromkeys(name for row in flat for name in row))
    return pl.DataFrame({name: [row.get(name) for row in flat] for name in names})


def _flat(entry: Entry) -> dict[str, Any]:
    out: dict[str, Any] = {"time": entry.when, "what": entry.what}
    out |= {name: getattr(entry, name) for name in _PLAIN}
    out["alarms"] = ", ".join(entry.alarms)
    for name, value in entry.evidence.items():
        out[f"{name}_evidence"] = value
    for name, seen in entry.estimates.items():
        rate = f"{name}_rate" if name in out else name  # accepted is a count, too
        out |= {rate: seen.value, f"{rate}_low": seen.low, f"{rate}_high": seen.high}
    for name, ends in entry.expected.items():
        rate = f"expected_{name}"
        out |= dict(zip((rate, f"{rate}_low", f"{rate}_high"), ends, strict=True))
    return out
