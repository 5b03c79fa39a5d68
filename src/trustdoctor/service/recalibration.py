"""A new gate from reviewed rows, honest about how they came to be reviewed.

Rejected rows are reviewed more often than accepted ones. Each reviewed row is kept with
probability smallest rate / its rate, so the kept ones are a plain sample of what came.
"""

from collections.abc import Sequence
from typing import Annotated, Any

import msgspec
import numpy as np

from trustdoctor.errors import InputError
from trustdoctor.gates import TARGETS, Gate, Outcome, calibrate
from trustdoctor.predictions import Predictions
from trustdoctor.service.problems import ProblemError
from trustdoctor.service.schemas import (
    LONGEST_NOTE,
    DecideRequest,
    checked_note,
    described,
)
from trustdoctor.service.scoring import GateVersion
from trustdoctor.service.store import Session
from trustdoctor.service.times import format_time, read_time
from trustdoctor.service.versions import (
    GateVersions,
    add_gate,
    last_position_before,
    read_head,
    require_useful,
)
from trustdoctor.watch import CORRECT, UNDECIDED, WRONG

MOST_ROWS = 500_000
"""Reviewed rows that are read, the latest."""

_REVIEWED_ROWS = (
    "SELECT r.position, r.accepted, r.kind, r.output, r.features, r.group_name, "
    "r.predicted, r.label, r.judgement, r.decided_at, a.rejected, a.accepted "
    "FROM rows r JOIN review_rates a ON a.number = r.review_rates "
    "WHERE r.position > ? AND r.drawn = 1 AND r.decided_at >= ? "
    "AND r.output IS NOT NULL ORDER BY r.position DESC LIMIT ?"
)
NO_SHORTLISTS = (
    "The candidate has no shortlists: of some wrong rows the true class is not known."
)
_decode = msgspec.json.decode


class RecalibrateRequest(msgspec.Struct, forbid_unknown_fields=True):
    """What to calibrate on, and for what.

    Without targets, those of the current gate's certificate are taken.
    """

    since: Annotated[
        str | None, described("Rows from this time on; required after an alarm.")
    ] = None
    targets: Annotated[
        dict[str, float] | None, described("As in calibrate: frr, risk, ...")
    ] = None
    confidence: Annotated[float | None, described("Of the promise.")] = None
    seed: Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)] = 0
    note: Annotated[str, described(maxLength=LONGEST_NOTE)] = ""


_decoder = msgspec.json.Decoder(RecalibrateRequest)


def read_request(body: bytes) -> RecalibrateRequest:
    """Read a request to recalibrate."""
    request = _decoder.decode(body or b"{}")
    checked_note(request.note)
    return request


class ReviewedRow(msgspec.Struct):
    """A row that was drawn for review, as it is stored."""

    position: int
    accepted: int
    kind: str
    output: bytes
    features: bytes | None
    group_name: str | None
    predicted: str
    label: str | None
    judgement: int | None
    decided_at: float
    rejected_rate: float
    accepted_rate: float

    @property
    def rate(self) -> float:
        """The rate at which it was drawn."""
        return self.accepted_rate if self.accepted else self.rejected_rate


def reviewed_rows(session: Session, since: float) -> list[ReviewedRow]:
    """Return the rows drawn for review since a time, labelled or not."""
    first = last_position_before(session, since) if since else 0
    rows = session.rows(_REVIEWED_ROWS, first, since, MOST_ROWS)
    return [ReviewedRow(*row) for row in reversed(rows)]


def plain_sample(
    rows: Sequence[ReviewedRow], seed: int
) -> tuple[list[ReviewedRow], float]:
    """Return rows of which each kind is kept at the smallest rate, and that rate."""
    rates = np.array([row.rate for row in rows])
    # A kind that was never reviewed has a rate, too, though none of the rows is of it.
    smallest = min(min(row.rejected_rate, row.accepted_rate) for row in rows)
    if not smallest:
        message = (
            "expected rows of both kinds to be reviewed, got a review rate of 0: the "
            "reviewed rows say nothing of the others. Serve with --review-accepted "
            "0.02 or more, and ask again with since= that time."
        )
        raise ProblemError(409, message)
    draws = np.random.default_rng(seed).random(len(rows))
    is_kept = draws < smallest / rates
    sample = [row for row, keep in zip(rows, is_kept, strict=True) if keep]
    return sample, float(smallest)


