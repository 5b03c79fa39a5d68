"""One thread that writes: what many requests bring is stored by one commit.

A response is sent after the commit, so what was answered is not lost. While the disk
works, the next requests gather: a slow disk makes larger groups, not a longer queue.
"""

import asyncio
import logging
import queue
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

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
"""Rows of one commit; what comes behind them waits for the next."""

CROWD, GATHER_TIME = 4, 0.002
"""After a commit for more requests than that, the next one waits for more, in seconds.

A commit costs as much for few requests as for many; clients that were answered
together send their next requests together.
"""

MOST_WAITING = 50_000
"""Requests and rows that may wait; beyond it new ones are refused (503)."""

_log = logging.getLogger("trustdoctor.service")
Result = TypeVar("Result")
Job = Callable[[Session], Any]


class Task(NamedTuple):
    """Work for the writer, and whom to tell its result.

    Without a loop, `future` is a function that takes the result.
    """

    work: DecideRequest | Job
    future: Any
    loop: asyncio.AbstractEventLoop | None
    size: int


class Writer:
    """The only way to change what is stored."""

    def __init__(self, database: Database, decider: RequestDecider) -> None:
        self.database, self.decider = database, decider
        self._tasks: queue.SimpleQueue[Task | None] = queue.SimpleQueue()
        self._session: Session | None = None
        # Two counters and no lock: each is changed by one thread alone.
        self._submitted = self._finished = 0
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="writer", daemon=True)
        self.commits = 0
        self.is_failing = False

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def close(self) -> None:
        """Finish what was submitted, and stop."""
        self._closed = True
        self._tasks.put(None)
        self._thread.join()

    @property
    def waiting(self) -> int:
        """Rows and jobs that are not committed yet."""
        return self._submitted - self._finished

    def submit(
        self, work: DecideRequest | Job, loop: asyncio.AbstractEventLoop
    ) -> "asyncio.Future[Any]":
        """Have rows decided on, or a job run; the result comes after the commit."""
        size = len(work) if isinstance(work, DecideRequest) else 1
        if self._closed or self.waiting + size > MOST_WAITING + MOST_ROWS:
            why = "it is shutting down" if self._closed else "too many rows wait"
            message = f"the service takes no more now: {why}. Send it again later."
            raise ProblemError(503, message)
        future = loop.create_future()
        self._submitted += size
        self._tasks.put(Task(work, future, loop, size))
        return future

    def call(self, job: Callable[[Session], Result]) -> Result:
        """Have a job run, from a thread without a loop, and wait for its result."""
        finished = threading.Event()
        results: list[Any] = []

        def finish(result: Any) -> None:
            results.append(result)
            finished.set()

        self._tasks.put(Task(job, finish, None, 0))
        finished.wait()
        (result,) = results
        if isinstance(result, BaseException):
            raise result
        return result

    def _run(self) -> None:
        batch: list[Task] | None = []
        while True:
            if batch is not None and len(batch) > CROWD:
                time.sleep(GATHER_TIME)
            batch = self._next_batch()
            if batch is None:
                break
            results = self._write([task.work for task in batch])
            self._finished += sum(task.size for task in batch)
            _send_results(batch, results)
        if self._session is not None:
            self._session.close()

    def _next_batch(self) -> list[Task] | None:
        """Wait for tasks, and take all that are there; None at the end."""
        task = self._tasks.get()
        batch: list[Task] = []
        n_rows = 0
        while task is not None:
            batch.append(task)
            n_rows += task.size
            if n_rows >= MOST_ROWS:
                return batch
            try:
                task = self._tasks.get_nowait()
            except queue.Empty:
                return batch
        if batch:  # the end comes again behind this batch
            self._tasks.put(None)
        return batch or None

    def _write(self, works: Sequence[DecideRequest | Job]) -> list[Any]:
        """Return the results of all works, committed together, or their error."""
        try:
            session = self._open_session()
            session.begin()
            # Before anything else: two replicas that lock in other orders would wait
            # for each other.
            session.lock()
            results = self._do(session, works)
            session.commit()
        except BaseException as error:
            self._drop_session()
            self.is_failing = isinstance(error, UnavailableError)
            if self.is_failing:  # one line in the log for all of them
                _log.error("not stored: %s", error, extra={"data": {"n": len(works)}})
            # What one of them broke is not the others' fault: each again, by itself.
            if len(works) > 1 and not isinstance(error, UnavailableError):
                return [self._write([work])[0] for work in works]
            return [error] * len(works)
        self.commits += 1
        self.is_failing = False
        return results

    def _do(self, session: Session, works: Sequence[DecideRequest | Job]) -> list[Any]:
        results: list[Any] = [None] * len(works)
        requests = {
            index: work
            for index, work in enumerate(works)
            if isinstance(work, DecideRequest)
        }
        if requests:
            head = read_head(session)
            last = head.position + sum(map(len, requests.values()))
            self.database.make_partitions(session, head.position, last)
            responses = self.decider.decide(session, head, [*requests.values()])
            for index, response in zip(requests, responses, strict=True):
                results[index] = response
        for index, work in enumerate(works):
            if isinstance(work, DecideRequest):
                continue
            try:
                results[index] = attempt(session, work)
            except UnavailableError:
                raise
            except Exception as error:
                results[index] = error
        return results

    def _open_session(self) -> Session:
        if self._session is None:
            self._session = self.database.open(writer=True)
        return self._session

    def _drop_session(self) -> None:
        """Undo, and connect anew: after a failure a connection may be of no use."""
        session, self._session = self._session, None
        self.database.forget_partitions()
        if session is not None:
            session.rollback()
            session.close()
        time.sleep(0.01)  # a store that is away is not asked again at once


def _send_results(batch: list[Task], results: list[Any]) -> None:
    """Tell all who wait, by one call into each loop: a call wakes its thread."""
    by_loop: dict[Any, list[Any]] = {}
    for task, result in zip(batch, results, strict=True):
        if task.loop is None:
            task.future(result)
        else:
            by_loop.setdefault(task.loop, []).append((task.future, result))
    for loop, pairs in by_loop.items():
        try:
            loop.call_soon_threadsafe(_set_results, pairs)
        except RuntimeError:  # the loop has ended, and with it all who waited
            continue


def _set_results(pairs: list[tuple["asyncio.Future[Any]", Any]]) -> None:
    for future, result in pairs:
        if future.done():  # the client has gone
            continue
        if isinstance(result, BaseException):
            future.set_exception(result)
        else:
            future.set_result(result)
