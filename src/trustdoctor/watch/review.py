"""Which rows people review: rates, draws, and whether reviews follow them.

Labels of reviewed rows tell something about all rows only if it is known how the
reviewed rows were chosen. Three checks look for choices that were not random:
`DrawCounts` compares the number of reviewed rows with the review rates,
`LabelledTraffic` compares accept rates where no review rates are known, and
`Preference` compares doubts.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from numbers import Real
from typing import Annotated, Any

import msgspec
import numpy as np

from trustdoctor.arrays import Array
from trustdoctor.envelope import Count, Document, Rate
from trustdoctor.errors import InputError
from trustdoctor.gates import Target

SELECTED = 3.0
"""Labelled rows are no random sample if their accept rate is this many standard errors
off."""

SUSPECT = 2.0
"""An alarm waits while their accept rate is this many standard errors off."""

RATES_OFF = 4.0
"""Review rates are wrong if the number of reviewed rows is this many standard errors
off."""

# Rows of traffic that labelled rows are compared with, at least: the normal limits
# above are rough for fewer.
_FEWEST_COMPARED = 200

DIFFERENT = 1e-3
"""The probability that random draws of one kind of rows are ever said to differ."""

COMPARED_TOGETHER = 200
"""Smaller batches of a kind are pooled until they have this many rows."""

SHARES = (0.1, 0.25, 0.5, 0.75, 0.9)
"""Reviewed rows are counted among these shares of the least doubtful rows."""

_UPWARD_ODDS = np.array([1.2, 1.6, 2.5, 5.0, 16.0])
PREFERENCE_ODDS = np.concatenate([1 / _UPWARD_ODDS[::-1], _UPWARD_ODDS])
"""The alternatives: odds of a reviewed row to be among the least doubtful, relative to
those of all rows. They are symmetric, so that the rows that were not reviewed can be
counted instead."""

ExpectedCount = Annotated[float, msgspec.Meta(ge=0, lt=1e300)]

_MAY_DIFFER = 0.05  # an alarm waits while random draws would differ as much so seldom


class Review(Document, frozen=True):
    """The rates at which rows are drawn for review, regardless of their labels.

    Attributes
    ----------
    rejected, accepted : float
        The share of the rejected rows, and of the accepted ones.

    Examples
    --------
    >>> from trustdoctor.gates import TARGETS
    >>> review = Review(rejected=1.0, accepted=0.02)
    >>> round(review.reviewed_rate(TARGETS["frr"], 0.05), 3)  # of the reviewed correct
    0.725
    """

    rejected: Rate = 1.0
    accepted: Rate = 0.0

    def __post_init__(self) -> None:
        """Refuse what is not a rate."""
        for name, rate in msgspec.structs.asdict(self).items():
            real = isinstance(rate, Real) and not isinstance(rate, bool)
            if not real or not 0 <= rate <= 1:
                message = (
                    f"expected the review rate of {name} rows from 0 to 1, got "
                    f"{rate!r}. 0.02 means that 2% are reviewed."
                )
                raise InputError(message)
            msgspec.structs.force_setattr(self, name, float(rate))

    @classmethod
    def of(cls, rates: Any) -> "Review | None":
        """Return review rates from a mapping, a `Review`, or None."""
        if rates is None or isinstance(rates, Review):
            return rates
        if not isinstance(rates, Mapping) or set(rates) - {"rejected", "accepted"}:
            message = (
                "expected review rates as {'rejected': 1.0, 'accepted': 0.02}, got "
                f"{rates!r}."
            )
            raise InputError(message)
        return cls(**rates)

    def reviewed_rate(self, target: Target, rate: float) -> float:
        """Return what a rate of all rows is among the reviewed rows.

        With the rates b of rejected and a of accepted rows, and p the rate of all rows:
        p b / (p b + (1 - p) a) where the target compares rejected with accepted rows
        ("odds"), p a where it is a share of all rows, and p where it is about accepted
        rows alone.
        """
        if rate in (0.0, 1.0) or target.review_effect in ("plain", "even"):
            return rate
        if target.review_effect == "share":
            return rate * self.accepted
        drawn = rate * self.rejected
        return drawn / (drawn + (1 - rate) * self.accepted)

    def overall_rate(self, target: Target, reviewed_rate: float) -> float:
        """Return the rate of all rows from that of reviewed rows."""
        if target.review_effect == "share":
            return min(1.0, reviewed_rate / self.accepted)
        if target.review_effect in ("plain", "even") or reviewed_rate in (0.0, 1.0):
            return reviewed_rate
        weighted = reviewed_rate * self.accepted
        return weighted / (weighted + (1 - reviewed_rate) * self.rejected)

    def untestable(self, target: Target) -> str:
        """Return why these rates cannot test a target; empty if they can."""
        if not self.accepted:
            return (
                "no accepted rows are reviewed, so their errors go unseen. Review some "
                "at random: --review-accepted 0.02"
            )
        if target.review_effect == "odds" and not self.rejected:
            return "no rejected rows are reviewed. Review some: --review-rejected 1"
        if target.review_effect == "even" and self.rejected != self.accepted:
            return "it can be tested only if all rows are reviewed at one rate"
        return ""


def draw_rows(ids: Sequence[str], accepted: Array, review: Review, salt: str) -> Array:
    """Return which rows to review: those whose hashed id is below the review rate.

    The same id is drawn again in every batch and by every process, so a repeated
    request does not draw other rows.

    Examples
    --------
    >>> accepted = np.array([True, False])
    >>> draw_rows(["a", "b"], accepted, Review(rejected=1.0, accepted=0.0), "").tolist()
    [False, True]
    """
    rates = np.where(accepted, review.accepted, review.rejected)
    return np.asarray(_hashed_uniform(ids, salt) < rates)


def _hashed_uniform(ids: Sequence[str], salt: str) -> Array:
    """Return a uniform number from 0 up to 1 for each id."""
    # A keyed hash: whoever chooses ids cannot choose which rows are reviewed.
    key = blake2b(salt.encode(), digest_size=16).digest()
    digests = b"".join(
        blake2b(row_id.encode(), digest_size=8, key=key).digest() for row_id in ids
    )
    # The upper 53 bits, as many as a float holds, so that 1 itself never comes.
    return (np.frombuffer(digests, "<u8") >> np.uint64(11)) / 2.0**53


class DrawCounts(Document, frozen=True):
    """How many rows of a kind were drawn for review, and the number expected.

    Attributes
    ----------
    rows, drawn : int
    expected, variance : float
        Of the number drawn, if every row is drawn at its review rate.
    """

    rows: Count = 0
    drawn: Count = 0
    expected: ExpectedCount = 0.0
    variance: ExpectedCount = 0.0

    def add(self, rows: int, drawn: int, rate: float) -> "DrawCounts":
        """Count more rows."""
        return DrawCounts(
            self.rows + rows,
            self.drawn + drawn,
            self.expected + rows * rate,
            self.variance + rows * rate * (1 - rate),
        )

    @property
    def contradicts_rate(self) -> bool:
        """Whether the rows cannot have been drawn at the review rates."""
        # 0.5 is the continuity correction of a count.
        limit = 0.5 + RATES_OFF * math.sqrt(self.variance)
        return abs(self.drawn - self.expected) > limit


class LabelledTraffic(Document, frozen=True):
    """Accept rates of all rows and of labelled rows, without known review rates.

    If labels come regardless of the gate's decisions, labelled rows are accepted as
    often as all rows, up to chance.

    Attributes
    ----------
    rows, accepted : int
        Of the latest traffic.
    labelled, labelled_accepted : int
        Labelled rows that came with it, and how many of those are accepted.
    late_labels : int
        Of the labelled rows, those that may belong to earlier traffic.
    excess, variance : float
        Of earlier traffic: accepted labelled rows beyond the number expected of a
        random sample, and the variance of that number.
    all_labelled, all_labelled_accepted, all_accepted : int
        Totals since the beginning.
    """

    rows: Count = 0
    accepted: Count = 0
    labelled: Count = 0
    labelled_accepted: Count = 0
    late_labels: Count = 0
    excess: Annotated[float, msgspec.Meta(gt=-1e300, lt=1e300)] = 0.0
    variance: ExpectedCount = 0.0
    all_labelled: Count = 0
    all_labelled_accepted: Count = 0
    all_accepted: Count = 0

    def add(
        self,
        rows: int,
        accepted: int,
        labelled: int,
        labelled_accepted: int,
        *,
        late: bool,
    ) -> "LabelledTraffic":
        """Count more rows, and labels of these or (late) of earlier rows."""
        earlier = self._closed() if rows else self
        return msgspec.structs.replace(
            earlier,
            rows=earlier.rows + rows,
            accepted=earlier.accepted + accepted,
            labelled=earlier.labelled + labelled,
            labelled_accepted=earlier.labelled_accepted + labelled_accepted,
            late_labels=earlier.late_labels + labelled * late,
            all_labelled=earlier.all_labelled + labelled,
            all_labelled_accepted=earlier.all_labelled_accepted + labelled_accepted,
            all_accepted=earlier.all_accepted + accepted,
        )

    def _closed(self) -> "LabelledTraffic":
        """Move the latest traffic into `excess` if there is enough of it.

        Accept rates drift, so labelled rows are compared with the traffic of their
        time.
        """
        if self.rows < _FEWEST_COMPARED or not 0 < self.labelled <= self.rows:
            return self
        excess, variance = self._compared()
        return msgspec.structs.replace(
            self,
            rows=0,
            accepted=0,
            labelled=0,
            labelled_accepted=0,
            late_labels=0,
            excess=excess,
            variance=variance,
        )

    def _compared(self) -> tuple[float, float]:
        """Return the excess of accepted labelled rows of all time, and its variance."""
        n, labelled = self.rows, min(self.labelled, self.rows)
        if not labelled:
            return self.excess, self.variance
        accept_rate = self.accepted / n
        # A sample of these rows has the hypergeometric variance, with its correction
        # for a finite population (Cochran 1977, section 2.6). Late labels belong to
        # other rows, whose accept rate varies, too.
        correction = (
            1 + labelled / n if self.late_labels else (n - labelled) / max(1, n - 1)
        )
        sampled = self.labelled_accepted * labelled / self.labelled
        return (
            self.excess + sampled - labelled * accept_rate,
            self.variance + labelled * accept_rate * (1 - accept_rate) * correction,
        )

    @property
    def lacks_accepted(self) -> bool:
        """Whether rows are labelled, and rows are accepted, but never both."""
        mixed = bool(self.all_labelled and self.all_accepted)
        return mixed and not self.all_labelled_accepted

    def is_selected(self, standard_errors: float = SELECTED) -> bool:
        """Return whether labelled rows are accepted more or less often than all."""
        excess, variance = self._compared()
        return abs(excess) > 0.5 + standard_errors * math.sqrt(variance)


def _no_bets() -> Array:
    return np.full((len(SHARES), len(PREFERENCE_ODDS)), -np.inf)


def _no_doubts() -> Array:
    return np.zeros(0)


def _no_draws() -> Array:
    return np.zeros(0, bool)


@dataclass(frozen=True, eq=False)
class Preference:
    """Evidence that the reviewed rows of a kind differ in doubt from all of its rows.

    If rows of a kind (accepted, or rejected) are drawn regardless of their doubts, the
    drawn rows are a simple random sample of the rows that came together. Of n rows, m
    of them drawn, the number X of drawn rows among a given share s of the least
    doubtful ones is then hypergeometric, and E odds^X <= (1 + s (odds - 1))^m
    (Hoeffding 1963, theorem 4). So odds^X divided by that bound is an e-value, and
    their products are evidence that holds at any time, as in `bets`. A new bet starts
    with every batch, so that a preference that begins late is found, too.

    Attributes
    ----------
    starts : int
        Bets that run.
    unstaked : float
        The part of the stake that no bet has yet.
    log_sums : array (shares, odds)
        Logarithms of the sum of the bets on each alternative.
    peak : float
        The logarithm of the largest evidence so far.
    review : Review or None
        The rates at which the pooled rows were drawn.
    doubts, drawn : arrays (n,)
        Rows that are pooled until there are enough to compare, and which were drawn.

    Examples
    --------
    >>> doubts = np.arange(1000.0)
    >>> most_doubtful = Preference().add(doubts, doubts >= 980, None)
    >>> regardless = Preference().add(doubts, doubts % 50 == 0, None)
    >>> most_doubtful.differs, regardless.differs
    (True, False)
    """

    starts: int = 0
    unstaked: float = 1.0
    log_sums: Array = field(default_factory=_no_bets, repr=False)
    peak: float = 0.0
    review: Review | None = None
    doubts: Array = field(default_factory=_no_doubts, repr=False)
    drawn: Array = field(default_factory=_no_draws, repr=False)

    def add(self, doubts: Array, drawn: Array, review: Review | None) -> "Preference":
        """Count rows of a kind that came together, drawn at the same rates."""
        # Rows drawn at different rates are no simple random sample of their union: they
        # differ from all rows as much as their times do.
        earlier = self if review == self.review else self._without_pool()
        pooled = replace(
            earlier,
            review=review,
            doubts=np.append(earlier.doubts, doubts),
            drawn=np.append(earlier.drawn, drawn),
        )
        enough = len(pooled.doubts) >= COMPARED_TOGETHER
        return pooled._without_pool() if enough else pooled

    def compare(self, doubts: Array, drawn: Array) -> "Preference":
        """Bet on rows of a kind that came together."""
        n, m = len(doubts), int(drawn.sum())
        if not 0 < m < n:
            return self
        ranks = [max(0, math.ceil(share * n) - 1) for share in SHARES]
        cuts = np.partition(doubts, ranks)[ranks]
        # The rows that were not drawn are a random sample, too. The smaller sample has
        # the sharper bound.
        sample = drawn if 2 * m <= n else ~drawn
        shares = np.array([(doubts <= cut).mean() for cut in cuts])
        least_doubtful = np.array([(doubts[sample] <= cut).sum() for cut in cuts])
        log_ratios = least_doubtful[:, None] * np.log(
            PREFERENCE_ODDS
        ) - sample.sum() * np.log1p(shares[:, None] * (PREFERENCE_ODDS - 1))
        if sample is not drawn:  # odds w of one sample are odds 1 / w of the other
            log_ratios = log_ratios[:, ::-1]
        stake = self.unstaked / (self.starts + 2)
        compared = replace(
            self,
            starts=self.starts + 1,
            unstaked=self.unstaked - stake,
            log_sums=np.logaddexp(self.log_sums, math.log(stake)) + log_ratios,
        )
        return replace(compared, peak=max(self.peak, compared.evidence))

    def _without_pool(self) -> "Preference":
        """Compare the pooled rows."""
        compared = self.compare(self.doubts, self.drawn)
        return replace(compared, doubts=_no_doubts(), drawn=_no_draws())

    @property
    def evidence(self) -> float:
        """The logarithm of what the stake has become: 0 at the beginning."""
        mean = np.logaddexp.reduce(self.log_sums, axis=None) - math.log(
            self.log_sums.size
        )
        return float(np.logaddexp(mean, math.log(self.unstaked)))

    @property
    def differs(self) -> bool:
        """Whether reviewers preferred some rows."""
        return self.peak >= -math.log(DIFFERENT)

    @property
    def may_differ(self) -> bool:
        """Whether they may have, so that an alarm has to wait."""
        return self.differs or self.evidence >= -math.log(_MAY_DIFFER)


@dataclass(frozen=True)
class Sampling:
    """How labelled rows were drawn, as far as it is known.

    Attributes
    ----------
    traffic : LabelledTraffic
        Rows of unknown review rates.
    accepted, rejected : DrawCounts
        Rows of known review rates.
    among_accepted, among_rejected : Preference
        Whether the drawn rows of a kind differ in doubt from all of them.
    """

    traffic: LabelledTraffic = field(default_factory=LabelledTraffic)
    accepted: DrawCounts = field(default_factory=DrawCounts)
    rejected: DrawCounts = field(default_factory=DrawCounts)
    among_accepted: Preference = field(default_factory=Preference)
    among_rejected: Preference = field(default_factory=Preference)

    def add(  # noqa: PLR0913 - counts of one update
        self,
        review: Review | None,
        rows: int,
        accepted: int,
        drawn: int,
        drawn_accepted: int,
        *,
        late: bool = False,
    ) -> "Sampling":
        """Count rows: all, accepted, drawn for review, and drawn and accepted.

        Without a review the drawn rows are those with labels; late ones may be rows of
        earlier traffic.
        """
        if review is None:
            traffic = self.traffic.add(rows, accepted, drawn, drawn_accepted, late=late)
            return replace(self, traffic=traffic)
        return replace(
            self,
            accepted=self.accepted.add(accepted, drawn_accepted, review.accepted),
            rejected=self.rejected.add(
                rows - accepted, drawn - drawn_accepted, review.rejected
            ),
        )

    def compare(
        self,
        review: Review | None,
        doubts: Array,
        accepted: Array,
        drawn: Array,
        *,
        pool: bool,
    ) -> "Sampling":
        """Compare the doubts of drawn rows with those of all rows of their kind.

        `pool` says whether a few rows may wait for later rows to be compared with.
        """

        def compared(preference: Preference, rows: Array) -> Preference:
            if not rows.any():
                return preference
            if pool:
                return preference.add(doubts[rows], drawn[rows], review)
            return preference.compare(doubts[rows], drawn[rows])

        return replace(
            self,
            among_accepted=compared(self.among_accepted, accepted),
            among_rejected=compared(self.among_rejected, ~accepted),
        )

    def untestable(self, target: Target, *, rates_known: bool = False) -> str:
        """Return why the labels cannot test a promise; empty if they can.

        `rates_known` says whether the review rates are known by now.
        """
        advice = (
            "Start another state: the rates came after these rows"
            if rates_known
            else "Review some of both at random, and start another state with the "
            "rates: --review-rejected 1 --review-accepted 0.02"
        )
        if self.traffic.lacks_accepted:
            return f"no accepted rows have labels, so their errors go unseen. {advice}"
        if target.review_effect != "plain" and self.traffic.is_selected():
            return (
                "the labelled rows are not accepted as often as all rows, so they are "
                f"not a random sample. {advice}"
            )
        if self.accepted.contradicts_rate:
            return _rates_off("accepted", self.accepted)
        if target.review_effect in ("odds", "even") and self.rejected.contradicts_rate:
            return _rates_off("rejected", self.rejected)
        for name, preference in self._preferences(target).items():
            if preference.differs:
                return (
                    f"the reviewed {name} rows have other doubts than all {name} rows, "
                    "so reviewers preferred some. Random draws ever differ as much "
                    f"with a probability of at most {DIFFERENT:g}. "
                    "Draw the rows to review at random (--draw, Watch.draw), and start "
                    "another state"
                )
        return ""

    def delays_alarm(self, target: Target) -> bool:
        """Return whether an alarm has to wait, as labels may have been selected."""
        if any(kind.may_differ for kind in self._preferences(target).values()):
            return True
        return target.review_effect != "plain" and self.traffic.is_selected(SUSPECT)

    def _preferences(self, target: Target) -> dict[str, Preference]:
        """Return the comparisons of the kinds of rows that a target rests on."""
        if target.review_effect in ("plain", "share"):
            return {"accepted": self.among_accepted}
        return {"accepted": self.among_accepted, "rejected": self.among_rejected}


def _rates_off(kind: str, counts: DrawCounts) -> str:
    return (
        f"at these review rates about {counts.expected:,.0f} of the {counts.rows:,} "
        f"{kind} rows would have been reviewed, and {counts.drawn:,} were. Rows "
        "without a label count as not reviewed: say which were drawn (reviewed=, "
        "--reviewed NAME), or correct the rates"
    )
