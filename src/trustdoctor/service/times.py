"""Times, in UTC."""

from datetime import UTC, datetime

from trustdoctor.service.problems import ProblemError


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
            f"expected a time as 2026-11-16T12:00:00Z, got {text[:40]!a}. Mend it."
        )
        raise ProblemError(400, message) from None
    return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()
