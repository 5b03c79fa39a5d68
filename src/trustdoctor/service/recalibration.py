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
from trustdoctor.service.schemas import DecideRequest, checked_note
from trustdoctor.service.scoring import GateVersion
from trustdoctor.service.store import Session
from trustdoctor.service.times import read_time, shown
from trustdoctor.service.versions import (
    GateVersions,
    add_gate,
    last_position_before,
    read_head,
    require_useful,
)
from trustdoctor.watch import CORRECT, UNDECIDED, WRONG

LARGEST = 500_000
"""Reviewed rows that are taken at most: the latest."""

_ROWS = (
    "SELECT r.position, r.accepted, r.kind, r.output, r.features, r.group_name, "
    "r.predicted, r.label, r.judgement, r.decided_at, a.rejected, a.accepted "
    "FROM rows r JOIN review_rates a ON a.number = r.review_rates "
    "WHERE r.position > ? AND r.drawn = 1 AND r.decided_at >= ? "
    "AND r.output IS NOT NULL "
    "ORDER BY r.position DESC LIMIT ?"
)
NO_LISTS = (
    "The candidate has no shortlists: of some wrong rows the true class is not known."
)
_plain = msgspec.json.decode


class Request(msgspec.Struct, forbid_unknown_fields=True):
    """What to calibrate on, and for what.

    Without targets, those of the current gate's certificate are taken.
    """

    since: str | None = None
    targets: dict[str, float] | None = None
    confidence: float | None = None
    seed: Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)] = 0
    note: str = ""


_decoder = msgspec.json.Decoder(Request)


def read_request(body: bytes) -> Request:
    """Read what is asked for."""
    asked = _decoder.decode(body or b"{}")
    checked_note(asked.note)
    return asked


class Reviewed(msgspec.Struct):
    """A row that was drawn for review."""

    position: int
    accepted: int
    kind: str
    answer: bytes
    features: bytes | None
    team: str | None
    predicted: str
    label: str | None
    wrong: int | None
    at: float
    rejected_rate: float
    accepted_rate: float

    @property
    def rate(self) -> float:
        """The rate at which it was drawn."""
        return self.accepted_rate if self.accepted else self.rejected_rate


def find_reviewed(session: Session, since: float) -> list[Reviewed]:
    """Return the rows drawn for review since a time, labelled or not."""
    first = last_position_before(session, since) if since else 0
    return [Reviewed(*row) for row in session.rows(_ROWS, first, since, LARGEST)][::-1]


def keep_plain(rows: Sequence[Reviewed], seed: int) -> tuple[list[Reviewed], float]:
    """Return rows of which each kind is kept at the smallest rate, and that rate."""
    rates = np.array([row.rate for row in rows])
    smallest = min(
        rates.min(),
        *(min(row.rejected_rate, row.accepted_rate) for row in rows),
    )
    if not smallest:
        message = (
            "expected rows of both kinds to be reviewed, got a review rate of 0: the "
            "reviewed rows say nothing of the others. Serve with --review-accepted "
            "0.02 or more, and ask again with since= that time."
        )
        raise ProblemError(409, message)
    kept = np.random.default_rng(seed).random(len(rows)) < smallest / rates
    return [row for row, one in zip(rows, kept, strict=True) if one], float(smallest)


def as_predictions(version: GateVersion, rows: Sequence[Reviewed]) -> Predictions:
    """Return labelled rows as predictions."""
    kinds = {(row.kind, len(row.answer) if row.kind != "topk" else 0) for row in rows}
    if len(kinds) > 1:
        message = (
            "expected reviewed rows of one kind and number of classes, got several. "
            "Ask for rows since= a time from which they are alike."
        )
        raise ProblemError(409, message)
    if len({row.team is None for row in rows}) > 1:
        message = (
            "expected a group in every reviewed row, or in none, got both. Ask for "
            "rows since= a time from which they are alike."
        )
        raise ProblemError(409, message)
    kind = rows[0].kind
    if kind == "topk":
        pairs = [_plain(row.answer) for row in rows]
        values, classes = [probs for _, probs in pairs], [own for own, _ in pairs]
    else:
        arrays = [np.frombuffer(row.answer, np.float64).tolist() for row in rows]
        values, classes = arrays, None
        if kind in ("confidence", "doubt"):
            values = [one[0] for one in arrays]
    features = None
    if all(row.features is not None for row in rows):
        features = [np.frombuffer(row.features or b"", float).tolist() for row in rows]
    given = DecideRequest(
        kind,
        values,
        None,
        classes,
        _said(rows),
        None if rows[0].team is None else [_plain(row.team or '""') for row in rows],
        features,
    )
    if kind in ("confidence", "doubt"):
        right = [row.wrong == CORRECT for row in rows]
        return version.predictions(given, correct=right)
    return version.predictions(given, _labels(version, rows, given))


