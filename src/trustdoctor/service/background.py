"""Background jobs: watches catch up, old rows are deleted, alarms are sent.

Of several replicas one leads, and only that one does them.
"""

import logging
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from trustdoctor.service.monitor import Monitor, WatchProgress, save_checkpoint
from trustdoctor.service.settings import Settings
from trustdoctor.service.store import DELETED, Database, Session, UnavailableError
from trustdoctor.service.times import format_time
from trustdoctor.service.versions import (
    WAITING,
    GateVersions,
    count_review,
    last_position_before,
    read_head,
)
from trustdoctor.service.webhook import send_alarm
from trustdoctor.service.writer import Writer
from trustdoctor.watch import to_state

LEADERSHIP = 15.0
"""Seconds after which another replica takes over from a leader that is gone."""

MAX_CLOCK_JUMP = 3600.0
"""Seconds by which the database's clock may get ahead of this process's."""

MAX_REST = 7 * 86400.0
"""Seconds that a store may have rested before a start."""

DISTRUST = 86400.0
"""Seconds after which a jump of the clock is believed."""

RETENTION_INTERVAL = 60.0
"""Seconds between looks at what is too old."""

_log = logging.getLogger("trustdoctor.service")


class BackgroundJobs:
    """Two threads: one for the watches and deletion, one for the webhook."""

    def __init__(
        self,
        database: Database,
        writer: Writer,
        versions: GateVersions,
        settings: Settings,
        replica: str,
    ) -> None:
        self.database, self.writer = database, writer
        self.settings, self.replica = settings, replica
        self.monitor = Monitor(writer, versions, settings)
        self.retention = Retention(settings, writer, self.monitor)
        self._clock = Clock()
        self._started = False
        self._stop = threading.Event()
        self._threads = [
            threading.Thread(target=self._repeat, args=(job,), name=name, daemon=True)
            for name, job in (("watch", self.tick), ("webhook", self.send_alarms))
        ]
        self._sessions: dict[str, Session] = {}

    def start(self) -> None:
        """Start the threads."""
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        """Stop, with all that is stored counted and the states saved."""
        self._stop.set()
        for thread in self._threads:
            thread.join()
        try:
            self.tick()
            self.monitor.save_all()
            self.writer.call(self._resign)
        except Exception:
            _log.exception("the watch was not saved; the next start takes its steps")
        for session in self._sessions.values():
            session.close()

    def _repeat(self, job: Callable[[], None]) -> None:
        while not self._stop.wait(self.settings.watch_interval):
            try:
                job()
            except UnavailableError as error:
                _log.warning("the store is away: %s", error)
            except Exception:
                _log.exception("a background job failed; it is tried again")
            else:
                continue
            # After a failure a connection may be of no use.
            session = self._sessions.pop(threading.current_thread().name, None)
            if session is not None:
                session.close()

    @property
    def session(self) -> Session:
        """A connection to read with, of this thread."""
        name = threading.current_thread().name
        if name not in self._sessions:
            self._sessions[name] = self.database.open()
        return self._sessions[name]

    def tick(self) -> None:
        """Let the watches count what was stored, and delete what is too old."""
        if not self.writer.call(self._leads):
            self.monitor.forget()
            return
        session = self.session
        position = read_head(session).position
        latest = None if self._started else _latest_time(session)
        now = self._clock.tell(session.now(), latest)
        self._started = True
        try:
            caught_up = self.monitor.catch_up(session, position, now)
            if caught_up and self._clock.is_trusted:
                self.retention.tick(session, now)
        except BaseException:
            # A watch may have counted what was not stored; the store is right.
            self.monitor.forget()
            raise

    def _leads(self, session: Session) -> bool:
        """Tell whether this replica leads; if no other does, it does from now on."""
        if self.database.name == "sqlite":
            return True
        now = session.now()
        changed = session.run(
            "INSERT INTO leaders VALUES ('watch', ?, ?) ON CONFLICT (job) DO UPDATE "
            "SET replica = excluded.replica, leads_until = excluded.leads_until "
            "WHERE leaders.replica = excluded.replica OR leaders.leads_until < ? "
            "OR leaders.leads_until > ?",  # by a clock that was ahead
            self.replica,
            now + LEADERSHIP,
            now,
            now + 2 * LEADERSHIP,
        )
        return changed == 1

    def _resign(self, session: Session) -> None:
        session.run("DELETE FROM leaders WHERE replica = ?", self.replica)

    def send_alarms(self) -> None:
        """Post alarms that the receiver has not taken yet, each until it does."""
        url = self.settings.webhook
        if url is None or not self.writer.call(self._leads):
            return
        session = self.session
        now = session.now()
        for version, test, raised_at, reason, attempts in session.rows(
            "SELECT version, test, raised_at, reason, attempts FROM alarms "
            "WHERE sent_at IS NULL AND (retry_at <= ? OR retry_at > ?)",
            now,
            now + 7200,  # set by a clock that was ahead: no retry is that far away
        ):
            if self._stop.is_set():
                return
            alarm = {
                "version": version,
                "test": test,
                "at": format_time(raised_at),
                "words": reason,
            }
            was_taken = send_alarm(url, alarm, self.settings.webhook_secret)
            retry_at = now + min(3600.0, 2.0 ** min(attempts, 12))
            outcome = "sent" if was_taken else "not taken"
            _log.info("webhook: alarm %s %s", test, outcome)
            sent_at = now if was_taken else None
            self._store_attempt(sent_at, retry_at, version, test)

    def _store_attempt(self, *values: Any) -> None:
        self.writer.call(
            lambda session: session.run(
                "UPDATE alarms SET sent_at = ?, attempts = attempts + 1, retry_at = ? "
                "WHERE version = ? AND test = ?",
                *values,
            )
        )


