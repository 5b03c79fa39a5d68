"""Documents that are loaded and saved again stay the same."""

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
from msgspec import structs

from fuzz.capture import called, refusal
from fuzz.cases import Case
from fuzz.verdicts import report
from trustdoctor.gates import Certificate
from trustdoctor.gates.gate_file import GateDocument


def check_saved(case: Case, load: Callable[[Path], Any]) -> None:
    """Report a document that is another after it was loaded and saved."""
    loaded = called(lambda: load(case.target))
    if refusal(loaded):
        return
    second_path = case.folder.parent / f"{case.folder.name}-again.json"
    called(lambda: loaded.save(second_path))
    reloaded = called(lambda: load(second_path))
    if refusal(reloaded):
        report("what was saved is refused", str(reloaded))
    second = json.loads(second_path.read_bytes())
    second_path.unlink()
    if case.kind.format == "database":
        return
    first = json.loads(case.target.read_bytes(), object_pairs_hook=_once)
    _fill_defaults(first, second)
    if type(first["schema"]) is not int:
        report("a schema that is no number is taken", repr(first["schema"]))
    if first["schema"] == second["schema"] and not same(first, second):
        report("saved again, it is another", f"{difference(first, second)}")


def _fill_defaults(first: Any, second: Any) -> None:
    """Give both documents what either leaves out, as its default says the same."""
    fitted = (first.get("score") or {}).get("fitted") if "gamma" in first else None
    if fitted and "plain" in fitted:
        # The digest tells that the score is the same.
        fitted["plain"] = second["score"]["fitted"]["plain"] | fitted["plain"]
    kinds: list[tuple[Any, Any, type]] = [(first, second, GateDocument)] * (
        "gamma" in first
    )
    if first.get("certificate"):
        kinds.append((first["certificate"], second["certificate"], Certificate))
    for written, rewritten, kind in kinds:
        for field in structs.fields(kind):
            if field.name in written and field.name not in rewritten:
                rewritten[field.name] = msgspec.json.decode(
                    msgspec.json.encode(field.default)
                )


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    out = dict(pairs)
    if len(out) < len(pairs):
        report("a key twice is taken", str([k for k, _ in pairs])[:200])
    return out


def same(first: Any, second: Any) -> bool:
    """Say whether two documents say the same; 1 and 1.0 do, true and 1 do not."""
    if isinstance(first, dict) and isinstance(second, dict):
        names = {*first, *second}
        return all(same(first.get(n), second.get(n)) for n in names)
    if isinstance(first, list) and isinstance(second, list):
        return len(first) == len(second) and all(map(same, first, second))
    if isinstance(first, bool) or isinstance(second, bool):
        return first is second
    numbers = isinstance(first, (int, float)) and isinstance(second, (int, float))
    if numbers:
        return math.isclose(first, second, rel_tol=1e-15)
    return first == second


def difference(first: Any, second: Any) -> Any:
    if isinstance(first, dict) and isinstance(second, dict):
        for name in {*first, *second}:
            if not same(first.get(name), second.get(name)):
                inner = difference(first.get(name), second.get(name))
                return f"{name}: {inner}"
    return f"{str(first)[:100]} -> {str(second)[:100]}"