def _said(rows: Sequence[Reviewed]) -> list[Any] | None:
    """Return the answers; None where any row came without one."""
    said = [_plain(row.predicted) for row in rows]
    return None if "" in said else said


def _labels(
    version: GateVersion, rows: Sequence[Reviewed], given: DecideRequest
) -> list[Any]:
    """Return the true classes; where only right or wrong is known, one that fits."""
    names, size = version.names, version.n_classes or 2
    out = []
    for row in rows:
        said = _plain(row.predicted)
        if row.label is not None:
            label = _plain(row.label)
        elif row.wrong == CORRECT:
            label = said
        elif names is not None:
            label = next(name for name in names if name != said)
        else:
            label = (said + 1) % size
        # Top-k answers are labelled by number.
        by_number = given.kind == "topk" and names is not None
        out.append(names.index(label) if by_number and names else label)
    return out


def without_waiting(
    rows: list[Reviewed], before: float
) -> tuple[list[Reviewed], list[str]]:
    """Return the rows up to the first whose label is awaited, and what to say of it.

    Whoever reviews some rows first chooses which have labels, so that the labelled ones
    are no sample. Rows that were drawn before a time are not waited for any more.
    """
    for place, row in enumerate(rows):
        if row.wrong is None and row.at >= before:
            behind = sum(one.wrong is not None for one in rows[place:])
            told = (
                f"{behind:,} labelled rows are left out: a row drawn before them, at "
                f"{shown(row.at)}, still waits for its label. Review the oldest first."
            )
            return rows[:place], [told] if behind else []
    return rows, []


def recalibrate(
    session: Session,
    versions: GateVersions,
    asked: Request,
    deadline: float | None,
    label_noise: float | None = None,
) -> tuple[Gate, dict[str, Any]]:
    """Return a candidate made of reviewed rows, and what to say of it."""
    head = read_head(session)
    current = versions.get(session, head.current)
    since = _since(session, asked)
    before = 0.0 if deadline is None else session.now() - deadline
    rows, told = without_waiting(find_reviewed(session, since), before)
    known = [row for row in rows if row.wrong in (CORRECT, WRONG)]
    kept, smallest = _sample(known, asked.seed, told)
    found = as_predictions(current, kept)
    guessed = any(row.label is None and row.wrong == WRONG for row in kept)
    gate = _calibrated(current.gate, found, asked, label_noise, listed=not guessed)
    require_useful(gate)
    return gate, {
        "since": shown(since) if since else None,
        "rows": len(rows),
        "labelled": len(known),
        "kept": len(kept),
        "rate": smallest,
        "certificate": None
        if gate.certificate is None
        else {"promise": gate.certificate.promise(), **gate.certificate.to_dict()},
        "comparison": {
            "current": _rates(current.gate, found),
            "candidate": _rates(gate, found),
        },
        "notes": told
        + _notes(rows, known)
        + ([NO_LISTS] if guessed and current.gate.shortlist is not None else []),
    }


