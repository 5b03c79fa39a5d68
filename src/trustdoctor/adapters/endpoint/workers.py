"""Many questions to an endpoint at once: workers, retries, a budget, a way to stop."""

import json
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any

from trustdoctor.adapters.endpoint.answers import AnswerFile, choice_shares
from trustdoctor.errors import InputError
from trustdoctor.http_client import HttpClient, RetryPolicy, ServerResponse, one_line
from trustdoctor.progress import Tell

if TYPE_CHECKING:
    from trustdoctor.adapters.endpoint.model import Endpoint

TRANSIENT = frozenset({0, 408, 409, 429, *range(500, 1000)})
"""Statuses after which a question is asked again; 0 is no response."""

FIRST_PAUSE = 0.5
"""Seconds before the first retry."""

RESPONSE_LIMIT = 4_000_000
"""Bytes. An answer of one token is a thousandth of it."""

SHOWN = 200
"""Characters of what a server says that a message shows, at most."""

POLL = 0.2
"""Seconds until an interrupt is seen, at most."""


class _AbandonedError(Exception):
    """Another worker found a reason to stop."""


class WorkerPool:
    """Workers that ask questions, keep every answer at once, and stop together.

    They are daemons: an interrupt does not wait for answers under way.
    """

    def __init__(
        self,
        endpoint: "Endpoint",
        key: str,
        answer_file: AnswerFile | None,
        texts: Sequence[str],
        rows_by_digest: Mapping[str, int],
    ) -> None:
        self._endpoint, self._answer_file = endpoint, answer_file
        self._texts, self._rows, self._has_key = texts, rows_by_digest, bool(key)
        self._http = HttpClient(
            endpoint.url,
            timeout=endpoint.timeout,
            bearer=key,
            proxies=True,
            response_limit=RESPONSE_LIMIT,
        )
        self._retries = RetryPolicy(endpoint.retries, TRANSIENT, FIRST_PAUSE)
        self._stop = threading.Event()
        self._unasked: SimpleQueue[str] = SimpleQueue()
        self._answered: SimpleQueue[tuple[str, Any]] = SimpleQueue()
        for digest in rows_by_digest:
            self._unasked.put(digest)

    def run(self, progress: Tell | None = None) -> dict[str, list[float]]:
        """Ask until all is answered, something is refused, or the budget is spent."""
        working = min(self._endpoint.workers, len(self._rows))
        shares: dict[str, list[float]] = {}
        failure: BaseException | None = None
        try:
            for _ in range(working):
                threading.Thread(target=self._work, daemon=True).start()
            while working:
                digest, outcome = self._next_answer()
                if digest:
                    shares[digest] = outcome
                    if progress is not None:
                        task = f"{len(shares)} of {len(self._rows)} questions asked"
                        progress(len(shares) / len(self._rows), task)
                else:
                    working -= 1
                    failure = failure or outcome
        finally:
            self._stop.set()
            self._http.close()
        if isinstance(failure, InputError):
            message = f"{failure}{self._fate_of_answers(len(shares))}"
            raise InputError(message) from failure
        if failure is not None:
            raise failure
        return shares

    def _next_answer(self) -> tuple[str, Any]:
        """Wait for a digest and its shares, or for "" and a worker's failure, if any.

        Python runs signal handlers between waits: without a timeout an interrupt that
        another thread of the system receives would wait for the next answer.
        """
        while True:
            with suppress(Empty):
                return self._answered.get(timeout=POLL)

    def _work(self) -> None:
        """Answer one question after another; at the end tell of a failure, if any."""
        failure = None
        try:
            while not self._stop.is_set():
                digest = self._unasked.get_nowait()
                self._answered.put((digest, self._choice_shares(digest)))
        except (Empty, _AbandonedError):
            pass
        except BaseException as error:  # raised again by `run`
            self._stop.set()
            failure = error
        self._answered.put(("", failure))

    def _choice_shares(self, digest: str) -> list[float]:
        row = self._rows[digest]
        completion = self._completion(row)
        shares = choice_shares(self._endpoint, completion, row)
        if self._answer_file is not None:
            self._answer_file.add(digest, completion)
        return shares

    def _completion(self, row: int) -> dict[str, Any]:
        question = json.dumps(self._endpoint.question(self._texts[row])).encode()

        def send() -> ServerResponse:
            self._spend_call()
            return self._http.call("POST", "/chat/completions", question)

        def wait(seconds: float) -> None:
            if _wait(self._stop, seconds):
                raise _AbandonedError

        response = self._retries.call(send, wait)
        if response.status != 200:
            raise self._refusal(response, row)
        completion = _parsed_json(response.text)
        if isinstance(completion, dict) and completion.get("choices"):
            return completion
        message = (
            f"expected a chat completion from {self._endpoint.url} for row {row}, got: "
            f"{_complaint(response)}. Give the base URL of an OpenAI-compatible server."
        )
        raise InputError(message)

    def _spend_call(self) -> None:
        """Count a call, or stop if the budget has none left."""
        if self._answer_file is None:
            return
        if not self._answer_file.count_call(self._endpoint.max_calls):
            self._stop.set()
            raise _AbandonedError

    def _refusal(self, response: ServerResponse, row: int) -> InputError:
        did = f"answered {response.status} to" if response.status else "did not answer"
        message = (
            f"{self._endpoint.url} {did} row {row}: {_complaint(response)}. "
            f"{self._advice(response)}."
        )
        return InputError(message)

    def _advice(self, response: ServerResponse) -> str:
        status = response.status
        if status in TRANSIENT:
            calls = self._endpoint.retries + 1
            return f"Calls made: {calls}. See that the server runs, and run again"
        if 300 <= status < 400:
            location = one_line(response.location, SHOWN)
            target = f", here to {location}" if location else ""
            return f"Redirects are not followed{target}; give the URL itself"
        if status in (401, 403):
            return self._key_advice()
        models = self._models() if status in (400, 404) else []
        if status == 404 or (models and self._endpoint.model not in models):
            names = f": {', '.join(models[:5])}" if models else ""
            return f"Name a model that GET {self._endpoint.url}/models lists{names}"
        return "Change the question, or leave that row out"

    def _models(self) -> list[str]:
        """Return the models that the server lists, if it does."""
        try:
            models = json.loads(self._http.call("GET", "/models").text)["data"]
            return [one_line(str(model["id"]), SHOWN) for model in models]
        except (InputError, ValueError, LookupError, TypeError, RecursionError):
            return []

    def _key_advice(self) -> str:
        variable = self._endpoint.key_env
        if not variable:
            return "Name the environment variable that holds its key in key_env"
        if self._has_key:
            return f"Set the environment variable {variable} to a key that it takes"
        return f"Set the environment variable {variable}, which is empty, to its key"

    def _fate_of_answers(self, count: int) -> str:
        """Say what becomes of the answers that came before the failure."""
        if not count:
            return ""
        if self._answer_file is None:
            return f" {count} answers are lost; name a file in answers= to keep them."
        return f" {count} answers are kept in {self._answer_file.path}."


def _wait(stop: threading.Event, seconds: float) -> bool:
    """Wait; return whether all workers are to stop."""
    return stop.wait(seconds)


def _parsed_json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _complaint(response: ServerResponse) -> str:
    """Return what a server complains of in one line, without the JSON around it."""
    complaint = response.text
    try:
        content = json.loads(complaint)
        inner = content.get("error") or content.get("detail") or content
        inner = inner if isinstance(inner, str) else inner["message"]
        complaint = inner if isinstance(inner, str) else complaint
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        pass  # not JSON, or of another form: shown as it came
    return one_line(complaint, SHOWN).rstrip(" .:") or "nothing"
