"""Watches that follow what is stored: each row is one update, in order of positions.

A step reads what was stored since the last one and writes down how far it came, and
when. The watch is a function of the stored rows and steps alone, so whoever takes the
steps again from a checkpoint comes to the same watch, bit for bit.
"""

import json
import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
from msgspec.structs import replace

from trustdoctor.errors import InputError
from trustdoctor.gates import PREDICTED, Gate
from trustdoctor.service.settings import Settings
from trustdoctor.service.store import Session, UnavailableError
from trustdoctor.service.times import format_time
from trustdoctor.service.versions import GateVersions, read_head
from trustdoctor.service.writer import Writer
from trustdoctor.watch import (
    HistoryEntry,
    Review,
    StreamLabels,
    StreamRows,
    Watch,
    follow,
    from_state,
    to_state,
    wording,
)

STEP_POSITIONS = 50_000
"""Positions that one step takes at most."""

CHECKPOINT_INTERVAL = 3600.0
"""Seconds between checkpoints; each thins the history before it."""

COMPLAINT_INTERVAL = 3600.0
"""Seconds between complaints about versions that cannot be watched."""

MOST_GROUPS = 5
"""Groups of a test that the status shows, the worst first."""

_ROWS = (  # as few columns as possible: each costs as much as the row
    "SELECT position, 4 * review_rates + 2 * drawn + accepted{} FROM rows "
    "WHERE position > ? AND position <= ? AND version = ? ORDER BY position"
)
_LABELS = (
    "SELECT row_position, judgement FROM labels WHERE position > ? AND position <= ? "
    "AND version = ? AND counted = 1 ORDER BY position"
)
_log = logging.getLogger("trustdoctor.service")


@dataclass
class WatchProgress:
    """The watch of one version, and how far it has come.

    Attributes
    ----------
    version : int
    watch : Watch
    step : int
        The number of its last step.
    position : int
        Up to which rows and labels are counted.
    saved_at : float
        When its state was last stored, by the database's clock.
    minute : int
        That of its last step.
    """

    version: int
    watch: Watch
    step: int = 0
    position: int = 0
    saved_at: float = 0.0
    minute: int = -1

    def is_overdue(self, now: float) -> bool:
        """Tell whether a row waits longer for its label than it may."""
        deadline, oldest = self.watch.deadline, self.watch.queue.oldest
        return deadline is not None and oldest is not None and oldest < now - deadline


@dataclass(frozen=True)
class StoredStep:
    """What a watch counted since its last step.

    Attributes
    ----------
    version, number, position : int
        The version, and the watch's step and position after it.
    taken_at : float
    entry : HistoryEntry
    charted : bool
        Whether charts show it: the first of every minute, and alarms.
    """

    version: int
    number: int
    position: int
    taken_at: float
    entry: HistoryEntry
    charted: bool


@dataclass(frozen=True)
class StoredEvents:
    """Rows and labels that were stored since the last step, up to a position."""

    position: int
    rows: list[StreamRows]
    labels: StreamLabels

    def __bool__(self) -> bool:
        """Tell whether there is anything to count."""
        return bool(self.rows) or len(self.labels.keys) > 0


def start_watch(gate: Gate, settings: Settings, review: Review) -> Watch | None:
    """Return a new watch of a gate; None if the gate promises nothing."""
    if gate.certificate is None:
        return None
    return Watch.start(
        gate,
        level=settings.level,
        review=review,
        deadline=settings.deadline,
        label_noise=settings.label_noise,
    )


def load_watch(
    session: Session,
    versions: GateVersions,
    version: int,
    *,
    from_checkpoint: bool = False,
) -> WatchProgress | None:
    """Return a watch as it is stored, with the steps since its state taken again.

    From the checkpoint, which is older, more steps are taken again.
    """
    table = "watch_checkpoints" if from_checkpoint else "watch_states"
    states = session.rows(
        f"SELECT step, position, state FROM {table} WHERE version = ?", version
    )
    if not states:
        return None
    step, position, state = states[0]
    gate = versions.get(session, version).gate
    progress = WatchProgress(version, from_state(state, gate), step, position)
    for number, end, taken_at in session.rows(
        "SELECT step, position, taken_at FROM watch_steps WHERE version = ? "
        "AND step > ? ORDER BY step",
        version,
        step,
    ):
        take_step(progress, read_events(session, progress, end), taken_at)
        if progress.step != number:
            message = (
                f"expected step {progress.step} of version {version}, got {number}."
            )
            raise InputError(message)
    return progress


