"""Calls of one service: retries, JSON, and errors in words."""

import json
import re
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NoReturn

from trustdoctor import envelope
from trustdoctor.errors import InputError, ServiceError
from trustdoctor.urls import check_timeout, checked_url, is_local

if TYPE_CHECKING:
    from trustdoctor.http_client import ServerResponse

TRANSIENT = frozenset({0, 429, 502, 503, 504})
"""Statuses after which a repeated request may succeed; 0 is no response."""

FIRST_PAUSE = 0.25
"""Seconds before the first retry."""

SHOWN = 500
"""Characters of what a server says that a message shows, at most."""

_TOKEN = re.compile(r"[!-~]+")


class ServiceTransport:
    """Sends requests to one service, for any number of threads."""

    def __init__(
        self,
        url: str,
        token: str | None,
        timeout: float,
        retries: int,
        *,
        unencrypted: bool,
    ) -> None:
        # Imported here: `import trustdoctor` should not load ssl and http.client.
        from trustdoctor.http_client import HttpClient, RetryPolicy

        self.url = checked_url(
            url,
            "expected url as that of a service, as http://127.0.0.1:8571",
            "pass a token as token=",
        )
        _check_token(token, self.url, unencrypted=unencrypted)
        check_timeout(timeout)
        _check_retries(retries)
        self._http = HttpClient(self.url, timeout=timeout, bearer=token or "")
        self._retries = RetryPolicy(retries, TRANSIENT, FIRST_PAUSE)

    def call(
        self, method: str, path: str, body: str | None = None, *, once: bool = False
    ) -> dict[str, Any]:
        """Return what the service answers, as an object of JSON.

        Parameters
        ----------
        method, path : str
        body : str, optional
            JSON.
        once : bool
            Whether the request must not be repeated.
        """
        content = None if body is None else body.encode()

        def send() -> "ServerResponse":
            return self._http.call(method, path, content, fresh=once)

        response = send() if once else self._retries.call(send, time.sleep)
        if not 200 <= response.status < 300:
            complaint = self._complaint(response, once=once)
            raise ServiceError(complaint, response.status or None)
        answer = _parsed_json(response.text) if response.text else {}
        if not isinstance(answer, dict):
            self.refuse("JSON", response.text)
        return answer

    def refuse(self, expected: str, got: Any) -> NoReturn:
        """Raise the error for an answer that is not the service's."""
        message = (
            f"expected {expected} from {self.url}, got {_one_line(str(got), 80)}. "
            "Give the URL of a trustdoctor service."
        )
        raise InputError(message)

    def close(self) -> None:
        """Close idle connections."""
        self._http.close()

    def _complaint(self, response: "ServerResponse", *, once: bool) -> str:
        """Say what a service, or another server, has against a request."""
        problem = _parsed_json(response.text)
        if isinstance(problem, Mapping) and isinstance(problem.get("detail"), str):
            return _one_line(problem["detail"], SHOWN)
        reason = _one_line(response.text, SHOWN).rstrip(" .:")[:200] or "nothing"
        if 300 <= response.status < 400:
            advice = "Redirects are not followed; give the URL itself."
        elif response.status not in TRANSIENT:
            advice = "Give the URL of a trustdoctor service."
        elif once:
            advice = "It was called once; look whether it was done, and call again."
        else:
            calls = self._retries.retries + 1
            advice = f"Calls made: {calls}. See that it runs, and call again."
        status = f"answered {response.status}" if response.status else "did not answer"
        return f"{self.url} {status}: {reason}. {advice}"


def _one_line(text: str, length: int) -> str:
    from trustdoctor.http_client import one_line

    return one_line(text, length)


def _parsed_json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _check_token(token: Any, url: str, *, unencrypted: bool) -> None:
    """Refuse a token that cannot be sent, or would be sent where others can read it."""
    if token is None:
        return
    if not isinstance(token, str) or not _TOKEN.fullmatch(token):
        message = (
            "expected token as text of plain characters without spaces, got something "
            "else. Pass it as it was issued."
        )
        raise InputError(message)
    if url.startswith("http:") and not is_local(url) and not unencrypted:
        message = (
            f"{url} is not encrypted, so the token could be read on the way. Use "
            "https; within a private network pass unencrypted=True."
        )
        raise InputError(message)


def _check_retries(retries: Any) -> None:
    if type(retries) is not int or retries < 0:
        message = (
            "expected retries as a whole number, 0 or more, got "
            f"{envelope.shown(retries)}."
        )
        raise InputError(message)
