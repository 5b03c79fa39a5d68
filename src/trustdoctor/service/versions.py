"""Gate versions, review rates and the position counter."""

from collections.abc import Mapping
from dataclasses import dataclass

from msgspec.structs import asdict

from trustdoctor.errors import InputError
from trustdoctor.gates import Gate
from trustdoctor.service.problems import ProblemError
from trustdoctor.service.scoring import GateVersion
from trustdoctor.service.store import Session
from trustdoctor.watch import Review

DEFAULT_REVIEW = Review(rejected=1.0, accepted=0.02)

_HEAD = (
    "SELECT h.last_position, h.current_version, h.shadow_version, h.review_rates, "
    "r.rejected, r.accepted FROM head h "
    "LEFT JOIN review_rates r ON r.number = h.review_rates"
)


@dataclass
class Head:
    """The one row that all changes lock.

    Attributes
    ----------
    position : int
        The last one given out. Positions rise in the order of commits, because whoever
        takes one holds the lock until its commit.
    current : int
        The version of the gate that decides.
    shadow : int or None
        The version of a candidate that decides beside it, unheard.
    rates_number : int
        Which of the review rates are in force.
    review : Review
        These rates.
    """

    position: int
    current: int
    shadow: int | None
    rates_number: int
    review: Review


def read_head(session: Session) -> Head:
    """Return the position counter, the versions and the rates in force."""
    position, current, shadow, number, rejected, accepted = session.rows(_HEAD)[0]
    review = DEFAULT_REVIEW if rejected is None else Review(rejected, accepted)
    return Head(position, current, shadow, number, review)


def lock_head(session: Session) -> Head:
    """Return the same, and let nobody else change it in this transaction."""
    session.lock()
    return read_head(session)


def next_position(session: Session, n: int = 1) -> int:
    """Take `n` positions; return the first."""
    session.lock()
    session.run("UPDATE head SET last_position = last_position + ?", n)
    return int(session.rows("SELECT last_position FROM head")[0][0]) - n + 1


def last_position_before(session: Session, time: float) -> int:
    """Return the position of the last row decided before a time; 0 if there is none.

    Positions rise with time, so a binary search finds it; `decided_at` has no index.
    """
    (first,) = session.rows("SELECT min(position) FROM rows")[0]
    if first is None:
        return 0
    low, high = first - 1, read_head(session).position
    while low < high:
        middle = (low + high + 1) // 2
        # Not every position is one of a row: labels and promotions take some, too.
        row = session.rows(
            "SELECT decided_at FROM rows WHERE position <= ? "
            "ORDER BY position DESC LIMIT 1",
            middle,
        )
        if row and row[0][0] < time:
            low = middle
        else:
            high = middle - 1
    (last,) = session.rows("SELECT max(position) FROM rows WHERE position <= ?", low)[0]
    return int(last or 0)


WAITING = ("waiting rejected", "waiting accepted")
"""Names of counts: rows in the review queue, by whether the gate accepted them."""


def count_review(session: Session, name: str, rows: int = 1) -> None:
    """Add to a count of the review queue, so that nobody has to scan it."""
    session.run(
        "INSERT INTO review_counts VALUES (?, ?) ON CONFLICT (name) "
        "DO UPDATE SET rows = review_counts.rows + excluded.rows",
        name,
        rows,
    )


def parse_version(text: str) -> int:
    """Return the number of a version."""
    if text.isascii() and text.isdigit() and len(text) < 10:
        return int(text)
    message = f"expected the number of a version, got {text[:40]!a}."
    raise ProblemError(404, message)


class GateVersions:
    """The gates of a store, each read once: a version never changes."""

    def __init__(self) -> None:
        self._versions: dict[int, GateVersion] = {}

    def get(self, session: Session, number: int) -> GateVersion:
        """Return a version, or say that there is none."""
        if number not in self._versions:
            rows = session.rows("SELECT document FROM gates WHERE version = ?", number)
            if not rows:
                message = (
                    f"expected the version of a gate, got {number}. GET /v1/gates "
                    "lists them."
                )
                raise ProblemError(404, message)
            self._versions[number] = GateVersion(number, Gate.from_json(rows[0][0]))
        return self._versions[number]


def require_useful(gate: Gate) -> None:
    """Refuse a gate that rejects or accepts every row, and say why it does."""
    if gate.state == "threshold":
        return
    does = gate.state.replace("-all", "s every row")
    certificate = gate.certificate
    why, outlook = "", ""
    if certificate and certificate.trivial:
        why = f", because {certificate.trivial}"
    if certificate and certificate.outlook:
        outlook = f" It succeeds {certificate.outlook[-1].words()}."
    message = (
        f"expected a gate that tells rows apart, got one that {does}{why}.{outlook} "
        "Ask for less, or take more rows."
    )
    raise ProblemError(409, message)


