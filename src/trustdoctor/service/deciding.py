"""Deciding on rows, and keeping each decision with what it rests on."""

import os
import random
import struct
from collections.abc import Sequence
from hashlib import blake2b
from math import isfinite
from typing import Any

import msgspec
import numpy as np

from trustdoctor.service.bodies import Name, Rows, as_number, encode
from trustdoctor.service.heads import (
    WAITING,
    Head,
    Versions,
    count_review,
    lock_head,
)
from trustdoctor.service.made_ids import made_ids
from trustdoctor.service.problems import ProblemError
from trustdoctor.service.scoring import Scored, Scorer, as_array
from trustdoctor.service.stores import Session

COLUMNS = (
    *("position", "id", "digest", "doubt", "accepted", "drawn", "shadow"),
    *("kind", "answer", "predicted", "shortlist", "team", "features", "payload"),
)
"""Of `rows`, as they are written with a decision."""

_KNOWN = (
    "SELECT r.id, r.digest, r.predicted, r.doubt, r.accepted, r.version, r.drawn, "
    "r.shortlist FROM ids i JOIN rows r ON r.position = i.position WHERE i.id IN {}"
)
_plain = msgspec.json.decode


class Decision(msgspec.Struct, omit_defaults=True):
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
        self, session: Session, requests: Sequence[Rows]
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
            scored = self.scorer.score(current, asked)
            shadows = self._shadows(session, head, asked)
            for at, done, beside in zip(places, scored, shadows, strict=True):
                out[at] = batch.take(requests[at], done, beside)
            batch.store()
        return [one if one is not None else [] for one in out]

    def _shadows(
        self, session: Session, head: Head, requests: Sequence[Rows]
    ) -> list[list[bool] | None]:
        """Return what a candidate would accept; None where it cannot say."""
        if head.shadow is None:
            return [None] * len(requests)
        candidate = self.versions.get(session, head.shadow)
        done = self.shadow_scorer.score(candidate, requests)
        return [None if isinstance(one, Exception) else one.accepted for one in done]


class _Batch:
    """The rows of one transaction."""

    def __init__(self, session: Session, head: Head, random: random.Random) -> None:
        self.session, self.head, self.random = session, head, random
        self.at = session.now()
        self.known: dict[str, tuple[bytes, Decision]] = {}
        self.rows: list[tuple[Any, ...]] = []
        self.ids: list[tuple[str, int]] = []
        self.queue: list[tuple[Any, ...]] = []
        self.counts = [0, 0, 0]  # rows, accepted, drawn for review
        self.beside: dict[tuple[int, int], int] = {}  # (accepted, agrees) -> rows

    def find_known(self, requests: Sequence[Rows]) -> None:
        """Look up the ids that came before."""
        ids = [one for rows in requests for one in rows.ids or ()]
        if not ids:
            return
        among, value = self.session.listed(ids)
        for found in self.session.rows(_KNOWN.format(among), value):
            name, digest, said, doubt, accepted, version, drawn, short = found
            answer = Decision(
                name,
                _plain(said),
                as_number(doubt),
                bool(accepted),
                version,
                bool(drawn),
                msgspec.UNSET if short is None else _plain(short),
            )
            self.known[name] = bytes(digest), answer

    def repeat(self, rows: Rows) -> list[Decision] | ProblemError | None:
        """Answer a request whose rows all came before; None where some are new."""
        if not rows.ids or any(name not in self.known for name in rows.ids):
            return None
        digests = rows.digests or _digests(rows, _answers(rows))
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

    def take(
        self, rows: Rows, done: Scored | Exception, beside: list[bool] | None
    ) -> list[Decision] | Exception:
        """Answer one request; what is new is kept, unless any of it contradicts."""
        if isinstance(done, Exception):
            return done
        answers = _answers(rows)
        digests = rows.digests or _digests(rows, answers)
        ids = rows.ids or made_ids(len(rows))
        wrong = self._contradiction(ids, digests)
        if wrong is not None:
            return wrong
        kept = _kept(rows, answers, done)
        out = []
        for at, name in enumerate(ids):
            known = self.known.get(name)
            if known is None:
                other = None if beside is None else beside[at]
                decision = self._decide(done, at, name)
                self._keep(decision, done.doubts[at], digests[at], kept[at], other)
                known = self.known[name] = digests[at], decision
            out.append(known[1])
        return out

    def _decide(self, done: Scored, at: int, name: str) -> Decision:
        accepted, doubt, review = done.accepted[at], done.doubts[at], self.head.review
        rate = review.accepted if accepted else review.rejected
        return Decision(
            name,
            done.predicted[at],
            doubt if isfinite(doubt) else str(doubt),
            accepted,
            self.head.current,
            self.random.random() < rate,
            msgspec.UNSET if done.shortlists is None else done.shortlists[at],
        )

    def _keep(
        self,
        decision: Decision,
        doubt: float,
        digest: bytes,
        kept: tuple[Any, ...],
        other: bool | None,  # noqa: FBT001 - what a candidate says
    ) -> None:
        self.head.position += 1
        name, position, accepted = decision.id, self.head.position, decision.accepted
        shadow = None
        if other is not None:
            shadow = 2 * (self.head.shadow or 0) + other
            key = int(accepted), int(other == accepted)
            self.beside[key] = self.beside.get(key, 0) + 1
        drawn = decision.review
        said = doubt, int(accepted), int(drawn), shadow
        self.rows.append((position, name, digest, *said, *kept))
        self.ids.append((name, position))
        self.counts[1] += accepted
        if drawn:
            self.queue.append((position, name, doubt, int(accepted), self.at, 0.0))

    def store(self) -> None:
        """Write what is new, and count it."""
        if not self.rows:
            return
        session, head = self.session, self.head
        self.counts[0], self.counts[2] = len(self.rows), len(self.queue)
        same = {"at": self.at, "version": head.current, "rates": head.rates}
        session.insert("rows", COLUMNS, self.rows, same)
        session.insert("ids", ("id", "position"), self.ids)
        if self.queue:
            columns = ("line", "id", "doubt", "audit", "at", "until")
            session.insert("queue", columns, self.queue)
            audits = sum(row[3] for row in self.queue)
            for what, rows in zip(
                WAITING, (len(self.queue) - audits, audits), strict=True
            ):
                if rows:
                    count_review(session, what, rows)
        session.run("UPDATE head SET position = ?", head.position)
        add_minute(session, self.at, head.current, *self.counts, 0)
        session.run(
            "UPDATE tallies SET rows = rows + ?, accepted = accepted + ? "
            "WHERE version = ?",
            *self.counts[:2],
            head.current,
        )
        for (accepted, agrees), rows in self.beside.items():
            assert head.shadow is not None
            pair = head.shadow, head.current
            add_shadow(session, pair, (accepted, agrees, -1), rows)


