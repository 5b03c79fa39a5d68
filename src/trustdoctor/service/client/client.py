"""The service, called from Python.

Every row has an id before it is sent, so a request without an answer can be repeated:
the service gives the first answer again.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple, TypeVar
from urllib.parse import quote

from trustdoctor.errors import InputError
from trustdoctor.gates import Gate
from trustdoctor.service.client.request_bodies import (
    ROWS,
    Name,
    RowsRequest,
    are_dicts,
    check_names,
    checked_version,
    column_requests,
    label_entries,
    row_request,
    row_requests,
    time_in_utc,
    to_json,
)
from trustdoctor.service.client.transport import ServiceTransport

Record = TypeVar("Record", "Decision", "Lease")


class Decision(NamedTuple):
    """The service's decision on a row.

    Attributes
    ----------
    id : str
    predicted : str, int or None
        The class by name if the gate has names, else by number.
    doubt : float
    accepted : bool
    version : int
        Of the gate that decided.
    review : bool
        Whether a person will look at it.
    shortlist : list or None
        The classes that a rejected row may be, if the gate has shortlists.
    """

    id: str
    predicted: Name | None
    doubt: float
    accepted: bool
    version: int
    review: bool
    shortlist: list[Name] | None = None


class Lease(NamedTuple):
    """A row to review, which nobody else gets until the lease ends.

    Attributes
    ----------
    id, lease : str
        Of the row, and of the lease.
    until : str
        When the lease ends, in UTC.
    kind : str
        "rejected", or "audit" for an accepted row drawn at random.
    doubt, predicted, shortlist, version
        As decided.
    classes : list of str, int, or None
        All classes by name, or how many there are.
    payload : dict or None
        What to look at: text, image (a data URL) or link.
    group : str, int or None
    at : str
        When it was decided, in UTC.
    """

    id: str
    lease: str
    until: str
    kind: str
    doubt: float
    predicted: Name | None = None
    shortlist: list[Name] | None = None
    classes: list[str] | int | None = None
    payload: dict[str, str] | None = None
    group: Name | None = None
    at: str = ""
    version: int = 0


class Labelled(NamedTuple):
    """What became of labels.

    Attributes
    ----------
    counted, repeated, corrected : int
    kept : int
        Stored, but not counted in the watch: the row was not drawn for review, or the
        label came too late.
    refused : dict
        The reasons by id.
    """

    counted: int
    repeated: int
    corrected: int
    kept: int
    refused: dict[str, str]


class Client:
    """A client of a running service.

    Any number of threads may use one client; they share its connection pool. ``with
    Client(url) as client:`` closes it at the end.

    Decisions, labels, reviews and reads are safe to repeat, and are repeated if no
    answer comes, and after 429, 502, 503 and 504. The pauses grow, and are as long as
    the service asks for, up to a minute. Calls that would add something twice are made
    once: `add_gate`, `recalibrate`, `rollback`. Redirects are not followed.

    Parameters
    ----------
    url : str
        Where the service is, as "http://127.0.0.1:8571".
    token : str, optional
        It is sent to that host only, and never shown.
    timeout : float
        Seconds for one request, from its beginning to the end of the answer.
    retries : int
        How often a request is repeated.
    unencrypted : bool
        Whether the token may go to another machine over http, within a private
        network. By default that is refused: others could read it on the way.

    Examples
    --------
    >>> Client("http://127.0.0.1:8571/", "a-secret-token")
    Client('http://127.0.0.1:8571')
    """

    def __init__(
        self,
        url: str,
        token: str | None = None,
        *,
        timeout: float = 30.0,
        retries: int = 3,
        unencrypted: bool = False,
    ) -> None:
        self._transport = ServiceTransport(
            url, token, timeout, retries, unencrypted=unencrypted
        )

    def __repr__(self) -> str:
        """Return the client with the service's URL, but without its token."""
        return f"Client({self._transport.url!r})"

    def __enter__(self) -> "Client":
        """Return the client itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close all connections."""
        self.close()

    def close(self) -> None:
        """Close idle connections; the next call opens one again."""
        self._transport.close()

    def decide(  # noqa: PLR0913 - options, by keyword only
        self,
        rows: Any = None,
        *,
        logits: Any = None,
        probs: Any = None,
        ids: Any = None,
        groups: Any = None,
        features: Any = None,
        payloads: Sequence[Mapping[str, str] | None] | None = None,
    ) -> Any:
        """Decide on rows.

        Parameters
        ----------
        rows : dict, sequence of dicts, or Predictions
            A dict is one row: ``{"id": "r1", "logits": [2.0, 0.5]}``, with probs, topk
            or confidence instead of logits, and optionally group, features and payload.
        logits, probs : array (n, C)
            Instead of rows.
        ids : sequence (n,), optional
            Text or whole numbers. Rows without one get a random id. Give ids if you may
            have to send the same rows again.
        groups, features, payloads : optional
            One per row, with predictions or arrays. A payload is what a reviewer sees:
            a dict with text, image or link.

        Returns
        -------
        Decision or list of Decision
            One for one dict, else a list, of which polars and pandas make a table.

        Examples
        --------
        >>> client = Client("http://127.0.0.1:8571")
        >>> client.decide({"id": "r1", "logits": [2.0, 0.5]})  # doctest: +SKIP
        Decision(id='r1', predicted=0, doubt=-1.5, accepted=True, ...)
        """
        sources = {"rows": rows, "logits": logits, "probs": probs}
        given = [name for name, source in sources.items() if source is not None]
        if len(given) != 1:
            got = " and ".join(given) or "none of them"
            message = f"expected rows, logits= or probs=, got {got}. Give one."
            raise InputError(message)
        columns = {"groups": groups, "features": features, "payloads": payloads}
        if not are_dicts(rows):
            p, requests = column_requests(rows, logits, probs, ids, columns)
            decisions = self._decide(requests)
            check_names(p, [decision.predicted for decision in decisions])
            return decisions
        if ids is not None or any(column is not None for column in columns.values()):
            message = (
                "expected ids, groups, features and payloads in the dicts themselves, "
                "as id, group, features, payload. Leave the options out."
            )
            raise InputError(message)
        if not isinstance(rows, Mapping):
            return self._decide(row_requests(rows))
        (decision,) = self._decide([row_request(rows)])
        return decision

    def _decide(self, requests: Iterable[RowsRequest]) -> list[Decision]:
        decisions: list[Decision] = []
        for ids, body in requests:
            try:
                answer = self._transport.call("POST", "/v1/decide", body)
            except InputError as error:
                if not decisions:
                    raise
                message = f"{error} The first {len(decisions):,} rows are decided."
                raise InputError(message) from error
            rows = answer.get("rows", [answer])
            answered = self._records(Decision, rows)
            if [decision.id for decision in answered] != ids:
                self._transport.refuse(f"answers to the {len(ids):,} rows sent", rows)
            decisions += answered
        return decisions

    def label(
        self,
        ids: Any,
        labels: Any = None,
        *,
        correct: Any = None,
        cannot_say: bool = False,
    ) -> Labelled:
        """Say what rows truly are: in any order, late, again, or corrected.

        Parameters
        ----------
        ids : sequence (n,), or dict of id to label
        labels : sequence (n,), optional
            Classes by name or number.
        correct : bool sequence (n,), optional
            Instead of labels: whether the predictions were right.
        cannot_say : bool
            Instead of labels: nobody can tell.

        Examples
        --------
        >>> client = Client("http://127.0.0.1:8571")
        >>> client.label({"r1": "cat", "r2": "dog"})  # doctest: +SKIP
        Labelled(counted=2, repeated=0, corrected=0, kept=0, refused={})
        """
        entries = label_entries(ids, labels, correct=correct, cannot_say=cannot_say)
        counts, refused = dict.fromkeys(Labelled._fields[:4], 0), {}
        for first in range(0, len(entries), ROWS):
            body = to_json({"labels": entries[first : first + ROWS]})
            answer = self._transport.call("POST", "/v1/labels", body)
            try:
                for name in counts:
                    counts[name] += answer.get(name, 0)
                for row in answer["rows"]:
                    if row["result"] == "refused":
                        refused[row["id"]] = str(row.get("why", ""))
            except (LookupError, TypeError):
                self._transport.refuse("what became of labels", answer)
        return Labelled(**counts, refused=refused)

    def lease(
        self,
        *,
        reviewer: str | None = None,
        order: str | None = None,
        count: int = 1,
        seconds: float | None = None,
        skip: Sequence[str] = (),
    ) -> list[Lease]:
        """Lease rows that wait for review: nobody else gets them for a while.

        Parameters
        ----------
        reviewer : str, optional
            Who answers.
        order : str, optional
            "doubt" for the most doubtful first, "oldest", or "audit".
        count : int
            How many, at most; there may be fewer, or none.
        seconds : float, optional
            How long they are kept for you.
        skip : sequence of str
            Ids of rows that you do not want now, 200 at most.
        """
        content = {
            "reviewer": reviewer,
            "order": order,
            "count": count,
            "seconds": seconds,
            "skip": list(skip) or None,
        }
        answer = self._send("POST", "/v1/review/lease", content)
        return self._records(Lease, answer.get("rows"))

    def answer(
        self,
        lease: Lease,
        label: Any = None,
        *,
        correct: bool | None = None,
        cannot_say: bool = False,
    ) -> str:
        """Answer a leased row by its class, or by whether the prediction was right.

        Returns what became of it: "counted", or "repeated" or "corrected" if the row
        had a label.
        """
        labels = None if label is None else [label]
        flags = None if correct is None else [correct]
        (entry,) = label_entries(
            [lease.id], labels, correct=flags, cannot_say=cannot_say
        )
        return self._answer(lease, entry)

    def release(self, lease: Lease) -> str:
        """Give a leased row back, for another person to answer."""
        return self._answer(lease, {"release": True})

    def _answer(self, lease: Lease, entry: dict[str, Any]) -> str:
        content = {"id": lease.id, "lease": lease.lease, **entry}
        answer = self._send("POST", "/v1/review/answer", content)
        return str(answer.get("result", ""))

    def status(self) -> dict[str, Any]:
        """Return how the service stands: gate, traffic, watch, alarms, review, latency.

        ``status()["watch"]["tests"]`` has the verdict and the estimate of each promise.
        """
        return self._send("GET", "/v1/status")

    def gates(self) -> list[dict[str, Any]]:
        """Return the versions of the gate, the newest first."""
        answer = self._send("GET", "/v1/gates")
        if not isinstance(answer.get("gates"), list):
            self._transport.refuse("gates", answer)
        return list(answer["gates"])

    def add_gate(self, gate: Gate, *, note: str | None = None) -> dict[str, Any]:
        """Add a gate as a candidate; the answer has its version."""
        content = {"gate": json.loads(gate.to_json()), "note": note}
        return self._send("POST", "/v1/gates", content, once=True)

    def recalibrate(
        self,
        *,
        since: datetime | str | None = None,
        confidence: float | None = None,
        note: str | None = None,
        **targets: float,
    ) -> dict[str, Any]:
        """Make a candidate from reviewed rows; the answer compares it with the gate.

        Parameters
        ----------
        since : datetime or str, optional
            Use rows from then on; a datetime needs a time zone. Required after an
            alarm.
        confidence : float, optional
            Of the promise; by default that of the current gate.
        note : str, optional
        targets : float
            As in `calibrate`: frr=0.05. By default those of the current gate.
        """
        content = {
            "since": time_in_utc(since),
            "targets": targets or None,
            "confidence": confidence,
            "note": note,
        }
        return self._send("POST", "/v1/recalibrate", content, once=True)

    def promote(self, version: int, *, anyway: bool = False) -> dict[str, Any]:
        """Let a version decide from now on.

        `anyway` also promotes a gate that rejects or accepts every row.
        """
        path = f"/v1/gates/{checked_version(version)}/promote"
        return self._send("POST", path, {"anyway": anyway or None})

    def rollback(self) -> dict[str, Any]:
        """Let the version before decide again."""
        return self._send("POST", "/v1/gates/rollback", {}, once=True)

    def shadow(self, version: int | None) -> dict[str, Any]:
        """Let a version decide in the shadow of the current one; None ends that."""
        if version is None:
            return self._send("DELETE", "/v1/gates/shadow")
        return self._send("POST", f"/v1/gates/{checked_version(version)}/shadow", {})

    def row(self, name: str) -> dict[str, Any]:
        """Return a decision, and the history of its labels."""
        return self._send("GET", f"/v1/rows/{quote(str(name), safe='')}")

    def forget(self, name: str) -> dict[str, Any]:
        """Forget a row: its content goes, the counts stay."""
        return self._send("DELETE", f"/v1/rows/{quote(str(name), safe='')}")

    def _send(
        self, method: str, path: str, content: Any = None, *, once: bool = False
    ) -> dict[str, Any]:
        """Call the service; fields that are None are left out."""
        if content is not None:
            content = to_json(
                {name: field for name, field in content.items() if field is not None}
            )
        return self._transport.call(method, path, content, once=once)

    def _records(self, kind: type[Record], rows: Any) -> list[Record]:
        """Return rows of an answer, without fields that a newer service adds."""
        records: list[Record] = []
        try:
            for row in rows:
                fields = {name: row[name] for name in kind._fields if name in row}
                fields["doubt"] = float(fields["doubt"])  # infinities are words
                records.append(kind(**fields))
        except (LookupError, TypeError, ValueError):
            self._transport.refuse("rows", rows)
        return records
