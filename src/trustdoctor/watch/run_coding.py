"""Runs as plain values, and back: short, for there may be a million rows in them."""

from dataclasses import fields
from typing import Any

import numpy as np

from trustdoctor import envelope
from trustdoctor.arrays import Array
from trustdoctor.errors import FileError
from trustdoctor.watch.plain import (
    read_codes,
    read_group,
    read_pair,
    read_review,
    read_sizes,
    read_time,
    read_whole,
    write_review,
)
from trustdoctor.watch.queue import UNSAID, WAITING, Run
from trustdoctor.watch.rate_tests import Group

_LARGEST = 1 << 31  # rows of a run are fewer


def write_run(run: Run) -> dict[str, Any]:
    """Return a run as plain values; what increases is written as its steps."""
    begins = np.flatnonzero(np.diff(run.times, prepend=-1.0))
    many = np.diff(begins, append=len(run.times))
    return {
        "time": run.time,
        "review": write_review(run.review),
        "size": run.size,
        "places": np.diff(run.places, prepend=-1).tolist(),
        "keys": np.diff(run.keys, prepend=-1).tolist(),
        "times": list(
            map(list, zip(run.times[begins].tolist(), many.tolist(), strict=True))
        ),
        "accepted": run.accepted.astype(int).tolist(),
        "known": run.known.tolist(),
        "names": run.names,
        "codes": None if run.codes is None else run.codes.tolist(),
        "done": run.done,
        "started": run.started,
    }


def read_run(content: Any) -> Run:
    """Read what `write_run` wrote."""
    envelope.check_fields(content, {one.name for one in fields(Run)})
    accepted, known = (read_codes(content[name]) for name in ("accepted", "known"))
    places, keys = (
        np.cumsum(read_sizes(content[name], 1)) - 1 for name in ("places", "keys")
    )
    size, review = read_whole(content["size"]), read_review(content["review"])
    same = len(accepted) == len(known) == len(places) == len(keys)
    if review is None or not same or not places.max(initial=-1) < size < _LARGEST:
        raise _odd(content)
    names, codes = _read_groups(content, size)
    run = Run(
        read_time(content["time"]),
        review,
        size,
        places.astype(np.int32),
        keys,
        _read_times(content, len(known)),
        accepted == 1,
        known.astype(np.int8),
        names,
        codes,
        read_whole(content["done"]),
        content["started"],
    )
    if not np.isin(accepted, (0, 1)).all() or not _may_be(run):
        raise _odd(content)
    return run


def _read_groups(content: Any, size: int) -> tuple[list[Group] | None, Array | None]:
    if content["names"] is None and content["codes"] is None:
        return None, None
    names = [read_group(one) for one in envelope.read_list(content["names"])]
    codes = read_sizes(content["codes"])
    twice = len(set(names)) < len(names)
    if twice or len(codes) != size or codes.max(initial=-1) >= len(names):
        raise _odd(content)
    return names, codes.astype(np.min_scalar_type(len(names)))


def _read_times(content: Any, rows: int) -> Array:
    pairs = [read_pair(one) for one in envelope.read_list(content["times"])]
    times = np.array([read_time(time) for time, _ in pairs], np.float64)
    many = read_sizes([rows for _, rows in pairs], 1)
    if many.sum() != rows:
        raise _odd(content)
    return np.repeat(times, many)


def _may_be(run: Run) -> bool:
    """Tell whether labels and how far they were counted belong together."""
    known, done = run.known, run.done
    going = done < len(known) and known[done] == WAITING
    return bool(
        ((known >= WAITING) & (known <= UNSAID)).all()
        and not (known[:done] == WAITING).any()
        and type(run.started) is bool
        and (going if run.started else not done)
    )


def _odd(content: Any) -> FileError:
    message = f"its waiting rows cannot be, {envelope.shown(content)}."
    return FileError(message)
