"""JSON over HTTP/1.1, for all who call a server: endpoints, `td.Client`, webhooks.

A connection pool, one deadline for a whole call, pauses between retries. Redirects are
never followed: a key is meant for one server.
"""

import base64
import io
import os
import random
import re
import select
import socket
import ssl
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import partial
from http.client import (
    HTTPConnection,
    HTTPException,
    HTTPResponse,
    HTTPSConnection,
    IncompleteRead,
)
from typing import Any
from urllib.parse import SplitResult, unquote, urlsplit
from urllib.request import getproxies, proxy_bypass

from trustdoctor._version import __version__
from trustdoctor.errors import InputError
from trustdoctor.urls import is_local
from trustdoctor.visible import visible

LONGEST_PAUSE = 30.0
"""Seconds between two attempts, unless the server asks for more."""

LONGEST_RETRY_AFTER = 60.0
"""Seconds that a server may ask to wait."""

SHORTEST_SECRET = 8
"""Characters. A shorter key may occur in a text by chance, and is not masked."""

_DELAY_SECONDS = re.compile(r"[0-9]+(\.[0-9]*)?")
_CHUNK = 1 << 16


@dataclass(frozen=True)
class ServerResponse:
    """What came back from a server.

    Attributes
    ----------
    status : int
        0 if no response came.
    text : str
        The content, or the reason why there is none. A key that the server repeats is
        replaced by ``***``.
    retry_after : float
        Seconds that the server asks to wait.
    location : str
        Where a redirect points to.
    """

    status: int
    text: str
    retry_after: float = 0.0
    location: str = ""


@dataclass(frozen=True)
class RetryPolicy:
    """How often a request is repeated, after which responses and how soon.

    Attributes
    ----------
    retries : int
    transient : frozenset of int
        Statuses after which the same request may succeed later; 0 is no response.
    first_pause : float
        Seconds. Each further pause is twice as long, up to `LONGEST_PAUSE`.
    """

    retries: int
    transient: frozenset[int]
    first_pause: float

    def call(
        self, send: Callable[[], ServerResponse], wait: Callable[[float], object]
    ) -> ServerResponse:
        """Return the first response that is final, or the last of all attempts."""
        response = send()
        for attempt in range(self.retries):
            if response.status not in self.transient:
                break
            wait(self._pause(attempt, response.retry_after))
            response = send()
        return response

    def _pause(self, attempt: int, retry_after: float) -> float:
        doubled = min(self.first_pause * 2 ** min(attempt, 16), LONGEST_PAUSE)
        # Jitter: clients that failed together would otherwise return together.
        jittered = doubled * random.uniform(0.5, 1.0)
        return max(jittered, min(retry_after, LONGEST_RETRY_AFTER))


