"""The way to one service: kept connections, pauses, and what went wrong in words."""

import json
import math
import os
import random
import re
import select
import threading
import time
import weakref
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn
from urllib.parse import urlsplit

from trustdoctor import envelope
from trustdoctor._version import __version__
from trustdoctor.adapters.endpoint.fields import check_timeout, is_local
from trustdoctor.errors import InputError, ServiceError
from trustdoctor.visible import visible

if TYPE_CHECKING:
    from http.client import HTTPConnection

PASSING = (0, 429, 502, 503, 504)
"""After these the same request may be answered later; 0 means that nothing came."""

FIRST, LONGEST = 0.25, 60.0
"""Seconds of the first pause, and of any pause."""

SHOWN = 500
"""So many characters of what a server says are told."""

_TOKEN = re.compile(r"[!-~]+")


@dataclass(frozen=True)
class ServiceReply:
    """What came back: a status, 0 where nothing did, and the content or the reason."""

    status: int
    text: str
    after: float = 0.0


class _Kept:
    """A connection of one thread in one process, closed when nobody has it any more."""

    def __init__(self, connection: "HTTPConnection") -> None:
        self.connection, self.process = connection, os.getpid()

    def close(self) -> None:
        self.connection.close()

    __del__ = close

    @property
    def ours(self) -> bool:
        """Whether this process opened it."""
        return self.process == os.getpid()

    def fresh(self) -> "HTTPConnection":
        """Return it, closed where the other side has closed it: it opens again."""
        if self.connection.sock is not None and _is_readable(self.connection.sock):
            self.close()
        return self.connection


class ServiceTransport:
    """The way to one service, for any number of threads."""

    def __init__(
        self,
        url: str,
        token: str | None,
        timeout: float,
        retries: int,
        *,
        unencrypted: bool,
    ) -> None:
        self.url = _checked_url(url)
        _check_token(token, self.url, unencrypted=unencrypted)
        _check_numbers(timeout, retries)
        self._token, self._timeout, self._retries = token, timeout, retries
        self._own = threading.local()
        self._all: weakref.WeakSet[_Kept] = weakref.WeakSet()
        self._headers = {
            "Accept": "application/json",
            "Content-Type": "application/json",
            "User-Agent": f"trustdoctor/{__version__}",
        }
        if token is not None:
            self._headers["Authorization"] = f"Bearer {token}"

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
            Whether it must not be repeated.
        """
        if once:
            self._drop()  # a connection that was closed meanwhile would count as a try
        reply = self._try(method, path, body)
        for tried in range(0 if once else self._retries):
            if reply.status not in PASSING:
                break
            time.sleep(_pause(tried, reply.after))
            reply = self._try(method, path, body)
        if not 200 <= reply.status < 300:
            told = self._complaint(reply, once=once)
            raise ServiceError(told, reply.status or None)
        content = _parsed(reply.text) if reply.text else {}
        if not isinstance(content, dict):
            self.refuse("JSON", reply.text)
        return content

    def refuse(self, expected: str, got: Any) -> NoReturn:
        """Raise the error for an answer that is not the service's."""
        message = (
            f"expected {expected} from {self.url}, got {self._shown(str(got))[:80]}. "
            "Give the URL of a trustdoctor service."
        )
        raise InputError(message)

    def close(self) -> None:
        """Close the connections of all threads."""
        for kept in list(self._all):
            kept.close()

    def _try(self, method: str, path: str, body: str | None) -> ServiceReply:
        from http.client import HTTPException

        try:
            connection = self._connection()
            content = None if body is None else body.encode()
            connection.request(method, self._prefix + path, content, self._headers)
            with connection.getresponse() as response:
                text = response.read().decode("utf-8", "replace")
                after = _seconds(response.headers.get("Retry-After"))
                return ServiceReply(response.status, text, after)
        except (OSError, HTTPException, UnicodeError) as error:  # of the server's name
            self._drop()
            self._refuse_certificate(error)
            return ServiceReply(0, _why(error))
        except BaseException:  # an interrupt leaves half an answer on the way
            self._drop()
            raise

    @property
    def _prefix(self) -> str:
        return urlsplit(self.url).path

    def _connection(self) -> "HTTPConnection":
        """Return this thread's connection; after a fork, one of its own."""
        kept = self._kept()
        if kept is None:
            kept = self._own.kept = _Kept(self._connect())
            self._all.add(kept)
        return kept.fresh()

    def _kept(self) -> _Kept | None:
        kept: _Kept | None = getattr(self._own, "kept", None)
        return kept if kept is not None and kept.ours else None

    def _connect(self) -> "HTTPConnection":
        from trustdoctor.adapters.endpoint import deadlines

        parts = urlsplit(self.url)
        encrypted = parts.scheme == "https"
        kind = deadlines.TimedTLSConnection if encrypted else deadlines.TimedConnection
        return kind(parts.hostname or "", parts.port, timeout=self._timeout)

    def _drop(self) -> None:
        kept = self._kept()
        if kept is not None:
            kept.close()

    def _refuse_certificate(self, error: BaseException) -> None:
        reason = getattr(error, "verify_message", "")
        if reason:
            message = (
                f"the certificate of {self.url} cannot be trusted: {reason}. Name "
                "another server, or add its certificate (SSL_CERT_FILE)."
            )
            raise InputError(message) from error

    def _complaint(self, reply: ServiceReply, *, once: bool) -> str:
        said = _parsed(reply.text)
        if isinstance(said, Mapping) and isinstance(said.get("detail"), str):
            return self._shown(said["detail"])
        told = self._shown(reply.text).rstrip(" .:")[:200] or "nothing"
        if 300 <= reply.status < 400:
            do = "Redirects are not followed; give the URL itself."
        elif reply.status not in PASSING:
            do = "Give the URL of a trustdoctor service."
        elif once:
            do = "It was called once; look whether it was done, and call again."
        else:
            do = f"Calls made: {self._retries + 1}. See that it runs, and call again."
        what = f"answered {reply.status}" if reply.status else "did not answer"
        return f"{self.url} {what}: {told}. {do}"

    def _shown(self, text: str) -> str:
        """Return what a server says in one line; it may repeat the token."""
        if self._token is not None:
            text = text.replace(self._token, "***")
        return " ".join(visible(text).split())[:SHOWN]


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _is_readable(sock: Any) -> bool:
    """Tell whether something came unasked: as a rule, the end of the connection."""
    look = select.poll()
    look.register(sock, select.POLLIN)
    return bool(look.poll(0))


