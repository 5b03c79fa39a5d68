"""What is in force: the counter of positions, the gates, the review rates."""

from collections.abc import Mapping
from dataclasses import dataclass

from msgspec.structs import asdict

from trustdoctor.errors import InputError
from trustdoctor.gates import Gate
from trustdoctor.service.problems import ProblemError
from trustdoctor.service.scoring import Version
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
    """The one row that all changes go through.

    Attributes
    ----------
    position : int
        The last one given out. Positions rise in the order of commits, because whoever
        gives one out holds the lock until its commit.
    current : int
        The version of the gate that decides.
    shadow : int or None
        That of a candidate that decides beside it.
    rates : int
        The number of the review rates.
    review : Review
    """

    position: int
    current: int
    shadow: int | None
    rates: int
    review: Review


def read_head(session: Session) -> Head:
    """Return what is in force."""
    position, current, shadow, rates, rejected, accepted = session.rows(_HEAD)[0]
    review = DEFAULT_REVIEW if rejected is None else Review(rejected, accepted)
    return Head(position, current, shadow, rates, review)


def lock_head(session: Session) -> Head:
    """Return what is in force, and let nobody else change it in this transaction."""
    session.lock()
    return read_head(session)


def next_position(session: Session, n: int = 1) -> int:
    """Give out `n` positions; return the first."""
    session.lock()
    session.run("UPDATE head SET last_position = last_position + ?", n)
    return int(session.rows("SELECT last_position FROM head")[0][0]) - n + 1


WAITING = ("waiting rejected", "waiting accepted")
"""Counts of the queue, kept so that nobody has to count it."""


def count_review(session: Session, what: str, rows: int = 1) -> None:
    """Count what waits for people, and what they say."""
    session.run(
        "INSERT INTO review_counts VALUES (?, ?) ON CONFLICT (name) "
        "DO UPDATE SET rows = review_counts.rows + excluded.rows",
        what,
        rows,
    )


def as_version(text: str) -> int:
    """Read the number of a version."""
    if text.isascii() and text.isdigit() and len(text) < 10:
        return int(text)
    message = f"expected the number of a version, got {text[:40]!a}."
    raise ProblemError(404, message)


def last_before(session: Session, at: float) -> int:
    """Return the last position that was stored before a time; 0 where none was.

    Positions rise with time, so a search by halves finds it without reading all.
    """
    (low,) = session.rows("SELECT min(position) FROM rows")[0]
    if low is None:
        return 0
    high = read_head(session).position
    low -= 1
    while low < high:
        middle = (low + high + 1) // 2
        found = session.rows(
            "SELECT decided_at FROM rows WHERE position <= ? ORDER BY position DESC "
            "LIMIT 1",
            middle,
        )
        if found and found[0][0] < at:
            low = middle
        else:
            high = middle - 1
    exact = session.rows("SELECT max(position) FROM rows WHERE position <= ?", low)
    return int(exact[0][0] or 0)


class Versions:
    """The gates of a store, each read once."""

    def __init__(self) -> None:
        self._known: dict[int, Version] = {}

    def get(self, session: Session, number: int) -> Version:
        """Return a version, or say that there is none."""
        if number not in self._known:
            found = session.rows("SELECT document FROM gates WHERE version = ?", number)
            if not found:
                message = (
                    f"expected the version of a gate, got {number}. GET /v1/gates "
                    "lists them."
                )
                raise ProblemError(404, message)
            self._known[number] = Version(number, Gate.from_json(found[0][0]))
        return self._known[number]


def require_useful(gate: Gate) -> None:
    """Refuse a gate that rejects or accepts every row, and say why it does."""
    if gate.state == "threshold":
        return
    what = gate.state.replace("-all", "s every row")
    certificate = gate.certificate
    why = (
        f", because {certificate.trivial}"
        if certificate and certificate.trivial
        else ""
    )
    looks = certificate.outlook if certificate else ()
    often = f" It succeeds {looks[-1].words()}." if looks else ""
    message = (
        f"expected a gate that tells rows apart, got one that {what}{why}.{often} Ask "
        "for less, or take more rows."
    )
    raise ProblemError(409, message)