class HttpClient:
    """A server's connection pool, for any number of threads, and safe to fork.

    Parameters
    ----------
    url : str
        The base of all paths.
    timeout : float
        Seconds for a whole call: connecting, sending, and reading to the end.
    bearer : str
        A token or key, sent with every request; ``***`` stands in its place in what the
        server says.
    proxies : bool
        Whether to go through the proxy that the environment names. A server on this
        machine is always called directly.
    response_limit : int, optional
        Bytes after which a response is cut off.
    """

    def __init__(
        self,
        url: str,
        *,
        timeout: float,
        bearer: str = "",
        proxies: bool = False,
        response_limit: int | None = None,
    ) -> None:
        # list.append and list.pop are atomic: a lock that another thread holds during
        # a fork would never be released in the child.
        self._idle: list[HTTPConnection] = []
        self._process = os.getpid()
        self._url, self._timeout, self._bearer = url, timeout, bearer
        self._response_limit = response_limit
        parts = urlsplit(url)
        self._encrypted = parts.scheme == "https"
        # One context for all connections: each reads the certificates of the system.
        self._tls = ssl.create_default_context() if self._encrypted else None
        self._address = (parts.hostname or "", parts.port)
        self._target = parts.path + (f"?{parts.query}" if parts.query else "")
        self._proxy = _environment_proxy(url) if proxies else None
        self._headers = {
            "Accept": "application/json",
            "Content-Type": "application/json",
            "User-Agent": f"trustdoctor/{__version__}",
        }
        if bearer:
            self._headers["Authorization"] = f"Bearer {bearer}"
        if self._proxy is not None and not self._encrypted:
            # RFC 9112, section 3.2.2: a proxy gets the absolute form.
            self._target = f"http://{parts.netloc}{self._target}"
            self._headers |= _proxy_authorization(self._proxy)

    def close(self) -> None:
        """Close idle connections; the next call opens one again."""
        while self._idle:
            try:
                self._idle.pop().close()
            except IndexError:  # another thread took the last one
                break

    __del__ = close

    def call(
        self,
        method: str,
        path: str = "",
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        *,
        fresh: bool = False,
    ) -> ServerResponse:
        """Send one request and return its response, of status 0 if none came.

        Parameters
        ----------
        method, path : str
        body : bytes, optional
        headers : mapping, optional
            Besides those of the client.
        fresh : bool
            Whether to connect anew. A request that must not be repeated should not
            fail because an idle connection was closed at the same moment.
        """
        connection = self._take()
        if fresh:
            connection.close()
        is_whole = False
        try:
            headers = self._headers | dict(headers or {})
            connection.request(method, self._target + path, body, headers)
            with connection.getresponse() as raw:
                content, is_whole = self._read(raw)
                return self._response(raw, content)
        except (OSError, HTTPException, UnicodeError) as error:
            self._refuse_certificate(error)
            return ServerResponse(0, _failure(error))
        finally:
            # An interrupt or a cut leaves half a response on the connection: the next
            # request would read it as its own.
            if not is_whole:
                connection.close()
            self._idle.append(connection)

    def _take(self) -> HTTPConnection:
        """Return an idle connection, or a new one, which connects when it sends."""
        if self._process != os.getpid():  # the parent uses these, too
            self.close()
            self._process = os.getpid()
        try:
            connection = self._idle.pop()
        except IndexError:
            return self._new_connection()
        # RFC 9112, section 9.6: a server may close an idle connection at any time.
        if connection.sock is not None and _is_readable(connection.sock):
            connection.close()
        return connection

    def _new_connection(self) -> HTTPConnection:
        if self._proxy is None:
            return self._connection_to(*self._address)
        connection = self._connection_to(self._proxy.hostname or "", self._proxy.port)
        if self._encrypted:
            host, port = self._address
            connection.set_tunnel(host, port, _proxy_authorization(self._proxy))
        return connection

    def _connection_to(self, host: str, port: int | None) -> HTTPConnection:
        if self._tls is None:
            return _Connection(host, port, timeout=self._timeout)
        return _TLSConnection(host, port, timeout=self._timeout, context=self._tls)

    def _read(self, raw: HTTPResponse) -> tuple[bytes, bool]:
        """Return the content, and whether it was read to its end."""
        chunks, size = [], 0
        while chunk := raw.read1(_CHUNK):
            chunks.append(chunk)
            size += len(chunk)
            if self._response_limit is not None and size > self._response_limit:
                return b"".join(chunks), False
        if raw.length:  # read1 does not tell a closed connection from the end
            raise IncompleteRead(b"".join(chunks), raw.length)
        return b"".join(chunks), True

    def _response(self, raw: HTTPResponse, content: bytes) -> ServerResponse:
        text = content.decode("utf-8", "replace")
        if len(self._bearer) >= SHORTEST_SECRET:  # servers repeat what they were sent
            text = text.replace(self._bearer, "***")
        retry_after = _retry_after(str(raw.headers.get("Retry-After", "")))
        location = str(raw.headers.get("Location", ""))
        return ServerResponse(raw.status, text, retry_after, location)

    def _refuse_certificate(self, error: BaseException) -> None:
        """Raise for an untrusted certificate: another attempt cannot help."""
        if isinstance(error, ssl.SSLCertVerificationError):
            message = (
                f"the certificate of {self._url} cannot be trusted: "
                f"{error.verify_message}. Name another server, or add its certificate "
                "(SSL_CERT_FILE)."
            )
            raise InputError(message) from error


def one_line(text: str, length: int) -> str:
    r"""Return the beginning of what a server says, in one line that is safe to print.

    Examples
    --------
    >>> one_line("not\n  found, or moved", 9)
    'not found'
    """
    return " ".join(visible(text).split())[:length]


def _is_readable(sock: Any) -> bool:
    """Tell whether something came unasked: as a rule, the end of the connection."""
    poll = select.poll()
    poll.register(sock, select.POLLIN)
    return bool(poll.poll(0))


