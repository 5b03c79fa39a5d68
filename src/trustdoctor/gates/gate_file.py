"""Gates as JSON: written whole, read with suspicion.

A fitted score stands in the gate's own file, or, if it is large, in a file beside it;
see `trustdoctor.scores.documents`.
"""

import math
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from trustdoctor import envelope
from trustdoctor.atomic import write_text
from trustdoctor.envelope import Count, Document, Number, convert, read_number
from trustdoctor.errors import FileError, InputError
from trustdoctor.gates.certificate import Certificate
from trustdoctor.gates.classes import Classes
from trustdoctor.gates.gate import Gate
from trustdoctor.gates.groups import Group, GroupThreshold, State
from trustdoctor.gates.margins import Margins
from trustdoctor.gates.shortlists import read_shortlist, shortlist_content
from trustdoctor.predictions import AS_PREDICTED, check_cutoff
from trustdoctor.scores import ScoreDocument, read_score, save_beside, score_document

SCHEMA = 3
RENEWAL = "Calibrate it again."


class GroupDocument(Document, frozen=True):
    """The threshold of a group, as a gate's file has it."""

    group: Group
    threshold: Number
    state: State
    n: Count
    promised: bool

    @classmethod
    def of(cls, group: Group, rule: GroupThreshold) -> "GroupDocument":
        """Describe the threshold of a group."""
        return cls(
            group=group,
            threshold=envelope.number(rule.threshold),
            state=rule.state,
            n=rule.n,
            promised=rule.promised,
        )

    def rule(self) -> GroupThreshold:
        """Return the threshold that the file describes."""
        threshold = read_number(self.threshold)
        return GroupThreshold(threshold, self.state, self.n, self.promised)


class MarginsDocument(Document, frozen=True):
    """Margins, as a gate's file has them."""

    views: tuple[str, ...]
    accept: list[Number]
    reject: list[Number]


class GateDocument(Document, frozen=True, omit_defaults=True):
    """What a gate's file holds; `gamma` is there for readers, and must agree."""

    schema: int
    threshold: Number
    state: State
    gamma: float | None
    score: ScoreDocument | None
    certificate: dict[str, Any] | None
    groups: tuple[GroupDocument, ...] = ()
    grouped_by: str = ""
    margins: MarginsDocument | None = None
    on_confidences: bool = False
    classes: Annotated[int, Meta(ge=2)] | list[str] | None = None
    shortlist: dict[str, Any] | None = None
    decided_by: str = ""


def save_gate(gate: Gate, path: str | Path) -> None:
    """Write a gate, and a large fitted score beside it."""
    write_text(path, to_json(gate, score_file=save_beside(gate.score, path)))


def to_json(gate: Gate, *, score_file: str | None = None) -> str:
    """Return a gate as JSON; `score_file` names the file that holds its score."""
    document = GateDocument(
        schema=SCHEMA,
        threshold=envelope.number(gate.threshold),
        state=gate.state,
        gamma=gate.gamma,
        score=None
        if gate.score is None
        else score_document(gate.score, file=score_file),
        certificate=None if gate.certificate is None else gate.certificate.to_dict(),
        groups=tuple(
            GroupDocument.of(group, rule) for group, rule in gate.groups.items()
        ),
        grouped_by=gate.grouped_by,
        margins=None if gate.margins is None else _margins_document(gate.margins),
        on_confidences=gate.on_confidences,
        classes=list(gate.classes) if isinstance(gate.classes, tuple) else gate.classes,
        shortlist=None if gate.shortlist is None else shortlist_content(gate.shortlist),
        decided_by=gate.decided_by,
    )
    content: dict[str, Any] = msgspec.to_builtins(document)
    del content["schema"]  # which the envelope writes
    return envelope.dump("gate", SCHEMA, content)


def load_gate(path: str | os.PathLike[str]) -> Gate:
    """Read a gate, refusing whatever is not understood."""
    content = envelope.load(path, "gate", schemas=(SCHEMA,), renewal=RENEWAL)
    return _read(content, path, Path(path).parent)


def from_json(text: str) -> Gate:
    """Read a gate from its JSON, which holds its score: no other file is opened."""
    origin = "the text"
    content = envelope.check(text, origin, "gate", schemas=(SCHEMA,), renewal=RENEWAL)
    return _read(content, origin, None)


def _read(
    content: dict[str, Any], path: str | os.PathLike[str], folder: Path | None
) -> Gate:
    """Return the gate of a file; fitted scores beside it are in `folder`."""
    try:
        document = convert(content, GateDocument)
        gate = _gate(document, folder)
        if not _agree(document.gamma, gate.gamma):
            message = "its gamma is not exp(threshold)."
            raise FileError(message)
    except (InputError, FileError, TypeError) as error:
        message = f"the gate in {path} is not valid: {error}"
        raise FileError(message) from error
    return gate


def _gate(document: GateDocument, folder: Path | None) -> Gate:
    certificate, score = document.certificate, document.score
    return Gate(
        read_number(document.threshold),
        None if score is None else read_score(score, folder=folder),
        state=document.state,
        certificate=None if certificate is None else Certificate.from_dict(certificate),
        groups=_thresholds_by_group(document.groups),
        grouped_by=document.grouped_by,
        margins=None if document.margins is None else _margins(document.margins),
        on_confidences=document.on_confidences,
        classes=check_class_list(document.classes),
        shortlist=read_shortlist(document.shortlist),
        decided_by=_check_decided_by(document.decided_by),
    )


def _agree(written: float | None, gamma: float | None) -> bool:
    """Tell whether a file says this number; exp may differ in its last digit."""
    if written is None or gamma is None:
        return written is gamma
    return math.isclose(written, gamma, rel_tol=1e-12)


def _margins_document(margins: Margins) -> MarginsDocument:
    return MarginsDocument(
        views=margins.views,
        accept=list(map(envelope.number, margins.accept)),
        reject=list(map(envelope.number, margins.reject)),
    )


def _margins(document: MarginsDocument) -> Margins:
    accept, reject = (
        tuple(map(read_number, limits)) for limits in (document.accept, document.reject)
    )
    return Margins(document.views, accept, reject)


def _thresholds_by_group(
    groups: Iterable[GroupDocument],
) -> dict[Group, GroupThreshold]:
    thresholds: dict[Group, GroupThreshold] = {}
    for document in groups:
        if document.group in thresholds:
            message = f"it has the group {envelope.shown(document.group)} twice."
            raise FileError(message)
        thresholds[document.group] = document.rule()
    return thresholds


def check_class_list(classes: int | list[str] | None) -> Classes | None:
    """Return the number of classes or their names, each of which comes once."""
    if not isinstance(classes, list):
        return classes
    if len(classes) < 2 or len(set(classes)) < len(classes):
        message = (
            f"expected the names of classes, each once, got {envelope.shown(classes)}."
        )
        raise FileError(message)
    return tuple(classes)


def read_classes(content: Any) -> Classes | None:
    """Read how many classes there are, or their names."""
    kind: Any = Annotated[int, Meta(ge=2)] | list[str] | None
    return check_class_list(convert(content, kind, "classes"))


def _check_decided_by(decided_by: str) -> str:
    kind, _, value = decided_by.partition(" ")
    if kind == "cutoff":
        try:
            if f"{check_cutoff(float(value))!r}" == value:
                return decided_by
        except ValueError:  # an InputError, too
            pass
    elif not value and kind in ("", AS_PREDICTED):
        return decided_by
    message = (
        "expected decided_by as predicted or cutoff 0.3, got "
        f"{envelope.shown(decided_by)}."
    )
    raise FileError(message)
