"""Gates as JSON: written whole, read with suspicion.

A fitted score stands in the gate's own file up to `EMBEDDED` bytes. A larger one goes
into a file beside it, which the gate names with the score's digest.
"""

import base64
import math
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trustdoctor import envelope
from trustdoctor.atomic import write_text
from trustdoctor.envelope import check_fields, read_list, read_number
from trustdoctor.errors import FileError, InputError
from trustdoctor.gates.certificate import Certificate
from trustdoctor.gates.gate import Gate, Group, GroupRule
from trustdoctor.gates.margins import Margins
from trustdoctor.scores import FittedScore, build_score, load_score

SCHEMA = 2
SCHEMAS = (1, 2)
"""Version 0.1 wrote schema 1, which still loads."""

EMBEDDED = 1_000_000
"""Bytes of a fitted score that a gate's own file holds at most."""

_FIELDS = {"schema", "score", "temperature", "state", "threshold", "gamma", "groups"}
_FIELDS |= {"grouped_by", "certificate"}
_OPTIONAL = {"margins", "fitted", "unit"}
_GROUP_FIELDS = {"group", "threshold", "state", "n", "promised"}
_FLOATS, _INTEGERS = ("<f8", "<f4", "<f2"), ("<i8", "<i4", "<i2", "|i1")
_TYPES = (*_FLOATS, *_INTEGERS, "<u8", "<u4", "<u2", "|u1", "|b1")


def save_gate(gate: Gate, path: str | Path) -> None:
    """Write a gate, and a large fitted score beside it."""
    beside = None
    if gate.fitted is not None and _size(gate.fitted) > EMBEDDED:
        # By its digest, so that a gate that is there already keeps its own.
        name = f"{gate.fitted.name}-{gate.fitted.digest[:12]}"
        beside = Path(path).with_suffix(f".{name}.safetensors")
        gate.fitted.save(beside)
    write_text(path, to_json(gate, beside=None if beside is None else beside.name))


def to_json(gate: Gate, *, beside: str | None = None) -> str:
    """Return a gate as JSON; `beside` names the file of its fitted score."""
    groups = [
        {
            "group": group,
            "threshold": envelope.number(rule.threshold),
            "state": rule.state,
            "n": rule.n,
            "promised": rule.promised,
        }
        for group, rule in gate.groups.items()
    ]
    content = {
        "score": gate.score,
        "temperature": gate.temperature,
        "state": gate.state,
        "threshold": envelope.number(gate.threshold),
        "gamma": gate.gamma,
        "groups": groups,
        "grouped_by": gate.grouped_by,
        "margins": None if gate.margins is None else _margins(gate.margins),
        "fitted": None if gate.fitted is None else _fitted(gate.fitted, beside),
        "certificate": gate.certificate and gate.certificate.to_dict(),
    }
    if gate.unit:
        content["unit"] = True
    return envelope.dump("gate", SCHEMA, content)


def load_gate(path: str | Path) -> Gate:
    """Read a gate, refusing whatever is not understood."""
    content = envelope.load(path, "gate", schemas=SCHEMAS)
    try:
        first = content.get("schema") == 1
        check_fields(content, _FIELDS, {"margins"} if first else _OPTIONAL)
        certificate = content["certificate"]
        fitted = content.get("fitted")
        gate = Gate(
            read_number(content["threshold"]),
            score=content["score"],
            temperature=read_number(content["temperature"]),
            state=content["state"],
            certificate=None
            if certificate is None
            else Certificate.from_dict(certificate),
            groups=dict(map(_read_group, read_list(content["groups"]))),
            grouped_by=str(content["grouped_by"]),
            margins=_read_margins(content.get("margins")),
            unit=_read_unit(content.get("unit", False)),
            fitted=None
            if fitted is None
            else _read_fitted(fitted, content["score"], Path(path).parent),
        )
    except (InputError, FileError, TypeError, OverflowError) as error:
        message = f"the gate in {path} is not valid: {error}"
        raise FileError(message) from error
    if content["gamma"] != gate.gamma:
        message = f"the gate in {path} is not valid: its gamma is not exp(threshold)."
        raise FileError(message)
    return gate