def _failure(error: BaseException) -> str:
    """Say why no response came."""
    if isinstance(error, TimeoutError):
        return "timed out"
    if isinstance(error, IncompleteRead):
        return "the connection was closed within the answer"
    return str(getattr(error, "strerror", None) or error) or type(error).__name__


def _retry_after(header: str) -> float:
    """Return how long to wait: seconds, or until a date (RFC 9110, section 10.2.3)."""
    header = header.strip()
    if _DELAY_SECONDS.fullmatch(header):
        return float(header)  # hundreds of digits are infinity, not an error
    try:
        when = parsedate_to_datetime(header)
    except (ValueError, TypeError, IndexError, OverflowError):  # all of them, by header
        return 0.0
    when = when if when.tzinfo else when.replace(tzinfo=UTC)
    return max((when - datetime.now(UTC)).total_seconds(), 0.0)


def _environment_proxy(url: str) -> SplitResult | None:
    """Return the proxy that the environment names for a server, if any."""
    parts = urlsplit(url)
    proxy = getproxies().get(parts.scheme, "")
    if not proxy or is_local(url) or proxy_bypass(parts.netloc):
        return None
    return urlsplit(proxy if "://" in proxy else f"http://{proxy}")


def _proxy_authorization(proxy: SplitResult) -> dict[str, str]:
    if proxy.username is None:
        return {}
    login = f"{unquote(proxy.username)}:{unquote(proxy.password or '')}"
    encoded = base64.b64encode(login.encode()).decode()
    return {"Proxy-Authorization": f"Basic {encoded}"}


def _seconds_left(deadline: float) -> float:
    """Return the seconds until a deadline, or raise if it has passed."""
    seconds = deadline - time.monotonic()
    if seconds <= 0:
        raise TimeoutError
    return seconds


class _DeadlineReader(io.RawIOBase):
    """Reads from a socket until a deadline.

    The timeout of a socket begins anew with every byte, so a server that sends its
    headers one by one, or ``100 Continue`` without end, would never be given up.
    """

    def __init__(self, raw: io.RawIOBase, sock: socket.socket, deadline: float) -> None:
        self._raw, self._sock, self._deadline = raw, sock, deadline

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        self._sock.settimeout(_seconds_left(self._deadline))
        return self._raw.readinto(buffer)

    def close(self) -> None:
        self._raw.close()
        super().close()


class _DeadlineResponse(HTTPResponse):
    """A response that is read until a deadline, its status and headers included."""

    def __init__(self, sock: Any, *args: Any, deadline: float, **options: Any) -> None:
        super().__init__(sock, *args, **options)
        raw: Any = self.fp.detach()
        self.fp = io.BufferedReader(_DeadlineReader(raw, sock, deadline))


class _Connection(HTTPConnection):
    """A connection on which the timeout covers each request from beginning to end.

    Looking up the server's name is not covered: getaddrinfo cannot be interrupted.
    """

    timeout: float

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._create_connection = self._connect_in_time
        self._start_timer()

    def _start_timer(self) -> None:
        self._deadline = time.monotonic() + self.timeout
        self.response_class: Any = partial(_DeadlineResponse, deadline=self._deadline)

    def putrequest(self, *args: Any, **options: Any) -> None:
        """Begin a request, and its time."""
        self._start_timer()
        super().putrequest(*args, **options)

    def send(self, data: Any) -> None:
        """Send bytes; a server may be slow to take them, too."""
        if self.sock is None:
            self.connect()
        unsent = memoryview(data)
        while unsent:
            self.sock.settimeout(_seconds_left(self._deadline))
            unsent = unsent[self.sock.send(unsent) :]

    def _connect_in_time(self, address: tuple[str, int], *_: Any) -> socket.socket:
        """Connect to the first address of a server that answers before the deadline.

        `socket.create_connection` gives each address the whole timeout.
        """
        host, port = address
        error: OSError = OSError("the name of the server has no address")
        for address_info in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM):
            endpoint: Any = address_info[-1][:2]
            try:
                sock = socket.create_connection(endpoint, _seconds_left(self._deadline))
                sock.settimeout(_seconds_left(self._deadline))  # for the TLS handshake
            except OSError as failure:
                error = failure
            else:
                return sock
        raise error


class _TLSConnection(_Connection, HTTPSConnection):
    """The same, encrypted."""
