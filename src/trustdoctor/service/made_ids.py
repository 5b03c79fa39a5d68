"""Ids that nobody had before, in the order of time."""

import os
import time


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
