"""The state of a watch in plain words, and as plain values."""

import math
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec.structs import asdict

from trustdoctor.gates import TARGETS
from trustdoctor.watch.rate_tests import (
    ACCEPTED,
    Group,
    RateEstimate,
    RateTest,
    why_no_tests,
)

if TYPE_CHECKING:
    from trustdoctor.watch.watch import Watch

RATE_NAMES = {
    "accepted": "rows accepted",
    "coverage": "rows accepted (coverage)",
    "joint": "wrong and accepted, of all (joint)",
    "risk": "errors among the accepted (risk)",
    "trr": "errors caught (TRR)",
    "frr": "correct predictions lost (FRR)",
}
"""The names of rates for people who do not know their abbreviations."""

_MOST_GROUPS = 3  # in a line


def describe(watch: "Watch") -> str:
    """Return the state of every test as text."""
    if not watch.tests:
        return f"Watch: {why_no_tests(watch.gate)}."
    lines = [f"Watch: {headline(watch)}", _totals_line(watch)]
    for name in watch.tests:
        lines += _test_lines(watch, name)
    if watch.expected is not None:
        lines.append(repr(watch.expected))
    return "\n".join([*lines, *remarks(watch)])


def headline(watch: "Watch") -> str:
    """Return in one line what matters most."""
    if not watch.tests:
        return why_no_tests(watch.gate)
    verdicts = {name: watch.verdict(name) for name in watch.tests}
    alarmed = {name for name, verdict in verdicts.items() if verdict == "alarm"}
    if alarmed - {ACCEPTED}:
        return "the promise no longer holds"
    if alarmed:
        return "the accept rate has changed since calibration"
    if "cannot tell" in verdicts.values():
        return "the labels cannot show whether the promise holds"
    if not watch.totals.rows:
        return "no rows yet"
    if any(watch.is_empty(name) for name in watch.tests):
        return "nothing to report, and no labels yet"
    return "nothing to report"


def _totals_line(watch: "Watch") -> str:
    totals = watch.totals
    share = f", {totals.accepted / totals.rows:.2%} accepted" if totals.rows else ""
    return (
        f"{_plural(totals.updates, 'update')}, {_plural(totals.rows, 'row')}{share}, "
        f"{_plural(totals.labels, 'label')}"
    )


def _plural(n: int, noun: str) -> str:
    return f"{n:,} {noun}{'' if n == 1 else 's'}"


def promise(test: RateTest) -> str:
    """Return what is tested."""
    if test.name == ACCEPTED:
        limits = f"{test.low:.2%} to {test.high:.2%}"
        return f"{limits} of the rows accepted, as at calibration"
    bound = test.low if test.target.at_least else test.high
    return TARGETS[test.name].promise(round(bound, 6))


class TestWords(NamedTuple):
    """The state of one test in words, for the terminal, the page and the service.

    Attributes
    ----------
    title : str
        What the rate is called.
    verdict : str
    promise : str
        What is promised, or of the accept rate, expected.
    reason : str
        Why labels cannot test the rate; empty if they can.
    observed : tuple of (str, str)
        Groups and their rates, the worst first; of all rows, the group is empty.
        Nothing before rows count, or if labels cannot tell.
    n_groups : int
        0 without groups.
    evidence : str
        How improbable the evidence is if all is well; empty if nothing is observed.
    """

    title: str
    verdict: str
    promise: str
    reason: str
    observed: tuple[tuple[str, str], ...]
    n_groups: int
    evidence: str


def describe_test(
    watch: "Watch", name: str, *, most_groups: int, evidence: float | None = None
) -> TestWords:
    """Return the state of a test in words.

    `evidence` is its natural logarithm, if another than the largest so far is to be
    shown.
    """
    test, verdict = watch.tests[name], watch.verdict(name)
    observed: tuple[tuple[str, str], ...] = ()
    if verdict != "cannot tell" and not watch.is_empty(name):
        observed = tuple(_observed(test, most_groups))
    return TestWords(
        RATE_NAMES.get(name, name),
        verdict,
        promise(test),
        watch.untestable(name),
        observed,
        0 if test.groups is None else len(test.groups),
        evidence_words(test, evidence) if observed else "",
    )


def _observed(test: RateTest, most_groups: int) -> Iterator[tuple[str, str]]:
    if test.groups is None:
        estimate = test.estimate()
        if estimate is not None:
            yield "", rate_words(estimate) + excess_words(test, estimate)
        return
    for group in shown_groups(test, most_groups):
        estimate = test.estimate(group)
        if estimate is not None:
            yield str(group), rate_words(estimate)


def shown_groups(test: RateTest, most: int) -> list[Group]:
    """Return the groups to show: those of an alarm, then the worst."""
    alarmed = () if test.alarm is None else test.alarm.groups
    current = [group for group in alarmed if group in test.current]
    return list(dict.fromkeys([*current, *test.worst_groups(most)]))[:most]


