"""Background jobs: a clock to trust, deletion by age, watching, alarms, webhooks."""

import json
import logging
import threading
import time
from collections.abc import Callable

from trustdoctor.service import monitor
from trustdoctor.service.monitor import Followed, Step, save_checkpoint
from trustdoctor.service.settings import Settings
from trustdoctor.service.store import DELETED, Database, Session, UnavailableError
from trustdoctor.service.summaries import summarize
from trustdoctor.service.times import shown
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

LEASE = 15.0
"""Seconds after which another replica takes over from one that is gone."""

COMPLAINTS = 3600.0
"""Seconds between complaints of the same kind in the log."""

CHECKPOINT = 3600.0
"""Seconds between checkpoints, before which the history is thinned."""

_log = logging.getLogger("trustdoctor.service")


class Keeper:
    """A thread that follows what is stored. Of several replicas one keeps."""

    def __init__(
        self,
        database: Database,
        writer: Writer,
        versions: GateVersions,
        settings: Settings,
        replica: str,
    ) -> None:
        self.database, self.writer, self.versions = database, writer, versions
        self.settings, self.replica = settings, replica
        self.retention = Retention(settings)
        self._watches: dict[int, Followed] = {}
        self._seen = -1
        self._clock, self._now = Clock(), 0.0
        self._complained = -COMPLAINTS
        self._stop = threading.Event()
        self._threads = [
            threading.Thread(
                target=self._run, args=(job, every), name=name, daemon=True
            )
            for name, job, every in (
                ("watch", self.tick, settings.every),
                ("webhook", self.send_alarms, settings.every),
            )
        ]
        self._sessions: dict[str, Session] = {}

    def start(self) -> None:
        """Begin."""
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        """End, with all that is stored counted and the states saved."""
        self._stop.set()
        for thread in self._threads:
            thread.join()
        try:
            self.tick()
            self.save()
            self.writer.call(self._resign)
        except Exception:
            _log.exception("the watch was not saved; the next start takes its steps")
        for session in self._sessions.values():
            session.close()

    def _run(self, job: Callable[[], None], every: float) -> None:
        while not self._stop.wait(every):
            try:
                job()
            except UnavailableError as error:
                _log.warning("the store is away: %s", error)
            except Exception:
                _log.exception("the keeper failed; it goes on")
            else:
                continue
            session = self._sessions.pop(threading.current_thread().name, None)
            if session is not None:
                session.close()

    def _forget(self) -> None:
        """Read everything anew: it is in the store."""
        self._watches.clear()
        self._seen = -1

    @property
    def session(self) -> Session:
        """A connection of the thread that asks, to read by."""
        name = threading.current_thread().name
        if name not in self._sessions:
            self._sessions[name] = self.database.open()
        return self._sessions[name]

    def tick(self) -> None:
        """Count what was stored since, and delete what is too old."""
        if not self.writer.call(self._leads):
            self._forget()
            return
        session = self.session
        position = read_head(session).position
        newest = None if self._now else _newest(session)
        self._now = self._clock.tell(session.now(), newest)
        try:
            due = self._due(session, position)
            good = [self._try_to_follow(session, one, position) for one in due]
            if all(good) and self._clock.is_trusted:
                self.retention.tick(session, self.writer, self._all_watches, self._now)
        except BaseException:
            self._forget()
            raise
        self._seen = position if all(good) else -1

    def _try_to_follow(self, session: Session, version: int, position: int) -> bool:
        """Follow a version; one that cannot be followed does not stop the others."""
        try:
            self._follow(session, version, position)
        except UnavailableError:
            raise
        except Exception:
            self._watches.pop(version, None)
            if time.monotonic() > self._complained + COMPLAINTS:
                self._complained = time.monotonic()
                _log.exception(
                    "version %d cannot be watched; nothing is deleted", version
                )
            return False
        return True

    def _leads(self, session: Session) -> bool:
        """Tell whether this replica keeps; where nobody does, it does from now on."""
        if self.database.name == "sqlite":
            return True
        now = session.now()
        changed = session.run(
            "INSERT INTO leaders VALUES ('watch', ?, ?) ON CONFLICT (job) DO UPDATE "
            "SET replica = excluded.replica, leads_until = excluded.leads_until "
            "WHERE leaders.replica = excluded.replica OR leaders.leads_until < ? "
            "OR leaders.leads_until > ?",  # by a clock that was ahead
            self.replica,
            now + LEASE,
            now,
            now + 2 * LEASE,
        )
        return changed == 1

    def _resign(self, session: Session) -> None:
        session.run("DELETE FROM leaders WHERE replica = ?", self.replica)

    def _due(self, session: Session, position: int) -> list[int]:
        """Return the versions with rows or labels that are not counted yet."""
        if self._seen < 0:  # after a start all may have some
            return _used(session)
        # Rows are of the version that was current, so none has to be looked at.
        new = session.rows(
            "SELECT version FROM version_counts WHERE rows > 0 AND (version IN (SELECT "
            "current_version FROM head) OR version IN (SELECT previous_version FROM "
            "gate_changes WHERE position > ?)) UNION SELECT version FROM labels "
            "WHERE position > ? AND position <= ?",
            *(self._seen, self._seen, position),
        )
        now = self._now
        late = [
            version
            for version, one in self._watches.items()
            if monitor.is_overdue(one, now)
        ]
        return sorted({row[0] for row in new} | set(late))

    def _followed(self, session: Session, version: int) -> Followed | None:
        """Return the watch of a version; begun, where it has rows and no watch yet."""
        if version not in self._watches:
            found = monitor.load(session, self.versions, version)
            if found is None:
                gate = self.versions.get(session, version).gate
                review = read_head(session).review
                watch = monitor.begin(gate, self.settings, review)
                if watch is None:
                    return None

                def first(write: Session) -> Followed:
                    return monitor.store_first(write, version, watch)

                found = self.writer.call(first)
            self._watches[version] = found
            gate = self.versions.get(session, version).gate
            fresh = monitor.begin(gate, self.settings, read_head(session).review)
            if any(
                getattr(found.watch, name) != getattr(fresh, name)
                for name in ("level", "deadline", "label_noise")
            ):
                _log.warning(
                    "version %d is watched at the level, deadline and label noise that "
                    "its watch began with",
                    version,
                )
        return self._watches[version]

    def _follow(self, session: Session, version: int, position: int) -> None:
        followed = self._followed(session, version)
        if followed is None:
            return
        last = monitor.last_row(session, version, position)
        upto = -1
        while upto < position:
            upto, now = position, self._now
            if followed.upto < last:
                upto = min(last, followed.upto + monitor.LARGEST)
            since = monitor.read_since(session, followed, upto)
            if not since and not monitor.is_overdue(followed, now):
                followed.upto = upto  # nothing to write down
            elif not self._take(followed, monitor.advance(followed, since, now)):
                _log.warning("version %d is watched by another replica, too", version)
                del self._watches[version]
                return

    def _take(self, followed: Followed, step: Step) -> bool:
        """Write a step down; False where another replica has."""
        summary = json.dumps(summarize(followed))
        if not self.writer.call(lambda s: self._store(s, step, summary)):
            return False
        for name in step.entry.alarms:
            _log.warning("ALARM of version %d: %s", step.version, name)
        if step.entry.alarms or step.at - followed.saved > self.settings.saved:
            self._save(followed)
        return True

    def _store(self, session: Session, step: Step, summary: str) -> bool:
        if not monitor.store_step(session, step, summary):
            return False
        tests = self._watches[step.version].watch.tests
        for name in step.entry.alarms:
            alarm = tests[name].alarm
            assert alarm is not None
            session.insert(
                "alarms",
                ("version", "test", "raised_at", "reason", "attempts", "retry_at"),
                [(step.version, name, step.at, alarm.reason, 0, 0.0)],
            )
        return True

    def _all_watches(self) -> list[Followed]:
        """Return the watches of all versions, as far as rows are stored."""
        session = self.session
        position = read_head(session).position
        out = []
        for version in _used(session):
            self._follow(session, version, position)
            followed = self._watches.get(version)
            if followed is not None:
                out.append(followed)
        return out

    def _save(self, followed: Followed) -> None:
        text = to_state(followed.watch)

        def job(session: Session) -> None:
            monitor.save(session, followed, text)
            (at,) = session.rows(
                "SELECT stored_at FROM watch_checkpoints WHERE version = ?",
                followed.version,
            )[0]
            followed.saved = session.now()
            if followed.saved - at > CHECKPOINT:
                monitor.save_checkpoint(session, followed, text)

        self.writer.call(job)

    def save(self) -> None:
        """Store the states of all watches."""
        for followed in self._watches.values():
            self._save(followed)

    def send_alarms(self) -> None:
        """Send alarms that were not sent yet; each until it is taken."""
        url = self.settings.webhook
        if url is None or not self.writer.call(self._leads):
            return
        session = self.session
        now = session.now()
        for version, test, at, words, tries in session.rows(
            "SELECT version, test, raised_at, reason, attempts FROM alarms "
            "WHERE sent_at IS NULL AND (retry_at <= ? OR retry_at > ?)",
            now,
            now + 7200,
        ):
            if self._stop.is_set():
                return
            alarm = {"version": version, "test": test, "at": shown(at), "words": words}
            taken = send_alarm(url, alarm, self.settings.webhook_secret)
            due = now + min(3600.0, 2.0 ** min(tries, 12))
            _log.info("webhook: alarm %s %s", test, "sent" if taken else "not taken")
            self._note_sent((now if taken else None, due, version, test))

    def _note_sent(self, row: tuple[float | None, float, int, str]) -> None:
        self.writer.call(
            lambda s: s.run(
                "UPDATE alarms SET sent_at = ?, attempts = attempts + 1, retry_at = ? "
                "WHERE version = ? AND test = ?",
                *row,
            )
        )


