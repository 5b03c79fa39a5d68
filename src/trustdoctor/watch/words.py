"""How a watch stands, in words that need no statistics, and as plain values."""

import math
from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from trustdoctor.gates import TARGETS
from trustdoctor.watch.promised import ACCEPTED, idle_words
from trustdoctor.watch.rate_tests import Group, RateTest, Seen

if TYPE_CHECKING:
    from trustdoctor.watch.watching import Watch

_SHOWN = 3  # groups in a line


def describe(watch: "Watch") -> str:
    """Say how every test stands."""
    if not watch.tests:
        return f"Watch: {idle_words(watch.gate)}."
    lines = [f"Watch: {headline(watch)}", _counts(watch)]
    for name in watch.tests:
        lines += _test(watch, name)
    if watch.expected is not None:
        lines.append(repr(watch.expected))
    return "\n".join([*lines, *remarks(watch)])


def headline(watch: "Watch") -> str:
    """Say in one line what matters most."""
    if not watch.tests:
        return idle_words(watch.gate)
    verdicts = {name: watch.verdict(name) for name in watch.tests}
    alarmed = [name for name, verdict in verdicts.items() if verdict == "alarm"]
    if set(alarmed) - {ACCEPTED}:
        return "the promise does not hold any more"
    if alarmed:
        return "the accept rate is not what it was at calibration"
    if "cannot tell" in verdicts.values():
        return "the labels do not tell whether the promise holds"
    if not watch.totals.rows:
        return "no rows yet"
    if any(watch.is_new(name) for name in watch.tests):
        return "nothing to report, and no label yet"
    return "nothing to report"


def _counts(watch: "Watch") -> str:
    t = watch.totals
    share = f", {t.accepted / t.rows:.2%} accepted" if t.rows else ""
    return (
        f"{_many(t.updates, 'update')}, {_many(t.rows, 'row')}{share}, "
        f"{_many(t.labels, 'label')}"
    )


def _many(n: int, what: str) -> str:
    return f"{n:,} {what}{'' if n == 1 else 's'}"


def promise(test: RateTest) -> str:
    """Say what is tested."""
    if test.name == ACCEPTED:
        ends = f"{test.low:.2%} to {test.high:.2%}"
        return f"{ends} of the rows accepted, as at calibration"
    bound = test.low if test.target.at_least else test.high
    return TARGETS[test.name].promise(round(bound, 6))


def _test(watch: "Watch", name: str) -> list[str]:
    test, verdict = watch.tests[name], watch.verdict(name)
    out = [f"{name}: {verdict.upper() if verdict == 'alarm' else verdict}"]
    out.append(f"  asked: {promise(test)}")
    if verdict == "cannot tell":
        return [*out, f"  {watch.blind(name)}."]
    if watch.is_new(name):
        return [*out, "  no labels yet"] if test.needs_labels else out
    out.append(f"  {_seen(test)}")
    return [*out, f"  {chance_words(test)}"]


def _seen(test: RateTest) -> str:
    if test.groups is not None:
        shown = [
            f"{group}: {rate_words(seen)}"
            for group in test.worst(_SHOWN)
            for seen in [test.estimate(group)]
            if seen is not None
        ]
        many = len(test.groups)
        return f"seen in the worst of {_many(many, 'group')}: {'; '.join(shown)}"
    seen = test.estimate()
    if seen is None:
        return "seen: nothing yet"
    return f"seen: {rate_words(seen)}{beyond_words(test, seen)}"


def rate_words(seen: Seen) -> str:
    """Say a rate with its interval and its rows."""
    ends = f"[{seen.low:.2%}, {seen.high:.2%}]"
    latest = "the latest " if seen.window > 1 else ""  # estimates begin anew
    return f"{seen.value:.2%} {ends} of {latest}{_many(seen.n, 'row')}"


def beyond_words(test: RateTest, seen: Seen) -> str:
    """Say where a rate is beyond what was asked, and that chance explains it."""
    if test.alarm is not None or test.low <= seen.value <= test.high:
        return ""
    side = "above" if seen.value > test.high else "below"
    noise = " and wrong labels" if test.noise and test.needs_labels else ""
    return f", {side} what was asked, but within chance{noise}"


def chance(test: RateTest) -> float:
    """Return how probable evidence like the largest is at most, if all is well."""
    return min(1.0, math.exp(-test.peak))


def chance_words(test: RateTest) -> str:
    """Say how likely this is if the promise holds, and how far from an alarm."""
    least = chance(test)
    if least > 0.99:
        return "nothing speaks against it"
    if least >= 0.001:
        often = f"in up to {least:.1%} of cases"
    else:
        odds = 10 ** min(9, math.floor(-math.log10(max(least, 1e-300))))
        often = f"in fewer than 1 of {odds:,} cases"
    limit = "" if test.alarm else f"; an alarm comes at {test.level:.1%}"
    return f"a gate that keeps it looks as bad as this {often}{limit}"


def why(test: RateTest) -> str:
    """Say why a test alarms."""
    shown = [
        f"{_of(group)}{seen.value:.2%} of {_many(seen.n, 'row')}"
        for group in test.blamed() or (None,)
        for seen in [test.estimate(group)]
        if seen is not None
    ]
    seen = ", ".join(shown) or "nothing"
    return f"seen {seen}; asked {promise(test)}"


