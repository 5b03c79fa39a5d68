"""How the service stands, as plain values: for the page, for programs, for scrapers.

Everything is read from kept counts and short tables; no rows are scanned.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec
import numpy as np

from trustdoctor._version import __version__
from trustdoctor.gates import Gate
from trustdoctor.metrics import share
from trustdoctor.service.monitor import WatchProgress, start_watch, summarize_watch
from trustdoctor.service.settings import Settings
from trustdoctor.service.store import Session
from trustdoctor.service.times import format_time
from trustdoctor.service.versions import WAITING, GateVersions, Head, read_head
from trustdoctor.watch import Watch

MINUTES = 180
"""Minutes of traffic that are shown."""

STEPS = 180
"""Steps of the watch that are shown, of different minutes."""

ALARMS = 50
"""Alarms that are shown, the latest."""

_SHOWN_FIELDS = (
    *("rows", "accepted", "labels", "waiting", "evidence", "estimates", "alarms"),
)
_decode = msgspec.json.decode


def read_status(
    session: Session, versions: GateVersions, settings: Settings
) -> dict[str, Any]:
    """Return all that is stored of how the service stands."""
    head, now = read_head(session), session.now()
    gate = versions.get(session, head.current).gate
    (since,) = session.rows(
        "SELECT max(changed_at) FROM gate_changes WHERE version = ? "
        "AND action <> 'shadow'",
        head.current,
    )[0]
    new_watch = start_watch(gate, settings, head.review)
    return {
        "time": format_time(now),
        "gate": {
            "version": head.current,
            "since": format_time(since),
            **describe_gate(gate),
        },
        "shadow": _shadow_status(session, head),
        "traffic": _traffic(session, head, now),
        "watch": _watch_status(session, head, new_watch),
        "alarms": _latest_alarms(session),
        "alarmed": _alarm_counts(session),
        "versions": list_versions(session, versions, head),
        "review": _queue_status(session, now),
    }


def describe_gate(gate: Gate) -> dict[str, Any]:
    """Return what a gate decides by and promises, in words."""
    rule = f"reject where {gate.rejects(gate.threshold)}"
    if gate.state != "threshold":
        rule = gate.state.replace("-", " ")
    if gate.groups:
        rule += f", {len(gate.groups)} groups with thresholds of their own"
    return {
        "score": gate.score_name,
        "rule": rule,
        "promise": "no promise: it has no certificate"
        if gate.certificate is None
        else gate.certificate.promise(),
        "classes": gate.classes,
    }


def _traffic(session: Session, head: Head, now: float) -> dict[str, Any]:
    rows, accepted, labels = session.rows(
        "SELECT sum(rows), sum(accepted), sum(labels) FROM version_counts"
    )[0]
    # Rows of the current gate are also counted alone: the chart has its expected band.
    current_sum = "sum(CASE WHEN version = ? THEN {} ELSE 0 END)"
    minutes = session.rows(
        "SELECT minute, sum(rows), sum(accepted), sum(drawn), sum(labels), "
        f"{current_sum.format('rows')}, {current_sum.format('accepted')} "
        "FROM minute_counts WHERE minute > ? GROUP BY minute ORDER BY minute",
        head.current,
        head.current,
        int(now // 60) - MINUTES,
    )
    names = ("rows", "accepted", "drawn", "labels", "current_rows", "current_accepted")
    return {
        "rows": int(rows or 0),
        "accepted": int(accepted or 0),
        "labels": int(labels or 0),
        "minutes": [
            {"at": format_time(60.0 * minute)}
            | dict(zip(names, map(int, counts), strict=True))
            for minute, *counts in minutes
        ],
    }


def _watch_status(
    session: Session, head: Head, new_watch: Watch | None
) -> dict[str, Any]:
    """Return the summary of the current gate's watch, with its history."""
    summaries = session.rows(
        "SELECT summary FROM watches WHERE version = ?", head.current
    )
    status = _decode(summaries[0][0]) if summaries else None
    if status is None and new_watch is not None:
        status = summarize_watch(WatchProgress(head.current, new_watch))
    if status is None:
        review = head.review
        status = {
            "version": head.current,
            "headline": "the gate has no certificate, so there is nothing to watch",
            "waiting": 0,
            "upto": 0,
            "review": {"rejected": review.rejected, "accepted": review.accepted},
            "tests": [],
        }
    query = (
        "SELECT step, taken_at, entry FROM watch_steps WHERE version = ? {} "
        "ORDER BY step DESC LIMIT ?"
    )
    latest = session.rows(query.format(""), head.current, 1)
    charted = session.rows(query.format("AND charted = 1"), head.current, STEPS)
    # The latest step is shown whether or not it is the first of its minute.
    rows_by_step = {row[0]: row for row in (*latest, *charted)}
    status["history"] = [
        _history_entry(*rows_by_step[step]) for step in sorted(rows_by_step)
    ]
    return dict(status)


def _history_entry(number: int, taken_at: float, text: str) -> dict[str, Any]:
    entry = _decode(text)
    fields = {name: entry[name] for name in _SHOWN_FIELDS}
    return {"number": number, "at": format_time(taken_at)} | fields


def _alarm_counts(session: Session) -> dict[str, int]:
    """Return how often each test has alarmed, of all versions."""
    rows = session.rows("SELECT test, count(*) FROM alarms GROUP BY test")
    return {test: int(n) for test, n in rows}


