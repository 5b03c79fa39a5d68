"""Labels: they come late, again, and corrected; the first one counts in the watch."""

from collections.abc import Sequence
from typing import Any

import msgspec

from trustdoctor.service.decisions import count_minute, count_shadow
from trustdoctor.service.problems import ProblemError
from trustdoctor.service.schemas import Name, checked_class, checked_name, encode
from trustdoctor.service.scoring import GateVersion
from trustdoctor.service.settings import Limits
from trustdoctor.service.store import Session
from trustdoctor.service.versions import (
    WAITING,
    GateVersions,
    count_review,
    next_position,
)
from trustdoctor.watch import CORRECT, UNDECIDED, WRONG

_ROWS = (
    "SELECT r.id, r.position, r.version, r.predicted, r.accepted, r.drawn, "
    "r.shadow_version, r.shadow_accepted, r.label, r.judgement, r.kind, r.decided_at "
    "FROM ids i JOIN rows r ON r.position = i.position "
    "WHERE i.id IN {}"
)


class Said(msgspec.Struct, forbid_unknown_fields=True):
    """What somebody says of a row."""

    id: Name
    label: Name | None = None
    correct: bool | None = None
    cannot_say: bool = False


class Labels(msgspec.Struct, forbid_unknown_fields=True):
    """Many of them."""

    labels: list[Said]


class LabelColumns(msgspec.Struct, forbid_unknown_fields=True):
    """Many of them, by columns."""

    ids: list[Name]
    labels: list[Name]


class Result(msgspec.Struct, omit_defaults=True):
    """What became of a label."""

    id: str
    result: str
    why: str | None = None


class Row(msgspec.Struct):
    """A row as a label finds it."""

    id: str
    position: int
    version: int
    predicted: str
    accepted: int
    drawn: int
    shadow_version: int | None
    shadow_accepted: int | None
    label: str | None
    wrong: int | None
    kind: str
    at: float


_body = msgspec.json.Decoder(dict[str, Any])


def read_labels(body: bytes, limits: Limits) -> list[Said]:
    """Read labels in any of their forms.

    Examples
    --------
    >>> [one.label for one in read_labels(b'{"id": "r1", "label": 3}', Limits())]
    [3]
    """
    top = _body.decode(body)
    if isinstance(top.get("labels"), list) and "ids" in top:
        both = msgspec.convert(top, LabelColumns)
        if len(both.ids) != len(both.labels):
            message = (
                f"expected one label per id, got {len(both.labels):,} for "
                f"{len(both.ids):,} ids."
            )
            raise ProblemError(400, message)
        pairs = zip(both.ids, both.labels, strict=True)
        found = [Said(name, label) for name, label in pairs]
    elif "labels" in top:
        found = msgspec.convert(top, Labels).labels
    else:
        found = [msgspec.convert(top, Said)]
    if not 1 <= len(found) <= limits.labels:
        message = (
            f"expected 1 to {limits.labels:,} labels, got {len(found):,}. Send them in "
            "several requests."
        )
        raise ProblemError(413 if found else 400, message)
    for one in found:
        one.id = checked_name(one.id, "id", limits)
        check_said(one, limits)
    return found


def check_said(one: Said, limits: Limits) -> None:
    """Refuse what is not one label, or none."""
    given = (one.label is not None) + (one.correct is not None) + one.cannot_say
    if given != 1:
        message = (
            f"expected a label, correct, or cannot_say of row {one.id!r}, got {given} "
            "of them. Send one."
        )
        raise ProblemError(400, message)
    if one.label is not None:
        checked_class(one.label, limits)


def find_rows(session: Session, ids: Sequence[str]) -> dict[str, Row]:
    """Return the rows of these ids, where they are known."""
    among, value = session.in_list(list(ids))
    found = session.rows(_ROWS.format(among), value)
    return {row[0]: Row(*row) for row in found}


def label_rows(  # noqa: PLR0913 - who says it, by keyword only
    session: Session,
    versions: GateVersions,
    given: Sequence[Said],
    *,
    source: str = "labels",
    author: str | None = None,
    lease: str | None = None,
    deadline: float | None = None,
) -> list[Result]:
    """Take labels, and say of each what became of it.

    `deadline` is how long the watch waits for a label, in seconds.
    """
    rows = find_rows(session, [str(one.id) for one in given])
    at, out = session.now(), []
    kept: list[Kept] = []
    for one in given:
        row = rows.get(str(one.id))
        if row is None:
            why = "no row of this id is known"
            out.append(Result(str(one.id), "refused", why))
            continue
        version = versions.get(session, row.version)
        try:
            label, wrong = judge(version, row, one)
        except ProblemError as error:
            out.append(Result(row.id, "refused", str(error)))
            continue
        if row.wrong is not None and (row.label, row.wrong) == (label, wrong):
            out.append(Result(row.id, "repeated"))
            continue
        kept.append((row, label, wrong, row.wrong))
        out.append(_result(row, at, deadline))
        row.label, row.wrong = label, wrong
    if kept:
        _keep(session, kept, at, (source, author, lease))
    return out


