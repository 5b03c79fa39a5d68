"""Whether a promise still holds."""

from trustdoctor.watch.bets import Bet
from trustdoctor.watch.expectation import (
    ConfidenceSums,
    Expectation,
    ExpectationCheck,
    Reference,
    TrafficSums,
    expected,
)
from trustdoctor.watch.history import HistoryEntry, Totals
from trustdoctor.watch.queue import CORRECT, UNDECIDED, WRONG
from trustdoctor.watch.rate_tests import Alarm, RateEstimate, RateTest
from trustdoctor.watch.review import Review
from trustdoctor.watch.state_file import from_state, require_state, to_state
from trustdoctor.watch.stream import StreamLabels, StreamRows, follow
from trustdoctor.watch.update_rows import check_noise
from trustdoctor.watch.watch import Watch
from trustdoctor.watch.wording import RATE_NAMES

__all__ = [
    "CORRECT",
    "RATE_NAMES",
    "UNDECIDED",
    "WRONG",
    "Alarm",
    "Bet",
    "ConfidenceSums",
    "Expectation",
    "ExpectationCheck",
    "HistoryEntry",
    "RateEstimate",
    "RateTest",
    "Reference",
    "Review",
    "StreamLabels",
    "StreamRows",
    "Totals",
    "TrafficSums",
    "Watch",
    "check_noise",
    "expected",
    "follow",
    "from_state",
    "require_state",
    "to_state",
]
