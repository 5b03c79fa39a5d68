"""How a threshold decides, and the threshold of one group."""

import math
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from trustdoctor.errors import InputError

State = Literal["threshold", "accept-all", "reject-all"]
STATES = ("threshold", "accept-all", "reject-all")
PREDICTED = "predicted"
"""What `grouped_by` says where the groups are the predicted classes."""

Group = int | str


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
        Whether the certificate's promise holds for this group by itself; where it had
        too few rows it has the pooled threshold and no promise.
    """

    threshold: float
    state: State = "threshold"
    n: int = 0
    promised: bool = True

    def __post_init__(self) -> None:
        """Refuse what no group's threshold can be."""
        check_threshold(self.threshold, self.state)
        if type(self.n) is not int or self.n < 0 or type(self.promised) is not bool:
            message = (
                "expected a number of rows and whether there is a promise, got "
                f"{self.n!r} and {self.promised!r}."
            )
            raise InputError(message)


def check_threshold(threshold: float, state: str) -> None:
    """Refuse what no threshold can be."""
    if math.isnan(threshold):
        message = "expected a threshold, got NaN. Give a number."
        raise InputError(message)
    if state not in STATES:
        message = f"expected a state out of {', '.join(STATES)}, got {state!r}."
        raise InputError(message)


def accepted_rows(doubts: Any, threshold: float, state: State) -> Any:
    """Return which rows are accepted, as a mask of the same kind of array.

    `doubts` are float64: numpy 2 and torch would round the threshold to float32
    scores, and a tied row would slip through.
    """
    rejected = doubts > threshold
    if state == "accept-all":
        return rejected | True
    if state == "reject-all":
        return rejected & False
    return ~rejected


def as_kind_of(accepted: NDArray[np.bool_], scores: Any) -> Any:
    """Return decisions as a tensor where the scores are one."""
    if not hasattr(scores, "detach"):
        return accepted
    return scores.new_tensor(accepted, dtype=(scores == scores).dtype)