def _newest(session: Session) -> float | None:
    """Return the last time that was believed: of a step, or of a row without any."""
    (step,) = session.rows("SELECT max(taken_at) FROM watch_steps")[0]
    found = session.rows("SELECT decided_at FROM rows ORDER BY position DESC LIMIT 1")
    return step if step is not None or not found else found[0][0]


def _used(session: Session) -> list[int]:
    """Return the versions that have decided on rows."""
    return [
        v for (v,) in session.rows("SELECT version FROM version_counts WHERE rows > 0")
    ]


JUMP = 3600.0
"""Seconds by which the database's clock may get away from this process's."""

LONGEST_REST = 7 * 86400.0
"""Seconds that a store may have rested before a start."""

PAUSE = 86400.0
"""Seconds after which a jump is believed."""


class Clock:
    """Tells the time to act by."""

    def __init__(self) -> None:
        self._seen: tuple[float, float] | None = None
        self._held: tuple[float, float] | None = None

    def tell(self, now: float, newest: float | None = None) -> float:
        """Return the database's time, or what it would be without its jump.

        Parameters
        ----------
        now : float
            What the database says.
        newest : float, optional
            The time of the newest row: what the first look is compared with.

        Examples
        --------
        >>> clock = Clock()
        >>> clock.tell(1000.0), clock.is_trusted
        (1000.0, True)
        >>> round(clock.tell(1e9)), clock.is_trusted
        (1000, False)
        """
        own = time.monotonic()
        held = self._held
        if held is not None:
            expected = held[0] + own - held[1]
            if now - expected > JUMP and own - held[1] < PAUSE:
                return expected
            self._held, self._seen = None, (now, own)
            return now
        if self._seen is None:
            rested = now - (now if newest is None else newest)
            before, most = (now - rested, own), LONGEST_REST
        else:
            before, most = self._seen, JUMP
        expected = before[0] + own - before[1]
        if now - expected > most:
            _log.warning("the clock jumped ahead: nothing expires or is deleted today")
            self._held = expected, own
            return expected
        self._seen = now, own
        return now

    @property
    def is_trusted(self) -> bool:
        """Whether the database's time is the one to act by."""
        return self._held is None