def read_events(session: Session, progress: WatchProgress, end: int) -> StoredEvents:
    """Read what was stored since the last step, up to a position."""
    interval = progress.position, end, progress.version
    gate = progress.watch.gate
    group_column = ""
    if gate.groups:
        group_column = ", predicted" if gate.grouped_by == PREDICTED else ", group_name"
    rows = session.rows(_ROWS.format(group_column), *interval)
    labels = np.array(session.rows(_LABELS, *interval), np.int64).reshape(-1, 2)
    return StoredEvents(
        end, _stream_rows(session, rows), StreamLabels(labels[:, 0], labels[:, 1])
    )


def _stream_rows(session: Session, rows: list[Any]) -> list[StreamRows]:
    """Return rows in runs of the same review rates."""
    if not rows:
        return []
    columns = zip(*rows, strict=True)
    positions, codes = np.array(next(columns)), np.array(next(columns))
    accepted, drawn, rates_numbers = codes & 1 == 1, codes & 2 == 2, codes >> 2
    texts = next(columns, None)
    groups = None if texts is None else np.array([*map(msgspec.json.decode, texts)])
    run_starts = np.flatnonzero(np.diff(rates_numbers)) + 1
    runs = []
    for run in np.split(np.arange(len(rows)), run_starts):
        (rates,) = session.rows(
            "SELECT rejected, accepted FROM review_rates WHERE number = ?",
            int(rates_numbers[run[0]]),
        )
        run_drawn = drawn[run]
        runs.append(
            StreamRows(
                accepted[run],
                run_drawn,
                positions[run][run_drawn],
                Review(*rates),
                None if groups is None else groups[run],
            )
        )
    return runs


