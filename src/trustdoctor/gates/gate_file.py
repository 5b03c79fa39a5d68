"""Gates as JSON: written whole, read with suspicion.

A fitted score stands in the gate's own file up to `EMBEDDED` bytes. A larger one goes
into a file beside it, which the gate names with the score's digest.
"""

import base64
import math
import os
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trustdoctor import envelope
from trustdoctor.atomic import write_text
from trustdoctor.envelope import (
    check_fields,
    read_list,
    read_number,
    read_text,
    shown,
)
from trustdoctor.errors import FileError, InputError, TrustDoctorError
from trustdoctor.gates.certificate import Certificate
from trustdoctor.gates.classes import Classes
from trustdoctor.gates.gate import Gate
from trustdoctor.gates.margins import Margins
from trustdoctor.gates.shortlists import read_shortlist, shortlist_content
from trustdoctor.gates.thresholds import Group, GroupThreshold
from trustdoctor.predictions import AS_PREDICTED, check_cutoff
from trustdoctor.scores import FittedScore, build_score, load_score

SCHEMA = 3
SCHEMAS = (SCHEMA,)

EMBEDDED = 1_000_000
"""Bytes of a fitted score that a gate's own file holds at most."""

_LONGEST = 255  # bytes of a file's name

_FIELDS = {"schema", "score", "temperature", "state", "threshold", "gamma", "groups"}
_FIELDS |= {"grouped_by", "certificate"}
_OPTIONAL = {"margins", "fitted", "unit", "classes", "shortlist", "decided_by"}
_GROUP_FIELDS = {"group", "threshold", "state", "n", "promised"}
_FLOATS, _INTEGERS = ("<f8", "<f4", "<f2"), ("<i8", "<i4", "<i2", "|i1")
_TYPES = (*_FLOATS, *_INTEGERS, "<u8", "<u4", "<u2", "|u1", "|b1")


def save_gate(gate: Gate, path: str | Path) -> None:
    """Write a gate, and a large fitted score beside it."""
    beside = None
    if gate.fitted is not None and _size(gate.fitted) > EMBEDDED:
        beside = _name_beside(Path(path), gate.fitted)
        gate.fitted.save(beside)
    write_text(path, to_json(gate, beside=None if beside is None else beside.name))