EVERY = 60.0
"""Seconds between looks at what is too old."""


class Retention:
    """Deletes rows and payloads that are older than they may be."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._next = 0.0

    def tick(
        self,
        session: Session,
        writer: Writer,
        watches: Callable[[], list[Followed]],
        now: float,
    ) -> None:
        """Delete what is too old by now, once in a while."""
        settings = self.settings
        if settings.keep is None and settings.keep_payloads is None:
            return
        if time.monotonic() < self._next:
            return
        self._next = time.monotonic() + min(EVERY, max(settings.every, 1.0) * 60)
        if settings.keep_payloads is not None:
            last = last_position_before(session, now - settings.keep_payloads)
            self._drop_payloads(session, writer, last)
        if settings.keep is not None:
            last = last_position_before(session, now - settings.keep)
            if last:
                self._drop_rows(session, writer, watches(), last)

    def _drop_payloads(self, session: Session, writer: Writer, last: int) -> None:
        found = session.rows(
            "SELECT value FROM meta WHERE name = 'payloads deleted up to'"
        )
        first = int(found[0][0]) if found else 0
        while first < last:
            upto = min(last, first + DELETED)

            def job(write: Session, first: int = first, upto: int = upto) -> None:
                write.run(
                    "UPDATE rows SET payload = NULL WHERE position > ? AND "
                    "position <= ? AND payload IS NOT NULL",
                    first,
                    upto,
                )
                write.run(
                    "INSERT INTO meta VALUES ('payloads deleted up to', ?) "
                    "ON CONFLICT (name) DO UPDATE SET value = excluded.value",
                    str(upto),
                )

            writer.call(job)
            first = upto

    def _drop_rows(
        self, session: Session, writer: Writer, watches: list[Followed], last: int
    ) -> None:
        """Write checkpoints first; then rows go, oldest first, piece by piece."""
        last = min([last, *(followed.upto for followed in watches)])

        texts = [to_state(followed.watch) for followed in watches]

        def checkpoints(write: Session) -> None:
            for followed, text in zip(watches, texts, strict=True):
                save_checkpoint(write, followed, text)

        writer.call(checkpoints)
        (first,) = session.rows("SELECT min(position) FROM rows")[0]
        while first is not None and first <= last:
            upto = writer.database.deletion_end(first, last)
            _delete(writer, (first, upto), last)
            first = upto + 1
        _log.info("rows up to position %d were deleted by age", last)


def _delete(writer: Writer, piece: tuple[int, int], goal: int) -> None:
    writer.call(lambda session: delete_piece(session, writer.database, piece, goal))


def delete_piece(
    session: Session, database: Database, piece: tuple[int, int], goal: int
) -> None:
    """Delete rows from a position to another, and all that belongs to them."""
    first, last = piece
    session.run(
        "DELETE FROM ids WHERE id IN "
        "(SELECT id FROM rows WHERE position >= ? AND position <= ?)",
        first,
        last,
    )
    session.run("DELETE FROM labels WHERE row_position <= ?", last)
    for audit, what in enumerate(WAITING):
        gone = session.run(
            "DELETE FROM review_queue WHERE position <= ? AND accepted = ?", last, audit
        )
        if gone:
            count_review(session, what, -gone)
    database.delete_rows(session, last, goal)
