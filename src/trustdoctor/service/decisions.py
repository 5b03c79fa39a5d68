"""Decisions on rows, each stored with what it rests on."""

import os
import random
from collections import Counter
from collections.abc import Sequence
from math import isfinite
from typing import Any

import msgspec
import numpy as np

from trustdoctor.service.problems import ProblemError
from trustdoctor.service.request_rows import row_digests, row_outputs
from trustdoctor.service.schemas import DecideRequest, Name, encode, json_number
from trustdoctor.service.scoring import (
    ScoredBatch,
    ScoredRows,
    Scorer,
    consecutive_slices,
)
from trustdoctor.service.store import Session
from trustdoctor.service.times import new_ids
from trustdoctor.service.versions import (
    WAITING,
    GateVersions,
    Head,
    count_review,
)

COLUMNS = ("position", "id", "digest", "doubt", "accepted", "drawn", "output")
"""Columns of `rows` that differ from row to row."""

UNIFORM_COLUMNS = (
    *("predicted", "kind", "shadow_version", "shadow_accepted", "shortlist"),
    *("group_name", "features", "payload"),
)
"""Columns that often have one value, or none, in all rows of a transaction."""

_EARLIER_DECISIONS = (
    "SELECT r.id, r.digest, r.predicted, r.doubt, r.accepted, r.version, r.drawn, "
    "r.shortlist FROM ids i JOIN rows r ON r.position = i.position WHERE i.id IN {}"
)
_decode = msgspec.json.decode


class RowDecision(msgspec.Struct, omit_defaults=True, gc=False):
    """The answer to one row."""

    id: str
    predicted: Name
    doubt: float | str
    accepted: bool
    version: int
    review: bool
    shortlist: list[Name] | msgspec.UnsetType | None = msgspec.UNSET


Response = list[RowDecision] | Exception
"""The answer to one request: a decision on each row, or why it is refused."""


class RequestDecider:
    """Decides on the rows of many requests in one transaction.

    Attributes
    ----------
    versions : GateVersions
    """

    def __init__(self, versions: GateVersions) -> None:
        self.versions = versions
        self.scorer = Scorer()
        self.shadow_scorer = Scorer()
        self.random = random.Random(os.urandom(32))

    def decide(
        self, session: Session, head: Head, requests: Sequence[DecideRequest]
    ) -> list[Response]:
        """Decide on all requests; a refused one gets its error as the response.

        The caller has locked `head` in this transaction.
        """
        transaction = DecisionTransaction(session, head, self.random)
        transaction.load_earlier_decisions(requests)
        # A repeated id gets its first answer again, whichever gate decides by now.
        responses = [transaction.replay(request) for request in requests]
        new = [index for index, response in enumerate(responses) if response is None]
        if new:
            version = self.versions.get(session, head.current)
            new_requests = [requests[index] for index in new]
            for batch in self.scorer.score_together(version, new_requests):
                shadow_accepts = self._shadow_accepts(session, head, batch)
                recorded = transaction.record(batch, shadow_accepts)
                for index, response in zip(
                    batch.request_indices, recorded, strict=True
                ):
                    responses[new[index]] = response
            transaction.flush()
        return [[] if response is None else response for response in responses]

    def _shadow_accepts(
        self, session: Session, head: Head, batch: ScoredBatch
    ) -> list[bool | None] | None:
        """Return which rows the shadow would accept; None if it cannot decide."""
        if head.shadow is None:
            return None
        shadow = self.versions.get(session, head.shadow)
        # Its own scorer: what the other counts must not depend on a shadow.
        scored_requests = self.shadow_scorer.score(shadow, batch.requests)
        accepts: list[bool | None] = []
        for request, scored in zip(batch.requests, scored_requests, strict=True):
            if isinstance(scored, Exception):
                accepts += [None] * len(request)
            else:
                accepts += scored.accepted
        return accepts


