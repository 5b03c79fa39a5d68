"""Merging the watches of replicas, where the mathematics allows it."""

import copy
import time
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from trustdoctor.errors import InputError
from trustdoctor.watch import counting
from trustdoctor.watch.ledger import Ledger
from trustdoctor.watch.promised import identify
from trustdoctor.watch.records import Entry

if TYPE_CHECKING:
    from trustdoctor.watch.watching import Watch

MERGED = (
    "Merged from several watches: an alarm that one had before stays, so up to then "
    "their bounds on false alarms add up. Estimates begin anew."
)


def merge(one: "Watch", two: "Watch") -> "Watch":
    """Return a watch of the rows of both, or say why there is none."""
    _require_alike(one, two)
    known = dict(one.ledger.items())
    _require_apart(known, one, two)
    out = replace(
        one,
        tests={name: test + two.tests[name] for name, test in one.tests.items()},
        sampling=one.sampling + two.sampling,
        queue=copy.deepcopy(one.queue) + copy.deepcopy(two.queue),
        totals=one.totals.add(two.totals),
        ledger=Ledger(known | dict(two.ledger.items())),
        entries=sorted([*one.records(), *two.records()], key=lambda entry: entry.time),
        notes=list(dict.fromkeys([*one.notes, *two.notes, MERGED])),
        origins=tuple(sorted({*one.origins, *two.origins})),
        earlier=list,
        closed=False,
        reference=one.reference or two.reference,
        sums=one.sums + two.sums,
    )
    counting.look_ahead(out)
    evidence = {name: test.evidence for name, test in out.tests.items()}
    waiting = len(out.queue)
    out.entries.append(
        Entry(
            time.time(),
            "merge",
            waiting=waiting,
            evidence=evidence,
            estimates=counting.estimates(out),
        )
    )
    return out


def _require_alike(one: "Watch", two: "Watch") -> None:
    if identify(one.gate) != identify(two.gate):
        message = "expected watches of one gate, got two. Merge those of one gate."
        raise InputError(message)
    for name in ("level", "window", "label_noise", "deadline", "review"):
        ours, theirs = getattr(one, name), getattr(two, name)
        if ours != theirs:
            said = "review rates" if name == "review" else name
            message = (
                f"expected watches with the same {said}, got {ours!r} and {theirs!r}. "
                "Start all replicas alike."
            )
            raise InputError(message)
    if None not in (one.reference, two.reference) and one.reference != two.reference:
        message = "expected watches with one reference, got two. Start all alike."
        raise InputError(message)
    if set(one.origins) & set(two.origins):
        message = (
            "both watches go on from one earlier state, whose rows would count twice. "
            "Start each replica with a watch of its own."
        )
        raise InputError(message)


def _require_apart(known: dict[str, int], one: "Watch", two: "Watch") -> None:
    """Refuse watches that share rows; `known` is what the first one counted."""
    twice = next((key for key, _ in two.ledger.items() if key in known), None)
    if twice is not None:
        kind = "row" if twice.startswith("r:") else "batch"
        message = (
            f"both watches counted the {kind} {twice[2:]!r}, and merged it would count "
            "twice. Give each replica rows of its own."
        )
        raise InputError(message)
    both = np.intersect1d(one.queue.positions, two.queue.positions)
    if len(both):
        message = (
            f"a row at the position {both[0]} waits in both watches, and labels would "
            "not tell the two apart. Merge when their labels have come."
        )
        raise InputError(message)