def _test_lines(watch: "Watch", name: str) -> Iterator[str]:
    test = watch.tests[name]
    words = describe_test(watch, name, most_groups=_MOST_GROUPS)
    verdict = words.verdict
    yield f"{name}: {verdict.upper() if verdict == 'alarm' else verdict}"
    yield f"  {_limit_word(test)}: {words.promise}"
    if verdict == "cannot tell":
        yield f"  {words.reason}."
    elif watch.is_empty(name):
        if test.needs_labels:
            yield "  no labels yet"
    else:
        rates = [
            f"{group}: {rate}" if group else rate for group, rate in words.observed
        ]
        scope = ""
        if words.n_groups:
            scope = f" in the worst of {_plural(words.n_groups, 'group')}"
        yield f"  observed{scope}: {'; '.join(rates) or 'nothing yet'}"
        yield f"  {words.evidence or evidence_words(test)}"


def _limit_word(test: RateTest) -> str:
    return "expected" if test.name == ACCEPTED else "promised"


def rate_words(estimate: RateEstimate) -> str:
    """Return a rate with its interval and its rows."""
    interval = f"[{estimate.low:.2%}, {estimate.high:.2%}]"
    latest = "the latest " if estimate.window > 1 else ""  # estimates begin anew
    return f"{estimate.value:.2%} {interval} of {latest}{_plural(estimate.n, 'row')}"


def excess_words(test: RateTest, estimate: RateEstimate) -> str:
    """Return that a rate beyond its limits is within chance; empty within limits."""
    if test.alarm is not None or test.low <= estimate.value <= test.high:
        return ""
    side = "above" if estimate.value > test.high else "below"
    noise = " and wrong labels" if test.noise and test.needs_labels else ""
    return f", {side} what was {_limit_word(test)}, but within chance{noise}"


def p_value(test: RateTest, evidence: float | None = None) -> float:
    """Return a bound on the probability of evidence this large if all is well.

    By Ville's inequality it is 1 / evidence, by default at the largest so far.
    """
    return min(1.0, math.exp(-(test.peak if evidence is None else evidence)))


def evidence_words(test: RateTest, evidence: float | None = None) -> str:
    """Return how improbable the evidence is if all is well, and the alarm's level."""
    bound = p_value(test, evidence)
    if bound > 0.99:
        return "nothing speaks against it"
    if bound >= 0.001:
        probability = f"of at most {bound:.1%}"
    else:
        # A power of 10 that the bound stays below, for more digits would mean nothing.
        odds = 10 ** min(9, math.floor(-math.log10(max(bound, 1e-300))))
        probability = f"below 1 in {'1 billion' if odds == 10**9 else f'{odds:,}'}"
    if test.name == ACCEPTED:
        condition = "if the accept rate is unchanged"
    else:
        condition = "if the promise holds"
    alarm = "" if test.alarm else f"; an alarm comes at {test.level:.1%}"
    return f"{condition}, a result this bad has a probability {probability}{alarm}"


def alarm_reason(test: RateTest) -> str:
    """Return why a test alarms."""
    rates = [
        f"{'' if group is None else f'in {group} '}{estimate.value:.2%} of "
        f"{_plural(estimate.n, 'row')}"
        for group in test.alarm_groups() or (None,)
        if (estimate := test.estimate(group)) is not None
    ]
    observed = ", ".join(rates) or "nothing"
    return f"observed {observed}; {_limit_word(test)} {promise(test)}"


def remarks(watch: "Watch") -> list[str]:
    """Return what else to know: alarms, rows that wait, rows counted before, notes."""
    notes = [f"- {note}" for note in watch.notes]
    return [
        *_alarm_lines(watch),
        *_waiting_lines(watch),
        *_label_lines(watch),
        *_latest_lines(watch),
        *notes,
    ]


def _alarm_lines(watch: "Watch") -> list[str]:
    alarms = {
        name: test.alarm for name, test in watch.tests.items() if test.alarm is not None
    }
    if not alarms:
        return []
    reasons = {name: watch.untestable(name) for name in alarms}
    return [
        *(
            f"- {name} alarmed on {_minute(alarm.time)}: {alarm.reason}."
            for name, alarm in alarms.items()
        ),
        *(
            f"- The alarm of {name} may be false: {reason}."
            for name, reason in reasons.items()
            if reason
        ),
        "- An alarm stays. Find out what has changed, calibrate a gate on new rows, "
        "and start a new state for it.",
    ]


def _label_lines(watch: "Watch") -> list[str]:
    totals, lines = watch.totals, []
    if watch.label_noise and totals.labels:
        lines.append(
            f"- Up to {100 * watch.label_noise:g}% of the labels may be wrong. The "
            "tests allow for that; the observed rates are those of the labels."
        )
    if totals.unresolved:
        share = totals.unresolved / max(1, totals.unresolved + totals.labels)
        count = "counts" if totals.unresolved == 1 else "count"
        lines.append(
            f"- {_plural(totals.unresolved, 'reviewed row')} ({share:.1%}) got no "
            f"label, in time or at all, and {count} in the promise's favour."
        )
    return lines


