"""The service: what it is made of, and what it does, whatever brings the requests."""

import asyncio
import logging
import os
import queue
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from secrets import token_hex
from typing import Any, TypeVar

from trustdoctor.gates import Gate
from trustdoctor.service.background import BackgroundJobs
from trustdoctor.service.counters import Latency
from trustdoctor.service.decisions import RequestDecider, RowDecision
from trustdoctor.service.request_rows import precompute_bytes
from trustdoctor.service.schemas import DecideRequest
from trustdoctor.service.settings import Settings
from trustdoctor.service.status import describe_replica, read_status
from trustdoctor.service.store import (
    Database,
    Session,
    UnavailableError,
    migrate,
    transaction,
)
from trustdoctor.service.versions import GateVersions, read_head, start_with
from trustdoctor.service.writer import Writer

READERS = 3
"""Connections that read."""

Result = TypeVar("Result")
_log = logging.getLogger("trustdoctor.service")


class Service:
    """A gate at work, over one store.

    Attributes
    ----------
    database : Database
    settings : Settings
    writer : Writer
    background : BackgroundJobs
    """

    def __init__(self, database: Database, gate: Gate, settings: Settings) -> None:
        self.database, self.settings = database, settings
        self.versions = GateVersions()
        self.replica = f"{os.uname().nodename}/{os.getpid()}/{token_hex(4)}"
        self.secret, self.started = self._prepare(gate)
        self.writer = Writer(database, RequestDecider(self.versions))
        self.background = BackgroundJobs(
            database, self.writer, self.versions, settings, self.replica
        )
        self.latency = Latency()
        self.problems: dict[int, int] = {}
        self._readers: queue.SimpleQueue[Session | None] = queue.SimpleQueue()
        for _ in range(READERS):
            self._readers.put(None)
        self._worker = ThreadPoolExecutor(1, "worker")
        self._status: tuple[float, dict[str, Any]] | None = None
        self._status_lock = threading.Lock()

    def _prepare(self, gate: Gate) -> tuple[str, float]:
        """Bring the store up to date, and refuse what cannot be served from it."""
        session = self.database.open()
        try:
            migrate(session, self.database)
            with transaction(session):
                start_with(session, gate, self.settings.review)
            head = read_head(session)
            self.versions.get(session, head.current)
            found = session.rows("SELECT value FROM meta WHERE name = 'cookie secret'")
            return str(found[0][0]), session.now()
        except BaseException:
            self.database.close()
            raise
        finally:
            session.close()

    def start(self) -> None:
        """Begin to write and to watch."""
        self.writer.start()
        self.background.start()

    def close(self) -> None:
        """Finish what was taken, count it, and end."""
        self._worker.shutdown(cancel_futures=True)
        self.background.close()
        self.writer.close()
        for _ in range(READERS):
            session = self._readers.get()
            if session is not None:
                session.close()
        self.database.close()

    def decide(
        self, rows: DecideRequest, loop: asyncio.AbstractEventLoop
    ) -> "asyncio.Future[list[RowDecision]]":
        """Decide on rows; the answers come when they are stored."""
        precompute_bytes(rows)
        return self.writer.submit(rows, loop)

    async def change(self, job: Callable[[Session], Result]) -> Result:
        """Change what is stored; the result comes when that is durable."""
        done = await self.writer.submit(job, asyncio.get_running_loop())
        self._status = None  # whoever changed something sees it
        return done

    async def read(self, job: Callable[[Session], Result]) -> Result:
        """Read what is stored, beside what is written."""
        return await asyncio.to_thread(self.read_now, job)

    async def work(self, job: Callable[[Session], Result]) -> Result:
        """Read what takes long: one such job at a time, so that others are answered."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._worker, self._work, job)

    def _work(self, job: Callable[[Session], Result]) -> Result:
        session = self.database.open()
        try:
            return job(session)
        finally:
            session.close()

    def read_now(self, job: Callable[[Session], Result]) -> Result:
        """Read what is stored, in this thread."""
        with self._reader() as session:
            return job(session)

    @contextmanager
    def _reader(self) -> Iterator[Session]:
        """Lend a connection that reads; a broken one is not lent again."""
        session = self._readers.get()
        try:
            if session is None:
                session = self.database.open()
            yield session
        except UnavailableError:
            if session is not None:
                session.close()
                session = None
            raise
        finally:
            self._readers.put(session)

    async def status(self) -> dict[str, Any]:
        """Return how the service stands; asked often, it is read once per second."""
        return await asyncio.to_thread(self._fresh_status)

    def _fresh_status(self) -> dict[str, Any]:
        with self._status_lock:
            if self._status is None or time.monotonic() - self._status[0] > 0.9:
                self._status = time.monotonic(), self.read_now(self._read_status)
            return self._status[1]

    def _read_status(self, session: Session) -> dict[str, Any]:
        fast = self.settings.fast
        return {
            **read_status(session, self.versions, self.settings),
            "service": describe_replica(
                self.database.name, self.replica, self.started, fast=fast
            ),
            "latency": self.latency.summary(),
        }

    def is_ready(self) -> bool:
        """Tell whether the store answers, and keeps what it is given."""
        return not self.writer.is_failing and bool(
            self.read_now(lambda session: session.rows("SELECT 1 FROM head"))
        )
