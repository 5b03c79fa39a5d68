"""One request to a server, and what came back: an answer, a status, or nothing."""

import json
import re
import ssl
import urllib.request
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from http.client import HTTPException, HTTPMessage, IncompleteRead
from typing import Any
from urllib.error import HTTPError

from trustdoctor._version import __version__
from trustdoctor.adapters.endpoint.deadlines import TimedConnection, TimedTLSConnection
from trustdoctor.adapters.endpoint.fields import is_local
from trustdoctor.errors import InputError
from trustdoctor.visible import visible

MOST = 4_000_000
"""Bytes of an answer, at most."""

SHOWN = 200
"""So many characters of what a server says are told."""

_SECONDS = re.compile(r"[0-9]+(\.[0-9]*)?")

_SECRET = 8  # characters of a key that cannot be part of a text by chance


@dataclass(frozen=True)
class Reply:
    """What came back.

    Attributes
    ----------
    status : int
        0 where nothing came.
    text : str
        The content, or why there is none.
    after : float
        Seconds that the server asks to wait.
    place : str
        Where a redirect points to.
    """

    status: int
    text: str
    after: float = 0.0
    place: str = ""

    @property
    def passing(self) -> bool:
        """Whether the same request may be answered later."""
        return self.status in (0, 408, 409, 429) or self.status >= 500

    @property
    def said(self) -> str:
        """The beginning of what the server says, in one line."""
        return _one_line(_complaint(self.text)).rstrip(" .:") or "nothing"


class _Plain(urllib.request.HTTPHandler):
    def http_open(self, request: urllib.request.Request) -> Any:
        return self.do_open(TimedConnection, request)


class _Encrypted(urllib.request.HTTPSHandler):
    def __init__(self, context: ssl.SSLContext) -> None:
        super().__init__(context=context)
        self._own = context

    def https_open(self, request: urllib.request.Request) -> Any:
        return self.do_open(TimedTLSConnection, request, context=self._own)


class Line:
    """The way to one server."""

    def __init__(self, url: str, key: str, timeout: float) -> None:
        self._url, self._key, self._timeout = url, key, timeout
        # None of them follows redirects: the key is for one server alone.
        handlers: list[urllib.request.BaseHandler] = [
            urllib.request.HTTPErrorProcessor(),
            urllib.request.HTTPDefaultErrorHandler(),
            urllib.request.UnknownHandler(),  # of a proxy
            _Plain(),
        ]
        if not is_local(url):
            handlers.append(urllib.request.ProxyHandler())
        if url.startswith("https:") or not is_local(url):
            handlers.append(_Encrypted(ssl.create_default_context()))
        self._opener = urllib.request.OpenerDirector()
        for handler in handlers:
            self._opener.add_handler(handler)

    def call(self, path: str, content: Any = None) -> Reply:
        """Send JSON, or ask for what is there."""
        request = urllib.request.Request(
            self._url + path,
            None if content is None else json.dumps(content).encode(),
            {"Content-Type": "application/json", "Accept": "application/json"},
        )
        request.add_header("User-Agent", f"trustdoctor/{__version__}")
        if self._key:
            request.add_unredirected_header("Authorization", f"Bearer {self._key}")
        try:
            return self._answered(request)
        except (OSError, HTTPException, UnicodeError) as error:  # of the server's name
            reason = getattr(error, "reason", None) or error
            if isinstance(reason, ssl.SSLCertVerificationError):
                message = (
                    f"the certificate of {self._url} cannot be trusted: "
                    f"{reason.verify_message}. Name another server, or add its "
                    "certificate (SSL_CERT_FILE)."
                )
                raise InputError(message) from error
            return Reply(0, _why(reason))

    def _answered(self, request: urllib.request.Request) -> Reply:
        try:
            response = self._opener.open(request, timeout=self._timeout)
        except HTTPError as error:  # which is an answer, too
            response = error
        with response:
            text = _content(response).decode("utf-8", "replace")
            headers = response.headers
        if len(self._key) >= _SECRET:  # servers repeat what they were sent
            text = text.replace(self._key, "***")
        place = _one_line(str(headers.get("Location", "")))
        return Reply(response.status, text, _seconds(headers), place)

    def models(self) -> list[str]:
        """Return the models that the server lists, as far as it does."""
        try:
            listed = json.loads(self.call("/models").text)["data"]
            return [_one_line(str(one["id"])) for one in listed]
        except (InputError, ValueError, LookupError, TypeError, RecursionError):
            return []


def _one_line(text: str) -> str:
    """Return the beginning of what a server says, as it may be shown."""
    return " ".join(visible(text).split())[:SHOWN]


def _content(response: Any) -> bytes:
    """Read an answer to its end."""
    parts, size = [], 0
    while part := response.read1(1 << 16):
        parts.append(part)
        size += len(part)
        if size > MOST:
            return b"".join(parts)  # which is no answer, whatever follows
    if response.length:
        raise IncompleteRead(b"".join(parts), response.length)
    return b"".join(parts)


def _why(error: Any) -> str:
    """Say why nothing came."""
    if isinstance(error, TimeoutError):
        return "timed out"
    if isinstance(error, IncompleteRead):
        return "the connection was closed within the answer"
    return str(getattr(error, "strerror", None) or error) or type(error).__name__


def _seconds(headers: HTTPMessage) -> float:
    """Return how long Retry-After asks to wait: seconds, or until a date."""
    given = str(headers.get("Retry-After", "")).strip()
    if _SECONDS.fullmatch(given):
        return float(given)  # hundreds of digits are infinity, not an error
    try:
        when = parsedate_to_datetime(given)
    except (ValueError, TypeError, IndexError, OverflowError):  # as the garbage is
        return 0.0
    when = when if when.tzinfo else when.replace(tzinfo=UTC)
    return max((when - datetime.now(UTC)).total_seconds(), 0.0)


def _complaint(text: str) -> str:
    """Return what a server complains of, without the JSON around it."""
    try:
        content = json.loads(text)
        inner = content.get("error") or content.get("detail") or content
        inner = inner if isinstance(inner, str) else inner["message"]
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return text
    return inner if isinstance(inner, str) else text
