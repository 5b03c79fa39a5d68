"""Labels: they come late, again, and corrected; the first one counts in the watch."""

from collections.abc import Sequence
from typing import Annotated, Any, NamedTuple

import msgspec

from trustdoctor.service.decisions import count_minute, count_shadow
from trustdoctor.service.problems import ProblemError
from trustdoctor.service.schemas import (
    Name,
    checked_class,
    checked_name,
    described,
    encode,
)
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
    "FROM ids i JOIN rows r ON r.position = i.position WHERE i.id IN {}"
)


class RowLabel(msgspec.Struct, forbid_unknown_fields=True):
    """What somebody says of a row: its class, whether it is correct, or neither."""

    id: Name
    label: Name | None = None
    correct: Annotated[bool | None, described("Whether the prediction is right.")] = (
        None
    )
    cannot_say: bool = False


class RowLabels(msgspec.Struct, forbid_unknown_fields=True):
    """The labels of many rows."""

    labels: Annotated[list[RowLabel], described(minItems=1)]


class LabelColumns(msgspec.Struct, forbid_unknown_fields=True):
    """The labels of many rows, by columns."""

    ids: Annotated[list[Name], described(minItems=1)]
    labels: Annotated[list[Name], described("One per id.", minItems=1)]


class LabelResult(msgspec.Struct, omit_defaults=True):
    """What became of a label."""

    id: str
    result: Annotated[
        str, described(enum=["counted", "repeated", "corrected", "kept", "refused"])
    ]
    why: str | None = None


class RowToLabel(msgspec.Struct):
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
    judgement: int | None
    kind: str
    decided_at: float


class LabelOrigin(NamedTuple):
    """Where a label comes from."""

    source: str
    author: str | None = None
    lease: str | None = None


BY_ID = LabelOrigin("labels")
"""A label that was sent by its row's id."""


class NewLabel(NamedTuple):
    """A label that is stored, and what the row was judged to be before it."""

    row: RowToLabel
    label: str | None
    judgement: int
    earlier: int | None


_decode_object = msgspec.json.Decoder(dict[str, Any]).decode


def read_labels(body: bytes, limits: Limits) -> list[RowLabel]:
    """Read labels in any of their forms.

    Examples
    --------
    >>> [row.label for row in read_labels(b'{"id": "r1", "label": 3}', Limits())]
    [3]
    """
    content = _decode_object(body)
    if isinstance(content.get("labels"), list) and "ids" in content:
        columns = msgspec.convert(content, LabelColumns)
        if len(columns.ids) != len(columns.labels):
            message = (
                f"expected one label per id, got {len(columns.labels):,} for "
                f"{len(columns.ids):,} ids."
            )
            raise ProblemError(400, message)
        pairs = zip(columns.ids, columns.labels, strict=True)
        labels = [RowLabel(name, label) for name, label in pairs]
    elif "labels" in content:
        labels = msgspec.convert(content, RowLabels).labels
    else:
        labels = [msgspec.convert(content, RowLabel)]
    if not 1 <= len(labels) <= limits.labels:
        message = (
            f"expected 1 to {limits.labels:,} labels, got {len(labels):,}. Send them "
            "in several requests."
        )
        raise ProblemError(413 if labels else 400, message)
    for label in labels:
        label.id = checked_name(label.id, "id", limits)
        check_label(label, limits)
    return labels


def check_label(label: RowLabel, limits: Limits) -> None:
    """Refuse a label that says nothing, or several things."""
    fields = (label.label is not None) + (label.correct is not None) + label.cannot_say
    if fields != 1:
        message = (
            f"expected a label, correct, or cannot_say of row {label.id!r}, got "
            f"{fields} of them. Send one."
        )
        raise ProblemError(400, message)
    if label.label is not None:
        checked_class(label.label, limits)


def find_rows(session: Session, ids: Sequence[str]) -> dict[str, RowToLabel]:
    """Return the rows of these ids; unknown ids are left out."""
    placeholder, parameter = session.in_list(list(ids))
    rows = session.rows(_ROWS.format(placeholder), parameter)
    return {row[0]: RowToLabel(*row) for row in rows}


def label_rows(
    session: Session,
    versions: GateVersions,
    labels: Sequence[RowLabel],
    *,
    origin: LabelOrigin = BY_ID,
    deadline: float | None = None,
) -> list[LabelResult]:
    """Take labels, and return what became of each.

    `deadline` is how long the watch waits for a label, in seconds.
    """
    rows = find_rows(session, [str(label.id) for label in labels])
    now = session.now()
    results: list[LabelResult] = []
    new_labels: list[NewLabel] = []
    for row_label in labels:
        row = rows.get(str(row_label.id))
        if row is None:
            why = "no row of this id is known"
            results.append(LabelResult(str(row_label.id), "refused", why))
            continue
        version = versions.get(session, row.version)
        try:
            label, judgement = judge_row(version, row, row_label)
        except ProblemError as error:
            results.append(LabelResult(row.id, "refused", str(error)))
            continue
        has_label = row.judgement is not None
        if has_label and (row.label, row.judgement) == (label, judgement):
            results.append(LabelResult(row.id, "repeated"))
            continue
        new_labels.append(NewLabel(row, label, judgement, row.judgement))
        results.append(_new_label_result(row, now, deadline))
        # The same id may come again in this request.
        row.label, row.judgement = label, judgement
    if new_labels:
        _store_labels(session, new_labels, now, origin)
    return results