def _result(row: Row, now: float, deadline: float | None) -> Result:
    """Say whether a label counts in the watch, or is kept alone."""
    if row.wrong is not None:
        return Result(row.id, "corrected")
    if not row.drawn:
        why = "the row was not drawn for review, so the watch does not count it"
        return Result(row.id, "kept", why)
    if deadline is not None and row.at < now - deadline:
        return Result(row.id, "kept", "it came after the deadline of the watch")
    return Result(row.id, "counted")


Kept = tuple[Row, str | None, int, int | None]
"""A row, its label, whether it is wrong, and whether it was by an earlier label."""


def _keep(
    session: Session,
    kept: list[Kept],
    at: float,
    who: tuple[str, str | None, str | None],
) -> None:
    """Store labels, all at once: a thousand may come together."""
    first = next_position(session, len(kept))
    columns = ("position", "row_position", "labelled_at", "version", "label")
    lines = [
        # In the watch the first label counts, of rows that were drawn for review.
        (at, row.version, label, wrong, int(before is None and bool(row.drawn)), *who)
        for row, label, wrong, before in kept
    ]
    session.insert(
        "labels",
        (*columns, "judgement", "counted", "source", "author", "lease"),
        [(first + n, kept[n][0].position, *line) for n, line in enumerate(lines)],
    )
    session.run_many(
        "UPDATE rows SET label = ?, judgement = ? WHERE position = ?",
        [(label, wrong, row.position) for row, label, wrong, _ in kept],
    )
    session.run_many(
        "DELETE FROM review_queue WHERE position = ?",
        [(row.position,) for row, *_ in kept],
    )
    _count(session, kept, at)


def _count(session: Session, kept: list[Kept], at: float) -> None:
    """Bring the counts up to date that nobody should have to make by looking."""
    counted: dict[int, int] = {}
    for row, _, _, before in kept:
        counted[row.version] = counted.get(row.version, 0) + (before is None)
    for number, labels in counted.items():
        count_minute(session, at, number, 0, 0, 0, labels)
        session.run(
            "UPDATE version_counts SET labels = labels + ? WHERE version = ?",
            labels,
            number,
        )
    for audit, what in enumerate(WAITING):
        gone = sum(
            before is None and bool(row.drawn) and row.accepted == audit
            for row, _, _, before in kept
        )
        if gone:
            count_review(session, what, -gone)
    for (pair, accepts), (correct, wrong) in _beside(kept).items():
        count_shadow(session, pair, accepts, (0, correct, wrong))


def _beside(kept: list[Kept]) -> dict[Any, list[int]]:
    """Return how many correct and wrong rows of each kind a candidate decided, too."""
    out: dict[Any, list[int]] = {}
    for row, _, wrong, before in kept:
        if (
            row.shadow_version is None or not row.drawn
        ):  # others were chosen by somebody
            continue
        pair = row.shadow_version, row.version
        counts = out.setdefault((pair, (row.shadow_accepted, row.accepted)), [0, 0])
        for one, rows in ((before, -1), (wrong, 1)):
            if one in (CORRECT, WRONG):
                counts[one] += rows
    return out


def judge(version: GateVersion, row: Row, said: Said) -> tuple[str | None, int]:
    """Return a label as it is stored, and whether the prediction is wrong."""
    if said.cannot_say:
        return None, UNDECIDED
    if said.correct is not None:
        return None, CORRECT if said.correct else WRONG
    assert said.label is not None
    if row.predicted == encode("").decode():
        message = (
            "expected correct as true or false, since this row came without predicted, "
            "got a label."
        )
        raise ProblemError(400, message)
    predicted: Name = msgspec.json.decode(row.predicted)
    label = as_class(version, row.kind, said.label)
    wrong = str(label) != str(predicted)
    return encode(label).decode(), WRONG if wrong else CORRECT


def as_class(version: GateVersion, kind: str, label: Name) -> Name:
    """Return a label as the gate has its classes, or refuse one that is none."""
    if kind in ("confidence", "doubt"):
        return label
    names, size = version.names, version.n_classes
    if names is not None:
        if label in names or str(label) in names:
            return str(label)
        if type(label) is int and 0 <= label < len(names):
            return names[label]
        known = ", ".join(map(repr, names[:5])) + (", ..." if len(names) > 5 else "")
        message = f"expected a class out of {known}, got {label!r}."
        raise ProblemError(400, message)
    number = label
    if isinstance(label, str) and label.isascii() and label.isdigit():
        number = int(label)
    if type(number) is int and 0 <= number < (size or 1 << 31):
        return number
    end = f" from 0 to {size - 1}" if size else ""
    message = f"expected the number of a class{end}, got {label!r}."
    raise ProblemError(400, message)
