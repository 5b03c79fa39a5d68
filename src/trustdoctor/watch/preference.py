"""Whether people prefer to review the doubtful rows of a kind, or the easy ones.

Where rows of a kind (accepted, or rejected) are drawn whatever their doubts, the draws
are a plain sample of the rows that came together. Of n rows, m of them drawn, the
number X of drawn rows among a given share s of the least doubtful ones is then
hypergeometric, and E odds^X <= (1 + s (odds - 1))^m (Hoeffding 1963, theorem 4). So
odds^X divided by that is evidence against it, which may be looked at at any time, as in
`bets`: no level is used up by looks, and a new bet starts with every batch, so that
preferences that begin late are found, too.
"""

import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from trustdoctor.arrays import Array

if TYPE_CHECKING:
    from trustdoctor.watch.review import Review

DIFFERENT = 1e-3
"""The probability that plain draws of a kind of rows are ever said to differ."""

TOGETHER = 200
"""Smaller batches of a kind are put together until they have as many rows."""

SHARES = (0.1, 0.25, 0.5, 0.75, 0.9)
"""Drawn rows are counted among these shares of the least doubtful rows."""

ODDS = np.array([1.2, 1.6, 2.5, 5.0, 16.0])
ODDS = np.concatenate([1 / ODDS[::-1], ODDS])
"""The alternatives: the odds of a drawn row to be among the least doubtful, in units
of those of all rows."""

_NEAR = 0.05  # an alarm waits while the evidence says as much


def _nothing() -> Array:
    return np.full((len(SHARES), len(ODDS)), -np.inf)


def _no_doubts() -> Array:
    return np.zeros(0)


def _no_draws() -> Array:
    return np.zeros(0, bool)


@dataclass(frozen=True, eq=False)
class Preference:
    """Evidence that the reviewed rows of a kind differ in doubt from all of its rows.

    Attributes
    ----------
    starts : int
        Bets that run.
    left : float
        The part of the stake that no bet has yet.
    sums : array (shares, odds)
        Logarithms of the sums of the bets on each alternative.
    peak : float
        The logarithm of the largest evidence so far.
    review : Review or None
        The rates at which the rows that wait were drawn.
    doubts, drawn : arrays (n,)
        Rows that wait to be compared, until there are more, and which were drawn.

    Examples
    --------
    >>> doubts = np.arange(1000.0)
    >>> first = Preference().add(doubts, doubts >= 980, None)
    >>> even = Preference().add(doubts, doubts % 50 == 0, None)
    >>> first.differs, even.differs
    (True, False)
    """

    starts: int = 0
    left: float = 1.0
    sums: Array = field(default_factory=_nothing, repr=False)
    peak: float = 0.0
    review: "Review | None" = None
    doubts: Array = field(default_factory=_no_doubts, repr=False)
    drawn: Array = field(default_factory=_no_draws, repr=False)

    def add(self, doubts: Array, drawn: Array, review: "Review | None") -> "Preference":
        """Count rows of a kind that came together, drawn at the same rates."""
        # Where rates change, drawn rows differ from all rows as their times do.
        old = self if review == self.review else self._settled()
        new = replace(
            old,
            review=review,
            doubts=np.append(old.doubts, doubts),
            drawn=np.append(old.drawn, drawn),
        )
        return new._settled() if len(new.doubts) >= TOGETHER else new

    def compare(self, doubts: Array, drawn: Array) -> "Preference":
        """Bet on rows of a kind that came together."""
        n, m = len(doubts), int(drawn.sum())
        if not 0 < m < n:
            return self
        places = [max(0, math.ceil(share * n) - 1) for share in SHARES]
        cuts = np.partition(doubts, places)[places]
        # The rows that were not drawn are as plain a sample. The smaller one says more.
        fewer = drawn if 2 * m <= n else ~drawn
        shares = np.array([(doubts <= cut).mean() for cut in cuts])
        least = np.array([(doubts[fewer] <= cut).sum() for cut in cuts])
        won = least[:, None] * np.log(ODDS) - fewer.sum() * np.log1p(
            shares[:, None] * (ODDS - 1)
        )
        stake = self.left / (self.starts + 2)
        new = replace(
            self,
            starts=self.starts + 1,
            left=self.left - stake,
            sums=np.logaddexp(self.sums, math.log(stake))
            + (won if fewer is drawn else won[:, ::-1]),
        )
        return replace(new, peak=max(self.peak, new.evidence))

    def _settled(self) -> "Preference":
        """Compare the rows that wait."""
        new = self.compare(self.doubts, self.drawn)
        return replace(new, doubts=_no_doubts(), drawn=_no_draws())

    @property
    def evidence(self) -> float:
        """The logarithm of what the stake has become: 0 at the beginning."""
        won = np.logaddexp.reduce(self.sums, axis=None) - math.log(self.sums.size)
        return float(np.logaddexp(won, math.log(self.left)))

    @property
    def differs(self) -> bool:
        """Whether the reviews preferred some rows."""
        return self.peak >= -math.log(DIFFERENT)

    @property
    def may_differ(self) -> bool:
        """Whether they may have, so that an alarm has to wait."""
        return self.differs or self.evidence >= -math.log(_NEAR)
