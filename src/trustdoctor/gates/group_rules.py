"""Thresholds for groups: who shares the risk of a broken promise, and who has one."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from trustdoctor.errors import InputError
from trustdoctor.gates import rules
from trustdoctor.gates.asked import Ask
from trustdoctor.gates.deciding import GroupRule
from trustdoctor.gates.outlook import passed_by_chance
from trustdoctor.gates.rules import Cut
from trustdoctor.gates.sample import Sample

NOTHING_PROMISED = (
    "No group has enough rows for a promise, so nothing is promised: all have the "
    "pooled threshold."
)


@dataclass(frozen=True)
class Grouped:
    """Groups with thresholds of their own.

    Attributes
    ----------
    rules : dict of group to GroupRule
    notes : list of str
        What to say of them in the certificate.
    lucky : dict of group to int
        Groups whose gates passed by luck, and how many rows those accept.
    """

    rules: dict[Any, GroupRule]
    notes: list[str]
    lucky: dict[Any, int]

    @property
    def promised(self) -> bool:
        """Whether any group has a promise."""
        return any(rule.promised for rule in self.rules.values())


def split_rows(rows: Sample, groups: Any, ask: Ask) -> dict[Any, Sample]:
    """Return the rows of each group, unless the target is one for all rows."""
    alone = [target.name for target in ask.targets if not target.per_group]
    if alone:
        message = f"a {alone[0]} that is given is for all rows: leave groups out."
        raise InputError(message)
    return dict(rows.split(groups))


def group_rules(
    parts: dict[Any, Sample],
    ask: Ask,
    pooled: GroupRule,
    bar: Callable[[Cut, Sample], Cut],
) -> Grouped:
    """Calibrate each group; where its rows are too few it gets the pooled rule, bare.

    Groups whose number of rows allows a promise share the risk that one is broken;
    which those are must not depend on the scores.
    """
    delta = ask.delta
    shared = ask.promised and ask.how == "confidence"
    # Rows without an answer are a predicted class that nothing can accept.
    some = {n: p for n, p in parts.items() if p.of_kind("all").kth(1)[0] < math.inf}
    able = {n for n, p in some.items() if not shared or ask.allows(p, len(some))}
    own = delta / max(1, len(able)) if shared else delta
    found, lucky = dict[Any, GroupRule](), dict[Any, int]()
    for name, rows in parts.items():
        rule = replace(pooled, promised=False)
        cut = bar(ask.cut(rows, own), rows) if name in able else None
        if cut is not None and not cut.short:
            at = rules.place(cut, rows)
            rule = GroupRule(at, cut.state, promised=not cut.broken)
            if "risk" in ask.target and passed_by_chance(rows, cut, ask.tested["risk"]):
                lucky[name] = max(stage.last for stage in cut.stages)
        found[name] = replace(rule, n=len(rows))
    grouped = Grouped(found, [], lucky)
    grouped.notes.extend(_notes(grouped, len(able), own, shared=shared))
    return grouped


def _notes(grouped: Grouped, able: int, delta: float, *, shared: bool) -> list[str]:
    if not grouped.promised:
        return [NOTHING_PROMISED]
    notes = []
    if shared:
        who = "1 group carries" if able == 1 else f"{able} groups share"
        notes.append(
            "The promise holds in each group that has one, not for all rows together. "
            f"{who} the risk of a broken promise: {'it' if able == 1 else 'each'} is "
            f"calibrated at confidence {1 - delta:.6g}."
        )
    bare = [
        str(name) or "(no answer)"
        for name, rule in grouped.rules.items()
        if not rule.promised
    ]
    if bare:
        named = ", ".join(bare[:20]) + (" ..." if len(bare) > 20 else "")
        notes.append(
            f"Too few rows for a promise; pooled threshold without one: {named}."
        )
    return notes