def require_same_rows(session: Session, gate: Gate) -> None:
    """Refuse a gate that could not decide on the rows that the current one gets."""
    rows = session.rows(
        "SELECT g.document FROM head h JOIN gates g ON g.version = h.current_version"
    )
    if not rows:
        return
    current = Gate.from_json(rows[0][0])
    classes = current.classes, gate.classes
    sizes = {len(names) if isinstance(names, tuple) else names for names in classes}
    if int in map(type, classes) and len(sizes) == 1:
        return  # one of them knows only the number of classes
    scalars = {"confidence", "doubt"}
    if current.require_score().needs & scalars != gate.require_score().needs & scalars:
        expected, got = f"rows for {current.score_name}", f"rows for {gate.score_name}"
    elif None in classes or _class_set(current) == _class_set(gate):
        return
    else:
        expected, got = _class_list(current), _class_list(gate)
    message = (
        f"expected a gate for the rows that come now ({expected}), got one for others "
        f"({got}). Serve it from a store of its own."
    )
    raise ProblemError(409, message)


def _class_set(gate: Gate) -> set[str] | int | None:
    return set(gate.classes) if isinstance(gate.classes, tuple) else gate.classes


def _class_list(gate: Gate) -> str:
    """Return the classes of a gate in words."""
    if isinstance(gate.classes, tuple):
        names = sorted(gate.classes)[:20]
        return f"{len(gate.classes):,} classes: {', '.join(names)}"
    return f"{gate.classes:,} classes"


def add_gate(session: Session, gate: Gate, origin: str, note: str) -> int:
    """Store a gate as a new version, which nothing uses yet."""
    GateVersion(0, gate)  # which refuses what cannot be served
    session.lock()
    require_same_rows(session, gate)
    (last,) = session.rows("SELECT max(version) FROM gates")[0]
    version = (last or 0) + 1
    session.insert(
        "gates",
        ("version", "added_at", "origin", "note", "document"),
        [(version, session.now(), origin, note, gate.to_json())],
    )
    session.run("INSERT INTO version_counts VALUES (?, 0, 0, 0)", version)
    return version


def _add_change(
    session: Session, action: str, version: int | None, previous: int | None
) -> None:
    session.insert(
        "gate_changes",
        ("position", "changed_at", "action", "version", "previous_version"),
        [(next_position(session), session.now(), action, version, previous)],
    )


def set_current(session: Session, version: int, action: str) -> None:
    """Let a version decide from now on."""
    head = lock_head(session)
    shadow = None if head.shadow == version else head.shadow
    session.run(
        "UPDATE head SET current_version = ?, shadow_version = ?", version, shadow
    )
    _add_change(session, action, version, head.current or None)


def roll_back(session: Session) -> dict[str, int]:
    """Let the version decide that did before the current one was promoted."""
    head = lock_head(session)
    promotions = session.rows(
        "SELECT previous_version FROM gate_changes WHERE version = ? "
        "AND action IN ('promote', 'start') ORDER BY position DESC LIMIT 1",
        head.current,
    )
    previous = promotions[0][0] if promotions else None
    if previous is None:
        message = (
            f"expected a version before {head.current}, got none: it is the first. "
            "Promote another."
        )
        raise ProblemError(409, message)
    set_current(session, previous, "rollback")
    return {"version": previous, "before": head.current}


def set_shadow(session: Session, version: int | None) -> None:
    """Let a candidate decide beside the current gate, or no longer."""
    head = lock_head(session)
    if version is not None and version == head.current:
        message = (
            f"expected a candidate, got version {version}, which decides already. "
            "Name another."
        )
        raise ProblemError(409, message)
    session.run("UPDATE head SET shadow_version = ?", version)
    _add_change(session, "shadow", version, head.shadow)


def start_with(session: Session, gate: Gate, review: Mapping[str, float]) -> None:
    """Serve a gate: a new store begins with it; another one has to hold it already.

    A store that has gone on to a later version stays there.
    """
    head = lock_head(session)
    gates = [
        Gate.from_json(document)
        for (document,) in session.rows("SELECT document FROM gates")
    ]
    if not gates:
        version = add_gate(session, gate, "start", "")
        set_current(session, version, "start")
    elif gate not in gates:
        message = (
            "expected the gate that this store was begun with, or a later version of "
            f"it, got another (the store is at version {head.current}). Add it to the "
            "running service by POST /v1/gates, or name another --store."
        )
        raise InputError(message)
    set_review_rates(session, review)


def set_review_rates(session: Session, review: Mapping[str, float]) -> None:
    """Draw rows at these rates from now on; a rate that is missing stays."""
    head = lock_head(session)
    rates = Review(**{**asdict(head.review), **review})
    if head.rates_number and rates == head.review:
        return
    number = head.rates_number + 1
    session.insert(
        "review_rates",
        ("number", "rejected", "accepted"),
        [(number, rates.rejected, rates.accepted)],
    )
    session.run("UPDATE head SET review_rates = ?", number)
