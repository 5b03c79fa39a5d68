"""States that version 0.1 wrote: they enter as a first update."""

import json
import math
from dataclasses import replace
from hashlib import blake2b
from typing import Any

from trustdoctor import envelope
from trustdoctor.errors import FileError, InputError
from trustdoctor.gates import Gate
from trustdoctor.watch.bets import Bet
from trustdoctor.watch.given import as_time, check_level
from trustdoctor.watch.promised import ACCEPTED, make_tests
from trustdoctor.watch.rate_tests import Alarm, GroupTest, RateTest
from trustdoctor.watch.records import Entry, Totals
from trustdoctor.watch.watching import WINDOW, Watch
from trustdoctor.watch.windows import Window

CONTINUED = (
    "Begun by version 0.1, whose rows are the first update here: its bound on false "
    "alarms and the one of this version add up."
)
_OLD_LIMIT = 691.0  # the largest logarithm of evidence that it wrote


def fields(schema: int) -> set[str]:
    """Return the names of what such a state has."""
    return {"gate", "level", "tallies" if schema == 1 else "bets"}


def read(content: dict[str, Any], gate: Gate) -> Watch:
    """Read a state of schema 1 or 2."""
    first = content["schema"] == 1
    kept = content["tallies" if first else "bets"]
    try:
        level = check_level(envelope.read_number(content["level"]))
        tests = make_tests(gate, level, WINDOW)
        envelope.check_fields(kept, set(tests), {ACCEPTED, *gate_targets(gate)})
        same = set(kept) == set(tests)  # else its level was split otherwise
        for name, test in tests.items():
            _read_test(test, kept[name], "hits" if first else "counted", same=same)
    except InputError as error:
        raise FileError(str(error)) from error
    known = json.dumps(content, sort_keys=True).encode()
    origin = blake2b(known, digest_size=8).hexdigest()  # replicas may go on from it
    watch = Watch(gate, level, tests=tests, notes=[CONTINUED], origins=(origin,))
    seen = tests.get(ACCEPTED)
    entry = Entry(
        as_time(None),
        "begin",
        rows=seen.n if seen else 0,
        accepted=seen.counted if seen else 0,
        evidence={name: test.evidence for name, test in tests.items()},
        alarms=tuple(name for name, test in tests.items() if test.alarm),
    )
    watch.entries.append(entry)
    watch.totals = Totals().add(entry)
    return watch


def gate_targets(gate: Gate) -> set[str]:
    """Return the names of what a gate was asked for."""
    return set() if gate.certificate is None else set(gate.certificate.target)


def _read_test(test: RateTest, content: Any, counted: str, *, same: bool) -> None:
    """Go on from the counts of one bet; of groups only its peak is known."""
    envelope.check_fields(content, {"n", counted, "low", "high", "level", "peak"})
    low, high, level, peak = (
        envelope.read_number(content[name]) for name in ("low", "high", "level", "peak")
    )
    n, part = content["n"], content[counted]
    if (
        type(n) is not int
        or type(part) is not int
        or not 0 <= part <= n < envelope.MOST_ROWS
        or not 1 <= peak < math.inf
        or (same and (low, high, level) != (test.low, test.high, test.level))
    ):
        message = f"its counts or limits cannot be, {envelope.shown(content)}."
        raise FileError(message)
    test.peak = min(math.log(peak), _OLD_LIMIT)
    if test.groups is None and n:
        bet = Bet(test.low, test.high).add(n, part)
        bet = replace(bet, peak=max(test.peak, 0.0))
        test.parts[None] = GroupTest(bet, Window(2))  # it had no estimates
    if test.peak >= test.limit:
        words = f"version 0.1 had alarmed after {n:,} rows"
        test.alarm = Alarm(as_time(None), words)
