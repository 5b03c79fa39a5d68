"""Drawing rows for review by their ids, so that a retry draws the same."""

from collections.abc import Sequence
from hashlib import blake2b
from typing import Any

import numpy as np

from trustdoctor.arrays import Array, to_numpy
from trustdoctor.errors import InputError
from trustdoctor.watch.review import Review


def draw_rows(keys: Sequence[str], accepted: Array, review: Review, seed: str) -> Array:
    """Return which rows to review.

    Examples
    --------
    >>> kept = np.array([True, False])
    >>> draw_rows(["a", "b"], kept, Review(rejected=1.0, accepted=0.0), "").tolist()
    [False, True]
    """
    rates = np.where(accepted, review.accepted, review.rejected)
    return np.asarray(_uniform(keys, seed) < rates)


def _uniform(keys: Sequence[str], seed: str) -> Array:
    """Return a number from 0 up to 1 for each name."""
    salt = blake2b(seed.encode(), digest_size=16).digest()
    words = b"".join(
        blake2b(key.encode(), digest_size=8, key=salt).digest() for key in keys
    )
    return (np.frombuffer(words, "<u8") >> np.uint64(11)) / 2.0**53


def as_keys(ids: Any, rows: int) -> list[str]:
    """Return ids as text, or refuse them where a row has none.

    Examples
    --------
    >>> as_keys(np.array([7, 8]), 2)
    ['7', '8']
    """
    plain = list(ids) if isinstance(ids, (list, tuple)) else to_numpy(ids).tolist()
    if not isinstance(plain, list) or len(plain) != rows:
        got = len(plain) if isinstance(plain, list) else "one value"
        message = f"expected {rows:,} ids, one per row, got {got}."
        raise InputError(message)
    keys = [_key(one) for one in plain]
    if "" in keys:
        message = (
            f"row {keys.index('')} has no id, so it cannot be told from others. Give "
            "every row one, or leave ids out."
        )
        raise InputError(message)
    if not is_text("".join(keys)):
        message = "an id has half a character, which no file can hold. Mend it."
        raise InputError(message)
    return keys


def _key(one: Any) -> str:
    """Return an id as text; empty where it is missing."""
    if isinstance(one, str):
        return str(one)
    missing = one is None or type(one).__name__ in ("NAType", "NaTType")
    if missing or (isinstance(one, float) and one != one):
        return ""
    whole = isinstance(one, float) and one.is_integer()
    return str(int(one) if whole else one)


def is_text(value: str) -> bool:
    """Tell whether a text has no half characters, so that a file can hold it.

    Examples
    --------
    >>> is_text("a"), is_text(chr(0xD800))
    (True, False)
    """
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True