class DecisionTransaction:
    """The decisions of one transaction, collected and written together."""

    def __init__(self, session: Session, head: Head, random: random.Random) -> None:
        self.session, self.head, self.random = session, head, random
        self.now = session.now()
        self.decided: dict[str, tuple[bytes, RowDecision]] = {}
        """Digest and decision by id: earlier ones, and those of this transaction."""
        self.columns: dict[str, list[Any]]
        self.columns = {name: [] for name in COLUMNS + UNIFORM_COLUMNS}
        self.queued: list[tuple[Any, ...]] = []
        # By whether the shadow, and the current gate, accept.
        self.shadow_counts: Counter[tuple[int, int]] = Counter()

    def load_earlier_decisions(self, requests: Sequence[DecideRequest]) -> None:
        """Look up the ids that came before."""
        ids = [name for request in requests for name in request.ids or ()]
        if not ids:
            return
        placeholder, parameter = self.session.in_list(ids)
        for (
            name,
            digest,
            predicted,
            doubt,
            accepted,
            version,
            drawn,
            shortlist,
        ) in self.session.rows(_EARLIER_DECISIONS.format(placeholder), parameter):
            decision = RowDecision(
                name,
                _decode(predicted),
                json_number(doubt),
                bool(accepted),
                version,
                bool(drawn),
                msgspec.UNSET if shortlist is None else _decode(shortlist),
            )
            self.decided[name] = bytes(digest), decision

    def replay(self, request: DecideRequest) -> Response | None:
        """Answer a request whose rows all came before; None if any is new."""
        ids, decided = request.ids, self.decided
        if not ids or any(name not in decided for name in ids):
            return None
        conflict = self._conflict(ids, row_digests(request))
        return conflict or [decided[name][1] for name in ids]

    def _conflict(
        self, ids: Sequence[str], digests: Sequence[bytes]
    ) -> ProblemError | None:
        """Return an error if an id comes with other content than before."""
        digests_by_id: dict[str, bytes] = {}
        for name, digest in zip(ids, digests, strict=True):
            earlier = self.decided.get(name)
            first_digest = (
                digests_by_id.setdefault(name, digest)
                if earlier is None
                else earlier[0]
            )
            if first_digest != digest:
                message = (
                    f"expected the content that row {name!r} had before, got other. "
                    "Send new rows by new ids; nothing of this request was stored."
                )
                return ProblemError(409, message, id=name)
        return None

    def record(
        self, batch: ScoredBatch, shadow_accepts: list[bool | None] | None
    ) -> Sequence[Response]:
        """Respond to requests that were scored together, and collect their new rows."""
        joined, scored = batch.joined, batch.scored
        if isinstance(scored, Exception):
            return [scored] * len(batch.requests)
        joined.ids = joined.ids or new_ids(len(joined))
        sizes = [*map(len, batch.requests)]
        slices = consecutive_slices(sizes)
        if self._are_new(joined.ids):
            decisions = self._record_new(joined, scored, shadow_accepts)
            return [decisions[rows] for rows in slices]
        return [
            self._record_request(
                request,
                request_scored,
                None if shadow_accepts is None else shadow_accepts[rows],
            )
            for request, request_scored, rows in zip(
                batch.requests, scored.split(sizes), slices, strict=True
            )
        ]

    def _are_new(self, ids: list[str]) -> bool:
        return self.decided.keys().isdisjoint(ids) and len(set(ids)) == len(ids)

    def _record_new(
        self,
        request: DecideRequest,
        scored: ScoredRows,
        shadow_accepts: list[bool | None] | None,
    ) -> list[RowDecision]:
        """Decide on rows that are all new."""
        assert request.ids is not None
        decisions = self._decide(request.ids, scored)
        self._add_rows(decisions, self._columns(request, scored, shadow_accepts))
        return decisions

    def _record_request(
        self,
        request: DecideRequest,
        scored: ScoredRows,
        shadow_accepts: list[bool | None] | None,
    ) -> Response:
        """Respond to one request; its new rows are added, unless any row conflicts."""
        ids = request.ids = request.ids or new_ids(len(request))
        if self._are_new(ids):
            return self._record_new(request, scored, shadow_accepts)
        conflict = self._conflict(ids, row_digests(request))
        if conflict is not None:
            return conflict
        first_rows = dict(zip(reversed(ids), reversed(range(len(ids))), strict=True))
        new = sorted(
            row for name, row in first_rows.items() if name not in self.decided
        )
        decisions = self._decide(ids, scored)
        columns = self._columns(request, scored, shadow_accepts)
        self._add_rows(
            [decisions[row] for row in new],
            {
                name: None if column is None else [column[row] for row in new]
                for name, column in columns.items()
            },
        )
        return [self.decided[name][1] for name in ids]

    def _decide(self, ids: list[str], scored: ScoredRows) -> list[RowDecision]:
        """Return decisions on rows, each drawn for review or not."""
        version, review, draw = self.head.current, self.head.review, self.random.random
        rates = review.rejected, review.accepted
        shortlists: list[Any] = scored.shortlists or [msgspec.UNSET] * len(ids)
        return [
            RowDecision(
                name,
                predicted,
                doubt if isfinite(doubt) else str(doubt),
                accepted,
                version,
                draw() < rates[accepted],
                shortlist,
            )
            for name, predicted, doubt, accepted, shortlist in zip(
                ids,
                scored.predicted,
                scored.doubts,
                scored.accepted,
                shortlists,
                strict=True,
            )
        ]

    def _columns(
        self,
        request: DecideRequest,
        scored: ScoredRows,
        shadow_accepts: list[bool | None] | None,
    ) -> dict[str, Any]:
        """Return what is stored of each row besides its decision, by columns."""
        columns = _request_columns(request, scored)
        if shadow_accepts is not None:
            shadow = self.head.shadow
            columns["shadow_version"] = [
                None if accepts is None else shadow for accepts in shadow_accepts
            ]
            columns["shadow_accepted"] = [
                None if accepts is None else int(accepts) for accepts in shadow_accepts
            ]
        return columns

    def _add_rows(self, decisions: list[RowDecision], columns: dict[str, Any]) -> None:
        """Add new rows to those that `flush` writes."""
        n, first = len(decisions), self.head.position + 1
        self.head.position += n
        accepted = [int(decision.accepted) for decision in decisions]
        values_by_column = columns | {
            "position": range(first, first + n),
            "doubt": [float(decision.doubt) for decision in decisions],
            "accepted": accepted,
            "drawn": [int(decision.review) for decision in decisions],
        }
        for name, column in self.columns.items():
            values = values_by_column.get(name)
            column.extend([None] * n if values is None else values)
        self.decided.update(
            zip(
                columns["id"],
                zip(columns["digest"], decisions, strict=True),
                strict=True,
            )
        )
        for position, decision in enumerate(decisions, first):
            if decision.review:
                doubt = float(decision.doubt)
                row = position, decision.id, doubt, int(decision.accepted)
                self.queued.append((*row, self.now, 0.0))
        if columns.get("shadow_accepted") is not None:
            for current, shadow in zip(
                accepted, columns["shadow_accepted"], strict=True
            ):
                if shadow is not None:
                    self.shadow_counts[shadow, current] += 1

    def flush(self) -> None:
        """Write the new rows, and count them."""
        columns = self.columns
        ids, positions = columns["id"], columns["position"]
        if not ids:
            return
        session, head = self.session, self.head
        shared = self._take_shared_columns()
        for name in ("digest", "output"):
            # sqlite3 looks for an adapter of every bytes object, not of a bytearray.
            columns[name] = [*map(bytearray, columns[name])]
        rows = [*zip(*columns.values(), strict=True)]
        session.insert("rows", tuple(columns), rows, shared)
        # Sorted: neighbours in the index are written at once.
        session.insert(
            "ids", ("id", "position"), sorted(zip(ids, positions, strict=True))
        )
        if self.queued:
            names = ("position", "id", "doubt", "accepted", "decided_at")
            session.insert("review_queue", (*names, "leased_until"), self.queued)
            accepted = sum(row[3] for row in self.queued)
            queued = len(self.queued) - accepted, accepted
            for name, count in zip(WAITING, queued, strict=True):
                if count:
                    count_review(session, name, count)
        session.run("UPDATE head SET last_position = ?", head.position)
        counts = len(ids), sum(columns["accepted"])
        count_minute(session, self.now, head.current, *counts, len(self.queued), 0)
        session.run(
            "UPDATE version_counts SET rows = rows + ?, accepted = accepted + ? "
            "WHERE version = ?",
            *counts,
            head.current,
        )
        for accepts, n in self.shadow_counts.items():
            assert head.shadow is not None
            count_shadow(session, (head.shadow, head.current), accepts, (n, 0, 0))

    def _take_shared_columns(self) -> dict[str, Any]:
        """Remove columns of one value, and return them: they are bound only once."""
        head, columns = self.head, self.columns
        shared = {
            "decided_at": self.now,
            "version": head.current,
            "review_rates": head.rates_number,
        }
        for name in UNIFORM_COLUMNS:
            column = columns[name]
            if column.count(column[0]) == len(column):
                shared |= {} if column[0] is None else {name: column[0]}
                del columns[name]
        return shared


