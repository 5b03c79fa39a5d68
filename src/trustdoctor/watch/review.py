"""Which rows people review, and what a promised rate is among those."""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from numbers import Real
from typing import Any

from trustdoctor.arrays import Array
from trustdoctor.errors import InputError
from trustdoctor.gates import Target
from trustdoctor.watch.preference import DIFFERENT, Preference

FAR = 3.0
"""Labels were chosen where their accept share is so many standard errors off."""

NEAR = 2.0
"""An alarm waits where they may have been: where it is so many off."""

OFF = 4.0
"""Review rates do not hold where what was drawn is so many standard errors off."""

_POOL = 200  # rows of traffic that labelled rows are compared with, at least


@dataclass(frozen=True)
class Review:
    """The known rates at which rows are drawn for review, whatever they turn out to be.

    Attributes
    ----------
    rejected, accepted : float
        The share of the rejected rows, and of the accepted ones.

    Examples
    --------
    >>> from trustdoctor.gates import TARGETS
    >>> review = Review(rejected=1.0, accepted=0.02)
    >>> round(review.among(TARGETS["frr"], 0.05), 3)  # of the correct rows reviewed
    0.725
    """

    rejected: float = 1.0
    accepted: float = 0.0

    def __post_init__(self) -> None:
        """Refuse what is no rate."""
        for name, value in asdict(self).items():
            real = isinstance(value, Real) and not isinstance(value, bool)
            if not real or not 0 <= value <= 1:
                message = (
                    f"expected the review rate of {name} rows from 0 to 1, got "
                    f"{value!r}. 0.02 means that 2% are reviewed."
                )
                raise InputError(message)
            object.__setattr__(self, name, float(value))

    @classmethod
    def of(cls, given: Any) -> "Review | None":
        """Return rates as they were given: a mapping, a `Review`, or None."""
        if given is None or isinstance(given, Review):
            return given
        if not isinstance(given, Mapping) or set(given) - {"rejected", "accepted"}:
            message = (
                "expected review rates as {'rejected': 1.0, 'accepted': 0.02}, got "
                f"{given!r}."
            )
            raise InputError(message)
        return cls(**given)

    def among(self, target: Target, value: float) -> float:
        """Return what a rate is among the rows that the target counts in a review."""
        if value in (0.0, 1.0) or target.reviewed in ("plain", "even"):
            return value
        if target.reviewed == "share":
            return value * self.accepted
        drawn = value * self.rejected
        return drawn / (drawn + (1 - value) * self.accepted)

    def whole(self, target: Target, seen: float) -> float:
        """Return what a rate is among all rows, from the one in a review."""
        if target.reviewed == "share":
            return min(1.0, seen / self.accepted)
        if target.reviewed in ("plain", "even") or seen in (0.0, 1.0):
            return seen
        part = seen * self.accepted
        return part / (part + (1 - seen) * self.rejected)

    def blind(self, target: Target) -> str:
        """Say why the rates show nothing of a target; empty where they do."""
        if not self.accepted:
            return (
                "no accepted row is reviewed, so nobody sees which of them are wrong. "
                "Review some at random: --review-accepted 0.02"
            )
        if target.reviewed == "odds" and not self.rejected:
            return "no rejected row is reviewed. Review some: --review-rejected 1"
        if target.reviewed == "even" and self.rejected != self.accepted:
            return "it can be tested only where all rows are reviewed at one rate"
        return ""


@dataclass(frozen=True)
class Drawn:
    """How many rows of a kind were drawn, and how many the rate lets one expect."""

    rows: int = 0
    drawn: int = 0
    expected: float = 0.0
    spread: float = 0.0

    def add(self, rows: int, drawn: int, rate: float) -> "Drawn":
        """Count more rows."""
        return Drawn(
            self.rows + rows,
            self.drawn + drawn,
            self.expected + rows * rate,
            self.spread + rows * rate * (1 - rate),
        )

    @property
    def is_off(self) -> bool:
        """Whether the rate cannot be what it is said to be."""
        return abs(self.drawn - self.expected) > 0.5 + OFF * math.sqrt(self.spread)


@dataclass(frozen=True)
class Pool:
    """Rows of unknown review rates, and those of them that have labels.

    Attributes
    ----------
    rows, accepted : int
        Of the latest traffic.
    labelled, kept : int
        Labelled rows beside them, and how many of those are accepted.
    late : int
        Labelled rows that may be others than the latest.
    beyond, spread : float
        Of earlier traffic: accepted labelled rows less their expected number, if labels
        did not choose, and its variance.
    every, any_kept, any_accepted : int
        Of all time: labelled rows, how many of those are accepted, and accepted rows.
    """

    rows: int = 0
    accepted: int = 0
    labelled: int = 0
    kept: int = 0
    late: int = 0
    beyond: float = 0.0
    spread: float = 0.0
    every: int = 0
    any_kept: int = 0
    any_accepted: int = 0

    def add(
        self, rows: int, accepted: int, labelled: int, kept: int, *, late: bool
    ) -> "Pool":
        """Count more rows, and labels of these or, where late, of earlier ones."""
        old = self._closed() if rows else self
        return replace(
            old,
            rows=old.rows + rows,
            accepted=old.accepted + accepted,
            labelled=old.labelled + labelled,
            kept=old.kept + kept,
            late=old.late + labelled * late,
            every=old.every + labelled,
            any_kept=old.any_kept + kept,
            any_accepted=old.any_accepted + accepted,
        )

    def _closed(self) -> "Pool":
        """Begin with new traffic, where there is enough of the old."""
        if self.rows < _POOL or not 0 < self.labelled <= self.rows:
            return self
        beyond, spread = self._compared()
        return replace(
            self,
            rows=0,
            accepted=0,
            labelled=0,
            kept=0,
            late=0,
            beyond=beyond,
            spread=spread,
        )

    def _compared(self) -> tuple[float, float]:
        n, labelled = self.rows, min(self.labelled, self.rows)
        if not labelled:
            return self.beyond, self.spread
        share = self.accepted / n
        left = 1 + labelled / n if self.late else (n - labelled) / max(1, n - 1)
        beyond = self.kept * labelled / self.labelled - labelled * share
        return (
            self.beyond + beyond,
            self.spread + labelled * share * (1 - share) * left,
        )

    @property
    def is_one_sided(self) -> bool:
        """Whether rows have labels, and rows are accepted, but none is both."""
        return bool(self.every and self.any_accepted) and not self.any_kept

    def is_chosen(self, errors: float = FAR) -> bool:
        """Tell whether the labelled rows are accepted more or less often than all."""
        beyond, spread = self._compared()
        return abs(beyond) > 0.5 + errors * math.sqrt(spread)


