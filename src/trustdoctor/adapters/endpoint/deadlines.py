"""HTTP connections whose timeout is for a whole call, not for each wait for bytes.

The timeout of a socket begins anew with every byte: a server that drips its headers, or
says `100 Continue` without end, would never be given up.
"""

import io
import socket
import time
from functools import partial
from http.client import HTTPConnection, HTTPResponse, HTTPSConnection
from typing import Any


def _left(until: float) -> float:
    """Return the seconds until a deadline, or raise where it has passed."""
    left = until - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left


class _Reader(io.RawIOBase):
    """Reads from a socket until a deadline."""

    def __init__(self, raw: io.RawIOBase, sock: socket.socket, until: float) -> None:
        self._raw, self._sock, self._until = raw, sock, until

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        self._sock.settimeout(_left(self._until))
        return self._raw.readinto(buffer)

    def close(self) -> None:
        self._raw.close()
        super().close()


class _Response(HTTPResponse):
    """A response that is read until a deadline, its status and headers included."""

    def __init__(self, sock: Any, *args: Any, until: float, **options: Any) -> None:
        super().__init__(sock, *args, **options)
        raw: Any = self.fp.detach()
        self.fp = io.BufferedReader(_Reader(raw, sock, until))


class TimedConnection(HTTPConnection):
    """A connection on which each request has its timeout from beginning to end.

    Looking up the server's name is not counted: nothing can stop that.
    """

    timeout: float

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._create_connection = self._reach
        self._begin()

    def _begin(self) -> None:
        self._until = time.monotonic() + self.timeout
        self.response_class: Any = partial(_Response, until=self._until)

    def putrequest(self, *args: Any, **options: Any) -> None:
        """Begin a request, and its time."""
        self._begin()
        super().putrequest(*args, **options)

    def send(self, data: Any) -> None:
        """Send bytes; a server may take them slowly, too."""
        if self.sock is None:
            self.connect()
        rest = memoryview(data)
        while rest:
            self.sock.settimeout(_left(self._until))
            rest = rest[self.sock.send(rest) :]

    def _reach(self, address: tuple[str, int], *_: Any) -> socket.socket:
        """Connect to one address of the server after another, in the time that is left.

        `socket.create_connection` gives each of them the whole time.
        """
        host, port = address
        error: OSError = OSError("the name of the server has no address")
        for known in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM):
            place: Any = known[-1]
            try:
                sock = socket.create_connection(place[:2], _left(self._until))
                sock.settimeout(_left(self._until))  # for the handshake of TLS
            except OSError as failed:
                error = failed
            else:
                return sock
        raise error


class TimedTLSConnection(TimedConnection, HTTPSConnection):
    """The same, encrypted."""