def _of(group: Group) -> str:
    return "" if group is None else f"in {group} "


def remarks(watch: "Watch") -> list[str]:
    """Return what else to know: waiting rows, rows counted before, notes."""
    alarmed = [test for test in watch.tests.values() if test.alarm is not None]
    out = [
        f"- {test.name} alarmed on {_day(test.alarm.time)}: {test.alarm.words}."
        for test in alarmed
        if test.alarm is not None
    ]
    out += [
        f"- Careful, the alarm of {test.name} may be false: {watch.blind(test.name)}."
        for test in alarmed
        if watch.blind(test.name)
    ]
    if out:
        out.append(
            "- An alarm stays. Find out what has changed, calibrate a gate on new "
            "rows, and begin a new state for it."
        )
    out += _waiting(watch)
    t = watch.totals
    if watch.label_noise and t.labels:
        out.append(
            f"- Up to {100 * watch.label_noise:g}% of the labels may be wrong: the "
            "tests allow for it, and the rates seen are those of the labels."
        )
    if t.unsaid:
        share = t.unsaid / max(1, t.unsaid + t.labels)
        out.append(
            f"- {t.unsaid:,} of the rows reviewed ({share:.1%}) got no label, in time "
            "or at all; they count in the promise's favour."
        )
    last = watch.entries[-1] if watch.entries else None
    if last is not None and last.repeated:
        out.append(f"- Counted before, and not again: {_many(last.repeated, 'row')}.")
    if last is not None and last.undrawn:
        out.append(
            f"- {_many(last.undrawn, 'label')} left out: of rows that were not drawn "
            "for review, or were given up."
        )
    return [*out, *(f"- {note}" for note in watch.notes)]


def _waiting(watch: "Watch") -> list[str]:
    oldest = watch.queue.oldest
    if oldest is None:
        return []
    end = (
        "there is no deadline"
        if watch.deadline is None
        else f"it is given up after {duration(watch.deadline)}"
    )
    return [
        f"- {_many(len(watch.queue), 'row')} drawn for review without a label yet, the "
        f"first since {_day(oldest)}. Until its label comes a row counts in the "
        f"promise's favour; {end}."
    ]


def duration(seconds: float) -> str:
    """Say how long something takes.

    Examples
    --------
    >>> duration(30 * 86400), duration(3600), duration(90)
    ('30 days', '1 hour', '90 seconds')
    """
    for unit, length in (("day", 86400), ("hour", 3600)):
        if seconds >= length:
            many = seconds / length
            return f"{many:g} {unit}{'' if many == 1 else 's'}"
    return f"{seconds:g} seconds"


def _day(at: float) -> str:
    return f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M} UTC"


def summarize(watch: "Watch") -> dict[str, Any]:
    """Return how every test stands, as plain values."""
    oldest = watch.queue.oldest
    return {
        "alarm": watch.alarm,
        "says": headline(watch),
        "level": watch.level,
        "label_noise": watch.label_noise,
        "review": None if watch.review is None else asdict(watch.review),
        **asdict(watch.totals),
        "waiting": len(watch.queue),
        "waiting_since": None if oldest is None else _iso(oldest),
        "tests": {name: _summary(watch, name) for name in watch.tests},
        "expected": _expected(watch),
        "last": _last(watch),
        "notes": list(watch.notes),
    }


def _summary(watch: "Watch", name: str) -> dict[str, Any]:
    test = watch.tests[name]
    groups: list[Group] = [None] if test.groups is None else list(test.shown)
    seen = {group: test.estimate(group) for group in groups}
    out: dict[str, Any] = {
        "verdict": watch.verdict(name),
        "asked": promise(test),
        "low": test.low,
        "high": test.high,
        "n": test.n,
        "counted": test.counted,
        "chance": chance(test),
        "alarm_at": test.level,
        "because": watch.blind(name),
        "alarm": None if test.alarm is None else _alarm(test),
    }
    if test.groups is None:
        return out | {"estimate": _plain(seen[None])}
    rates = [{"group": group, "estimate": _plain(one)} for group, one in seen.items()]
    return out | {"groups": rates}


def _expected(watch: "Watch") -> dict[str, Any] | None:
    """Return what the model expects of itself, which has no guarantee."""
    own = watch.expected
    if own is None:
        return None
    rates = {"accuracy": own.accuracy, "risk": own.risk}
    return {"guarantee": False} | {
        name: {"value": rate.value, "low": rate.low, "high": rate.high}
        for name, rate in rates.items()
        if rate is not None
    }


def _plain(seen: Seen | None) -> dict[str, Any] | None:
    return None if seen is None else seen._asdict()


def _alarm(test: RateTest) -> dict[str, Any]:
    assert test.alarm is not None
    return {
        "time": _iso(test.alarm.time),
        "why": test.alarm.words,
        "groups": list(test.alarm.groups),
    }


def _iso(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="seconds")


def _last(watch: "Watch") -> dict[str, Any] | None:
    """Return what the latest update counted."""
    if not watch.entries:
        return None
    entry = watch.entries[-1]
    names = ("batch", "rows", "accepted", "repeated", "labels", "unsaid", "undrawn")
    return {"time": _iso(entry.time)} | {name: getattr(entry, name) for name in names}
