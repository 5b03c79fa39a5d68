"""The queue of rows that people review: each is leased to one of them at a time."""

from secrets import token_hex
from typing import Any, Literal

import msgspec

from trustdoctor.service.labels import (
    Result,
    Said,
    check_said,
    find_rows,
    judge,
    label_rows,
)
from trustdoctor.service.problems import ProblemError
from trustdoctor.service.schemas import Name, checked_name, json_number
from trustdoctor.service.settings import Limits
from trustdoctor.service.store import Session
from trustdoctor.service.times import shown
from trustdoctor.service.versions import WAITING, GateVersions, count_review

SKIPPED = 200
"""Rows that a request may leave out at most."""

LONGEST = 86400.0
"""Seconds of a lease at most."""

_ORDERS = {
    "oldest": "q.position",
    "doubt": "q.doubt DESC, q.position",
    "audit": "q.accepted DESC, q.position",
}
_FREE = (
    "SELECT q.position, q.id, q.doubt, q.accepted, r.predicted, r.shortlist, "
    "r.payload, r.group_name, r.decided_at, r.version FROM review_queue q "
    "JOIN rows r ON r.position = q.position "
    "WHERE (q.leased_until <= ? OR q.leased_until > ?) AND q.id NOT IN {} "
    "ORDER BY {} LIMIT ?"
)


class LeaseRequest(msgspec.Struct, forbid_unknown_fields=True):
    """Who wants rows, and which."""

    reviewer: str = ""
    order: Literal["oldest", "doubt", "audit"] = "oldest"
    count: int = 1
    seconds: float = 300.0
    skip: list[Name] = []


class AnswerRequest(msgspec.Struct, forbid_unknown_fields=True):
    """What a reviewer says of a leased row."""

    id: Name
    lease: str
    label: Name | None = None
    correct: bool | None = None
    cannot_say: bool = False
    release: bool = False


_lease = msgspec.json.Decoder(LeaseRequest)
_answer = msgspec.json.Decoder(AnswerRequest)


def read_lease(body: bytes, limits: Limits) -> LeaseRequest:
    """Read a request for rows."""
    asked = _lease.decode(body or b"{}")
    if not 1 <= asked.count <= 100 or not 1 <= asked.seconds <= LONGEST:
        message = (
            f"expected a count of 1 to 100 and 1 to {LONGEST:,.0f} seconds, got "
            f"{asked.count} and {asked.seconds:g}."
        )
        raise ProblemError(400, message)
    if asked.reviewer:
        checked_name(asked.reviewer, "entry", limits)
    if len(asked.skip) > SKIPPED:
        message = f"expected {SKIPPED} ids to skip at most, got {len(asked.skip)}."
        raise ProblemError(400, message)
    asked.skip = [checked_name(one, "id", limits) for one in asked.skip]
    return asked


def read_answer(body: bytes, limits: Limits) -> AnswerRequest:
    """Read what a reviewer says."""
    said = _answer.decode(body)
    said.id = checked_name(said.id, "id", limits)
    checked_name(said.lease, "entry", limits)
    if said.release and (said.label, said.correct, said.cannot_say) == (
        None,
        None,
        False,
    ):
        return said
    if said.release:
        message = "expected an answer or release, got both. Send one."
        raise ProblemError(400, message)
    check_said(Said(said.id, said.label, said.correct, said.cannot_say), limits)
    return said


def lease_rows(
    session: Session, versions: GateVersions, asked: LeaseRequest
) -> dict[str, Any]:
    """Lease the next rows: nobody else gets them until the lease ends."""
    now = session.now()
    order = _ORDERS[asked.order]
    longest = now + 2 * LONGEST  # no lease lasts so long: the clock was ahead
    among, skipped = session.in_list(list(map(str, asked.skip)))
    found = session.rows(_FREE.format(among, order), now, longest, skipped, asked.count)
    until, out = now + asked.seconds, []
    for line, name, doubt, audit, said, short, payload, team, at, number in found:
        lease = token_hex(12)
        session.run(
            "UPDATE review_queue SET lease = ?, leased_until = ?, reviewer = ? "
            "WHERE position = ?",
            lease,
            until,
            asked.reviewer,
            line,
        )
        classes = versions.get(session, number).gate.classes
        out.append(
            {
                "id": name,
                "lease": lease,
                "until": shown(until),
                "kind": "audit" if audit else "rejected",
                "doubt": json_number(doubt),
                "predicted": _plain(said),
                "shortlist": _plain(short),
                "classes": classes,
                "payload": _plain(payload),
                "group": _plain(team),
                "at": shown(at),
                "version": number,
            }
        )
    return {"rows": out, "waiting": sum(waiting(session))}


def waiting(session: Session) -> tuple[int, int]:
    """Return how many rejected rows, and how many audited ones, wait for people."""
    found = session.rows("SELECT name, rows FROM review_counts")
    counts = {what: rows for what, rows in found}  # noqa: C416
    rejected, audit = (counts.get(what, 0) for what in WAITING)
    return rejected, audit


def _plain(text: str | None) -> Any:
    return None if text is None else msgspec.json.decode(text)


def answer_row(
    session: Session,
    versions: GateVersions,
    said: AnswerRequest,
    deadline: float | None = None,
) -> dict[str, Any]:
    """Take the answer of whoever holds the lease, or give the row back."""
    name = str(said.id)
    one = Said(name, said.label, said.correct, said.cannot_say)
    found = session.rows(
        "SELECT q.lease, q.position, q.reviewer FROM ids i JOIN review_queue q "
        "ON q.position = i.position WHERE i.id = ?",
        name,
    )
    if not found:
        return _answered_before(session, versions, said, one)
    lease, line, reviewer = found[0]
    if lease != said.lease:
        message = (
            f"expected the lease of row {name!r}, got one that has ended: somebody "
            "else has the row, or it went back into the queue. Lease another."
        )
        raise ProblemError(409, message, id=name)
    if said.release:
        session.run(
            "UPDATE review_queue SET lease = NULL, leased_until = 0, reviewer = NULL "
            "WHERE position = ?",
            line,
        )
        return {"id": name, "result": "released"}
    (done,) = label_rows(
        session,
        versions,
        [one],
        source="review",
        author=reviewer,
        lease=lease,
        deadline=deadline,
    )
    _require_taken(done)
    count_review(session, "undecided" if said.cannot_say else "labelled")
    return {"id": name, "result": done.result}


def _answered_before(
    session: Session, versions: GateVersions, said: AnswerRequest, one: Said
) -> dict[str, Any]:
    """Answer a repetition as the first time; anything else is too late."""
    name = str(said.id)
    row = find_rows(session, [name]).get(name)
    if row is None:
        message = f"expected the id of a leased row, got {name!r}, which is not known."
        raise ProblemError(404, message, id=name)
    by_lease = session.rows(
        "SELECT label, judgement FROM labels WHERE row_position = ? AND lease = ?",
        row.position,
        said.lease,
    )
    if by_lease and not said.release:
        label, wrong = judge(versions.get(session, row.version), row, one)
        if tuple(by_lease[0]) == (label, wrong):
            return {"id": name, "result": "repeated"}
    why = "it has its label" if row.drawn else "it was not drawn for review"
    message = f"row {name!r} is not in the queue: {why}. Lease another."
    raise ProblemError(409, message, id=name)


def _require_taken(done: Result) -> None:
    if done.result == "refused":
        raise ProblemError(400, done.why or "the label was refused.")