def _kept(rows: Rows, answers: list[bytes], done: Scored) -> list[tuple[Any, ...]]:
    """Return what is kept of each row as it came, in the order of the columns."""
    none = [None] * len(rows)
    features = rows.features
    columns = (
        [rows.kind] * len(rows),
        answers,
        [encode(one).decode() for one in done.predicted],
        none if done.shortlists is None else _texts(done.shortlists),
        none if rows.groups is None else _texts(rows.groups),
        none
        if features is None
        else [np.asarray(f, float).tobytes() for f in features],
        [one and one.decode() for one in rows.payloads or none],
    )
    return list(zip(*columns, strict=True))


def _texts(values: Sequence[Any]) -> list[str]:
    return [encode(one).decode() for one in values]


def _plain_row(value: Any) -> Any:
    return value.tolist() if isinstance(value, np.ndarray) else value


def _pack(values: list[float]) -> bytes:
    return struct.pack(f"={len(values)}d", *values)


def add_minute(session: Session, at: float, version: int, *counts: int) -> None:
    """Count rows, accepted and drawn ones, and labels, in the minute they came."""
    session.run(
        "INSERT INTO minutes VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (minute, version) "
        "DO UPDATE SET rows = minutes.rows + excluded.rows, "
        "accepted = minutes.accepted + excluded.accepted, "
        "drawn = minutes.drawn + excluded.drawn, "
        "labels = minutes.labels + excluded.labels",
        int(at // 60),
        version,
        *counts,
    )


def add_shadow(
    session: Session, pair: tuple[int, int], kind: tuple[int, int, int], rows: int
) -> None:
    """Count rows that a candidate decided beside the current gate.

    `kind` says whether the current gate accepted, whether the candidate agrees, and
    whether the answer is wrong: -1 for all rows; labelled ones count again by 0 or 1.
    """
    session.run(
        "INSERT INTO shadows VALUES (?, ?, ?, ?, ?, ?) "
        "ON CONFLICT (version, current, accepted, agrees, wrong) "
        "DO UPDATE SET rows = shadows.rows + excluded.rows",
        *pair,
        *kind,
        rows,
    )


def _answers(rows: Rows) -> list[bytes]:
    """Return what each row holds, as bytes."""
    if rows.kind == "topk":
        assert rows.classes is not None
        pairs = zip(rows.classes, rows.values, strict=True)
        return [encode([own, _plain_row(probs)]) for own, probs in pairs]
    if len(rows) == 1:  # which is most requests, and numpy is slow to start
        first = rows.values[0]
        own = first if hasattr(first, "__len__") else [first]
        return [_pack(own)]
    whole = as_array(rows.values).tobytes()
    step = len(whole) // len(rows)
    return [whole[at : at + step] for at in range(0, len(whole), step)]


def _digests(rows: Rows, answers: list[bytes]) -> list[bytes]:
    """Return 16 bytes by which a repetition is told from other content."""
    kind = rows.kind.encode()
    beside = [rows.predicted, rows.groups, rows.features, rows.payloads]
    if all(one is None for one in beside):
        return [blake2b(kind + one, digest_size=16).digest() for one in answers]
    out = []
    for at, answer in enumerate(answers):
        own = [None if one is None else _plain_row(one[at]) for one in beside]
        content = kind + answer
        if own != [None] * len(own):  # alike, whatever the rows beside it have
            content = b"\0".join((content, encode(own)))
        out.append(blake2b(content, digest_size=16).digest())
    return out