def _latest_lines(watch: "Watch") -> list[str]:
    if not watch.entries:
        return []
    latest, lines = watch.entries[-1], []
    if latest.repeated:
        verb = "was" if latest.repeated == 1 else "were"
        rows = _plural(latest.repeated, "row")
        lines.append(f"- {rows} {verb} counted before, and not again.")
    if latest.ignored_labels:
        lines.append(
            f"- {_plural(latest.ignored_labels, 'label')} left out, of rows that were "
            "not drawn for review, or whose deadline had passed."
        )
    return lines


def _waiting_lines(watch: "Watch") -> list[str]:
    oldest = watch.queue.oldest
    if oldest is None:
        return []
    n_waiting = len(watch.queue)
    wait = "waits" if n_waiting == 1 else "wait"
    deadline = (
        "there is no deadline"
        if watch.deadline is None
        else f"after {duration(watch.deadline)} it does so for good"
    )
    return [
        f"- {_plural(n_waiting, 'row')} drawn for review {wait} for a label, the first "
        f"since {_minute(oldest)}. Until its label comes, a row counts in the "
        f"promise's favour; {deadline}."
    ]


def duration(seconds: float) -> str:
    """Return a duration in days, hours, or seconds.

    Examples
    --------
    >>> duration(30 * 86400), duration(3600), duration(90)
    ('30 days', '1 hour', '90 seconds')
    """
    for unit, length in (("day", 86400), ("hour", 3600)):
        if seconds >= length:
            n_units = seconds / length
            return f"{n_units:g} {unit}{'' if n_units == 1 else 's'}"
    return f"{seconds:g} seconds"


def _minute(time: float) -> str:
    return f"{datetime.fromtimestamp(time, UTC):%Y-%m-%d %H:%M} UTC"


def _iso(time: float) -> str:
    return datetime.fromtimestamp(time, UTC).isoformat(timespec="seconds")


def summarize(watch: "Watch") -> dict[str, Any]:
    """Return the state of every test as plain values."""
    oldest = watch.queue.oldest
    return {
        "alarm": watch.alarm,
        "headline": headline(watch),
        "level": watch.level,
        "label_noise": watch.label_noise,
        "review": None if watch.review is None else asdict(watch.review),
        **asdict(watch.totals),
        "waiting": len(watch.queue),
        "waiting_since": None if oldest is None else _iso(oldest),
        "tests": {name: _summarize_test(watch, name) for name in watch.tests},
        "expected": _expected_rates(watch),
        "last": _last_entry(watch),
        "notes": list(watch.notes),
    }


def _summarize_test(watch: "Watch", name: str) -> dict[str, Any]:
    test = watch.tests[name]
    groups: list[Group] = [None] if test.groups is None else list(test.current)
    estimates = {group: _plain_estimate(test.estimate(group)) for group in groups}
    summary: dict[str, Any] = {
        "verdict": watch.verdict(name),
        "promise": promise(test),
        "low": test.low,
        "high": test.high,
        "n": test.n,
        "counted": test.counted,
        "p_value": p_value(test),
        "level": test.level,
        "reason": watch.untestable(name),
        "alarm": None if test.alarm is None else _alarm(test),
    }
    if test.groups is None:
        return summary | {"estimate": estimates[None]}
    by_group = [
        {"group": group, "estimate": estimate} for group, estimate in estimates.items()
    ]
    return summary | {"groups": by_group}


def _expected_rates(watch: "Watch") -> dict[str, Any] | None:
    """Return what the model expects of itself, which has no guarantee."""
    expectation = watch.expected
    if expectation is None:
        return None
    rates = {"accuracy": expectation.accuracy, "risk": expectation.risk}
    return {"guarantee": False} | {
        name: {"value": rate.value, "low": rate.low, "high": rate.high}
        for name, rate in rates.items()
        if rate is not None
    }


def _plain_estimate(estimate: RateEstimate | None) -> dict[str, Any] | None:
    return None if estimate is None else estimate._asdict()


def _alarm(test: RateTest) -> dict[str, Any]:
    assert test.alarm is not None
    return {
        "time": _iso(test.alarm.time),
        "reason": test.alarm.reason,
        "groups": list(test.alarm.groups),
    }


def _last_entry(watch: "Watch") -> dict[str, Any] | None:
    """Return what the latest update counted."""
    if not watch.entries:
        return None
    entry = watch.entries[-1]
    names = (
        *("batch", "rows", "accepted", "repeated", "labels"),
        *("unresolved", "ignored_labels"),
    )
    return {"time": _iso(entry.time)} | {name: getattr(entry, name) for name in names}
