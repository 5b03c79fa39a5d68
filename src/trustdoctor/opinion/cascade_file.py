"""Cascades as JSON: written whole, read with suspicion."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from trustdoctor import envelope
from trustdoctor.arrays import Array
from trustdoctor.atomic import write_text
from trustdoctor.envelope import (
    check_fields,
    number,
    read_list,
    read_number,
    read_text,
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
from trustdoctor.opinion.measured import Alone, Measured
from trustdoctor.opinion.policies import KINDS

SCHEMA = 1
_PLAIN = {"score", "combine"}
_FIELDS = {*_PLAIN, "schema", "stages", "thresholds", "costs", "classes"}
_FIELDS |= {"certificate", "shortlist", "measured"}
_MEASURED = {"target", "limit", "rows", "listed_by", "passed", "asked"}
_ALONE = {"name", "cost", "rate", "person", "more"}


def save_cascade(cascade: Cascade, path: str | Path) -> None:
    """Write a cascade."""
    write_text(path, to_json(cascade))


def to_json(cascade: Cascade) -> str:
    """Return a cascade as JSON."""
    own, short, seen = cascade.certificate, cascade.shortlist, cascade.measured
    content: dict[str, Any] = {
        "stages": list(cascade.stages),
        "thresholds": list(map(number, cascade.thresholds)),
        "costs": list(cascade.costs),
        "score": cascade.score,
        "combine": cascade.combine,
        "classes": cascade.classes,
        "certificate": own and own.to_dict(),
        "shortlist": None if short is None else shortlist_content(short),
        "measured": None if seen is None else _measured(seen),
    }
    return envelope.dump("cascade", SCHEMA, content)


def load_cascade(path: str | Path) -> Cascade:
    """Read a cascade, refusing whatever is not understood."""
    content = envelope.load(path, "cascade", schemas=(SCHEMA,))
    try:
        check_fields(content, _FIELDS)
        return _cascade(content)
    except (InputError, FileError, TypeError, ValueError) as error:
        message = f"the cascade in {path} is not valid: {error}"
        raise FileError(message) from error


def _cascade(content: dict[str, Any]) -> Cascade:
    certificate = content["certificate"]
    return Cascade(
        tuple(map(read_text, read_list(content["stages"]))),
        tuple(map(read_number, read_list(content["thresholds"]))),
        tuple(map(read_number, read_list(content["costs"]))),
        **{name: read_text(content[name]) for name in _PLAIN},
        classes=read_classes(content["classes"]),
        certificate=None if certificate is None else Certificate.from_dict(certificate),
        shortlist=read_shortlist(content["shortlist"]),
        measured=_read_measured(content["measured"]),
    )


def _measured(seen: Measured) -> dict[str, Any]:
    plain = {name: getattr(seen, name) for name in sorted(_MEASURED)}
    return plain | {
        "asked": list(seen.asked),
        "whole": _alone(seen.whole),
        "alone": list(map(_alone, seen.alone)),
        "policies": seen.policies.tolist(),
        "tested": seen.tested.tolist(),
        "curves": {name: curve.tolist() for name, curve in seen.curves.items()},
    }


def _alone(one: Alone) -> dict[str, Any]:
    more = one.more
    return {
        "name": one.name,
        "cost": [one.cost.value, one.cost.low, one.cost.high],
        "rate": one.rate,
        "person": one.person,
        "more": None if more is None else [more.value, more.low, more.high],
    }


def _read_measured(content: Any) -> Measured | None:
    if content is None:
        return None
    arrays = {"policies", "tested", "curves"}
    check_fields(content, _MEASURED | arrays | {"whole", "alone"})
    counts = [content[name] for name in ("rows", "listed_by", "passed")]
    known = content["target"] in KINDS and isinstance(content["curves"], dict)
    if not known or any(type(n) is not int or n < 1 for n in counts):
        message = f"expected what was measured, got {shown(counts)}."
        raise FileError(message)
    seen = Measured(
        content["target"],
        _read_share(content["limit"]),
        content["rows"],
        content["listed_by"],
        _read_alone(content["whole"]),
        tuple(map(_read_alone, read_list(content["alone"]))),
        tuple(map(_read_share, read_list(content["asked"]))),
        _read_points(content["policies"]),
        _read_points(content["tested"]),
        content["passed"],
    )
    curves = {read_text(n): _read_points(c) for n, c in content["curves"].items()}
    if seen.passed > len(seen.tested):
        message = f"expected {seen.passed} policies that passed, got fewer tested."
        raise FileError(message)
    return replace(seen, curves=curves)


def _read_share(content: Any) -> float:
    value = read_number(content)
    if not 0 <= value <= 1:
        message = f"expected a share from 0 to 1, got {shown(content)}."
        raise FileError(message)
    return value


def _read_alone(content: Any) -> Alone:
    check_fields(content, _ALONE)
    more = content["more"]
    return Alone(
        read_text(content["name"]),
        _read_estimate(content["cost"]),
        _read_share(content["rate"]),
        _read_share(content["person"]),
        None if more is None else _read_estimate(more),
    )


def _read_estimate(content: Any) -> Estimate:
    ends = list(map(read_number, read_list(content)))
    finite = bool(np.isfinite(ends).all())
    if len(ends) != 3 or not (finite and ends[1] <= ends[0] <= ends[2]):
        message = f"expected a number and its interval, got {shown(content)}."
        raise FileError(message)
    return Estimate(ends[0], ends[1], ends[2])


def _read_points(content: Any) -> Array:
    rows = [list(map(read_number, read_list(one))) for one in read_list(content)]
    if any(len(row) != 2 or not np.isfinite(row).all() for row in rows):
        message = "expected points of a rate and a cost."
        raise FileError(message)
    return np.array(rows, float).reshape(-1, 2)
