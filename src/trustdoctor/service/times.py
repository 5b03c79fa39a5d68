"""Times in UTC, and ids in the order of time."""

import os
import time
from datetime import UTC, datetime

from trustdoctor.errors import InputError


def format_time(seconds: float | None) -> str | None:
    """Return a time, in seconds since 1970, as ISO 8601 with milliseconds.

    Examples
    --------
    >>> format_time(0.0)
    '1970-01-01T00:00:00.000Z'
    """
    if seconds is None:
        return None
    text = datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")
    return text.replace("+00:00", "Z")


def read_time(text: str) -> float:
    """Return the seconds since 1970; a time without an offset is in UTC.

    Examples
    --------
    >>> read_time("1970-01-02")
    86400.0
    """
    try:
        parsed = datetime.fromisoformat(text)
    except ValueError:
        message = (
            f"expected a time like 2026-11-16T12:00:00Z, got {text[:40]!a}. Write it "
            "like this."
        )
        raise InputError(message) from None
    return (parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)).timestamp()


def new_ids(n: int) -> list[str]:
    """Return new ids that sort by the time they were made, to the microsecond.

    Examples
    --------
    >>> first, second = new_ids(2)
    >>> len(first), first != second
    (32, True)
    """
    # Ids in the order of time touch the end of an index, which is in memory. Random
    # ones touch a page each: SQLite takes a third as many rows (docs/serving.md).
    microseconds = f"{time.time_ns() // 1000:014x}"
    random = os.urandom(9 * n).hex()
    return [microseconds + random[18 * i : 18 * (i + 1)] for i in range(n)]
