"""What policies cost, and how often they go wrong: what a cascade was chosen from."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from trustdoctor.arrays import Array
from trustdoctor.metrics import Estimate


@dataclass(frozen=True)
class Alone:
    """What a cascade, or one model alone, does to the rows that tested.

    Attributes
    ----------
    name : str
    cost : Estimate
        Mean per row, with its interval.
    rate : float
        What the promise bounds: the risk, the joint rate, or the share of errors that
        are accepted.
    person : float
        Share of the rows that goes to a person.
    more : Estimate or None
        Its cost less the cascade's, paired; None for the cascade itself.
    """

    name: str
    cost: Estimate
    rate: float
    person: float
    more: Estimate | None = None


@dataclass(frozen=True, eq=False)
class Measured:
    """What policies cost on the rows that tested, which did not list them.

    Attributes
    ----------
    target : str
        "risk", "joint" or "trr".
    limit : float
        The largest rate that was allowed: for trr, of errors that are accepted.
    rows, listed_by : int
        Rows that tested, and other rows that listed the policies.
    whole : Alone
        The cascade.
    alone : tuple of Alone
        Each model by itself, with its own gate for the same promise.
    asked : tuple of float
        Share of the rows that each model was asked about.
    policies : array (P, 2)
        Rate and cost of policies, thinned out.
    tested : array (T, 2)
        Of those that were tested, in their order.
    passed : int
        How many of these passed; the last of them is the cascade's.
    curves : dict of str to array (k, 2)
        Rate and cost of each model by itself, at every threshold.
    """

    target: str
    limit: float
    rows: int
    listed_by: int
    whole: Alone
    alone: tuple[Alone, ...]
    asked: tuple[float, ...]
    policies: Array
    tested: Array
    passed: int
    curves: dict[str, Array] = field(default_factory=dict)

    def __eq__(self, other: object) -> bool:
        """Tell whether two say the same."""
        if not isinstance(other, Measured):
            return NotImplemented
        return repr(self._plain()) == repr(other._plain())

    def __hash__(self) -> int:
        """Return the same for those that are equal."""
        return hash((self.target, self.limit, self.rows, self.passed))

    def _plain(self) -> list[Any]:
        curves = {name: np.asarray(c).tolist() for name, c in self.curves.items()}
        arrays = [self.policies.tolist(), self.tested.tolist(), curves]
        plain = [self.target, self.limit, self.rows, self.listed_by, self.passed]
        return [*plain, self.whole, self.alone, self.asked, *arrays]
