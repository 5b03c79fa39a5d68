"""The queue of rows that people review: each is leased to one of them at a time."""

from secrets import token_hex
from typing import Annotated, Any, Literal

import msgspec

from trustdoctor.service.labels import (
    LabelOrigin,
    RowLabel,
    check_label,
    find_rows,
    judge_row,
    label_rows,
)
from trustdoctor.service.problems import ProblemError
from trustdoctor.service.schemas import Name, checked_name, described, json_number
from trustdoctor.service.settings import Limits
from trustdoctor.service.store import Session
from trustdoctor.service.times import format_time
from trustdoctor.service.versions import WAITING, GateVersions, count_review

MOST_SKIPPED = 200
"""Rows that a request may leave out."""

MOST_LEASED = 100
"""Rows that a request gets."""

LONGEST_LEASE = 86400.0
"""Seconds."""

_ORDERS = {
    "oldest": "q.position",
    "doubt": "q.doubt DESC, q.position",
    "audit": "q.accepted DESC, q.position",
}
_FREE_ROWS = (
    "SELECT q.position, q.id, q.doubt, q.accepted, r.predicted, r.shortlist, "
    "r.payload, r.group_name, r.decided_at, r.version FROM review_queue q "
    "JOIN rows r ON r.position = q.position "
    "WHERE (q.leased_until <= ? OR q.leased_until > ?) AND q.id NOT IN {} "
    "ORDER BY {} LIMIT ?"
)


class LeaseRequest(msgspec.Struct, forbid_unknown_fields=True):
    """Who wants rows, and which."""

    reviewer: Annotated[str, described(maxLength=200)] = ""
    order: Annotated[
        Literal["oldest", "doubt", "audit"],
        described("doubt: the most doubtful first; audit: accepted rows first."),
    ] = "oldest"
    count: Annotated[int, described(minimum=1, maximum=MOST_LEASED)] = 1
    seconds: Annotated[
        float, described("Of the leases.", minimum=1, maximum=LONGEST_LEASE)
    ] = 300.0
    skip: Annotated[
        list[Name], described("Rows not wanted now.", maxItems=MOST_SKIPPED)
    ] = []


class AnswerRequest(msgspec.Struct, forbid_unknown_fields=True):
    """What a reviewer says of a leased row."""

    id: Name
    lease: Annotated[str, described("As leased.", minLength=1, maxLength=200)]
    label: Name | None = None
    correct: bool | None = None
    cannot_say: bool = False
    release: Annotated[bool, described("Give the row back.")] = False

    def row_label(self) -> RowLabel:
        """Return the answer as a label."""
        return RowLabel(str(self.id), self.label, self.correct, self.cannot_say)


_lease_decoder = msgspec.json.Decoder(LeaseRequest)
_answer_decoder = msgspec.json.Decoder(AnswerRequest)


def read_lease(body: bytes, limits: Limits) -> LeaseRequest:
    """Read a request for rows."""
    request = _lease_decoder.decode(body or b"{}")
    is_count = 1 <= request.count <= MOST_LEASED
    if not is_count or not 1 <= request.seconds <= LONGEST_LEASE:
        message = (
            f"expected a count of 1 to {MOST_LEASED} and 1 to {LONGEST_LEASE:,.0f} "
            f"seconds, got {request.count} and {request.seconds:g}."
        )
        raise ProblemError(400, message)
    if request.reviewer:
        checked_name(request.reviewer, "entry", limits)
    if len(request.skip) > MOST_SKIPPED:
        message = (
            f"expected {MOST_SKIPPED} ids to skip at most, got {len(request.skip)}."
        )
        raise ProblemError(400, message)
    request.skip = [checked_name(name, "id", limits) for name in request.skip]
    return request


def read_answer(body: bytes, limits: Limits) -> AnswerRequest:
    """Read what a reviewer says."""
    answer = _answer_decoder.decode(body)
    answer.id = checked_name(answer.id, "id", limits)
    checked_name(answer.lease, "entry", limits)
    if not answer.release:
        check_label(answer.row_label(), limits)
    elif (answer.label, answer.correct, answer.cannot_say) != (None, None, False):
        message = "expected an answer or release, got both. Send one."
        raise ProblemError(400, message)
    return answer


