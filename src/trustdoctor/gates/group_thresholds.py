"""Thresholds for groups: who shares the risk of a broken promise, and who has one."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from trustdoctor.errors import InputError
from trustdoctor.gates import rules
from trustdoctor.gates.outlook import passed_by_chance
from trustdoctor.gates.request import Request
from trustdoctor.gates.rules import Cut
from trustdoctor.gates.sample import Sample
from trustdoctor.gates.thresholds import GroupThreshold

NO_GROUP_PROMISED = (
    "No group has enough rows for a promise, so nothing is promised: all have the "
    "pooled threshold."
)
MOST_NAMED = 20
"""Groups that a note names."""


@dataclass(frozen=True)
class GroupCuts:
    """Groups with thresholds of their own.

    Attributes
    ----------
    thresholds : dict of group to GroupThreshold
    notes : list of str
        What to say of them in the certificate.
    lucky : dict of group to int
        Groups whose thresholds passed by luck, and how many rows those accept.
    """

    thresholds: dict[Any, GroupThreshold]
    notes: list[str]
    lucky: dict[Any, int]

    @property
    def promised(self) -> bool:
        """Whether any group has a promise."""
        return any(rule.promised for rule in self.thresholds.values())


def split_groups(sample: Sample, groups: Any, request: Request) -> dict[Any, Sample]:
    """Return the sample of each group, unless the target is one for all rows."""
    for_all = [target.name for target in request.targets if not target.per_group]
    if for_all:
        message = f"a {for_all[0]} that is given is for all rows: leave groups out."
        raise InputError(message)
    return dict(sample.split(groups))


def cut_groups(
    samples: dict[Any, Sample],
    request: Request,
    pooled: GroupThreshold,
    reachable: Callable[[Cut, Sample], Cut],
) -> GroupCuts:
    """Cut each group; where its rows are too few it gets the pooled threshold.

    Groups whose number of rows allows a promise share the risk that one is broken
    (Bonferroni). Which groups those are must not depend on the scores, or the level
    would be shared among the groups that happened to pass.
    """
    shares_level = request.promised and request.promise_mode == "confidence"
    # Rows without an answer are a predicted class that nothing can accept.
    answered = {
        name: sample
        for name, sample in samples.items()
        if sample.of_kind("all").kth(1)[0] < math.inf
    }
    promising = {
        name
        for name, sample in answered.items()
        if not shares_level or request.can_promise(sample, len(answered))
    }
    delta = request.delta / max(1, len(promising)) if shares_level else request.delta
    thresholds, lucky = dict[Any, GroupThreshold](), dict[Any, int]()
    for name, sample in samples.items():
        threshold = replace(pooled, promised=False)
        is_promising = name in promising
        cut = reachable(request.cut(sample, delta), sample) if is_promising else None
        if cut is not None and not cut.short:
            at = rules.place(cut, sample)
            threshold = GroupThreshold(at, cut.state, promised=not cut.broken)
            risk = request.tested_values.get("risk")
            if risk is not None and passed_by_chance(sample, cut, risk):
                lucky[name] = max(stage.last for stage in cut.stages)
        thresholds[name] = replace(threshold, n=len(sample))
    cuts = GroupCuts(thresholds, [], lucky)
    cuts.notes.extend(_group_notes(cuts, len(promising), delta, shared=shares_level))
    return cuts


def _group_notes(
    cuts: GroupCuts, n_promising: int, delta: float, *, shared: bool
) -> list[str]:
    if not cuts.promised:
        return [NO_GROUP_PROMISED]
    notes = []
    if shared:
        is_one = n_promising == 1
        carry = "1 group carries" if is_one else f"{n_promising} groups share"
        notes.append(
            "The promise holds in each group that has one, not for all rows together. "
            f"{carry} the risk of a broken promise: {'it' if is_one else 'each'} is "
            f"calibrated at confidence {1 - delta:.6g}."
        )
    unpromised = [
        str(name) or "(no answer)"
        for name, threshold in cuts.thresholds.items()
        if not threshold.promised
    ]
    if unpromised:
        more = " ..." if len(unpromised) > MOST_NAMED else ""
        names = ", ".join(unpromised[:MOST_NAMED]) + more
        notes.append(
            f"Too few rows for a promise; pooled threshold without one: {names}."
        )
    return notes
