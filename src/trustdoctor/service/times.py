"""Times in UTC, and ids in the order of time."""

import os
import time
from datetime import UTC, datetime

from trustdoctor.errors import InputError


def shown(at: float | None) -> str | None:
    """Return a time as people and programs read it.

    Examples
    --------
    >>> shown(0.0)
    '1970-01-01T00:00:00.000Z'
    """
    if at is None:
        return None
    said = datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds")
    return said.replace("+00:00", "Z")


def read_time(text: str) -> float:
    """Read a time, which without an offset is in UTC.

    Examples
    --------
    >>> read_time("1970-01-02")
    86400.0
    """
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        message = (
            f"expected a time as 2026-11-16T12:00:00Z, got {text[:40]!a}. Write it so."
        )
        raise InputError(message) from None
    return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()


def made_ids(n: int) -> list[str]:
    """Return new ids; those made later come later, which a store is fast with.

    Examples
    --------
    >>> first, second = made_ids(2)
    >>> len(first), first != second
    (32, True)
    """
    start = f"{time.time_ns() // 1000:014x}"
    random = os.urandom(9 * n).hex()
    return [start + random[18 * at : 18 * (at + 1)] for at in range(n)]