def _request_columns(request: DecideRequest, scored: ScoredRows) -> dict[str, Any]:
    """Return what is stored of each row as it came, by columns."""
    ids, groups = request.ids, request.groups
    features, payloads, shortlists = (
        request.features,
        request.payloads,
        scored.shortlists,
    )
    json_by_class = {label: encode(label).decode() for label in set(scored.predicted)}
    return {
        "id": ids,
        "digest": row_digests(request),
        "kind": [request.kind] * len(request),
        "output": row_outputs(request),
        "predicted": [json_by_class[label] for label in scored.predicted],
        "shortlist": None if shortlists is None else _json_texts(shortlists),
        "group_name": None if groups is None else _json_texts(groups),
        "features": None
        if features is None
        else [np.asarray(row, float).tobytes() for row in features],
        "payload": None
        if payloads is None
        else [payload and payload.decode() for payload in payloads],
    }


def _json_texts(values: Sequence[Any]) -> list[str]:
    return [encode(value).decode() for value in values]


def count_minute(session: Session, now: float, version: int, *counts: int) -> None:
    """Count rows, accepted rows, drawn rows and labels in the minute of `now`."""
    session.run(
        "INSERT INTO minute_counts VALUES (?, ?, ?, ?, ?, ?) "
        "ON CONFLICT (minute, version) "
        "DO UPDATE SET rows = minute_counts.rows + excluded.rows, "
        "accepted = minute_counts.accepted + excluded.accepted, "
        "drawn = minute_counts.drawn + excluded.drawn, "
        "labels = minute_counts.labels + excluded.labels",
        int(now // 60),
        version,
        *counts,
    )


def count_shadow(
    session: Session,
    versions: tuple[int, int],
    accepts: tuple[int, int],
    counts: tuple[int, int, int],
) -> None:
    """Count rows that the shadow and the current gate decided.

    `versions` and `accepts` are of the shadow and of the current gate. `counts` are
    rows, and among the labelled ones those that are correct, and wrong.
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
