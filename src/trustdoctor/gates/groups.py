"""Thresholds for groups: which groups there are, and which of them have a promise."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from trustdoctor.errors import InputError
from trustdoctor.gates.outlook import passed_by_chance
from trustdoctor.gates.request import Request
from trustdoctor.gates.rules import Cut, threshold_of
from trustdoctor.gates.sample import Sample
from trustdoctor.predictions import Predictions

State = Literal["threshold", "accept-all", "reject-all"]
STATES = ("threshold", "accept-all", "reject-all")

Group = int | str

PREDICTED = "predicted"
"""What `grouped_by` says if the groups are the predicted classes."""

GIVEN = "given"
"""What `grouped_by` says if the rows came with groups that have no name."""

NO_GROUP_PROMISED = (
    "No group has enough rows for a promise, so nothing is promised: all have the "
    "pooled threshold."
)

MOST_NAMED = 20
"""Groups that a note names, at most."""


@dataclass(frozen=True)
class GroupThreshold:
    """The threshold of one group of rows.

    Attributes
    ----------
    threshold, state
        As in `Gate`.
    n : int
        Its calibration rows.
    promised : bool
        Whether the certificate's promise holds in this group. A group with too few rows
        has the pooled threshold and no promise.
    """

    threshold: float
    state: State = "threshold"
    n: int = 0
    promised: bool = True

    def __post_init__(self) -> None:
        """Refuse impossible values."""
        check_threshold(self.threshold, self.state)
        if type(self.n) is not int or self.n < 0 or type(self.promised) is not bool:
            message = (
                "expected a number of rows and whether there is a promise, got "
                f"{self.n!r} and {self.promised!r}."
            )
            raise InputError(message)


def check_threshold(threshold: float, state: str) -> None:
    """Refuse NaN as a threshold, and unknown states."""
    if math.isnan(threshold):
        message = "expected a threshold, got NaN. Give a number."
        raise InputError(message)
    if state not in STATES:
        message = f"expected a state out of {', '.join(STATES)}, got {state!r}."
        raise InputError(message)


def accepted_rows(doubts: Any, threshold: float, state: State) -> Any:
    """Return which rows are accepted, as a mask of the same kind of array."""
    # Doubts must be float64: numpy 2 and torch round the threshold to float32 scores,
    # and a tied row would slip through.
    rejected = doubts > threshold
    if state == "accept-all":
        return rejected | True
    if state == "reject-all":
        return rejected & False
    return ~rejected


def as_kind_of(accepted: NDArray[np.bool_], scores: Any) -> Any:
    """Return decisions as a tensor if the scores are one."""
    if not hasattr(scores, "detach"):
        return accepted
    return scores.new_tensor(accepted, dtype=(scores == scores).dtype)


def groups_of(predictions: Predictions, by: str) -> Any:
    """Return the group of each row: its predicted class, or the predictions' groups."""
    if by == PREDICTED:
        return predicted_groups(predictions)
    groups = predictions.groups
    if by != GIVEN or groups is None:
        message = (
            "expected groups='predicted', groups='given' with predictions that have "
            f"groups, or each row's group; got {by!r}."
        )
        raise InputError(message)
    return groups


def predicted_groups(predictions: Predictions) -> Any:
    """Return the predicted classes as groups, by name if they have names.

    With names, columns in another order do not mislead a gate.
    """
    names = predictions.predicted_names
    if names is None:
        message = (
            "thresholds for each answer need the answers themselves: pass predicted=, "
            "or --predicted NAME on the command line."
        )
        raise InputError(message)
    return names if predictions.class_names is None else names.astype(str)


@dataclass(frozen=True)
class GroupCuts:
    """Groups with separate thresholds.

    Attributes
    ----------
    thresholds : dict of group to GroupThreshold
    notes : list of str
        What the certificate says about them.
    passed_by_chance : dict of group to int
        Groups whose thresholds passed by chance, and the rows that those accept.
    """

    thresholds: dict[Any, GroupThreshold]
    notes: list[str]
    passed_by_chance: dict[Any, int]

    @property
    def promised(self) -> bool:
        """Whether any group has a promise."""
        return any(threshold.promised for threshold in self.thresholds.values())


def split_groups(sample: Sample, groups: Any, request: Request) -> dict[Any, Sample]:
    """Return the sample of each group; refuse a target that is for all rows."""
    for_all_rows = [target.name for target in request.targets if not target.per_group]
    if for_all_rows:
        message = (
            f"a {for_all_rows[0]} chosen by hand is for all rows: leave groups out."
        )
        raise InputError(message)
    return dict(sample.split(groups))


def cut_groups(
    samples: dict[Any, Sample],
    request: Request,
    pooled: GroupThreshold,
    reachable: Callable[[Cut, Sample], Cut],
) -> GroupCuts:
    """Cut each group; one with too few rows for any promise gets the pooled threshold.

    A group with enough rows that cannot keep the promise is rejected.

    The groups whose number of rows allows a promise share the probability that a
    promise is broken (Bonferroni): each is cut at delta / (number of such groups).
    """
    # Which groups these are must not depend on their scores: if the level were shared
    # only among the groups that happen to pass, the promises would be broken more often
    # than delta.
    shares_level = request.promised and request.promise_mode == "confidence"
    # Rows without an answer are a predicted class that no gate accepts.
    answered = {
        name: sample
        for name, sample in samples.items()
        if sample.of_kind("all").kth(1)[0] < math.inf
    }
    promising = {
        name
        for name, sample in answered.items()
        if not request.promised
        or request.can_promise(sample, len(answered) if shares_level else 1)
    }
    delta = request.delta / max(1, len(promising)) if shares_level else request.delta
    thresholds, by_chance = dict[Any, GroupThreshold](), dict[Any, int]()
    for name, sample in samples.items():
        group_threshold = replace(pooled, promised=False)
        is_promising = name in promising
        cut = reachable(request.cut(sample, delta), sample) if is_promising else None
        if cut is not None:
            group_threshold = GroupThreshold(
                threshold_of(cut, sample), cut.state, promised=cut.promised
            )
            risk = request.tested_values.get("risk")
            if risk is not None and passed_by_chance(sample, cut, risk):
                by_chance[name] = max(passed.last for passed in cut.passed)
        thresholds[name] = replace(group_threshold, n=len(sample))
    cuts = GroupCuts(thresholds, [], by_chance)
    cuts.notes.extend(_group_notes(cuts, len(promising), delta, shared=shares_level))
    return cuts


def _group_notes(
    cuts: GroupCuts, n_promising: int, delta: float, *, shared: bool
) -> list[str]:
    if not cuts.promised:
        return [NO_GROUP_PROMISED]
    notes = []
    if shared:
        single = n_promising == 1
        carry = "1 group carries" if single else f"{n_promising} groups share"
        notes.append(
            "The promise holds in each group that has one, not for all rows together. "
            f"{carry} the risk of a broken promise: {'it' if single else 'each'} is "
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
    rejected = [
        str(name)
        for name, threshold in cuts.thresholds.items()
        if threshold.promised and threshold.state == "reject-all"
    ]
    if rejected:
        more = " ..." if len(rejected) > MOST_NAMED else ""
        names = ", ".join(rejected[:MOST_NAMED]) + more
        notes.append(
            f"No threshold keeps the promise, so all rows are rejected: {names}."
        )
    return notes