def _sample(
    known: list[Reviewed], seed: int, told: list[str]
) -> tuple[list[Reviewed], float]:
    """Return a plain sample, or refuse rows that are too few for one."""
    if not known:
        message = (
            "expected reviewed rows with labels, got none. Review some first, the "
            "oldest first: POST /v1/review/lease, or label them by POST /v1/labels."
        )
        raise ProblemError(409, " ".join([message, *told]))
    kept, smallest = keep_plain(known, seed)
    if not kept:
        message = (
            f"expected more reviewed rows: of {len(known):,} none was kept at the rate "
            f"{smallest:g}. Review more of them."
        )
        raise ProblemError(409, message)
    return kept, smallest


def _since(session: Session, asked: Request) -> float:
    """Return the time from which rows count, which has to be said after an alarm."""
    alarms = session.rows(
        "SELECT test, raised_at, version FROM alarms ORDER BY raised_at DESC LIMIT 1"
    )
    if asked.since is not None:
        since = read_time(asked.since)
        if not 0 <= since <= session.now():
            message = f"expected since= in the past, after 1970, got {asked.since}."
            raise ProblemError(400, message)
        return since
    if alarms:
        test, at, version = alarms[0]
        message = (
            "expected since=, the time from which rows are like those to come: the "
            f"watch of version {version} alarmed ({test}) at {shown(at)}, so earlier "
            "rows may not be."
        )
        raise ProblemError(409, message)
    return 0.0


def _calibrated(
    current: Gate,
    found: Predictions,
    asked: Request,
    label_noise: float | None,
    *,
    listed: bool,
) -> Gate:
    certificate = current.certificate
    if label_noise is None:
        label_noise = 0.0 if certificate is None else certificate.label_noise
    options: dict[str, Any] = {"label_noise": label_noise, **_targets(current, asked)}
    if asked.confidence is not None:
        options["confidence"] = asked.confidence
    elif certificate is not None and certificate.mode == "confidence":
        options["confidence"] = certificate.confidence
    elif certificate is not None and certificate.mode == "expectation":
        options["mode"] = "expectation"
    if current.shortlist is not None and listed:
        own = current.shortlist
        options["shortlist"] = {"level": own.level, "method": own.method}
    if current.groups:
        options["groups"] = current.groups_of(found)
        options["grouped_by"] = current.grouped_by
    try:
        return calibrate(found, score=current.score, **options)
    except InputError as error:
        given = asked.targets is not None or asked.confidence is not None
        raise ProblemError(400 if given else 409, str(error)) from error


def _targets(current: Gate, asked: Request) -> dict[str, float]:
    """Return what is asked for; by default what the current gate promises."""
    targets = asked.targets
    if targets is None and current.certificate is not None:
        targets = dict(current.certificate.target)
    if not targets:
        message = 'expected targets, as {"targets": {"frr": 0.05}}, got none.'
        raise ProblemError(400, message)
    odd = set(targets) - set(TARGETS)
    if odd:
        known = ", ".join(TARGETS)
        message = f"expected targets out of {known}, got {sorted(odd)[0]!r}."
        raise ProblemError(400, message)
    return targets


def _rates(gate: Gate, found: Predictions) -> dict[str, Any]:
    done = gate.screen(found)
    rates = Outcome.of_predictions(found, np.asarray(done.accepted)).rates()
    return {name: [r.value, r.low, r.high] for name, r in rates.items()}


def _notes(rows: Sequence[Reviewed], known: Sequence[Reviewed]) -> list[str]:
    out = [
        "The candidate's rates are of the rows that set its threshold; those of the "
        "current gate are not.",
        "Nothing was promoted. Let it decide beside the current gate first: POST "
        "/v1/gates/VERSION/shadow.",
    ]
    unsaid = sum(row.wrong == UNDECIDED for row in rows)
    late = len(rows) - len(known) - unsaid
    if late or unsaid:
        out.append(
            f"{late:,} rows that were drawn have no label in time, and of {unsaid:,} "
            "nobody could say: if those differ from the others, so will the rates."
        )
    return out


def add_candidate(
    session: Session, gate: Gate, said: dict[str, Any], note: str
) -> dict[str, Any]:
    """Keep a candidate as a version."""
    words = note or f"from {said['kept']:,} reviewed rows"
    version = add_gate(session, gate, "recalibrate", words)
    return {"version": version, **said}
