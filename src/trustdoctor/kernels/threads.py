"""Work on several processors at once."""

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

Part = TypeVar("Part")


Result = TypeVar("Result")


def cores() -> int:
    """Return how many processors this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def map_threads(function: Callable[[Part], Result], parts: list[Part]) -> list[Result]:
    """Apply a function that releases the interpreter lock to every part."""
    workers = min(cores(), len(parts))
    if workers <= 1:
        return [function(part) for part in parts]
    with ThreadPoolExecutor(workers) as pool:
        return list(pool.map(function, parts))
