"""Puts the history of a watch into its template."""

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from msgspec.structs import asdict

from trustdoctor.atomic import write_text
from trustdoctor.gates import Gate
from trustdoctor.report.template import MOST_NAME, fill_page, sentence, shorten
from trustdoctor.report.watch_charts import MOST_GROUPS, make_charts
from trustdoctor.watch import RATE_NAMES, HistoryEntry, Watch, wording

MOST_UPDATES = 200
"""Updates that the table shows."""

_KINDS = {"update": "rows", "labels": "late labels"}
_BATCH = "batch"
_MAY_BE_EMPTY = {
    *(_BATCH, "alarms", "labels", "waiting", "given up", "counted before", "left out")
}
_STATES = {"alarm": "alarm", "cannot tell": "unsure"}
_BANNERS = {"alarm": "ALARM", "cannot tell": "Cannot tell"}


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
    charts = list(make_charts(watch, entries, _title)) if entries else []
    payloads = [chart.payload(entries) for chart in charts]
    heads, updates = _update_table(watch, entries)
    return fill_page(
        "watch",
        {"charts": payloads},
        scripts=("time_series.js",),
        watch=watch,
        gate=watch.gate,
        score=_score_name(watch.gate),
        banner=_banner(watch, entries),
        cards=[_card(watch, name) for name in watch.tests],
        charts=[
            (chart, len(payload["updates"]))
            for chart, payload in zip(charts, payloads, strict=True)
        ],
        heads=heads,
        updates=updates,
        n_updates=len(entries),
        first=_minute(entries[0].time) if entries else "",
        last=_minute(entries[-1].time) if entries else "",
        deadline="" if watch.deadline is None else wording.duration(watch.deadline),
        review=None if watch.review is None else asdict(watch.review),
        sentence=sentence,
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


def _title(test: str) -> str:
    return sentence(RATE_NAMES.get(test, test))


def _minute(time: float) -> str:
    return f"{datetime.fromtimestamp(time, UTC):%Y-%m-%d %H:%M}"


def _score_name(gate: Gate) -> str:
    return gate.score_name or "scores of your own"


def _banner(watch: Watch, entries: Sequence[HistoryEntry]) -> dict[str, Any]:
    """Return what matters most, in words."""
    verdicts = [watch.verdict(name) for name in watch.tests]
    verdict = next((verdict for verdict in _STATES if verdict in verdicts), "")
    headline = sentence(wording.headline(watch))
    reasons = [watch.untestable(name) for name in watch.tests]
    return {
        "state": _STATES.get(verdict, ""),
        # Without such a verdict the headline is all there is to say.
        "title": _BANNERS.get(verdict, headline),
        "words": headline if verdict else "",
        "since": _since(watch, entries),
        "reasons": [sentence(reason) for reason in dict.fromkeys(reasons) if reason]
        if verdict == "cannot tell"
        else [],
        "remarks": [
            shorten(remark.removeprefix("- ")) for remark in wording.remarks(watch)
        ],
    }


def _since(watch: Watch, entries: Sequence[HistoryEntry]) -> str:
    """Say when the alarm came that the headline is about."""
    alarms = {
        name: test.alarm for name, test in watch.tests.items() if test.alarm is not None
    }
    promises = {name for name in alarms if name != "accepted"} or set(alarms)
    if not promises:
        return ""
    time = min(alarms[name].time for name in promises)
    numbers = (n for n, entry in enumerate(entries, 1) if promises & {*entry.alarms})
    number = next(numbers, None)
    update = "" if number is None else f" (update {number:,})"
    return f"{_minute(time)} UTC{update}"


def _card(watch: Watch, name: str) -> dict[str, Any]:
    """Return how one test stands."""
    test = watch.tests[name]
    words = wording.describe_test(watch, name, most_groups=MOST_GROUPS)
    verdict = words.verdict
    alarmed_groups = () if test.alarm is None else test.alarm.groups
    return {
        "title": sentence(words.title),
        "state": _STATES.get(verdict, ""),
        "verdict": verdict.upper() if verdict == "alarm" else sentence(verdict),
        "since": "" if test.alarm is None else f"{_minute(test.alarm.time)} UTC",
        "promise": sentence(words.promise),
        "reason": sentence(words.reason) if verdict == "cannot tell" else "",
        "observed": [(shorten(g, MOST_NAME), rate) for g, rate in words.observed],
        "n_groups": words.n_groups,
        "alarmed_groups": [shorten(group, MOST_NAME) for group in alarmed_groups],
        "evidence": sentence(words.evidence),
        "needs_labels": test.needs_labels and verdict == "no rows yet",
    }


def _update_table(
    watch: Watch, entries: Sequence[HistoryEntry]
) -> tuple[list[str], list[list[str]]]:
    """Return the latest updates as a table, the last first, without empty columns."""
    numbers = range(len(entries), max(0, len(entries) - MOST_UPDATES), -1)
    rows = [_update_row(watch, number, entries[number - 1]) for number in numbers]
    columns = [
        name
        for name in (rows[0] if rows else ())
        if name not in _MAY_BE_EMPTY or any(row[name] not in ("", "0") for row in rows)
    ]
    return columns, [[row[name] for name in columns] for row in rows]


def _update_row(watch: Watch, number: int, entry: HistoryEntry) -> dict[str, str]:
    row = {
        "update": f"{number:,}",
        "time (UTC)": _minute(entry.time),
        "what": _KINDS.get(entry.kind, entry.kind),
        _BATCH: shorten(entry.batch, MOST_NAME),
        "alarms": ", ".join(map(_title, entry.alarms)),
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
            estimate = entry.estimates.get(name)
            words = "-" if estimate is None else wording.rate_words(estimate)
            row[f"{_title(name)}, estimate"] = words
    return row