def require_alike(session: Session, gate: Gate) -> None:
    """Refuse a gate that could not decide on the rows that come now."""
    found = session.rows(
        "SELECT g.document FROM head h JOIN gates g ON g.version = h.current_version"
    )
    if not found:
        return
    current = Gate.from_json(found[0][0])
    own, given = (_classes(one) for one in (current, gate))
    sizes = {
        len(k) if isinstance(k, tuple) else k for k in (current.classes, gate.classes)
    }
    if int in map(type, (current.classes, gate.classes)) and len(sizes) == 1:
        return  # one of them knows no names
    bare = {"confidence", "doubt"}
    if current.scorer.needs & bare != gate.scorer.needs & bare:
        own, given = f"rows for {current.score}", f"rows for {gate.score}"
    elif None in (own, given) or own == given:
        return
    message = (
        f"expected a gate for the rows that come now ({own}), got one for others "
        f"({given}). Serve it from a store of its own."
    )
    raise ProblemError(409, message)


def _classes(gate: Gate) -> str | None:
    """Return the classes of a gate in words; None where it knows none."""
    if gate.classes is None:
        return None
    if isinstance(gate.classes, int):
        return f"{gate.classes:,} classes"
    return f"{len(gate.classes):,} classes: {', '.join(sorted(gate.classes)[:20])}"


def add_gate(session: Session, gate: Gate, origin: str, note: str) -> int:
    """Keep a gate as a new version, which nothing uses yet."""
    Version(0, gate)  # which refuses what cannot be served
    session.lock()
    require_alike(session, gate)
    (last,) = session.rows("SELECT max(version) FROM gates")[0]
    version = (last or 0) + 1
    session.insert(
        "gates",
        ("version", "added_at", "origin", "note", "document"),
        [(version, session.now(), origin, note, gate.to_json())],
    )
    session.run("INSERT INTO version_counts VALUES (?, 0, 0, 0)", version)
    return version


def set_current(session: Session, version: int, what: str) -> None:
    """Let a version decide from now on."""
    head = lock_head(session)
    position = next_position(session)
    shadow = None if head.shadow == version else head.shadow
    session.run(
        "UPDATE head SET current_version = ?, shadow_version = ?", version, shadow
    )
    session.insert(
        "gate_changes",
        ("position", "changed_at", "action", "version", "previous_version"),
        [(position, session.now(), what, version, head.current or None)],
    )


def roll_back(session: Session) -> dict[str, int]:
    """Let the version decide that did before the current one was promoted."""
    head = lock_head(session)
    found = session.rows(
        "SELECT previous_version FROM gate_changes WHERE version = ? "
        "AND action IN ('promote', 'start') ORDER BY position DESC LIMIT 1",
        head.current,
    )
    before = found[0][0] if found else None
    if before is None:
        message = (
            f"expected a version before {head.current}, got none: it is the first. "
            "Promote another."
        )
        raise ProblemError(409, message)
    set_current(session, before, "rollback")
    return {"version": before, "before": head.current}


def set_shadow(session: Session, version: int | None) -> None:
    """Let a candidate decide beside the current gate, or no longer."""
    head = lock_head(session)
    if version is not None and version == head.current:
        message = (
            f"expected a candidate, got version {version}, which decides already. "
            "Name another."
        )
        raise ProblemError(409, message)
    position = next_position(session)
    session.run("UPDATE head SET shadow_version = ?", version)
    session.insert(
        "gate_changes",
        ("position", "changed_at", "action", "version", "previous_version"),
        [(position, session.now(), "shadow", version, head.shadow)],
    )


def start_with(session: Session, gate: Gate, review: Mapping[str, float]) -> None:
    """Serve a gate: a new store begins with it; another one has to know it.

    A store that has gone on to a later version stays there.
    """
    head = lock_head(session)
    known = {
        version: Gate.from_json(content)
        for version, content in session.rows("SELECT version, document FROM gates")
    }
    if not known:
        version = add_gate(session, gate, "start", "")
        set_current(session, version, "start")
    elif gate not in known.values():
        message = (
            "expected the gate that this store was begun with, or a later version of "
            f"it, got another (the store is at version {head.current}). Add it to the "
            "running service by POST /v1/gates, or name another --store."
        )
        raise InputError(message)
    set_review(session, review)


def set_review(session: Session, review: Mapping[str, float]) -> None:
    """Draw rows at these rates from now on; what is not given stays."""
    head = lock_head(session)
    asked = Review(**{**asdict(head.review), **review})
    if head.rates and asked == head.review:
        return
    session.insert(
        "review_rates",
        ("number", "rejected", "accepted"),
        [(head.rates + 1, asked.rejected, asked.accepted)],
    )
    session.run("UPDATE head SET review_rates = ?", head.rates + 1)
