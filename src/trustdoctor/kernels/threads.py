"""Threads for functions that release the interpreter lock, as the C library's do."""

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


def cores() -> int:
    """Return the number of processors that this process may use."""
    # os.cpu_count ignores a container's or taskset's limit.
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def map_threads(function: Callable[[Item], Result], items: list[Item]) -> list[Result]:
    """Apply a function that releases the interpreter lock to every item."""
    workers = min(cores(), len(items))
    if workers <= 1:
        return [function(item) for item in items]
    with ThreadPoolExecutor(workers) as pool:
        return list(pool.map(function, items))