def as_predictions(version: GateVersion, rows: Sequence[ReviewedRow]) -> Predictions:
    """Return labelled rows as predictions."""
    kinds = {(row.kind, len(row.output) if row.kind != "topk" else 0) for row in rows}
    if len(kinds) > 1:
        message = (
            "expected reviewed rows of one kind and number of classes, got several. "
            "Ask for rows since= a time from which they are alike."
        )
        raise ProblemError(409, message)
    groups: list[Any] = [
        None if row.group_name is None else _decode(row.group_name) for row in rows
    ]
    if len({group is None for group in groups}) > 1:
        message = (
            "expected a group in every reviewed row, or in none, got both. Ask for "
            "rows since= a time from which they are alike."
        )
        raise ProblemError(409, message)
    kind = rows[0].kind
    classes: list[Any] | None = None
    if kind == "topk":
        pairs = [_decode(row.output) for row in rows]
        values = [probs for _, probs in pairs]
        classes = [row_classes for row_classes, _ in pairs]
    else:
        values = [np.frombuffer(row.output, np.float64).tolist() for row in rows]
    if kind in ("confidence", "doubt"):
        values = [value for (value,) in values]
    features = None
    if all(row.features is not None for row in rows):
        features = [np.frombuffer(row.features or b"", float).tolist() for row in rows]
    predicted = [_decode(row.predicted) for row in rows]
    request = DecideRequest(
        kind,
        values,
        None,
        classes,
        # A confidence may come without a class: then no row has one here.
        None if "" in predicted else predicted,
        None if groups[0] is None else groups,
        features,
    )
    if kind in ("confidence", "doubt"):
        correct = [row.judgement == CORRECT for row in rows]
        return version.predictions(request, correct=correct)
    return version.predictions(request, _true_classes(version, rows))


def _true_classes(version: GateVersion, rows: Sequence[ReviewedRow]) -> list[Any]:
    """Return the true classes; any other class of rows that are only known as wrong."""
    names, size = version.names, version.n_classes or 2
    classes = []
    for row in rows:
        predicted = _decode(row.predicted)
        if row.label is not None:
            label = _decode(row.label)
        elif row.judgement == CORRECT:
            label = predicted
        elif names is not None:
            label = next(name for name in names if name != predicted)
        else:
            label = (predicted + 1) % size
        # Top-k answers are labelled by number.
        if row.kind == "topk" and names is not None:
            label = names.index(label)
        classes.append(label)
    return classes


def rows_before_waiting(
    rows: list[ReviewedRow], deadline: float
) -> tuple[list[ReviewedRow], list[str]]:
    """Return the rows up to the first whose label is awaited, and a note.

    Whoever reviews some rows first chooses which have labels, so that the labelled ones
    are no sample. Rows that were drawn before the deadline are not waited for any more.
    """
    for index, row in enumerate(rows):
        if row.judgement is None and row.decided_at >= deadline:
            left_out = sum(later.judgement is not None for later in rows[index:])
            note = (
                f"{left_out:,} labelled rows are left out: a row drawn before them, at "
                f"{format_time(row.decided_at)}, still waits for its label. Review the "
                "oldest first."
            )
            return rows[:index], [note] if left_out else []
    return rows, []


def recalibrate(
    session: Session,
    versions: GateVersions,
    request: RecalibrateRequest,
    deadline: float | None,
    label_noise: float | None = None,
) -> tuple[Gate, dict[str, Any]]:
    """Return a candidate made of reviewed rows, and what to say of it."""
    head = read_head(session)
    current = versions.get(session, head.current)
    since = _since(session, request)
    not_before = 0.0 if deadline is None else session.now() - deadline
    rows, notes = rows_before_waiting(reviewed_rows(session, since), not_before)
    labelled = [row for row in rows if row.judgement in (CORRECT, WRONG)]
    sample, rate = _sample(labelled, request.seed, notes)
    predictions = as_predictions(current, sample)
    # Shortlists need the true class of every wrong row.
    is_class_unknown = any(
        row.label is None and row.judgement == WRONG for row in sample
    )
    gate = _calibrated_gate(
        current.gate, predictions, request, label_noise, shortlist=not is_class_unknown
    )
    require_useful(gate)
    notes += _notes(rows, labelled)
    if is_class_unknown and current.gate.shortlist is not None:
        notes.append(NO_SHORTLISTS)
    certificate = gate.certificate
    return gate, {
        "since": format_time(since) if since else None,
        "rows": len(rows),
        "labelled": len(labelled),
        "kept": len(sample),
        "rate": rate,
        "certificate": None
        if certificate is None
        else {"promise": certificate.promise(), **certificate.to_dict()},
        "comparison": {
            "current": _rates(current.gate, predictions),
            "candidate": _rates(gate, predictions),
        },
        "notes": notes,
    }