def _latest_alarms(session: Session) -> list[dict[str, Any]]:
    rows = session.rows(
        "SELECT version, test, raised_at, reason, sent_at FROM alarms "
        "ORDER BY raised_at DESC LIMIT ?",
        ALARMS,
    )
    return [
        {
            "version": version,
            "test": test,
            "at": format_time(raised_at),
            "words": reason,
            "sent": format_time(sent_at),
        }
        for version, test, raised_at, reason, sent_at in rows
    ]


def list_versions(
    session: Session, versions: GateVersions, head: Head
) -> list[dict[str, Any]]:
    """Return all gates, the latest first."""
    promoted = {
        version
        for (version,) in session.rows(
            "SELECT version FROM gate_changes WHERE action <> 'shadow'"
        )
    }

    def state(version: int) -> str:
        if version == head.current:
            return "current"
        if version == head.shadow:
            return "shadow"
        return "earlier" if version in promoted else "candidate"

    return [
        {
            "version": version,
            "at": format_time(added_at),
            "origin": origin,
            "state": state(version),
            "promise": describe_gate(versions.get(session, version).gate)["promise"],
            "note": note,
            "rows": rows,
            "accepted": accepted,
        }
        for version, added_at, origin, note, rows, accepted in session.rows(
            "SELECT g.version, g.added_at, g.origin, g.note, c.rows, c.accepted "
            "FROM gates g JOIN version_counts c ON c.version = g.version "
            "ORDER BY g.version DESC"
        )
    ]


def _queue_status(session: Session, now: float) -> dict[str, Any]:
    """Return how many rows wait for a person, and how long the oldest has."""
    counts: dict[str, int] = dict(session.rows("SELECT name, rows FROM review_counts"))
    rejected, accepted = (counts.get(name, 0) for name in WAITING)
    rows = session.rows("SELECT decided_at FROM review_queue ORDER BY position LIMIT 1")
    oldest = rows[0][0] if rows else None
    (leased,) = session.rows(
        # The first condition is that of the index, which holds leased rows alone.
        "SELECT count(*) FROM review_queue WHERE leased_until > 0 AND leased_until > ?",
        now,
    )[0]
    return {
        "waiting": rejected + accepted,
        "leased": leased,
        "rejected": rejected,
        "audit": accepted,
        "oldest": format_time(oldest),
        "oldest_seconds": 0.0 if oldest is None else max(0.0, now - oldest),
        "answered": counts.get("labelled", 0),
        "cannot_say": counts.get("undecided", 0),
    }


class ShadowCounts(NamedTuple):
    """Rows on which the current gate and the shadow decided in one way.

    Attributes
    ----------
    rows : int
    correct, wrong : int
        Of the reviewed ones among them.
    """

    rows: int
    correct: int
    wrong: int


def _shadow_status(session: Session, head: Head) -> dict[str, Any] | None:
    """Return where the shadow decides otherwise, and how often each gate errs."""
    if head.shadow is None:
        return None
    counts = {
        (bool(current), bool(shadow)): ShadowCounts(*map(int, numbers))
        for current, shadow, *numbers in session.rows(
            "SELECT current_accepted, shadow_accepted, rows, correct, wrong "
            "FROM shadow_counts WHERE shadow_version = ? AND current_version = ?",
            head.shadow,
            head.current,
        )
    }

    def rows(*, current: bool, shadow: bool) -> int:
        count = counts.get((current, shadow))
        return 0 if count is None else count.rows

    return {
        "version": head.shadow,
        "rows": sum(count.rows for count in counts.values()),
        "both": rows(current=True, shadow=True),
        "only_current": rows(current=True, shadow=False),
        "only_shadow": rows(current=False, shadow=True),
        "neither": rows(current=False, shadow=False),
        "labelled": accepted_risks(counts),
    }


def accepted_risks(
    counts: Mapping[tuple[bool, bool], ShadowCounts],
) -> dict[str, Any] | None:
    """Return the share of wrong rows among those that each gate accepts.

    `counts` are keyed by whether the current gate accepts, and whether the shadow does.
    """
    reviewed = sum(count.correct + count.wrong for count in counts.values())
    if not reviewed:
        return None

    def risk(strata: list[ShadowCounts]) -> list[float] | None:
        # Rows on which the gates differ are reviewed at other rates than those on which
        # they agree. So each stratum is estimated by itself, and weighs by its rows.
        total = sum(stratum.rows for stratum in strata)
        interval = np.zeros(3)
        for stratum in strata:
            n = stratum.correct + stratum.wrong
            if not n:
                return None
            # Bonferroni: the intervals of all strata hold together at 95%.
            estimate = share(stratum.wrong, n, confidence=1 - 0.05 / len(strata))
            weight = stratum.rows / total
            interval += weight * np.array([estimate.value, estimate.low, estimate.high])
        return interval.tolist() if strata else None

    return {
        "rows": reviewed,
        "risk_current": risk([n for (yes, _), n in counts.items() if yes and n.rows]),
        "risk_shadow": risk([n for (_, yes), n in counts.items() if yes and n.rows]),
    }


def describe_replica(
    store: str, replica: str, started: float, *, fast: bool
) -> dict[str, Any]:
    """Return what this replica is."""
    return {
        "version": __version__,
        "started": format_time(started),
        "store": store,
        "replica": replica,
        "durable": not fast,
    }
