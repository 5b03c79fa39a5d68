"""One row: all that is known of it, and how it is forgotten."""

from typing import Any

import msgspec

from trustdoctor.gates import PREDICTED
from trustdoctor.service.bodies import as_number
from trustdoctor.service.heads import WAITING, Versions, count_review
from trustdoctor.service.problems import ProblemError
from trustdoctor.service.stores import Session
from trustdoctor.service.times import shown

_ROW = (
    "SELECT r.position, r.at, r.version, r.team, r.predicted, r.doubt, r.accepted, "
    "r.drawn, r.kind, r.payload, r.shortlist FROM ids i JOIN rows r "
    "ON r.position = i.position WHERE i.id = ?"
)


_PERSONAL = (
    *("id", "digest", "doubt", "kind", "answer", "features", "payload", "shortlist"),
    *("label", "shadow"),
)


def _plain(text: str | None) -> Any:
    return None if text is None else msgspec.json.decode(text)


def _find(session: Session, name: str) -> tuple[Any, ...]:
    found = session.rows(_ROW, name)
    if not found:
        message = f"expected the id of a row, got {name!r}, which is not known."
        raise ProblemError(404, message, id=name)
    return found[0]


def find_row(session: Session, name: str) -> dict[str, Any]:
    """Return a decision, and the history of its labels."""
    position, at, version, team, said, doubt, kept, drawn, kind, payload, short = _find(
        session, name
    )
    labels = session.rows(
        "SELECT at, label, wrong, source, author FROM labels WHERE line = ? "
        "ORDER BY position",
        position,
    )
    return {
        "id": name,
        "at": shown(at),
        "version": version,
        "kind": kind,
        "predicted": _plain(said),
        "doubt": as_number(doubt),
        "accepted": bool(kept),
        "review": bool(drawn),
        "group": _plain(team),
        "shortlist": _plain(short),
        "payload": _plain(payload),
        "labels": [
            {
                "at": shown(when),
                "label": _plain(label),
                "correct": {0: True, 1: False}.get(wrong),
                "source": source,
                "by": author,
            }
            for when, label, wrong, source, author in labels
        ],
    }


def forget_row(session: Session, versions: Versions, name: str) -> dict[str, Any]:
    """Remove a person's data: what is left counts, and names nobody.

    The position, the version, and whether the row was accepted, drawn and wrong stay,
    so that the watch is the same when it is computed anew; for a gate with groups, the
    group stays, too.
    """
    position, _, number, *_ = _find(session, name)
    gate = versions.get(session, number).gate
    by_class = gate.grouped_by == PREDICTED
    gone = [
        *([] if gate.groups and not by_class else ["team"]),
        *([] if gate.groups and by_class else ["predicted"]),
    ]
    session.run("DELETE FROM ids WHERE id = ?", name)
    for audit, what in enumerate(WAITING):
        if session.run(
            "DELETE FROM queue WHERE line = ? AND audit = ?", position, audit
        ):
            count_review(session, what, -1)
    empty = ", ".join(f"{column} = NULL" for column in (*_PERSONAL, *gone))
    session.run(f"UPDATE rows SET {empty} WHERE position = ?", position)
    session.run(
        "UPDATE labels SET label = NULL, author = NULL, lease = NULL WHERE line = ?",
        position,
    )
    return {"id": name, "result": "forgotten"}
