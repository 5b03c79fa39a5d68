"""Deciding on rows, and keeping each decision with what it rests on."""

import os
import random
from collections import Counter
from collections.abc import Sequence
from itertools import accumulate, pairwise
from math import isfinite
from typing import Any

import msgspec
import numpy as np

from trustdoctor.service.problems import ProblemError
from trustdoctor.service.request_rows import answers_of, digests_of
from trustdoctor.service.schemas import DecideRequest, Name, encode, json_number
from trustdoctor.service.scoring import Scored, Scorer, Together, parted
from trustdoctor.service.store import Session
from trustdoctor.service.times import made_ids
from trustdoctor.service.versions import (
    WAITING,
    Head,
    Versions,
    count_review,
    lock_head,
)

COLUMNS = ("position", "id", "digest", "doubt", "accepted", "drawn", "output")
"""Of `rows`, as they are written with every decision."""

RARE = (
    *("predicted", "kind", "shadow_version", "shadow_accepted", "shortlist"),
    *("group_name", "features", "payload"),
)
"""More of them, which often have one value, or none, in all rows of a commit."""

_KNOWN = (
    "SELECT r.id, r.digest, r.predicted, r.doubt, r.accepted, r.version, r.drawn, "
    "r.shortlist FROM ids i JOIN rows r ON r.position = i.position WHERE i.id IN {}"
)
_plain = msgspec.json.decode


class Decision(msgspec.Struct, omit_defaults=True, gc=False):
    """The answer to one row."""

    id: str
    predicted: Name
    doubt: float | str
    accepted: bool
    version: int
    review: bool
    shortlist: list[Name] | msgspec.UnsetType | None = msgspec.UNSET


class Decider:
    """Decides on the rows of many requests in one transaction.

    Attributes
    ----------
    versions : Versions
        The gates.
    """

    def __init__(self, versions: Versions) -> None:
        self.versions = versions
        self.scorer = Scorer()
        self.shadow_scorer = Scorer()
        self.random = random.Random(os.urandom(32))

    def decide(
        self, session: Session, requests: Sequence[DecideRequest]
    ) -> list[list[Decision] | Exception]:
        """Return the answers to each request, or why it is refused."""
        head = lock_head(session)
        batch = _Batch(session, head, self.random)
        batch.find_known(requests)
        # A repetition is answered as before, whatever gate decides by now.
        out: list[list[Decision] | Exception | None]
        out = [batch.repeat(rows) for rows in requests]
        places = [at for at, one in enumerate(out) if one is None]
        asked = [requests[at] for at in places]
        if asked:
            current = self.versions.get(session, head.current)
            for own in self.scorer.together(current, asked):
                shadows = self._shadows(session, head, own)
                answers = batch.take_together(own, shadows)
                for at, answer in zip(own.places, answers, strict=True):
                    out[places[at]] = answer
            batch.store()
        return [one if one is not None else [] for one in out]

    def _shadows(
        self, session: Session, head: Head, own: Together
    ) -> list[bool | None] | None:
        """Return which rows a candidate would accept; None where it cannot say."""
        if head.shadow is None:
            return None
        candidate = self.versions.get(session, head.shadow)
        out: list[bool | None] = []
        for rows, one in zip(
            own.requests, self.shadow_scorer.score(candidate, own.requests), strict=True
        ):
            out += [None] * len(rows) if isinstance(one, Exception) else one.accepted
        return out