def _name_beside(path: Path, score: FittedScore) -> Path:
    """Return a name by the digest: a gate that is there already keeps its own score."""
    end = f".{score.name}-{score.digest[:12]}.safetensors"
    room = _LONGEST - len(os.fsencode(end))
    stem = os.fsencode(path.stem)[:room].decode("utf-8", "ignore")
    return path.with_name(stem + end)


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
    content: dict[str, Any] = {
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
    if gate.classes is not None:
        content["classes"] = gate.classes
    if gate.shortlist is not None:
        content["shortlist"] = shortlist_content(gate.shortlist)
    if gate.decided_by:
        content["decided_by"] = gate.decided_by
    return envelope.dump("gate", SCHEMA, content)


def load_gate(path: str | os.PathLike[str]) -> Gate:
    """Read a gate, refusing whatever is not understood."""
    content = envelope.load(path, "gate", schemas=SCHEMAS)
    return _read(content, path, Path(path).parent)


def from_json(text: str) -> Gate:
    """Read a gate from its JSON, which holds its score: no other file is opened."""
    what = "the text"
    content = envelope.check(text, what, "gate", schemas=SCHEMAS)
    fitted = content.get("fitted")
    if isinstance(fitted, dict) and "file" in fitted:
        message = (
            "expected a gate that holds its fitted score, got one that names a file. "
            "Write it by Gate.to_json()."
        )
        raise FileError(message)
    return _read(content, what, Path())


def _read(content: dict[str, Any], path: str | os.PathLike[str], folder: Path) -> Gate:
    try:
        check_fields(content, _FIELDS, _OPTIONAL)
        gate = _gate(content, folder)
        if not _is_same(content["gamma"], gate.gamma):
            message = "its gamma is not exp(threshold)."
            raise FileError(message)
    except (InputError, FileError, TypeError) as error:
        message = f"the gate in {path} is not valid: {error}"
        raise FileError(message) from error
    return gate


def _gate(content: dict[str, Any], folder: Path) -> Gate:
    certificate, fitted = content["certificate"], content.get("fitted")
    return Gate(
        read_number(content["threshold"]),
        score=content["score"],
        temperature=read_number(content["temperature"]),
        state=content["state"],
        certificate=None if certificate is None else Certificate.from_dict(certificate),
        groups=_read_groups(content["groups"]),
        grouped_by=read_text(content["grouped_by"]),
        margins=_read_margins(content.get("margins")),
        unit=_read_unit(content.get("unit", False)),
        classes=read_classes(content.get("classes")),
        shortlist=read_shortlist(content.get("shortlist")),
        decided_by=_read_decided_by(content.get("decided_by", "")),
        fitted=None
        if fitted is None
        else _read_fitted(fitted, content["score"], folder),
    )


def _is_same(value: Any, gamma: float | None) -> bool:
    """Whether a file says this number, or None; the last digit may be another's."""
    if value is None or gamma is None:
        return value is gamma
    return math.isclose(read_number(value), gamma, rel_tol=1e-12)


def _size(score: FittedScore) -> int:
    return sum(array.nbytes for array in score.to_state()[0].values())


def _margins(margins: Margins) -> dict[str, Any]:
    return {
        "views": list(margins.views),
        "accept": list(map(envelope.number, margins.accept)),
        "reject": list(map(envelope.number, margins.reject)),
    }


def _read_unit(content: Any) -> bool:
    if type(content) is not bool:
        message = f"expected unit as true or false, got {shown(content)}."
        raise FileError(message)
    return content


def _read_decided_by(content: Any) -> str:
    kind, _, value = read_text(content).partition(" ")
    if kind == "cutoff":
        try:
            if f"{check_cutoff(float(value))!r}" == value:
                return f"{kind} {value}"
        except ValueError:  # an InputError, too
            pass
    elif not value and kind in ("", AS_PREDICTED):
        return kind
    message = f"expected decided_by as predicted or cutoff 0.3, got {shown(content)}."
    raise FileError(message)


def read_classes(content: Any) -> Classes | None:
    """Read how many classes there are, or their names."""
    if content is None or (type(content) is int and content > 1):
        return content
    names = tuple(map(read_text, read_list(content)))
    if len(names) < 2 or len(set(names)) < len(names):
        message = f"expected the names of classes, each once, got {shown(content)}."
        raise FileError(message)
    return names


def _read_margins(content: Any) -> Margins | None:
    if content is None:
        return None
    check_fields(content, {"views", "accept", "reject"})
    views = tuple(map(read_text, read_list(content["views"])))
    ends = (
        tuple(map(read_number, read_list(content[n]))) for n in ("accept", "reject")
    )
    return Margins(views, *ends)


def _read_groups(content: Any) -> dict[Group, GroupThreshold]:
    out: dict[Group, GroupThreshold] = {}
    for one in read_list(content):
        check_fields(one, _GROUP_FIELDS)
        group = one["group"]
        if type(group) not in (int, str) or group in out:
            message = f"expected a group once, by number or name, got {shown(group)}."
            raise FileError(message)
        at = read_number(one["threshold"])
        out[group] = GroupThreshold(at, one["state"], one["n"], one["promised"])
    return out


def _fitted(score: FittedScore, beside: str | None) -> dict[str, Any]:
    if beside is not None:
        return {"file": beside, "digest": score.digest}
    arrays, plain = score.to_state()
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
        score = load_score(_beside(folder, read_text(content["file"])))
    else:
        check_fields(content, {"plain", "arrays", "digest"})
        for part in ("plain", "arrays"):
            if not isinstance(content[part], dict):
                message = f"expected the score's {part} by name."
                raise FileError(message)
        arrays = {n: _read_array(a) for n, a in content["arrays"].items()}
        score = _built(read_text(kind), arrays, content["plain"])
    if score.digest != content["digest"]:
        message = "its fitted score was changed: the digest is another. Save it again."
        raise FileError(message)
    return score


def _beside(folder: Path, name: str) -> Path:
    if Path(name).name != name or "\0" in name:
        message = f"expected a file beside the gate, got {shown(name)}."
        raise FileError(message)
    return folder / name


def _built(
    kind: str, arrays: dict[str, NDArray[Any]], plain: dict[str, Any]
) -> FittedScore:
    try:
        return build_score(kind, arrays, plain)
    except TrustDoctorError:
        raise
    except Exception as error:  # of values that its class never wrote
        message = f"its parts make no {kind} score: {error}."
        raise FileError(message) from error


def _read_array(content: Any) -> NDArray[Any]:
    check_fields(content, {"type", "shape", "base64"})
    shape = read_list(content["shape"])
    whole = all(type(n) is int and n >= 0 for n in shape)
    if content["type"] not in _TYPES or not whole:
        known = ", ".join(_TYPES)
        message = f"expected arrays of {known}, got {shown(content['type'])}."
        raise FileError(message)
    try:
        raw = base64.b64decode(read_text(content["base64"]), validate=True)
        kind = np.dtype(content["type"])
        array = np.frombuffer(raw, kind).reshape(shape)
    except FileError:
        raise
    except ValueError as error:
        message = f"expected an array in base64 of shape {shown(shape)}: {error}."
        raise FileError(message) from error
    return array.astype(kind.newbyteorder("="))