def take_step(progress: WatchProgress, events: StoredEvents, now: float) -> StoredStep:
    """Let a watch count what was stored."""
    watch = progress.watch
    entry = follow(watch, events.rows, events.labels, now)
    entry = replace(entry, evidence=evidence_to_show(watch, entry.alarms))
    watch.entries.clear()
    minute = int(now // 60)
    charted = bool(entry.alarms) or minute != progress.minute
    progress.step += 1
    progress.position = events.position
    progress.minute = minute
    return StoredStep(
        progress.version, progress.step, events.position, now, entry, charted
    )


def evidence_to_show(watch: Watch, alarms: Sequence[str] = ()) -> dict[str, float]:
    """Return the evidence of each test: rows that wait for labels take none of it away.

    For a test that alarms now, it is the evidence by which it does.
    """
    return {
        name: test.peak if name in alarms else max(test.settled_evidence, test.evidence)
        for name, test in watch.tests.items()
    }


def last_row_position(session: Session, version: int, position: int) -> int:
    """Return a position behind which a version has no rows, `position` at most.

    Rows are decided by the version that is current, so no row has to be looked at.
    """
    (current,) = session.rows("SELECT current_version FROM head")[0]
    if version == current:
        return position
    (replaced_at,) = session.rows(
        "SELECT max(position) FROM gate_changes WHERE previous_version = ?", version
    )[0]
    return int(replaced_at or 0)


def used_versions(session: Session) -> list[int]:
    """Return the versions that have decided on rows."""
    rows = session.rows("SELECT version FROM version_counts WHERE rows > 0")
    return [version for (version,) in rows]


def store_step(session: Session, step: StoredStep, summary: str) -> bool:
    """Store a step; False if another replica has stored one of this number."""
    changed = session.run(
        "UPDATE watches SET step = ?, position = ?, summary = ? "
        "WHERE version = ? AND step = ?",
        step.number,
        step.position,
        summary,
        step.version,
        step.number - 1,
    )
    if changed != 1:
        return False
    entry = json.dumps(step.entry.to_dict(), allow_nan=False)
    row = step.version, step.number, step.position, step.taken_at, entry
    session.insert(
        "watch_steps",
        ("version", "step", "position", "taken_at", "entry", "charted"),
        [(*row, int(step.charted))],
    )
    return True


def store_new_watch(session: Session, version: int, watch: Watch) -> WatchProgress:
    """Store a watch that has counted nothing yet, and its first checkpoint."""
    progress = WatchProgress(version, watch, saved_at=session.now())
    session.insert(
        "watches",
        ("version", "step", "position", "summary"),
        [(version, 0, 0, "null")],
    )
    save_checkpoint(session, progress, to_state(watch))
    return progress


def save_state(
    session: Session,
    progress: WatchProgress,
    state: str,
    table: str = "watch_states",
) -> bool:
    """Store a state, so that a restart takes few steps again.

    `state` is `to_state` of the watch, made before the transaction, which others wait
    for. False if another replica has stored a later one.
    """
    changed = session.run(
        f"INSERT INTO {table} VALUES (?, ?, ?, ?, ?) ON CONFLICT (version) "
        "DO UPDATE SET step = excluded.step, position = excluded.position, "
        "stored_at = excluded.stored_at, state = excluded.state "
        f"WHERE {table}.step <= excluded.step",
        progress.version,
        progress.step,
        progress.position,
        session.now(),
        state,
    )
    return changed == 1


def save_checkpoint(session: Session, progress: WatchProgress, state: str) -> None:
    """Store the state from which steps can be taken again; rows before it may go."""
    if not save_state(session, progress, state):
        return
    if not save_state(session, progress, state, "watch_checkpoints"):
        return
    # Of the steps before it one per minute stays, for the charts.
    session.run(
        "DELETE FROM watch_steps WHERE version = ? AND step <= ? AND charted = 0",
        progress.version,
        progress.step,
    )


def summarize_watch(progress: WatchProgress) -> dict[str, Any]:
    """Return how a watch stands, as plain values."""
    watch = progress.watch
    review = watch.review
    return {
        "version": progress.version,
        "headline": wording.headline(watch),
        "waiting": len(watch.queue),
        "upto": progress.position,
        "label_noise": watch.label_noise,
        "review": None
        if review is None
        else {"rejected": review.rejected, "accepted": review.accepted},
        "tests": [_summarize_test(watch, name) for name in watch.tests],
    }


def _summarize_test(watch: Watch, name: str) -> dict[str, Any]:
    test: Any = watch.tests[name]
    estimate = None if test.groups is not None else test.estimate()
    alarm = test.alarm
    reason = "" if alarm is None else alarm.reason
    evidence = evidence_to_show(watch)[name]
    words = wording.describe_test(
        watch, name, most_groups=MOST_GROUPS, evidence=test.peak if alarm else evidence
    )
    return {
        "name": name,
        "verdict": words.verdict,
        "why": words.reason or reason,
        "words": {
            "promise": words.promise,
            "observed": [
                f"{group}: {rate}" if group else rate for group, rate in words.observed
            ],
            "groups": words.n_groups,
            "evidence": words.evidence,
        },
        "estimate": None if estimate is None else estimate._asdict(),
        "low": test.low,
        "high": test.high,
        "evidence": evidence,
        "limit": test.limit,
        "alarm": None
        if alarm is None
        else {"at": format_time(alarm.time), "words": reason},
    }


class Monitor:
    """The watches of all versions, each as far as rows are stored.

    Attributes
    ----------
    watches : dict of WatchProgress
        By version.
    """

    def __init__(
        self,
        writer: Writer,
        versions: GateVersions,
        settings: Settings,
    ) -> None:
        self.writer, self.versions, self.settings = writer, versions, settings
        self.watches: dict[int, WatchProgress] = {}
        self._followed_to = -1  # below 0: not every version is known to be followed
        self._complained = -COMPLAINT_INTERVAL

    def forget(self) -> None:
        """Drop all watches; they are read from the store again."""
        self.watches.clear()
        self._followed_to = -1

    def catch_up(self, session: Session, position: int, now: float) -> bool:
        """Let every watch count what is stored; False if one of them cannot."""
        versions = self._versions_to_follow(session, position, now)
        # A list: if one cannot be followed, those behind it still are.
        followed = [self._try_to_follow(session, v, position, now) for v in versions]
        self._followed_to = position if all(followed) else -1
        return all(followed)

    def _try_to_follow(
        self, session: Session, version: int, position: int, now: float
    ) -> bool:
        """Follow a version; one that cannot be followed does not stop the others."""
        try:
            self.follow(session, version, position, now)
        except UnavailableError:
            raise
        except Exception:
            self.watches.pop(version, None)
            if time.monotonic() > self._complained + COMPLAINT_INTERVAL:
                self._complained = time.monotonic()
                _log.exception(
                    "version %d cannot be watched; nothing is deleted", version
                )
            return False
        return True

    def _versions_to_follow(
        self, session: Session, position: int, now: float
    ) -> list[int]:
        """Return the versions with rows or labels that are not counted yet."""
        since = self._followed_to
        if since < 0:  # after a start all may have some
            return used_versions(session)
        # Rows are of the version that was current, so none has to be looked at.
        rows = session.rows(
            "SELECT version FROM version_counts WHERE rows > 0 AND (version IN (SELECT "
            "current_version FROM head) OR version IN (SELECT previous_version FROM "
            "gate_changes WHERE position > ?)) UNION SELECT version FROM labels "
            "WHERE position > ? AND position <= ?",
            *(since, since, position),
        )
        overdue = {
            version
            for version, progress in self.watches.items()
            if progress.is_overdue(now)
        }
        return sorted(overdue.union(version for (version,) in rows))

    def _load(self, session: Session, version: int) -> WatchProgress | None:
        """Return the watch of a version; a new one if it has none yet."""
        if version in self.watches:
            return self.watches[version]
        gate = self.versions.get(session, version).gate
        new_watch = start_watch(gate, self.settings, read_head(session).review)
        progress = load_watch(session, self.versions, version)
        if progress is None:
            if new_watch is None:
                return None
            progress = self.writer.call(
                lambda write: store_new_watch(write, version, new_watch)
            )
        self.watches[version] = progress
        for option in ("level", "deadline", "label_noise"):
            if getattr(progress.watch, option) != getattr(new_watch, option):
                _log.warning(
                    "version %d is watched at the level, deadline and label noise that "
                    "its watch began with",
                    version,
                )
                break
        return progress

    def follow(self, session: Session, version: int, position: int, now: float) -> None:
        """Let the watch of a version count what is stored up to a position."""
        progress = self._load(session, version)
        if progress is None:
            return
        last_row = last_row_position(session, version, position)
        end = -1
        while end < position:
            end = position
            if progress.position < last_row:
                end = min(last_row, progress.position + STEP_POSITIONS)
            events = read_events(session, progress, end)
            if not events and not progress.is_overdue(now):
                progress.position = end  # nothing to write down
            elif not self._store(progress, take_step(progress, events, now)):
                _log.warning("version %d is watched by another replica, too", version)
                del self.watches[version]
                return

    def follow_all(self, session: Session, now: float) -> list[WatchProgress]:
        """Return the watches of all versions, as far as rows are stored."""
        position = read_head(session).position
        versions = used_versions(session)
        for version in versions:
            self.follow(session, version, position, now)
        return [self.watches[v] for v in versions if v in self.watches]

    def _store(self, progress: WatchProgress, step: StoredStep) -> bool:
        """Store a step and its alarms; False if another replica was first."""
        summary = json.dumps(summarize_watch(progress))
        alarms = step.entry.alarms

        def job(session: Session) -> bool:
            if not store_step(session, step, summary):
                return False
            for name in alarms:
                alarm = progress.watch.tests[name].alarm
                assert alarm is not None
                session.insert(
                    "alarms",
                    ("version", "test", "raised_at", "reason", "attempts", "retry_at"),
                    [(step.version, name, step.taken_at, alarm.reason, 0, 0.0)],
                )
            return True

        if not self.writer.call(job):
            return False
        for name in alarms:
            _log.warning("ALARM of version %d: %s", step.version, name)
        if alarms or step.taken_at - progress.saved_at > self.settings.save_interval:
            self.save(progress)
        return True

    def save(self, progress: WatchProgress) -> None:
        """Store the state of a watch; once in a while, as a checkpoint."""
        state = to_state(progress.watch)

        def job(session: Session) -> None:
            save_state(session, progress, state)
            (checkpoint_at,) = session.rows(
                "SELECT stored_at FROM watch_checkpoints WHERE version = ?",
                progress.version,
            )[0]
            progress.saved_at = session.now()
            if progress.saved_at - checkpoint_at > CHECKPOINT_INTERVAL:
                save_checkpoint(session, progress, state)

        self.writer.call(job)

    def save_all(self) -> None:
        """Store the states of all watches."""
        for progress in self.watches.values():
            self.save(progress)