def lease_rows(
    session: Session, versions: GateVersions, request: LeaseRequest
) -> dict[str, Any]:
    """Lease the next rows: nobody else gets them until the lease ends."""
    now = session.now()
    until = now + request.seconds
    # A lease that lasts longer than any may was given by a clock that was ahead.
    impossible = now + 2 * LONGEST_LEASE
    placeholder, skipped = session.in_list(list(map(str, request.skip)))
    query = _FREE_ROWS.format(placeholder, _ORDERS[request.order])
    leased_rows = []
    for row in session.rows(query, now, impossible, skipped, request.count):
        position, name, doubt, accepted, predicted, shortlist = row[:6]
        payload, group, decided_at, version = row[6:]
        lease = token_hex(12)
        session.run(
            "UPDATE review_queue SET lease = ?, leased_until = ?, reviewer = ? "
            "WHERE position = ?",
            lease,
            until,
            request.reviewer,
            position,
        )
        leased_rows.append(
            {
                "id": name,
                "lease": lease,
                "until": format_time(until),
                "kind": "audit" if accepted else "rejected",
                "doubt": json_number(doubt),
                "predicted": _decoded(predicted),
                "shortlist": _decoded(shortlist),
                "classes": versions.get(session, version).gate.classes,
                "payload": _decoded(payload),
                "group": _decoded(group),
                "at": format_time(decided_at),
                "version": version,
            }
        )
    counts: dict[str, int] = dict(session.rows("SELECT name, rows FROM review_counts"))
    waiting = sum(counts.get(name, 0) for name in WAITING)
    return {"rows": leased_rows, "waiting": waiting}


def _decoded(text: str | None) -> Any:
    return None if text is None else msgspec.json.decode(text)


def answer_row(
    session: Session,
    versions: GateVersions,
    answer: AnswerRequest,
    deadline: float | None = None,
) -> dict[str, Any]:
    """Take the answer of whoever holds the lease, or give the row back."""
    name = str(answer.id)
    leases = session.rows(
        "SELECT q.lease, q.position, q.reviewer FROM ids i JOIN review_queue q "
        "ON q.position = i.position WHERE i.id = ?",
        name,
    )
    if not leases:
        return _repeat_answer(session, versions, answer)
    lease, position, reviewer = leases[0]
    if lease != answer.lease:
        message = (
            f"expected the lease of row {name!r}, got one that has ended: somebody "
            "else has the row, or it went back into the queue. Lease another."
        )
        raise ProblemError(409, message, id=name)
    if answer.release:
        session.run(
            "UPDATE review_queue SET lease = NULL, leased_until = 0, reviewer = NULL "
            "WHERE position = ?",
            position,
        )
        return {"id": name, "result": "released"}
    (result,) = label_rows(
        session,
        versions,
        [answer.row_label()],
        origin=LabelOrigin("review", reviewer, lease),
        deadline=deadline,
    )
    if result.result == "refused":
        raise ProblemError(400, result.why or "the label was refused.")
    count_review(session, "undecided" if answer.cannot_say else "labelled")
    return {"id": name, "result": result.result}


def _repeat_answer(
    session: Session, versions: GateVersions, answer: AnswerRequest
) -> dict[str, Any]:
    """Confirm an answer that comes again: its first response may have been lost.

    Anything else is too late, as the row is no longer in the queue.
    """
    name = str(answer.id)
    row = find_rows(session, [name]).get(name)
    if row is None:
        message = f"expected the id of a leased row, got {name!r}, which is not known."
        raise ProblemError(404, message, id=name)
    labels = session.rows(
        "SELECT label, judgement FROM labels WHERE row_position = ? AND lease = ?",
        row.position,
        answer.lease,
    )
    if labels and not answer.release:
        version = versions.get(session, row.version)
        if tuple(labels[0]) == judge_row(version, row, answer.row_label()):
            return {"id": name, "result": "repeated"}
    why = "it has its label" if row.drawn else "it was not drawn for review"
    message = f"row {name!r} is not in the queue: {why}. Lease another."
    raise ProblemError(409, message, id=name)
