"""URLs of servers and timeouts of calls, checked before anything is sent."""

import ipaddress
import re
from typing import Any
from urllib.parse import urlsplit

from trustdoctor import envelope
from trustdoctor.errors import InputError

LONGEST_TIMEOUT = 86_400.0
"""Seconds, a day. Above some 292 years `settimeout` raises OverflowError."""


def is_local(url: str) -> bool:
    """Tell whether a server is on this machine.

    Examples
    --------
    >>> is_local("http://127.0.0.1:8000/v1"), is_local("http://example.org/v1")
    (True, False)
    """
    host = urlsplit(url).hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def checked_url(url: Any, expected: str, secrets: str) -> str:
    """Return the URL of a server without a slash at its end.

    A refused URL may hold a password, so messages do not show it.

    Parameters
    ----------
    url : str
    expected : str
        How a message begins, with an example.
    secrets : str
        Where a user, a password or a token belongs instead.
    """
    try:
        # urlsplit drops tabs and ends of lines, so the text itself is looked at.
        plain = url.strip().rstrip("/")
        parts = urlsplit(plain)
        is_url = parts.scheme in ("http", "https") and bool(parts.hostname)
        is_url = is_url and parts.port != 0 and not re.search(r"[^!-~]", plain)
    except (ValueError, AttributeError):
        is_url = False
    if not is_url:
        message = f"{expected}, got something else."
        raise InputError(message)
    if parts.username is not None or parts.query or parts.fragment:
        message = (
            f"{expected}, got one with a user, a query or a fragment. Leave them out; "
            f"{secrets}."
        )
        raise InputError(message)
    return parts.geturl()  # with a scheme in small letters, whatever was given


def check_timeout(timeout: Any) -> None:
    """Refuse a timeout that no call can have."""
    is_number = isinstance(timeout, (int, float)) and not isinstance(timeout, bool)
    if not is_number or not 0 < timeout <= LONGEST_TIMEOUT:
        message = (
            "expected a timeout above 0 seconds and of a day at most, got "
            f"{envelope.shown(timeout)}."
        )
        raise InputError(message)
