"""One thread that writes: what many requests ask is stored by one commit.

An answer is sent after the commit, so what was answered is not lost. While the disk
works, the next requests gather.
"""

import asyncio
import logging
import queue
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from trustdoctor.service.decisions import RequestDecider
from trustdoctor.service.problems import ProblemError
from trustdoctor.service.schemas import DecideRequest
from trustdoctor.service.store import (
    Database,
    Session,
    UnavailableError,
    attempt,
)
from trustdoctor.service.versions import read_head

MOST_ROWS = 20_000
"""Rows that one commit takes, before what waits has to wait for the next."""

CROWD, GAP = 4, 0.002
"""After a commit for more requests than that, the next one waits so many seconds."""

MOST_WAITING = 50_000
"""Requests and rows that may wait; beyond it new ones are refused (503)."""

_log = logging.getLogger("trustdoctor.service")
Result = TypeVar("Result")
Job = Callable[[Session], Any]


class Writer:
    """The only way to change what is stored."""

    def __init__(self, database: Database, decider: RequestDecider) -> None:
        self.database, self.decider = database, decider
        self._items: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._session: Session | None = None
        self._taken = self._done = 0  # each is changed by one thread
        self._closed = False
        self._thread = threading.Thread(target=self._work, name="writer", daemon=True)
        self.commits = 0
        self.is_failing = False

    def start(self) -> None:
        """Begin to write."""
        self._thread.start()

    def close(self) -> None:
        """Finish what was taken, and end."""
        self._closed = True
        self._items.put(None)
        self._thread.join()

    @property
    def waiting(self) -> int:
        """Rows and jobs that are not committed yet."""
        return self._taken - self._done

    def submit(
        self, work: DecideRequest | Job, loop: asyncio.AbstractEventLoop
    ) -> "asyncio.Future[Any]":
        """Have rows decided on, or a job done; the result comes after the commit."""
        size = len(work) if isinstance(work, DecideRequest) else 1
        if self._closed or self.waiting + size > MOST_WAITING + MOST_ROWS:
            why = "it is shutting down" if self._closed else "too many rows wait"
            message = f"the service takes no more now: {why}. Send it again later."
            raise ProblemError(503, message)
        future = loop.create_future()
        self._taken += size
        self._items.put((work, future, loop, size))
        return future

    def call(self, job: Callable[[Session], Result]) -> Result:
        """Have a job done, from a thread without a loop, and wait for it."""
        done = threading.Event()
        out: list[Any] = []

        def finish(result: Any) -> None:
            out.append(result)
            done.set()

        self._items.put((job, finish, None, 0))
        done.wait()
        if isinstance(out[0], BaseException):
            raise out[0]
        return out[0]

    def _work(self) -> None:
        batch: list[Any] | None = []
        while True:
            if batch is not None and len(batch) > CROWD:
                time.sleep(GAP)  # a commit costs as much for few requests as for many
            batch = self._gather()
            if batch is None:
                break
            results = self._write([item[0] for item in batch])
            self._done += sum(item[3] for item in batch)
            _answer(batch, results)
        if self._session is not None:
            self._session.close()

    def _gather(self) -> list[Any] | None:
        """Wait for work, and take all that is there; None at the end."""
        item = self._items.get()
        batch, rows = [], 0
        while item is not None:
            batch.append(item)
            rows += item[3]
            if rows >= MOST_ROWS:
                return batch
            try:
                item = self._items.get_nowait()
            except queue.Empty:
                return batch
        if batch:
            self._items.put(None)
        return batch or None

    def _write(self, works: Sequence[DecideRequest | Job]) -> list[Any]:
        """Do all in one transaction; where that fails, nobody is told otherwise."""
        try:
            session = self._ready()
            session.begin()
            session.lock()  # before anything else, so that no two wait for each other
            results = self._do(session, works)
            session.commit()
        except BaseException as error:
            self._drop()
            self.is_failing = isinstance(error, UnavailableError)
            if self.is_failing:  # one line for all who asked
                _log.error("not stored: %s", error, extra={"data": {"n": len(works)}})
            # What one of them broke is not the others' fault: once more, by itself.
            if len(works) > 1 and not isinstance(error, UnavailableError):
                return [self._write([work])[0] for work in works]
            return [error] * len(works)
        self.commits += 1
        self.is_failing = False
        return results

    def _do(self, session: Session, works: Sequence[DecideRequest | Job]) -> list[Any]:
        out: list[Any] = [None] * len(works)
        rows = {
            at: work for at, work in enumerate(works) if isinstance(work, DecideRequest)
        }
        if rows:
            asked = list(rows.values())
            position = read_head(session).position
            last = position + sum(map(len, asked))
            self.database.make_partitions(session, position, last)
            for at, done in zip(
                rows,
                self.decider.decide(session, asked),
                strict=True,
            ):
                out[at] = done
        for at, work in enumerate(works):
            if isinstance(work, DecideRequest):
                continue
            try:
                out[at] = attempt(session, work)
            except UnavailableError:
                raise
            except Exception as error:
                out[at] = error
        return out

    def _ready(self) -> Session:
        if self._session is None:
            self._session = self.database.open(writer=True)
        return self._session

    def _drop(self) -> None:
        """Undo, and connect anew: after a failure a connection may be of no use."""
        session, self._session = self._session, None
        self.database.forget_partitions()
        if session is not None:
            session.rollback()
            session.close()
        time.sleep(0.01)  # a store that is away is not asked in a hurry


def _answer(batch: list[Any], results: list[Any]) -> None:
    """Tell all who wait, by one call into their loop."""
    loops: dict[Any, list[Any]] = {}
    for (_, future, loop, _), result in zip(batch, results, strict=True):
        if loop is None:
            future(result)
        else:
            loops.setdefault(loop, []).append((future, result))
    for loop, told in loops.items():
        try:
            loop.call_soon_threadsafe(_tell, told)
        except RuntimeError:  # the loop has ended, and with it who asked
            continue


def _tell(told: list[tuple["asyncio.Future[Any]", Any]]) -> None:
    for future, result in told:
        if future.done():  # who asked has gone
            continue
        if isinstance(result, BaseException):
            future.set_exception(result)
        else:
            future.set_result(result)
