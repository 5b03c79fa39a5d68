"""Whether a promise still holds."""

from trustdoctor.watch.bets import Bet
from trustdoctor.watch.expectation import Check, Expectation, expected
from trustdoctor.watch.rate_tests import Alarm, RateTest, Seen
from trustdoctor.watch.records import Entry, Totals
from trustdoctor.watch.reference import Part, Reference, Sums
from trustdoctor.watch.review import Review
from trustdoctor.watch.states import require_state
from trustdoctor.watch.watching import Watch

__all__ = [
    "Alarm",
    "Bet",
    "Check",
    "Entry",
    "Expectation",
    "Part",
    "RateTest",
    "Reference",
    "Review",
    "Seen",
    "Sums",
    "Totals",
    "Watch",
    "expected",
    "require_state",
]