def _new_label_result(
    row: RowToLabel, now: float, deadline: float | None
) -> LabelResult:
    """Say whether the watch counts a label, or it is only kept."""
    if row.judgement is not None:
        return LabelResult(row.id, "corrected")
    if not row.drawn:
        why = "the row was not drawn for review, so the watch does not count it"
        return LabelResult(row.id, "kept", why)
    if deadline is not None and row.decided_at < now - deadline:
        return LabelResult(row.id, "kept", "it came after the deadline of the watch")
    return LabelResult(row.id, "counted")


def _store_labels(
    session: Session, labels: list[NewLabel], now: float, origin: LabelOrigin
) -> None:
    """Store labels, all at once: a thousand may come together."""
    first = next_position(session, len(labels))
    columns = ("position", "row_position", "labelled_at", "version", "label")
    rows = []
    for position, (row, label, judgement, earlier) in enumerate(labels, first):
        # The watch counts the first label of a row that was drawn for review: a
        # correction comes too late for it, and other rows somebody chose.
        is_counted = int(earlier is None and bool(row.drawn))
        values = position, row.position, now, row.version, label
        rows.append((*values, judgement, is_counted, *origin))
    session.insert(
        "labels", (*columns, "judgement", "counted", *LabelOrigin._fields), rows
    )
    session.run_many(
        "UPDATE rows SET label = ?, judgement = ? WHERE position = ?",
        [(new.label, new.judgement, new.row.position) for new in labels],
    )
    session.run_many(
        "DELETE FROM review_queue WHERE position = ?",
        [(new.row.position,) for new in labels],
    )
    _update_counts(session, labels, now)


def _update_counts(session: Session, labels: list[NewLabel], now: float) -> None:
    """Bring the kept counts up to date, so that nobody has to scan rows."""
    first_labels: dict[int, int] = {}
    for new in labels:
        version = new.row.version
        first_labels[version] = first_labels.get(version, 0) + (new.earlier is None)
    for version, n_labels in first_labels.items():
        count_minute(session, now, version, 0, 0, 0, n_labels)
        session.run(
            "UPDATE version_counts SET labels = labels + ? WHERE version = ?",
            n_labels,
            version,
        )
    for accepted, name in enumerate(WAITING):
        n_answered = sum(
            new.earlier is None and bool(new.row.drawn) and new.row.accepted == accepted
            for new in labels
        )
        if n_answered:
            count_review(session, name, -n_answered)
    for (pair, accepts), (correct, wrong) in _shadow_counts(labels).items():
        count_shadow(session, pair, accepts, (0, correct, wrong))


def _shadow_counts(labels: list[NewLabel]) -> dict[Any, list[int]]:
    """Return the change of correct and wrong rows that a shadow decided, too.

    The keys are both versions, and whether each accepts. A correction moves a row from
    one count to the other.
    """
    counts: dict[Any, list[int]] = {}
    for row, _, judgement, earlier in labels:
        if row.shadow_version is None or not row.drawn:  # others somebody chose
            continue
        pair = row.shadow_version, row.version
        accepts = row.shadow_accepted, row.accepted
        changes = counts.setdefault((pair, accepts), [0, 0])
        for outcome, change in ((earlier, -1), (judgement, 1)):
            if outcome in (CORRECT, WRONG):
                changes[outcome] += change
    return counts


def judge_row(
    version: GateVersion, row: RowToLabel, row_label: RowLabel
) -> tuple[str | None, int]:
    """Return a label as it is stored, and what it says of the prediction."""
    if row_label.cannot_say:
        return None, UNDECIDED
    if row_label.correct is not None:
        return None, CORRECT if row_label.correct else WRONG
    assert row_label.label is not None
    if row.predicted == encode("").decode():
        message = (
            "expected correct as true or false, since this row came without predicted, "
            "got a label."
        )
        raise ProblemError(400, message)
    predicted: Name = msgspec.json.decode(row.predicted)
    label = class_of_gate(version, row.kind, row_label.label)
    is_wrong = str(label) != str(predicted)
    return encode(label).decode(), WRONG if is_wrong else CORRECT


def class_of_gate(version: GateVersion, kind: str, label: Name) -> Name:
    """Return a label in the gate's form, name or number, or refuse an unknown one."""
    if kind in ("confidence", "doubt"):
        return label
    names, size = version.names, version.n_classes
    if names is not None:
        if label in names or str(label) in names:
            return str(label)
        if type(label) is int and 0 <= label < len(names):
            return names[label]
        listed = ", ".join(map(repr, names[:5])) + (", ..." if len(names) > 5 else "")
        message = f"expected a class out of {listed}, got {label!r}."
        raise ProblemError(400, message)
    number = label
    if isinstance(label, str) and label.isascii() and label.isdigit():
        number = int(label)
    if type(number) is int and 0 <= number < (size or 1 << 31):
        return number
    limits = f" from 0 to {size - 1}" if size else ""
    message = f"expected the number of a class{limits}, got {label!r}."
    raise ProblemError(400, message)
