"""Documents of ours that are loaded and saved again: they say what they said."""

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
from msgspec import structs

from fuzz.capture import called, refusal
from fuzz.cases import Case
from fuzz.verdicts import found
from trustdoctor.gates import Certificate
from trustdoctor.gates.gate_file import GateDocument


def check_saved(case: Case, load: Callable[[Path], Any]) -> None:
    """Refuse that a document is taken for another than it is."""
    one = called(lambda: load(case.target))
    if refusal(one):
        return
    again = case.folder.parent / f"{case.folder.name}-again.json"
    called(lambda: one.save(again))
    other = called(lambda: load(again))
    if refusal(other):
        found("what was saved is refused", str(other))
    new = json.loads(again.read_bytes())
    again.unlink()
    if case.kind.format == "database":
        return
    own = json.loads(case.target.read_bytes(), object_pairs_hook=_once)
    _fill_defaults(own, new)
    if type(own["schema"]) is not int:
        found("a schema that is no number is taken", repr(own["schema"]))
    if own["schema"] == new["schema"] and not same(own, new):
        found("saved again, it is another", f"{difference(own, new)}")


def _fill_defaults(own: Any, new: Any) -> None:
    """Give both documents what either leaves out, as its default says the same."""
    fitted = (own.get("score") or {}).get("fitted") if "gamma" in own else None
    if fitted and "plain" in fitted:
        # The digest tells that the score is the same.
        fitted["plain"] = new["score"]["fitted"]["plain"] | fitted["plain"]
    kinds: list[tuple[Any, Any, type]] = [(own, new, GateDocument)] * ("gamma" in own)
    if own.get("certificate"):
        kinds.append((own["certificate"], new["certificate"], Certificate))
    for written, again, kind in kinds:
        for field in structs.fields(kind):
            if field.name in written and field.name not in again:
                again[field.name] = msgspec.json.decode(
                    msgspec.json.encode(field.default)
                )


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    out = dict(pairs)
    if len(out) < len(pairs):
        found("a key twice is taken", str([k for k, _ in pairs])[:200])
    return out


def same(one: Any, other: Any) -> bool:
    """Say whether two documents say the same; 1 and 1.0 do, true and 1 do not."""
    if isinstance(one, dict) and isinstance(other, dict):
        names = {*one, *other}
        return all(same(one.get(n), other.get(n)) for n in names)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    numbers = isinstance(one, (int, float)) and isinstance(other, (int, float))
    if numbers:
        return math.isclose(one, other, rel_tol=1e-15)
    return one == other


def difference(one: Any, other: Any) -> Any:
    if isinstance(one, dict) and isinstance(other, dict):
        for name in {*one, *other}:
            if not same(one.get(name), other.get(name)):
                inner = difference(one.get(name), other.get(name))
                return f"{name}: {inner}"
    return f"{str(one)[:100]} -> {str(other)[:100]}"
