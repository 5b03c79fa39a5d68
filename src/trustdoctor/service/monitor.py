"""Watches that follow what is stored: each row is one update, in order of positions.

A step reads what was stored since the last one and writes down how far it came, and
when. The watch is a function of the stored rows and steps alone, so whoever takes the
steps again from a checkpoint comes to the same watch, bit for bit.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
from msgspec.structs import replace

from trustdoctor.errors import InputError
from trustdoctor.gates import Gate
from trustdoctor.service.settings import Settings
from trustdoctor.service.store import Session
from trustdoctor.service.versions import GateVersions
from trustdoctor.watch import (
    HistoryEntry,
    Review,
    StreamLabels,
    StreamRows,
    Watch,
    follow,
    from_state,
    to_state,
)

LARGEST = 50_000
"""Positions that one step takes."""

_ROWS = (  # as few columns as tell it: each costs as much as the row
    "SELECT position, 4 * review_rates + 2 * drawn + accepted{} FROM rows "
    "WHERE position > ? AND position <= ? AND version = ? ORDER BY position"
)
_LABELS = (
    "SELECT row_position, judgement FROM labels WHERE position > ? AND position <= ? "
    "AND version = ? AND counted = 1 ORDER BY position"
)


@dataclass
class Followed:
    """The watch of one version, and how far it has come.

    Attributes
    ----------
    version, number, upto : int
        The gate; steps so far; the position up to which rows are counted.
    watch : Watch
    saved : float
        When its state was last stored, by the database's clock.
    minute : int
        That of its last step.
    """

    version: int
    watch: Watch
    number: int = 0
    upto: int = 0
    saved: float = 0.0
    minute: int = -1


@dataclass(frozen=True)
class Step:
    """What a watch saw since its last step.

    Attributes
    ----------
    version, number, upto : int
        As in `Followed`, after it.
    at : float
        When it was taken.
    entry : HistoryEntry
    shown : bool
        Whether charts show it: the first of every minute, and alarms.
    """

    version: int
    number: int
    upto: int
    at: float
    entry: HistoryEntry
    shown: bool = True


def begin(gate: Gate, settings: Settings, review: Review) -> Watch | None:
    """Return the watch of a gate; None of one that promises nothing."""
    if gate.certificate is None:
        return None
    return Watch.start(
        gate,
        level=settings.level,
        review=review,
        deadline=settings.deadline,
        label_noise=settings.label_noise,
    )


def load(
    session: Session, versions: GateVersions, version: int, *, anew: bool = False
) -> Followed | None:
    """Return a watch as it is stored; `anew` takes all steps since the checkpoint."""
    table = "watch_checkpoints" if anew else "watch_states"
    found = session.rows(
        f"SELECT step, position, state FROM {table} WHERE version = ?", version
    )
    if not found:
        return None
    number, upto, text = found[0]
    gate = versions.get(session, version).gate
    followed = Followed(version, from_state(text, gate), number, upto)
    for step, last, at in session.rows(
        "SELECT step, position, taken_at FROM watch_steps WHERE version = ? "
        "AND step > ? ORDER BY step",
        version,
        number,
    ):
        advance(followed, read_since(session, followed, last), at)
        if followed.number != step:
            message = (
                f"expected step {followed.number} of version {version}, got {step}."
            )
            raise InputError(message)
    return followed


@dataclass(frozen=True)
class Since:
    """What was stored since the last step, up to a position."""

    upto: int
    rows: list[StreamRows]
    labels: StreamLabels

    def __bool__(self) -> bool:
        """Tell whether there is anything to count."""
        return bool(self.rows) or len(self.labels.keys) > 0


def read_since(session: Session, followed: Followed, upto: int) -> Since:
    """Read what was stored up to a position."""
    between = followed.upto, upto, followed.version
    gate = followed.watch.gate
    group = ""
    if gate.groups:
        group = ", predicted" if gate.grouped_by == "predicted" else ", group_name"
    rows = _arrived(session, session.rows(_ROWS.format(group), *between))
    said = np.array(session.rows(_LABELS, *between), np.int64).reshape(-1, 2)
    return Since(upto, rows, StreamLabels(said[:, 0], said[:, 1]))


def advance(followed: Followed, since: Since, at: float) -> Step:
    """Count what was stored up to a position."""
    upto = since.upto
    entry = follow(followed.watch, since.rows, since.labels, at)
    entry = replace(entry, evidence=shown_evidence(followed.watch, entry.alarms))
    followed.watch.entries.clear()
    followed.number += 1
    followed.upto = upto
    minute = int(at // 60)
    shown = bool(entry.alarms) or minute != followed.minute
    followed.minute = minute
    return Step(followed.version, followed.number, upto, at, entry, shown)


def _arrived(session: Session, rows: list[Any]) -> list[StreamRows]:
    """Return rows in runs of the same review rates."""
    if not rows:
        return []
    columns = zip(*rows, strict=True)
    position, code = np.array(next(columns)), np.array(next(columns))
    accepted, drawn, rates = code & 1, code >> 1 & 1, code >> 2
    said = next(columns, None)
    groups = None if said is None else np.array([*map(msgspec.json.decode, said)])
    ends = np.flatnonzero(np.diff(rates)) + 1
    out = []
    for own in np.split(np.arange(len(rows)), ends):
        review = Review(
            *session.rows(
                "SELECT rejected, accepted FROM review_rates WHERE number = ?",
                int(rates[own[0]]),
            )[0]
        )
        chosen = drawn[own] == 1
        out.append(
            StreamRows(
                accepted[own] == 1,
                chosen,
                position[own][chosen],
                review,
                None if groups is None else groups[own],
            )
        )
    return out


def shown_evidence(watch: Watch, alarms: Sequence[str] = ()) -> dict[str, float]:
    """Return the evidence to show: rows that wait for labels take none of it away.

    Where a test alarms now, it is the evidence by which it does.
    """
    return {
        name: test.peak if name in alarms else max(test.settled_evidence, test.evidence)
        for name, test in watch.tests.items()
    }


def last_row(session: Session, version: int, position: int) -> int:
    """Return the position after which no row of a version is stored.

    Rows are of the version that was current, so no row has to be looked at.
    """
    ends = session.rows(
        "SELECT max(position) FROM gate_changes WHERE previous_version = ?", version
    )
    (current,) = session.rows("SELECT current_version FROM head")[0]
    return position if current == version else int(ends[0][0] or 0)


def is_overdue(followed: Followed, now: float) -> bool:
    """Tell whether a row waits longer for its label than it may."""
    watch = followed.watch
    oldest = watch.queue.oldest
    return (
        watch.deadline is not None
        and oldest is not None
        and oldest < now - watch.deadline
    )


def store_step(session: Session, step: Step, summary: str) -> bool:
    """Write a step down; False where another replica has taken it."""
    before = step.number - 1
    changed = session.run(
        "UPDATE watches SET step = ?, position = ?, summary = ? "
        "WHERE version = ? AND step = ?",
        step.number,
        step.upto,
        summary,
        step.version,
        before,
    )
    if changed != 1:
        return False
    session.insert(
        "watch_steps",
        ("version", "step", "position", "taken_at", "entry", "charted"),
        [(step.version, step.number, step.upto, step.at, _text(step), int(step.shown))],
    )
    return True


def _text(step: Step) -> str:
    return json.dumps(step.entry.to_dict(), allow_nan=False)


def store_first(session: Session, version: int, watch: Watch) -> Followed:
    """Begin to follow: what it starts from is kept."""
    followed = Followed(version, watch, 0, 0, session.now())
    session.insert(
        "watches", ("version", "step", "position", "summary"), [(version, 0, 0, "null")]
    )
    save_checkpoint(session, followed, to_state(watch))
    return followed


def save(
    session: Session, followed: Followed, text: str, table: str = "watch_states"
) -> bool:
    """Store a state, so that a restart takes few steps again.

    `text` is `to_state` of the watch, made before: it may take long. False where
    another replica has stored a later one.
    """
    changed = session.run(
        f"INSERT INTO {table} VALUES (?, ?, ?, ?, ?) ON CONFLICT (version) "
        "DO UPDATE SET step = excluded.step, position = excluded.position, "
        "stored_at = excluded.stored_at, state = excluded.state "
        f"WHERE {table}.step <= excluded.step",
        followed.version,
        followed.number,
        followed.upto,
        session.now(),
        text,
    )
    return changed == 1


def save_checkpoint(session: Session, followed: Followed, text: str) -> None:
    """Store the state that steps are taken anew from; earlier rows may then go."""
    first = save(session, followed, text)
    if not first or not save(session, followed, text, "watch_checkpoints"):
        return
    # Of earlier steps one per minute stays, for the charts.
    session.run(
        "DELETE FROM watch_steps WHERE version = ? AND step <= ? AND charted = 0",
        followed.version,
        followed.number,
    )
