"""Deleting what is too old, after the watches have counted it."""

import logging
import time
from collections.abc import Callable

from trustdoctor.service.following import Followed, save_checkpoint
from trustdoctor.service.heads import WAITING, count_review, last_before
from trustdoctor.service.settings import Settings
from trustdoctor.service.stores import DELETED, Database, Session
from trustdoctor.service.writer import Writer
from trustdoctor.watch import to_state

EVERY = 60.0
"""Seconds between looks at what is too old."""

_log = logging.getLogger("trustdoctor.service")


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
            last = last_before(session, now - settings.keep_payloads)
            self._drop_payloads(session, writer, last)
        if settings.keep is not None:
            last = last_before(session, now - settings.keep)
            if last:
                self._drop_rows(session, writer, watches(), last)

    def _drop_payloads(self, session: Session, writer: Writer, last: int) -> None:
        found = session.rows("SELECT value FROM meta WHERE name = 'payloads'")
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
                    "INSERT INTO meta VALUES ('payloads', ?) ON CONFLICT (name) "
                    "DO UPDATE SET value = excluded.value",
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
            upto = writer.database.piece(first, last)
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
    session.run("DELETE FROM labels WHERE line <= ?", last)
    for audit, what in enumerate(WAITING):
        gone = session.run(
            "DELETE FROM queue WHERE line <= ? AND audit = ?", last, audit
        )
        if gone:
            count_review(session, what, -gone)
    database.discard(session, last, goal)
