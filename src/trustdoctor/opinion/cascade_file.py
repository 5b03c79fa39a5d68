"""Cascades as JSON: written whole or not at all, read with suspicion."""

import os
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import numpy as np

from trustdoctor import envelope
from trustdoctor.arrays import Array
from trustdoctor.atomic import write_text
from trustdoctor.envelope import (
    MOST_ROWS,
    Document,
    Number,
    Rate,
    convert,
    number,
    read_number,
    shown,
)
from trustdoctor.errors import FileError, InputError
from trustdoctor.gates import (
    Certificate,
    read_classes,
    read_shortlist,
    shortlist_content,
)
from trustdoctor.metrics import Estimate
from trustdoctor.opinion.cascade import Cascade
from trustdoctor.opinion.policies import Alone, Measured

SCHEMA = 2
RENEWAL = "Calibrate it again."
"""What to do with a cascade of an earlier version."""

Positive = Annotated[int, msgspec.Meta(ge=1, lt=MOST_ROWS)]
Interval = tuple[float, float, float]
"""A value and the ends of its interval."""

Points = list[tuple[float, float]]
"""Rates and costs."""


class AloneDocument(Document, frozen=True):
    """What a cascade, or one model alone, does."""

    name: str
    cost: Interval
    rate: Rate
    person: Rate
    more: Interval | None

    @classmethod
    def of(cls, alone: Alone) -> "AloneDocument":
        """Return the document of an `Alone`."""
        return cls(
            name=alone.name,
            cost=_interval(alone.cost),
            rate=alone.rate,
            person=alone.person,
            more=None if alone.more is None else _interval(alone.more),
        )

    def alone(self) -> Alone:
        """Return the `Alone` that the document describes."""
        more = None if self.more is None else _estimate(self.more)
        return Alone(self.name, _estimate(self.cost), self.rate, self.person, more)


class MeasuredDocument(Document, frozen=True):
    """What policies cost on the rows that tested them."""

    asked: list[Rate]
    limit: Rate
    listed_by: Positive
    passed: Positive
    rows: Positive
    target: Literal["risk", "joint", "trr"]
    whole: AloneDocument
    alone: list[AloneDocument]
    policies: Points
    tested: Points
    curves: dict[str, Points]

    @classmethod
    def of(cls, measured: Measured) -> "MeasuredDocument":
        """Return the document of a `Measured`."""
        return cls(
            asked=list(measured.asked),
            limit=measured.limit,
            listed_by=measured.listed_by,
            passed=measured.passed,
            rows=measured.rows,
            target=measured.target,  # type: ignore[arg-type]
            whole=AloneDocument.of(measured.whole),
            alone=list(map(AloneDocument.of, measured.alone)),
            policies=measured.policies.tolist(),
            tested=measured.tested.tolist(),
            curves={name: curve.tolist() for name, curve in measured.curves.items()},
        )

    def measured(self) -> Measured:
        """Return the `Measured` that the document describes."""
        if self.passed > len(self.tested):
            message = f"expected {self.passed} policies that passed, got fewer tested."
            raise FileError(message)
        return Measured(
            self.target,
            self.limit,
            self.rows,
            self.listed_by,
            self.whole.alone(),
            tuple(document.alone() for document in self.alone),
            tuple(self.asked),
            _array(self.policies),
            _array(self.tested),
            self.passed,
            {name: _array(curve) for name, curve in self.curves.items()},
        )


class CascadeDocument(Document, frozen=True):
    """A cascade, as its file has it."""

    schema: int
    stages: list[str]
    thresholds: list[Number]
    costs: list[float]
    score: str
    combine: str
    classes: int | list[str] | None
    certificate: Any
    shortlist: Any
    measured: MeasuredDocument | None


def save_cascade(cascade: Cascade, path: str | Path) -> None:
    """Write a cascade."""
    write_text(path, to_json(cascade))


def to_json(cascade: Cascade) -> str:
    """Return a cascade as JSON."""
    certificate, classes = cascade.certificate, cascade.classes
    shortlist, measured = cascade.shortlist, cascade.measured
    document = CascadeDocument(
        schema=SCHEMA,
        stages=list(cascade.stages),
        thresholds=[number(t) for t in cascade.thresholds],
        costs=list(cascade.costs),
        score=cascade.score,
        combine=cascade.combine,
        classes=list(classes) if isinstance(classes, tuple) else classes,
        certificate=None if certificate is None else certificate.to_dict(),
        shortlist=None if shortlist is None else shortlist_content(shortlist),
        measured=None if measured is None else MeasuredDocument.of(measured),
    )
    content: dict[str, Any] = msgspec.to_builtins(document)
    del content["schema"]  # the envelope writes it
    return envelope.dump("cascade", SCHEMA, content)


def load_cascade(path: str | os.PathLike[str]) -> Cascade:
    """Read a cascade; refuse a file that is not valid."""
    content = envelope.load(path, "cascade", schemas=(SCHEMA,), renewal=RENEWAL)
    try:
        return _cascade(convert(content, CascadeDocument))
    except (InputError, FileError, TypeError, ValueError) as error:
        message = f"the cascade in {path} is not valid: {error}"
        raise FileError(message) from error


def _cascade(document: CascadeDocument) -> Cascade:
    certificate, measured = document.certificate, document.measured
    return Cascade(
        tuple(document.stages),
        tuple(map(read_number, document.thresholds)),
        tuple(document.costs),
        document.score,
        document.combine,
        classes=read_classes(document.classes),
        certificate=None if certificate is None else Certificate.from_dict(certificate),
        shortlist=read_shortlist(document.shortlist),
        measured=None if measured is None else measured.measured(),
    )


def _interval(estimate: Estimate) -> Interval:
    return estimate.value, estimate.low, estimate.high  # type: ignore[return-value]


def _estimate(interval: Interval) -> Estimate:
    value, low, high = interval
    if not low <= value <= high:
        message = f"expected a number and its interval, got {shown(list(interval))}."
        raise FileError(message)
    return Estimate(value, low, high)


def _array(points: Points) -> Array:
    return np.array(points, float).reshape(-1, 2)
