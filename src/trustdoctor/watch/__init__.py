"""Whether a promise still holds."""

from trustdoctor.watch.bets import Bet
from trustdoctor.watch.coding import write_entry
from trustdoctor.watch.expectation import Check, Expectation, expected
from trustdoctor.watch.following import Arrived, Said, follow
from trustdoctor.watch.given import check_noise
from trustdoctor.watch.queue import RIGHT, UNSAID, WRONG
from trustdoctor.watch.rate_tests import Alarm, RateTest, Seen
from trustdoctor.watch.records import Entry, Totals
from trustdoctor.watch.reference import Part, Reference, Sums
from trustdoctor.watch.review import Review
from trustdoctor.watch.states import from_state, require_state, to_state
from trustdoctor.watch.watching import Watch

__all__ = [
    "RIGHT",
    "UNSAID",
    "WRONG",
    "Alarm",
    "Arrived",
    "Bet",
    "Check",
    "Entry",
    "Expectation",
    "Part",
    "RateTest",
    "Reference",
    "Review",
    "Said",
    "Seen",
    "Sums",
    "Totals",
    "Watch",
    "check_noise",
    "expected",
    "follow",
    "from_state",
    "require_state",
    "to_state",
    "write_entry",
]