def _latest_time(session: Session) -> float | None:
    """Return the last time that was believed: of a step, or of a row before any."""
    (step_time,) = session.rows("SELECT max(taken_at) FROM watch_steps")[0]
    if step_time is not None:
        return float(step_time)
    row = session.rows("SELECT decided_at FROM rows ORDER BY position DESC LIMIT 1")
    return row[0][0] if row else None


class ClockReading(NamedTuple):
    """The database's clock, and this process's at the same moment."""

    database: float
    process: float

    def after(self, process: float) -> float:
        """Return what the database's clock should say when the process's says this."""
        return self.database + process - self.process


class Clock:
    """The database's clock, believed while it goes as this process's does.

    A clock that jumps ahead would make all rows too old and all labels too late at
    once. It may jump back a minute later, and what was deleted does not come back.
    """

    def __init__(self) -> None:
        self._last: ClockReading | None = None
        self._before_jump: ClockReading | None = None

    def tell(self, now: float, latest: float | None = None) -> float:
        """Return the database's time, or what it would be without its jump.

        Parameters
        ----------
        now : float
            What the database says.
        latest : float, optional
            The latest time in the store, with which the first reading is compared.

        Examples
        --------
        >>> clock = Clock()
        >>> clock.tell(1000.0), clock.is_trusted
        (1000.0, True)
        >>> round(clock.tell(1e9)), clock.is_trusted
        (1000, False)
        """
        process = time.monotonic()
        reading = ClockReading(now, process)
        before_jump = self._before_jump
        if before_jump is not None:
            expected = before_jump.after(process)
            is_ahead = now - expected > MAX_CLOCK_JUMP
            if is_ahead and process - before_jump.process < DISTRUST:
                return expected
            self._before_jump, self._last = None, reading
            return now
        if self._last is not None:
            expected, most = self._last.after(process), MAX_CLOCK_JUMP
        else:
            expected, most = now if latest is None else latest, MAX_REST
        if now - expected > most:
            _log.warning("the clock jumped ahead: nothing expires or is deleted today")
            self._before_jump = ClockReading(expected, process)
            return expected
        self._last = reading
        return now

    @property
    def is_trusted(self) -> bool:
        """Whether the database's time is the one to act by."""
        return self._before_jump is None


class Retention:
    """Deletes rows and payloads that are too old, after the watches counted them."""

    def __init__(self, settings: Settings, writer: Writer, monitor: Monitor) -> None:
        self.settings, self.writer, self.monitor = settings, writer, monitor
        self._next = 0.0

    def tick(self, session: Session, now: float) -> None:
        """Delete what is too old by now, once in a while."""
        settings = self.settings
        if settings.keep is None and settings.keep_payloads is None:
            return
        if time.monotonic() < self._next:
            return
        interval = min(RETENTION_INTERVAL, max(settings.watch_interval, 1.0) * 60)
        self._next = time.monotonic() + interval
        if settings.keep_payloads is not None:
            last = last_position_before(session, now - settings.keep_payloads)
            self._delete_payloads(session, last)
        if settings.keep is not None:
            last = last_position_before(session, now - settings.keep)
            if last:
                self._delete_rows(session, self.monitor.follow_all(session, now), last)

    def _delete_payloads(self, session: Session, last: int) -> None:
        # No index finds rows with payloads, so it is noted how far they are deleted.
        rows = session.rows(
            "SELECT value FROM meta WHERE name = 'payloads deleted up to'"
        )
        position = int(rows[0][0]) if rows else 0
        while position < last:
            end = min(last, position + DELETED)

            def job(write: Session, start: int = position, end: int = end) -> None:
                write.run(
                    "UPDATE rows SET payload = NULL WHERE position > ? AND "
                    "position <= ? AND payload IS NOT NULL",
                    start,
                    end,
                )
                write.run(
                    "INSERT INTO meta VALUES ('payloads deleted up to', ?) "
                    "ON CONFLICT (name) DO UPDATE SET value = excluded.value",
                    str(end),
                )

            self.writer.call(job)
            position = end

    def _delete_rows(
        self, session: Session, watches: list[WatchProgress], last: int
    ) -> None:
        """Write checkpoints, which need no rows before them; then delete, oldest first.

        In pieces: decisions wait for each.
        """
        last = min([last, *(progress.position for progress in watches)])
        states = [to_state(progress.watch) for progress in watches]

        def save_checkpoints(write: Session) -> None:
            for progress, state in zip(watches, states, strict=True):
                save_checkpoint(write, progress, state)

        self.writer.call(save_checkpoints)
        database = self.writer.database
        (first,) = session.rows("SELECT min(position) FROM rows")[0]
        while first is not None and first <= last:
            end = database.deletion_end(first, last)
            self.writer.call(
                partial(
                    delete_piece, database=database, first=first, last=end, goal=last
                )
            )
            first = end + 1
        _log.info("rows up to position %d were deleted by age", last)


def delete_piece(
    session: Session, *, database: Database, first: int, last: int, goal: int
) -> None:
    """Delete rows from a position to another, and all that belongs to them."""
    session.run(
        "DELETE FROM ids WHERE id IN "
        "(SELECT id FROM rows WHERE position >= ? AND position <= ?)",
        first,
        last,
    )
    session.run("DELETE FROM labels WHERE row_position <= ?", last)
    for accepted, name in enumerate(WAITING):
        n_deleted = session.run(
            "DELETE FROM review_queue WHERE position <= ? AND accepted = ?",
            last,
            accepted,
        )
        if n_deleted:
            count_review(session, name, -n_deleted)
    database.delete_rows(session, last, goal)