def _pause(tried: int, asked: float) -> float:
    """Return how long to wait: growing, not all clients at once, and as asked for."""
    grown = FIRST * 2 ** min(tried, 16) * random.uniform(0.5, 1.0)
    return min(max(grown, asked), LONGEST)


def _seconds(asked: str | None) -> float:
    """Return how long Retry-After asks to wait; a date in it is left to the pauses."""
    try:
        seconds = float(asked or 0.0)
    except ValueError:
        return 0.0
    return seconds if math.isfinite(seconds) else 0.0


def _why(error: BaseException) -> str:
    """Say why nothing came."""
    if isinstance(error, TimeoutError):
        return "timed out"
    return str(getattr(error, "strerror", None) or error) or type(error).__name__


def _checked_url(url: Any) -> str:
    """Return a URL without a slash at its end; one with a password is not shown."""
    expected = "expected url as that of a service, as http://127.0.0.1:8571"
    try:
        parts = urlsplit(url.strip().rstrip("/"))
        known = parts.scheme in ("http", "https") and parts.hostname
        odd = parts.port == 0 or re.search(r"[^!-~]", parts.geturl())
    except (ValueError, AttributeError):
        known, odd = None, None
    if not known or odd:
        message = f"{expected}, got something else."
        raise InputError(message)
    if parts.username is not None or parts.query or parts.fragment:
        message = (
            f"{expected}, got one with a user, a query or a fragment. Leave them out, "
            "and pass a token as token=."
        )
        raise InputError(message)
    return parts.geturl()


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
            "https; in a network of your own pass unencrypted=True."
        )
        raise InputError(message)


def _check_numbers(timeout: Any, retries: Any) -> None:
    check_timeout(timeout)
    if type(retries) is not int or retries < 0:
        message = (
            f"expected retries as a whole number, 0 or more, got "
            f"{envelope.shown(retries)}."
        )
        raise InputError(message)
