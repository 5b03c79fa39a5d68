"""Plain values of a state, read with suspicion."""

import math
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import numpy as np

from trustdoctor import envelope
from trustdoctor.arrays import Array
from trustdoctor.errors import FileError
from trustdoctor.watch.rate_tests import Group
from trustdoctor.watch.review import Review


def write_review(review: Review | None) -> Any:
    """Return review rates as plain values."""
    return None if review is None else asdict(review)


def read_review(content: Any) -> Review | None:
    """Read what `write_review` wrote."""
    if content is not None:
        envelope.check_fields(content, {"rejected", "accepted"})
        if any(type(rate) is not float for rate in content.values()):
            message = f"expected rates, got {envelope.shown(content)}."
            raise FileError(message)
    return Review.of(content)


def read_named(content: Any, read: Callable[[Any], Any]) -> dict[str, Any]:
    """Return values by name, each read by a function."""
    if not isinstance(content, dict):
        message = f"expected values by name, got {envelope.shown(content)}."
        raise FileError(message)
    return {name: read(value) for name, value in content.items()}


def read_pair(content: Any) -> tuple[Any, Any]:
    """Return two values."""
    first, second = read_several(content, 2)
    return first, second


def read_several(content: Any, length: int) -> list[Any]:
    """Return so many values."""
    values = envelope.read_list(content)
    if len(values) != length:
        message = f"expected {length} values, got {envelope.shown(content)}."
        raise FileError(message)
    return values


def read_texts(content: Any, least: int = 0) -> list[str]:
    """Return texts, of which there are so many at least."""
    values = [envelope.read_text(one) for one in envelope.read_list(content)]
    if len(values) < least:
        message = "expected texts, got none."
        raise FileError(message)
    return values


def read_group(value: Any) -> Group:
    """Return the name of a group."""
    if value is None or type(value) in (int, str):
        return value
    message = f"expected the name of a group, got {envelope.shown(value)}."
    raise FileError(message)


def read_codes(content: Any) -> Array:
    """Return an array of small whole numbers."""
    values = envelope.read_list(content)
    if any(type(one) is not int or abs(one) > 9 for one in values):
        message = f"expected codes, got {envelope.shown(content)}."
        raise FileError(message)
    return np.array(values, np.int64)


def read_sizes(content: Any, least: int = 0) -> Array:
    """Return an array of counts, the sum of which is one, too."""
    values = [read_whole(one, least) for one in envelope.read_list(content)]
    read_whole(sum(values))
    return np.array(values, np.int64)


def read_whole(value: Any, least: int = 0) -> int:
    """Return a count."""
    if type(value) is int and least <= value < envelope.MOST_ROWS:
        return value
    message = f"expected a count, got {envelope.shown(value)}."
    raise FileError(message)


def read_finite(value: Any) -> float:
    """Return a finite number."""
    number = envelope.read_number(value)
    if math.isfinite(number) and abs(number) < 1e300:
        return number
    message = f"expected numbers, got {envelope.shown(value)}."
    raise FileError(message)


def read_time(value: Any) -> float:
    """Return a time."""
    number = read_finite(value)
    if 0 < number < 1e11:
        return number
    message = f"expected a time, got {envelope.shown(value)}."
    raise FileError(message)


def read_peak(value: Any) -> float:
    """Return the logarithm of evidence: 0 at least."""
    number = read_finite(value)
    if number >= 0:
        return number
    message = f"expected evidence, got {envelope.shown(value)}."
    raise FileError(message)


def read_share(value: Any) -> float:
    """Return a number from 0 to 1."""
    number = read_finite(value)
    if 0 <= number <= 1:
        return number
    message = f"expected a share, got {envelope.shown(value)}."
    raise FileError(message)
