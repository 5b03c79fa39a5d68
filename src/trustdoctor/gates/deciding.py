"""How a threshold decides, and what the threshold of one group is."""

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
class GroupRule:
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
        """Refuse what no group's rule can be."""
        check_rule(self.threshold, self.state)
        if type(self.n) is not int or self.n < 0 or type(self.promised) is not bool:
            message = f"expected a number of rows, got {self.n!r}, {self.promised!r}."
            raise InputError(message)


def check_rule(threshold: float, state: str) -> None:
    """Refuse what no threshold can be."""
    if math.isnan(threshold):
        message = "expected a threshold, got NaN. Give a number."
        raise InputError(message)
    if state not in STATES:
        message = f"expected a state out of {', '.join(STATES)}, got {state!r}."
        raise InputError(message)


def decided(rejected: Any, state: State) -> Any:
    """Return what is accepted, where a threshold would reject so."""
    if state == "accept-all":
        return rejected | True
    if state == "reject-all":
        return rejected & False
    return ~rejected


def like(accepted: NDArray[np.bool_], scores: Any) -> Any:
    """Return decisions as a tensor where the scores are one."""
    if not hasattr(scores, "detach"):
        return accepted
    return scores.new_tensor(accepted, dtype=(scores == scores).dtype)