class _Batch:
    """The rows of one transaction."""

    def __init__(self, session: Session, head: Head, random: random.Random) -> None:
        self.session, self.head, self.random = session, head, random
        self.at = session.now()
        self.known: dict[str, tuple[bytes, Decision]] = {}
        self.columns: dict[str, list[Any]] = {name: [] for name in COLUMNS + RARE}
        self.queue: list[tuple[Any, ...]] = []
        self.beside: Counter[tuple[int, int]] = Counter()  # (shadow, current) accept

    def find_known(self, requests: Sequence[DecideRequest]) -> None:
        """Look up the ids that came before."""
        ids = [one for rows in requests for one in rows.ids or ()]
        if not ids:
            return
        among, value = self.session.in_list(ids)
        for found in self.session.rows(_KNOWN.format(among), value):
            name, digest, said, doubt, accepted, version, drawn, short = found
            answer = Decision(
                name,
                _plain(said),
                json_number(doubt),
                bool(accepted),
                version,
                bool(drawn),
                msgspec.UNSET if short is None else _plain(short),
            )
            self.known[name] = bytes(digest), answer

    def repeat(self, rows: DecideRequest) -> list[Decision] | ProblemError | None:
        """Answer a request whose rows all came before; None where some are new."""
        if not rows.ids or any(name not in self.known for name in rows.ids):
            return None
        digests = digests_of(rows)
        wrong = self._contradiction(rows.ids, digests)
        return wrong or [self.known[name][1] for name in rows.ids]

    def _contradiction(
        self, ids: Sequence[str], digests: Sequence[bytes]
    ) -> ProblemError | None:
        """Return what to say where an id has other content than before."""
        seen: dict[str, bytes] = {}
        for name, digest in zip(ids, digests, strict=True):
            before = self.known.get(name)
            first = seen.setdefault(name, digest) if before is None else before[0]
            if first != digest:
                message = (
                    f"expected the content that row {name!r} had before, got other. "
                    "Send new rows by new ids; nothing of this request was stored."
                )
                return ProblemError(409, message, id=name)
        return None

    def take_together(
        self, own: Together, beside: list[bool | None] | None
    ) -> Sequence[list[Decision] | Exception]:
        """Answer requests that were scored together: all at once, where all is new."""
        rows, done = own.rows, own.done
        if isinstance(done, Exception):
            return [done] * len(own.requests)
        rows.ids = rows.ids or made_ids(len(rows))
        ends = [0, *accumulate(map(len, own.requests))]
        if self._are_new(rows.ids):
            answers = self._take(rows, done, beside)
            return [answers[slice(*part)] for part in pairwise(ends)]
        return [
            self._take_some(one, of, None if beside is None else beside[slice(*part)])
            for one, of, part in zip(
                own.requests, parted(done, ends), pairwise(ends), strict=True
            )
        ]

    def _are_new(self, ids: list[str]) -> bool:
        return self.known.keys().isdisjoint(ids) and len(set(ids)) == len(ids)

    def _take(
        self, rows: DecideRequest, done: Scored, beside: list[bool | None] | None
    ) -> list[Decision]:
        """Answer rows that are all new."""
        decisions, kept = self._made(rows, done, beside)
        self._keep(decisions, kept)
        return decisions

    def _made(
        self, rows: DecideRequest, done: Scored, beside: list[bool | None] | None
    ) -> tuple[list[Decision], dict[str, Any]]:
        """Decide on rows; return what is kept of them, too."""
        ids = rows.ids
        assert ids is not None
        kept = _kept(rows, done) | {"id": ids, "digest": digests_of(rows)}
        if beside is not None:
            shadow = self.head.shadow
            kept["shadow_version"] = [None if one is None else shadow for one in beside]
            kept["shadow_accepted"] = [
                None if one is None else int(one) for one in beside
            ]
        return self._decide(ids, done), kept

    def _take_some(
        self, rows: DecideRequest, done: Scored, beside: list[bool | None] | None
    ) -> list[Decision] | Exception:
        """Answer one request; what is new is kept, unless any of it contradicts."""
        ids = rows.ids = rows.ids or made_ids(len(rows))
        if self._are_new(ids):
            return self._take(rows, done, beside)
        wrong = self._contradiction(ids, digests_of(rows))
        if wrong is not None:
            return wrong
        decisions, kept = self._made(rows, done, beside)
        places = dict(zip(reversed(ids), reversed(range(len(ids))), strict=True))
        new = sorted(at for name, at in places.items() if name not in self.known)
        own = {
            name: None if column is None else [column[at] for at in new]
            for name, column in kept.items()
        }
        self._keep([decisions[at] for at in new], own)
        return [self.known[name][1] for name in ids]

    def _decide(self, ids: list[str], done: Scored) -> list[Decision]:
        version, review, draw = self.head.current, self.head.review, self.random.random
        rates = review.rejected, review.accepted
        lists: list[Any] = done.shortlists or [msgspec.UNSET] * len(ids)
        columns = zip(
            ids, done.predicted, done.doubts, done.accepted, lists, strict=True
        )
        return [
            Decision(
                name,
                said,
                doubt if isfinite(doubt) else str(doubt),
                accepted,
                version,
                draw() < rates[accepted],
                short,
            )
            for name, said, doubt, accepted, short in columns
        ]

    def _keep(self, decisions: list[Decision], columns: dict[str, Any]) -> None:
        """Note rows that are new, with what is kept of each."""
        n, first = len(decisions), self.head.position + 1
        self.head.position += n
        accepted = [int(one.accepted) for one in decisions]
        own = columns | {
            "position": range(first, first + n),
            "doubt": [float(one.doubt) for one in decisions],
            "accepted": accepted,
            "drawn": [int(one.review) for one in decisions],
        }
        for name, column in self.columns.items():
            values = own.get(name)
            column.extend([None] * n if values is None else values)
        self.known.update(
            zip(own["id"], zip(own["digest"], decisions, strict=True), strict=True)
        )
        for position, one in enumerate(decisions, first):
            if one.review:
                said = one.id, float(one.doubt), int(one.accepted)
                self.queue.append((position, *said, self.at, 0.0))
        if own.get("shadow_accepted") is not None:
            for kept, other in zip(accepted, own["shadow_accepted"], strict=True):
                if other is not None:
                    self.beside[other, kept] += 1

    def store(self) -> None:
        """Write what is new, and count it."""
        columns = self.columns
        ids, positions = columns["id"], columns["position"]
        if not ids:
            return
        session, head = self.session, self.head
        same = self._same()
        for name in ("digest", "output"):  # which sqlite3 binds without a detour
            columns[name] = [*map(bytearray, columns[name])]
        rows = [*zip(*columns.values(), strict=True)]
        session.insert("rows", tuple(columns), rows, same)
        # In order, so that those that belong together are found together.
        places = sorted(zip(ids, positions, strict=True))
        session.insert("ids", ("id", "position"), places)
        if self.queue:
            names = (
                "position",
                "id",
                "doubt",
                "accepted",
                "decided_at",
                "leased_until",
            )
            session.insert("review_queue", names, self.queue)
            audits = sum(row[3] for row in self.queue)
            for what, more in zip(
                WAITING, (len(self.queue) - audits, audits), strict=True
            ):
                if more:
                    count_review(session, what, more)
        session.run("UPDATE head SET last_position = ?", head.position)
        counts = len(ids), sum(columns["accepted"])
        add_minute(session, self.at, head.current, *counts, len(self.queue), 0)
        session.run(
            "UPDATE version_counts SET rows = rows + ?, accepted = accepted + ? "
            "WHERE version = ?",
            *counts,
            head.current,
        )
        for accepts, more in self.beside.items():
            assert head.shadow is not None
            add_shadow(session, (head.shadow, head.current), accepts, (more, 0, 0))

    def _same(self) -> dict[str, Any]:
        """Take out columns of one value, which is bound once, not for each row."""
        head, columns = self.head, self.columns
        same = {
            "decided_at": self.at,
            "version": head.current,
            "review_rates": head.rates,
        }
        for name in RARE:
            column = columns[name]
            if column.count(column[0]) == len(column):
                same |= {} if column[0] is None else {name: column[0]}
                del columns[name]
        return same


