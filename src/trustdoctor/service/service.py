"""The service without HTTP: its parts, and the calls that requests make."""

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
from trustdoctor.service.decisions import RequestDecider, RowDecision
from trustdoctor.service.prometheus import Latency
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
        self.secret, self.started = self._open_store(gate)
        self.writer = Writer(database, RequestDecider(self.versions))
        self.background = BackgroundJobs(
            database, self.writer, self.versions, settings, self.replica
        )
        self.latency = Latency()
        self.problems: dict[int, int] = {}
        self._readers: queue.SimpleQueue[Session | None] = queue.SimpleQueue()
        for _ in range(READERS):
            self._readers.put(None)
        self._long_reader = ThreadPoolExecutor(1, "long-reader")
        self._status: tuple[float, dict[str, Any]] | None = None
        self._status_lock = threading.Lock()

    def _open_store(self, gate: Gate) -> tuple[str, float]:
        """Bring the store up to date, and refuse what cannot be served from it."""
        session = self.database.open()
        try:
            migrate(session, self.database)
            with transaction(session):
                start_with(session, gate, self.settings.review)
            head = read_head(session)
            self.versions.get(session, head.current)
            (secret,) = session.rows(
                "SELECT value FROM meta WHERE name = 'cookie secret'"
            )[0]
            return str(secret), session.now()
        except BaseException:
            self.database.close()
            raise
        finally:
            session.close()

    def start(self) -> None:
        """Start to write and to watch."""
        self.writer.start()
        self.background.start()

    def close(self) -> None:
        """Finish what was submitted, count it, and stop."""
        self._long_reader.shutdown(cancel_futures=True)
        self.background.close()
        self.writer.close()
        for _ in range(READERS):
            session = self._readers.get()
            if session is not None:
                session.close()
        self.database.close()

    def decide(
        self, request: DecideRequest, loop: asyncio.AbstractEventLoop
    ) -> "asyncio.Future[list[RowDecision]]":
        """Decide on rows; the decisions come when they are stored."""
        precompute_bytes(request)
        return self.writer.submit(request, loop)

    async def change(self, job: Callable[[Session], Result]) -> Result:
        """Change what is stored; the result comes when that is durable."""
        result = await self.writer.submit(job, asyncio.get_running_loop())
        self._status = None  # whoever changed something sees it
        return result

    async def read(self, job: Callable[[Session], Result]) -> Result:
        """Read what is stored, beside what is written."""
        return await asyncio.to_thread(self.read_now, job)

    async def read_long(self, job: Callable[[Session], Result]) -> Result:
        """Read what takes long: one such job at a time, so that others are answered."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(
            self._long_reader, self._read_in_new_session, job
        )

    def _read_in_new_session(self, job: Callable[[Session], Result]) -> Result:
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
        """Return how the service stands, read once per second at most."""
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
        """Tell whether the store answers, and the last commit succeeded."""
        return not self.writer.is_failing and bool(
            self.read_now(lambda session: session.rows("SELECT 1 FROM head"))
        )