def _size(score: FittedScore) -> int:
    return sum(array.nbytes for array in score.parts()[0].values())


def _margins(margins: Margins) -> dict[str, Any]:
    return {
        "views": list(margins.views),
        "accept": list(map(envelope.number, margins.accept)),
        "reject": list(map(envelope.number, margins.reject)),
    }


def _read_unit(content: Any) -> bool:
    if type(content) is not bool:
        message = f"expected unit as true or false, got {content!r}."
        raise FileError(message)
    return content


def _read_margins(content: Any) -> Margins | None:
    if content is None:
        return None
    check_fields(content, {"views", "accept", "reject"})
    views = tuple(map(str, read_list(content["views"])))
    ends = (
        tuple(map(read_number, read_list(content[n]))) for n in ("accept", "reject")
    )
    return Margins(views, *ends)


def _read_group(content: Any) -> tuple[Group, GroupRule]:
    check_fields(content, _GROUP_FIELDS)
    group, n, promised = content["group"], content["n"], content["promised"]
    if (
        type(group) not in (int, str)
        or type(n) is not int
        or type(promised) is not bool
    ):
        message = f"a group is not as expected: {content!r}."
        raise FileError(message)
    threshold = read_number(content["threshold"])
    return group, GroupRule(threshold, content["state"], n, promised)


def _fitted(score: FittedScore, beside: str | None) -> dict[str, Any]:
    if beside is not None:
        return {"file": beside, "digest": score.digest}
    arrays, plain = score.parts()
    shown = {name: _array(array) for name, array in arrays.items()}
    return {"plain": plain, "arrays": shown, "digest": score.digest}


def _array(array: NDArray[Any]) -> dict[str, Any]:
    kind = np.dtype(array.dtype).newbyteorder("<")
    raw = np.ascontiguousarray(array, kind).tobytes()
    content = base64.b64encode(raw).decode("ascii")
    return {"type": kind.str, "shape": list(array.shape), "base64": content}


def _read_fitted(content: Any, kind: Any, folder: Path) -> FittedScore:
    """Read a fitted score out of the gate's file, or from the file beside it."""
    if isinstance(content, dict) and "file" in content:
        check_fields(content, {"file", "digest"})
        name = str(content["file"])
        if Path(name).name != name:
            message = f"expected a file beside the gate, got {name!r}."
            raise FileError(message)
        score = load_score(folder / name)
    else:
        check_fields(content, {"plain", "arrays", "digest"})
        for part in ("plain", "arrays"):
            if not isinstance(content[part], dict):
                message = f"expected the score's {part} by name."
                raise FileError(message)
        arrays = {n: _read_array(a) for n, a in content["arrays"].items()}
        score = build_score(str(kind), arrays, content["plain"])
    if score.digest != content["digest"]:
        message = "its fitted score was changed: the digest is another. Save it again."
        raise FileError(message)
    return score


def _read_array(content: Any) -> NDArray[Any]:
    check_fields(content, {"type", "shape", "base64"})
    shape = read_list(content["shape"])
    whole = all(type(n) is int and n >= 0 for n in shape)
    if content["type"] not in _TYPES or not whole:
        message = f"expected arrays of {', '.join(_TYPES)}, got {content['type']!r}."
        raise FileError(message)
    try:
        raw = base64.b64decode(str(content["base64"]), validate=True)
    except ValueError as error:
        message = f"expected an array in base64: {error}."
        raise FileError(message) from error
    kind = np.dtype(content["type"])
    if len(raw) != math.prod(shape) * kind.itemsize:
        message = f"expected an array of shape {shape}, got {len(raw)} bytes."
        raise FileError(message)
    return np.frombuffer(raw, kind).reshape(shape).astype(kind.newbyteorder("="))
