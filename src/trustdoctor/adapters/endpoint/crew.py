"""Asking many questions at once: pauses, a budget, and a way to stop."""

import json
import random
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any

from trustdoctor.adapters.endpoint.answers import AnswerFile
from trustdoctor.adapters.endpoint.calls import Line, Reply
from trustdoctor.adapters.endpoint.reading import choice_shares
from trustdoctor.errors import InputError
from trustdoctor.progress import Tell

if TYPE_CHECKING:
    from trustdoctor.adapters.endpoint.model import Endpoint

FIRST, LONGEST = 0.5, 30.0
"""Seconds of the first pause, and of those between calls at most."""

LOOK = 0.2
"""Seconds until an interrupt is seen, at most."""

LONGEST_ASKED = 60.0
"""Seconds that a server may ask to wait."""


class _StoppedError(Exception):
    """Another worker found a reason to stop."""


class Crew:
    """Workers that ask questions, keep every answer at once, and stop together.

    They are daemons: an interrupt does not wait for answers under way.
    """

    def __init__(
        self,
        endpoint: "Endpoint",
        key: str,
        kept: AnswerFile | None,
        texts: Sequence[str],
        missing: Mapping[str, int],
    ) -> None:
        self._endpoint, self._kept = endpoint, kept
        self._texts, self._rows, self._keyed = texts, missing, bool(key)
        self._line = Line(endpoint.url, key, endpoint.timeout)
        self._stop = threading.Event()
        self._todo: SimpleQueue[str] = SimpleQueue()
        self._done: SimpleQueue[tuple[str, Any]] = SimpleQueue()
        for digest in missing:
            self._todo.put(digest)

    def run(self, progress: Tell | None = None) -> dict[str, list[float]]:
        """Ask until all is answered, something is refused, or the budget is spent."""
        working = min(self._endpoint.workers, len(self._rows))
        out: dict[str, list[float]] = {}
        refused: BaseException | None = None
        try:
            for _ in range(working):
                threading.Thread(target=self._work, daemon=True).start()
            while working:
                digest, found = self._next()
                if digest:
                    out[digest] = found
                    if progress is not None:
                        done = f"{len(out)} of {len(self._rows)} questions asked"
                        progress(len(out) / len(self._rows), done)
                else:
                    working -= 1
                    refused = refused or found
        finally:
            self._stop.set()
        if isinstance(refused, InputError):
            message = f"{refused}{self._safe(len(out))}"
            raise InputError(message) from refused
        if refused is not None:
            raise refused
        return out

    def _next(self) -> tuple[str, Any]:
        """Wait for an answer; where another thread gets the signal, look for it."""
        while True:
            with suppress(Empty):
                return self._done.get(timeout=LOOK)

    def _work(self) -> None:
        """Answer one question after another; at the end say what was wrong, if any."""
        wrong = None
        try:
            while not self._stop.is_set():
                digest = self._todo.get_nowait()
                self._done.put((digest, self._answer(digest)))
        except (Empty, _StoppedError):
            pass
        except BaseException as error:  # told by `run`
            self._stop.set()
            wrong = error
        self._done.put(("", wrong))

    def _answer(self, digest: str) -> list[float]:
        row = self._rows[digest]
        response = self._ask(row)
        found = choice_shares(self._endpoint, response, row)
        if self._kept is not None:
            self._kept.add(digest, response)
        return found

    def _ask(self, row: int) -> Any:
        question = self._endpoint.question(self._texts[row])
        reply = self._call(question)
        for tried in range(self._endpoint.retries):
            if not reply.passing:
                break
            if _pause(self._stop, _delay(tried, reply.after)):
                raise _StoppedError
            reply = self._call(question)
        if reply.status != 200:
            raise self._refusal(reply, row)
        return self._parsed(reply, row)

    def _call(self, question: Any) -> Reply:
        self._count()
        return self._line.call("/chat/completions", question)

    def _count(self) -> None:
        """Count a call, or stop where the budget has none left."""
        if self._kept is None:
            return
        if not self._kept.count_call(self._endpoint.max_calls):
            self._stop.set()
            raise _StoppedError

    def _parsed(self, reply: Reply, row: int) -> Any:
        try:
            found = json.loads(reply.text)
        except (ValueError, RecursionError):
            found = None
        if isinstance(found, dict) and found.get("choices"):
            return found
        message = (
            f"expected a chat completion from {self._endpoint.url} for row {row}, got: "
            f"{reply.said}. Give the base URL of an OpenAI-compatible server."
        )
        raise InputError(message)

    def _refusal(self, reply: Reply, row: int) -> InputError:
        what = f"answered {reply.status} to" if reply.status else "did not answer"
        message = (
            f"{self._endpoint.url} {what} row {row}: {reply.said}. "
            f"{self._advice(reply)}."
        )
        return InputError(message)

    def _advice(self, reply: Reply) -> str:
        if reply.passing:
            calls = self._endpoint.retries + 1
            return f"Calls made: {calls}. See that the server runs, and run again"
        if 300 <= reply.status < 400:
            place = f", here to {reply.place}" if reply.place else ""
            return f"Redirects are not followed{place}; give the URL itself"
        if reply.status in (401, 403):
            return self._key_advice()
        listed = self._line.models() if reply.status in (400, 404) else []
        if reply.status == 404 or (listed and self._endpoint.model not in listed):
            names = f": {', '.join(listed[:5])}" if listed else ""
            return f"Name a model that GET {self._endpoint.url}/models lists{names}"
        return "Change the question, or leave that row out"

    def _key_advice(self) -> str:
        name = self._endpoint.key_env
        if not name:
            return "Name the environment variable that holds its key in key_env"
        if self._keyed:
            return f"Set the environment variable {name} to a key that it takes"
        return f"Set the environment variable {name}, which is empty, to its key"

    def _safe(self, answered: int) -> str:
        """Say what becomes of answers that came before something was wrong."""
        if not answered:
            return ""
        if self._kept is None:
            return (
                f" {answered} answers are lost; name a file in answers= to keep them."
            )
        return f" {answered} answers are kept in {self._kept.path}."


def _delay(tried: int, asked: float) -> float:
    """Return how long to wait before a call: growing, and never all at once."""
    grown = min(FIRST * 2 ** min(tried, 16), LONGEST)
    return max(grown * random.uniform(0.5, 1.0), min(asked, LONGEST_ASKED))


def _pause(stop: threading.Event, seconds: float) -> bool:
    """Wait; tell whether all are to stop."""
    return stop.wait(seconds)