def _kept(rows: DecideRequest, done: Scored) -> dict[str, Any]:
    """Return what is kept of each row as it came, by columns."""
    features, payloads = rows.features, rows.payloads
    said = {one: encode(one).decode() for one in set(done.predicted)}
    return {
        "kind": [rows.kind] * len(rows),
        "output": rows.answers or answers_of(rows),
        "predicted": [said[one] for one in done.predicted],
        "shortlist": None if done.shortlists is None else _texts(done.shortlists),
        "group_name": None if rows.groups is None else _texts(rows.groups),
        "features": None
        if features is None
        else [np.asarray(f, float).tobytes() for f in features],
        "payload": None
        if payloads is None
        else [one and one.decode() for one in payloads],
    }


def _texts(values: Sequence[Any]) -> list[str]:
    return [encode(one).decode() for one in values]


def add_minute(session: Session, at: float, version: int, *counts: int) -> None:
    """Count rows, accepted and drawn ones, and labels, in the minute they came."""
    session.run(
        "INSERT INTO minute_counts VALUES (?, ?, ?, ?, ?, ?) "
        "ON CONFLICT (minute, version) "
        "DO UPDATE SET rows = minute_counts.rows + excluded.rows, "
        "accepted = minute_counts.accepted + excluded.accepted, "
        "drawn = minute_counts.drawn + excluded.drawn, "
        "labels = minute_counts.labels + excluded.labels",
        int(at // 60),
        version,
        *counts,
    )


def add_shadow(
    session: Session,
    versions: tuple[int, int],
    accepts: tuple[int, int],
    counts: tuple[int, int, int],
) -> None:
    """Count rows that a candidate decided beside the current gate.

    `versions` and `accepts` are of the candidate and the current gate. `counts` are
    decided rows, and among the labelled ones those that are correct, and wrong.
    """
    session.run(
        "INSERT INTO shadow_counts VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT "
        "(shadow_version, current_version, shadow_accepted, current_accepted) "
        "DO UPDATE SET rows = shadow_counts.rows + excluded.rows, "
        "correct = shadow_counts.correct + excluded.correct, "
        "wrong = shadow_counts.wrong + excluded.wrong",
        *versions,
        *accepts,
        *counts,
    )
