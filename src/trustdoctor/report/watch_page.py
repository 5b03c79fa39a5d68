"""Puts the history of a watch into its template."""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from msgspec.structs import asdict

from trustdoctor.atomic import write_text
from trustdoctor.gates import Gate
from trustdoctor.report.template import MOST_NAME, fill_page, shorten
from trustdoctor.report.watch_charts import make_charts, shown_groups
from trustdoctor.watch import RATE_NAMES, HistoryEntry, RateTest, Watch, wording

MOST_UPDATES = 200
"""Updates that the table shows."""

_WHAT = {"update": "rows", "labels": "late labels"}
_BATCH = "batch"
_MAY_BE_EMPTY = {
    *(_BATCH, "alarms", "labels", "waiting", "given up", "counted before", "left out")
}
_STATES = {"alarm": "alarm", "cannot tell": "unsure"}


def render_watch(watch: Watch) -> str:
    """Return the page of a watch. The same watch gives the same bytes.

    Examples
    --------
    >>> import numpy as np
    >>> from trustdoctor import calibrate_scores
    >>> watch = calibrate_scores(np.arange(100.0), coverage=0.5).watch()
    >>> "Nothing to report." in render_watch(watch.update([1.0, 80.0]))
    True
    """
    entries = watch.records()
    charts = list(make_charts(watch, entries, _name)) if entries else []
    payloads = [chart.payload(entries) for chart in charts]
    heads, updates = _updates(watch, entries)
    return fill_page(
        "watch",
        {"charts": payloads},
        scripts=("time_series.js",),
        watch=watch,
        gate=watch.gate,
        score=_score(watch.gate),
        banner=_banner(watch, entries),
        cards=[_card(watch, name) for name in watch.tests],
        charts=[
            (chart, len(payload["updates"]))
            for chart, payload in zip(charts, payloads, strict=True)
        ],
        heads=heads,
        updates=updates,
        n_updates=len(entries),
        first=_when(entries[0].time) if entries else "",
        last=_when(entries[-1].time) if entries else "",
        deadline="" if watch.deadline is None else wording.duration(watch.deadline),
        review=None if watch.review is None else asdict(watch.review),
        sentence=_sentence,
    )


def write_watch(watch: Watch, path: str | Path) -> None:
    """Write the page of a watch, whole or not at all.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> from trustdoctor import calibrate_scores
    >>> watch = calibrate_scores(np.arange(100.0), coverage=0.5).watch()
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_watch(watch, f"{folder}/watch.html")
    """
    write_text(path, render_watch(watch))


def _name(test: str) -> str:
    return _sentence(RATE_NAMES.get(test, test))


def _sentence(text: str) -> str:
    """Return a text that begins with a capital letter."""
    return text[:1].upper() + text[1:]


def _when(at: float) -> str:
    return f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M}"


def _score(gate: Gate) -> str:
    return gate.score_name or "scores of your own"


def _banner(watch: Watch, entries: Sequence[HistoryEntry]) -> dict[str, Any]:
    """Return what matters most, in words."""
    verdicts = [watch.verdict(name) for name in watch.tests]
    state = next((state for state in _STATES if state in verdicts), "")
    titles = {"alarm": "ALARM", "cannot tell": "Cannot tell"}
    said = wording.headline(watch)
    alone = not state  # then the headline is all there is to say
    return {
        "state": _STATES.get(state, ""),
        "title": _sentence(said) if alone else titles[state],
        "said": "" if alone else _sentence(said),
        "since": _since(watch, entries),
        "because": _because(watch) if state == "cannot tell" else [],
        "remarks": [
            shorten(remark.removeprefix("- ")) for remark in wording.remarks(watch)
        ],
    }


def _because(watch: Watch) -> list[str]:
    reasons = [watch.untestable(name) for name in watch.tests]
    return [_sentence(reason) for reason in dict.fromkeys(reasons) if reason]


def _since(watch: Watch, entries: Sequence[HistoryEntry]) -> str:
    """Say when the alarm came that the headline is about."""
    alarmed = {name for name, test in watch.tests.items() if test.alarm}
    alarmed = alarmed - {"accepted"} or alarmed
    times = [
        test.alarm.time
        for name, test in watch.tests.items()
        if test.alarm and name in alarmed
    ]
    if not times:
        return ""
    number = next((n for n, e in enumerate(entries, 1) if alarmed & {*e.alarms}), None)
    where = "" if number is None else f" (update {number:,})"
    return f"{_when(min(times))} UTC{where}"


def _card(watch: Watch, name: str) -> dict[str, Any]:
    """Return how one test stands."""
    test, verdict = watch.tests[name], watch.verdict(name)
    unseen = verdict in ("cannot tell", "no rows yet")
    seen = [] if unseen else list(_seen(test))
    return {
        "title": _name(name),
        "state": _STATES.get(verdict, ""),
        "verdict": verdict.upper() if verdict == "alarm" else _sentence(verdict),
        "since": "" if test.alarm is None else f"{_when(test.alarm.time)} UTC",
        "asked": _sentence(wording.promise(test)),
        "because": _sentence(watch.untestable(name))
        if verdict == "cannot tell"
        else "",
        "seen": seen,
        "groups": 0 if test.groups is None else len(test.groups),
        "blamed": _blamed(test),
        "chance": _sentence(wording.evidence_words(test)) if seen else "",
        "wants": test.needs_labels and verdict == "no rows yet",
    }


def _blamed(test: RateTest) -> list[str]:
    groups = () if test.alarm is None else test.alarm.groups
    return [shorten(group, MOST_NAME) for group in groups]


def _seen(test: RateTest) -> Iterator[tuple[str, str]]:
    """Yield the estimates of now: of all rows, or by group."""
    for group in [None] if test.groups is None else shown_groups(test):
        seen = test.estimate(group)
        if seen is not None:
            rate = wording.rate_words(seen)
            if test.groups is None:
                yield "", f"{rate}{wording.excess_words(test, seen)}"
            else:
                yield shorten(group, MOST_NAME), rate


def _updates(
    watch: Watch, entries: Sequence[HistoryEntry]
) -> tuple[list[str], list[list[str]]]:
    """Return the latest updates as a table, the last first, without empty columns."""
    numbers = range(len(entries), max(0, len(entries) - MOST_UPDATES), -1)
    rows = [_update(watch, number, entries[number - 1]) for number in numbers]
    kept = [
        name
        for name in (rows[0] if rows else ())
        if name not in _MAY_BE_EMPTY or any(row[name] not in ("", "0") for row in rows)
    ]
    return kept, [[row[name] for name in kept] for row in rows]


def _update(watch: Watch, number: int, entry: HistoryEntry) -> dict[str, str]:
    out = {
        "update": f"{number:,}",
        "time (UTC)": _when(entry.time),
        "what": _WHAT.get(entry.kind, entry.kind),
        _BATCH: shorten(entry.batch, MOST_NAME),
        "alarms": ", ".join(map(_name, entry.alarms)),
        "rows": f"{entry.rows:,}",
        "accepted": f"{entry.accepted:,}",
        "%": f"{entry.accepted / entry.rows:.2%}" if entry.rows else "-",
        "labels": f"{entry.labels:,}",
        "waiting": f"{entry.waiting:,}",
        "given up": f"{entry.unresolved:,}",
        "counted before": f"{entry.repeated:,}",
        "left out": f"{entry.ignored_labels:,}",
    }
    for name, test in watch.tests.items():
        if test.groups is None:
            seen = entry.estimates.get(name)
            out[f"{_name(name)}, estimate"] = (
                "-" if seen is None else wording.rate_words(seen)
            )
    return out
