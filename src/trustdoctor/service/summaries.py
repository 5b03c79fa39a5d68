"""How the service stands, as plain values: for the page, for programs, for scrapers."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec
import numpy as np

from trustdoctor._version import __version__
from trustdoctor.gates import Gate
from trustdoctor.metrics import share
from trustdoctor.service.monitor import Followed, begin, shown_evidence
from trustdoctor.service.settings import Settings
from trustdoctor.service.store import Session
from trustdoctor.service.times import shown
from trustdoctor.service.versions import WAITING, GateVersions, Head, read_head
from trustdoctor.watch import Watch, wording

MINUTES = 180
"""Minutes of traffic that are shown."""

STEPS = 180
"""Steps of the watch that are shown, of different minutes."""

_SHOWN = ("rows", "accepted", "labels", "waiting", "evidence", "estimates", "alarms")
_REVIEWS = "SELECT name, rows FROM review_counts"
_plain = msgspec.json.decode


def summarize(followed: Followed) -> dict[str, Any]:
    """Return how a watch stands."""
    watch = followed.watch
    return {
        "version": followed.version,
        "headline": wording.headline(watch),
        "waiting": len(watch.queue),
        "upto": followed.upto,
        "label_noise": watch.label_noise,
        "review": None
        if watch.review is None
        else {"rejected": watch.review.rejected, "accepted": watch.review.accepted},
        "tests": [_test(watch, name) for name in watch.tests],
    }


def _test(watch: Any, name: str) -> dict[str, Any]:
    test = watch.tests[name]
    seen = None if test.groups is not None else test.estimate()
    alarm = test.alarm
    return {
        "name": name,
        "verdict": watch.verdict(name),
        "why": watch.untestable(name) or ("" if alarm is None else alarm.reason),
        "estimate": None if seen is None else seen._asdict(),
        "low": test.low,
        "high": test.high,
        "evidence": shown_evidence(watch)[name],
        "limit": test.limit,
        "alarm": None
        if alarm is None
        else {"at": shown(alarm.time), "words": alarm.reason},
    }


def status(
    session: Session, versions: GateVersions, settings: Settings
) -> dict[str, Any]:
    """Return all that is stored of how the service stands; nothing is scanned."""
    head, now = read_head(session), session.now()
    gate = versions.get(session, head.current).gate
    since = session.rows(
        "SELECT max(changed_at) FROM gate_changes WHERE version = ? "
        "AND action <> 'shadow'",
        head.current,
    )[0][0]
    return {
        "time": shown(now),
        "gate": {"version": head.current, "since": shown(since), **describe(gate)},
        "shadow": _shadow(session, head),
        "traffic": _traffic(session, head, now),
        "watch": _watch(session, head, begin(gate, settings, head.review)),
        "alarms": _alarms(session),
        "alarmed": _alarmed(session),
        "versions": list_versions(session, versions, head),
        "review": review_of(session, now),
    }


def describe(gate: Gate) -> dict[str, Any]:
    """Return what a gate decides by and promises, in words."""
    rule = f"reject where {gate.rejects(gate.threshold)}"
    if gate.state != "threshold":
        rule = gate.state.replace("-", " ")
    if gate.groups:
        rule += f", {len(gate.groups)} groups with thresholds of their own"
    return {
        "score": gate.score,
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
    own = "sum(CASE WHEN version = ? THEN {} ELSE 0 END)"
    minutes = session.rows(
        "SELECT minute, sum(rows), sum(accepted), sum(drawn), sum(labels), "
        f"{own.format('rows')}, {own.format('accepted')} "
        "FROM minute_counts WHERE minute > ? GROUP BY minute ORDER BY minute",
        head.current,
        head.current,
        int(now // 60) - MINUTES,
    )
    # Those of the gate that decides now are by themselves, for its own band.
    names = ("rows", "accepted", "drawn", "labels", "current_rows", "current_accepted")
    return {
        "rows": int(rows or 0),
        "accepted": int(accepted or 0),
        "labels": int(labels or 0),
        "minutes": [
            {"at": shown(60.0 * at)} | dict(zip(names, map(int, own), strict=True))
            for at, *own in minutes
        ],
    }


def _watch(session: Session, head: Head, fresh: Watch | None) -> dict[str, Any]:
    found = session.rows("SELECT summary FROM watches WHERE version = ?", head.current)
    own = _plain(found[0][0]) if found else None
    if own is None and fresh is not None:
        own = summarize(Followed(head.current, fresh))
    if own is None:
        own = {
            "version": head.current,
            "headline": "the gate has no certificate, so there is nothing to watch",
            "waiting": 0,
            "upto": 0,
            "review": {
                "rejected": head.review.rejected,
                "accepted": head.review.accepted,
            },
            "tests": [],
        }
    query = "SELECT step, taken_at, entry FROM watch_steps WHERE version = ? {} "
    query += "ORDER BY step DESC LIMIT ?"
    last = session.rows(query.format(""), head.current, 1)
    steps = session.rows(query.format("AND charted = 1"), head.current, STEPS)
    every = {step[0]: step for step in (*last, *steps)}  # the last one, shown or not
    own["history"] = [_step(*every[number]) for number in sorted(every)]
    return dict(own)


def _step(number: int, at: float, text: str) -> dict[str, Any]:
    entry = _plain(text)
    return {"number": number, "at": shown(at)} | {name: entry[name] for name in _SHOWN}


def _alarmed(session: Session) -> dict[str, int]:
    """Return how often each test has alarmed, of all versions."""
    found = session.rows("SELECT test, count(*) FROM alarms GROUP BY test")
    return {test: int(n) for test, n in found}


def _alarms(session: Session) -> list[dict[str, Any]]:
    found = session.rows(
        "SELECT version, test, raised_at, reason, sent_at FROM alarms "
        "ORDER BY raised_at DESC LIMIT 50"
    )
    return [
        {
            "version": version,
            "test": test,
            "at": shown(at),
            "words": words,
            "sent": shown(sent),
        }
        for version, test, at, words, sent in found
    ]


def list_versions(
    session: Session, versions: GateVersions, head: Head
) -> list[dict[str, Any]]:
    """Return all gates, the latest first."""
    used = {
        row[0]
        for row in session.rows(
            "SELECT version FROM gate_changes WHERE action <> 'shadow'"
        )
    }

    def state(version: int) -> str:
        if version == head.current:
            return "current"
        if version == head.shadow:
            return "shadow"
        return "earlier" if version in used else "candidate"

    return [
        {
            "version": version,
            "at": shown(at),
            "origin": origin,
            "state": state(version),
            "promise": describe(versions.get(session, version).gate)["promise"],
            "note": note,
            "rows": rows,
            "accepted": accepted,
        }
        for version, at, origin, note, rows, accepted in session.rows(
            "SELECT g.version, g.added_at, g.origin, g.note, c.rows, c.accepted "
            "FROM gates g JOIN version_counts c ON c.version = g.version "
            "ORDER BY g.version DESC"
        )
    ]


def review_of(session: Session, now: float) -> dict[str, Any]:
    """Return how many rows wait for a person, and how long the oldest has."""
    counts = {what: rows for what, rows in session.rows(_REVIEWS)}  # noqa: C416
    rejected, audit = (counts.get(what, 0) for what in WAITING)
    first = session.rows(
        "SELECT decided_at FROM review_queue ORDER BY position LIMIT 1"
    )
    oldest = first[0][0] if first else None
    (leased,) = session.rows(
        "SELECT count(*) FROM review_queue WHERE leased_until > 0 AND leased_until > ?",
        now,
    )[0]
    return {
        "waiting": rejected + audit,
        "leased": leased,
        "rejected": rejected,
        "audit": audit,
        "oldest": shown(oldest),
        "oldest_seconds": 0.0 if oldest is None else max(0.0, now - oldest),
        "answered": counts.get("labelled", 0),
        "cannot_say": counts.get("undecided", 0),
    }


class ShadowCounts(NamedTuple):
    """Rows that the current gate and a candidate decided alike, or not."""

    rows: int
    correct: int
    wrong: int


def _shadow(session: Session, head: Head) -> dict[str, Any] | None:
    """Return what a candidate decided otherwise, and how often it was right."""
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
    kinds = {
        name: counts[accepts].rows if accepts in counts else 0
        for name, accepts in (
            ("both", (True, True)),
            ("only_current", (True, False)),
            ("only_shadow", (False, True)),
            ("neither", (False, False)),
        )
    }
    return {
        "version": head.shadow,
        "rows": sum(kinds.values()),
        **kinds,
        "labelled": labelled_risks(counts),
    }


def labelled_risks(
    counts: Mapping[tuple[bool, bool], ShadowCounts],
) -> dict[str, Any] | None:
    """Return the share of wrong rows among those that each gate accepts.

    `counts` are keyed by whether the current gate accepts, and whether the candidate
    does. Rows on which they differ are reviewed at other rates than those on which they
    agree. So each kind is estimated by itself, and weighs as much as it has rows.
    """
    labelled = sum(kind.correct + kind.wrong for kind in counts.values())
    if not labelled:
        return None

    def risk(kinds: list[ShadowCounts]) -> list[float] | None:
        rows = sum(kind.rows for kind in kinds)
        interval = np.zeros(3)
        for kind in kinds:
            reviewed = kind.correct + kind.wrong
            if not reviewed:
                return None
            # Together they hold at 95%.
            rate = share(kind.wrong, reviewed, confidence=1 - 0.05 / len(kinds))
            interval += kind.rows / rows * np.array([rate.value, rate.low, rate.high])
        return interval.tolist() if kinds else None

    return {
        "rows": labelled,
        "risk_current": risk([n for (own, _), n in counts.items() if own and n.rows]),
        "risk_shadow": risk([n for (_, own), n in counts.items() if own and n.rows]),
    }


def about(store: str, replica: str, started: float, *, fast: bool) -> dict[str, Any]:
    """Return what this replica is."""
    return {
        "version": __version__,
        "started": shown(started),
        "store": store,
        "replica": replica,
        "durable": not fast,
    }