@dataclass(frozen=True)
class Sampling:
    """What is known of how labelled rows were drawn.

    Attributes
    ----------
    pool : Pool
        Rows of unknown review rates.
    accepted, rejected : Drawn
        Rows of known review rates.
    among_accepted, among_rejected : Preference
        Whether the drawn rows of a kind differ in doubt from all of them.
    """

    pool: Pool = field(default_factory=Pool)
    accepted: Drawn = field(default_factory=Drawn)
    rejected: Drawn = field(default_factory=Drawn)
    among_accepted: Preference = field(default_factory=Preference)
    among_rejected: Preference = field(default_factory=Preference)

    def add(  # noqa: PLR0913 - counts of one update
        self,
        review: Review | None,
        rows: int,
        accepted: int,
        drawn: int,
        kept: int,
        *,
        late: bool = False,
    ) -> "Sampling":
        """Count rows, those accepted, those drawn for review, and those that are both.

        Without a review the drawn rows are those with labels; late ones may be rows of
        earlier traffic.
        """
        if review is None:
            pool = self.pool.add(rows, accepted, drawn, kept, late=late)
            return replace(self, pool=pool)
        lost = rows - accepted
        return replace(
            self,
            accepted=self.accepted.add(accepted, kept, review.accepted),
            rejected=self.rejected.add(lost, drawn - kept, review.rejected),
        )

    def compare(
        self,
        review: Review | None,
        doubts: Array,
        accepted: Array,
        drawn: Array,
        *,
        together: bool,
    ) -> "Sampling":
        """Compare the doubts of drawn rows with those of all rows of their kind.

        `together` says whether few rows may wait for later ones to be compared with.
        """

        def kind(old: Preference, rows: Array) -> Preference:
            if not rows.any():
                return old
            if together:
                return old.add(doubts[rows], drawn[rows], review)
            return old.compare(doubts[rows], drawn[rows])

        return replace(
            self,
            among_accepted=kind(self.among_accepted, accepted),
            among_rejected=kind(self.among_rejected, ~accepted),
        )

    def blind(self, target: Target, *, known: bool = False) -> str:
        """Say why the labels do not tell whether a promise holds; empty if they do.

        `known` says whether the review rates are known by now.
        """
        told = (
            "Begin another state: the rates came after these rows"
            if known
            else "Review some of both at random, and begin another state with the "
            "rates: --review-rejected 1 --review-accepted 0.02"
        )
        if self.pool.is_one_sided:
            return (
                "no accepted row has a label, so nobody sees which of them are wrong. "
                f"{told}"
            )
        if target.reviewed != "plain" and self.pool.is_chosen():
            return (
                "the labelled rows are not accepted as often as all rows, so the "
                f"labels were chosen. {told}"
            )
        if self.accepted.is_off:
            return _off("accepted", self.accepted)
        if target.reviewed in ("odds", "even") and self.rejected.is_off:
            return _off("rejected", self.rejected)
        for name, kind in self._preferences(target).items():
            if kind.differs:
                return (
                    f"the reviewed {name} rows have other doubts than all {name} rows, "
                    "so the reviews preferred some. Plain draws differ so much with a "
                    f"probability of at most {DIFFERENT:g}, over the whole future. "
                    "Draw the rows to review at random (--draw, Watch.draw), and begin "
                    "another state"
                )
        return ""

    def hesitates(self, target: Target) -> bool:
        """Tell whether labels may have been chosen, so that an alarm has to wait."""
        if any(kind.may_differ for kind in self._preferences(target).values()):
            return True
        return target.reviewed != "plain" and self.pool.is_chosen(NEAR)

    def _preferences(self, target: Target) -> dict[str, Preference]:
        """Return the kinds of rows whose reviews a target rests on."""
        every = {"accepted": self.among_accepted, "rejected": self.among_rejected}
        if target.reviewed in ("plain", "share"):
            del every["rejected"]
        return every


def _off(kind: str, seen: Drawn) -> str:
    return (
        f"at the review rates given, about {seen.expected:,.0f} of the {seen.rows:,} "
        f"{kind} rows would have been reviewed, and {seen.drawn:,} were. Rows without "
        "a label count as not reviewed: say which were drawn (reviewed=, --reviewed "
        "NAME), or correct the rates"
    )