def _sample(
    labelled: list[ReviewedRow], seed: int, notes: list[str]
) -> tuple[list[ReviewedRow], float]:
    """Return a plain sample and its rate, or refuse rows that are too few for one."""
    if not labelled:
        message = (
            "expected reviewed rows with labels, got none. Review some first, the "
            "oldest first: POST /v1/review/lease, or label them by POST /v1/labels."
        )
        raise ProblemError(409, " ".join([message, *notes]))
    sample, rate = plain_sample(labelled, seed)
    if not sample:
        message = (
            f"expected more reviewed rows: of {len(labelled):,} none was kept at the "
            f"rate {rate:g}. Review more of them."
        )
        raise ProblemError(409, message)
    return sample, rate


def _since(session: Session, request: RecalibrateRequest) -> float:
    """Return the time from which rows count; after an alarm it has to be named."""
    if request.since is not None:
        since = read_time(request.since)
        if not 0 <= since <= session.now():
            message = f"expected since= in the past, after 1970, got {request.since}."
            raise ProblemError(400, message)
        return since
    alarms = session.rows(
        "SELECT test, raised_at, version FROM alarms ORDER BY raised_at DESC LIMIT 1"
    )
    if alarms:
        test, raised_at, version = alarms[0]
        message = (
            "expected since=, the time from which rows are like those to come: the "
            f"watch of version {version} alarmed ({test}) at {format_time(raised_at)}, "
            "so earlier rows may not be."
        )
        raise ProblemError(409, message)
    return 0.0


def _calibrated_gate(
    current: Gate,
    predictions: Predictions,
    request: RecalibrateRequest,
    label_noise: float | None,
    *,
    shortlist: bool,
) -> Gate:
    """Return a gate with the score, groups and kind of promise of the current one."""
    certificate = current.certificate
    if label_noise is None:
        label_noise = 0.0 if certificate is None else certificate.label_noise
    target = _targets(current, request)
    options: dict[str, Any] = {"label_noise": label_noise}
    if request.confidence is not None:
        options["confidence"] = request.confidence
    elif certificate is not None and certificate.mode == "confidence":
        options["confidence"] = certificate.confidence
    elif certificate is not None and certificate.mode == "expectation":
        options["mode"] = "expectation"
    if current.shortlist is not None and shortlist:
        level, method = current.shortlist.level, current.shortlist.method
        options["shortlist"] = {"level": level, "method": method}
    if current.groups:
        options["groups"] = current.groups_of(predictions)
        options["grouped_by"] = current.grouped_by
    try:
        return calibrate(predictions, target=target, score=current.score, **options)
    except InputError as error:
        # The request is wrong if it asked for this; else the rows do not allow it.
        asked = request.targets is not None or request.confidence is not None
        raise ProblemError(400 if asked else 409, str(error)) from error


def _targets(current: Gate, request: RecalibrateRequest) -> dict[str, float]:
    """Return the targets of the request; by default, of the current certificate."""
    targets = request.targets
    if targets is None and current.certificate is not None:
        targets = dict(current.certificate.target)
    if not targets:
        message = 'expected targets, as {"targets": {"frr": 0.05}}, got none.'
        raise ProblemError(400, message)
    unknown = set(targets) - set(TARGETS)
    if unknown:
        expected = ", ".join(TARGETS)
        message = f"expected targets out of {expected}, got {min(unknown)!r}."
        raise ProblemError(400, message)
    return targets


def _rates(gate: Gate, predictions: Predictions) -> dict[str, Any]:
    accepted = np.asarray(gate.screen(predictions).accepted)
    rates = Outcome.of_predictions(predictions, accepted).rates()
    return {name: [rate.value, rate.low, rate.high] for name, rate in rates.items()}


def _notes(rows: Sequence[ReviewedRow], labelled: Sequence[ReviewedRow]) -> list[str]:
    notes = [
        "The candidate's rates are of the rows that set its threshold; those of the "
        "current gate are not.",
        "Nothing was promoted. Let it decide beside the current gate first: POST "
        "/v1/gates/VERSION/shadow.",
    ]
    undecided = sum(row.judgement == UNDECIDED for row in rows)
    late = len(rows) - len(labelled) - undecided
    if late or undecided:
        notes.append(
            f"{late:,} rows that were drawn have no label in time, and of "
            f"{undecided:,} nobody could say: if those differ from the others, so will "
            "the rates."
        )
    return notes


def add_candidate(
    session: Session, gate: Gate, summary: dict[str, Any], note: str
) -> dict[str, Any]:
    """Store a candidate as a version."""
    note = note or f"from {summary['kept']:,} reviewed rows"
    return {"version": add_gate(session, gate, "recalibrate", note), **summary}
