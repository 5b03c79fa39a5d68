"""The service, called from Python. It needs nothing that is not in Python itself.

Every row has an id before it is sent, so a request that got no answer can be repeated:
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
    column_requests,
    dumped,
    label_entries,
    read_time,
    read_version,
    row_request,
    row_requests,
)
from trustdoctor.service.client.transport import ServiceTransport

Record = TypeVar("Record", "Decision", "Lease")


class Decision(NamedTuple):
    """What the service says of a row.

    Attributes
    ----------
    id : str
    predicted : str, int or None
        The class by name where the gate knows names, else by number.
    doubt : float
    accepted : bool
    version : int
        Of the gate that decided.
    review : bool
        Whether a person will look at it.
    shortlist : list or None
        The classes that a rejected row may be, where the gate has lists.
    """

    id: str
    predicted: Name | None
    doubt: float
    accepted: bool
    version: int
    review: bool
    shortlist: list[Name] | None = None


class Lease(NamedTuple):
    """A row that waits for a person's answer, and is nobody else's for a while.

    Attributes
    ----------
    id, lease : str
        Of the row, and of the right to answer.
    until : str
        When that right ends, in UTC.
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
        Stored, but not counted in the watch: of rows that were not drawn for review,
        or too late.
    refused : dict
        Why, by id.
    """

    counted: int
    repeated: int
    corrected: int
    kept: int
    refused: dict[str, str]


class Client:
    """A service that runs elsewhere, or on this machine.

    Any number of threads may use one client; they share its connection pool. ``with
    Client(url) as client:`` closes it at the end.

    What is safe to repeat is repeated where no answer comes, and after 429, 502, 503
    and 504: decisions, labels, answers and questions. The pauses grow, and are as long
    as the service asks for, up to a minute. Calls that would add something twice are
    made once: `add_gate`, `recalibrate`, `rollback`. Redirects are not followed.

    Parameters
    ----------
    url : str
        Where the service is, as "http://127.0.0.1:8571".
    token : str, optional
        It is sent to that host alone, and never shown.
    timeout : float
        Seconds for one request, from its beginning to the end of the answer.
    retries : int
        How often a request is repeated.
    unencrypted : bool
        Whether the token may go to another machine over http, as within a private
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
        self._line = ServiceTransport(
            url, token, timeout, retries, unencrypted=unencrypted
        )

    def __repr__(self) -> str:
        """Say where the service is."""
        return f"Client({self._line.url!r})"

    def __enter__(self) -> "Client":
        """Return the client itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close all connections."""
        self.close()

    def close(self) -> None:
        """Close all connections; the next call opens one again."""
        self._line.close()

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
        """Ask for decisions.

        Parameters
        ----------
        rows : dict, sequence of dicts, or Predictions
            A dict is one row: ``{"id": "r1", "logits": [2.0, 0.5]}``, with probs, topk
            or confidence in the place of logits, and optionally group, features and
            payload.
        logits, probs : array (n, C)
            In the place of rows.
        ids : sequence (n,), optional
            Text or whole numbers. Rows without one get a random id. Give ids where you
            may have to send the same rows again.
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
        given = {"rows": rows, "logits": logits, "probs": probs}
        named = [name for name, one in given.items() if one is not None]
        if len(named) != 1:
            got = " and ".join(named) or "none of them"
            message = f"expected rows, logits= or probs=, got {got}. Give one."
            raise InputError(message)
        beside = {"groups": groups, "features": features, "payloads": payloads}
        if not are_dicts(rows):
            p, requests = column_requests(rows, logits, probs, ids, beside)
            done = self._decide(requests)
            check_names(p, [one.predicted for one in done])
            return done
        if ids is not None or any(one is not None for one in beside.values()):
            message = (
                "expected ids, groups, features and payloads in the dicts themselves, "
                "as id, group, features, payload. Leave the options out."
            )
            raise InputError(message)
        if not isinstance(rows, Mapping):
            return self._decide(row_requests(rows))
        (one,) = self._decide([row_request(rows)])
        return one

    def _decide(self, requests: Iterable[RowsRequest]) -> list[Decision]:
        out: list[Decision] = []
        for ids, body in requests:
            try:
                answer = self._line.call("POST", "/v1/decide", body)
            except InputError as error:
                if not out:
                    raise
                message = f"{error} The first {len(out):,} rows are decided."
                raise InputError(message) from error
            rows = answer.get("rows", [answer])
            found = self._records(Decision, rows)
            if [one.id for one in found] != ids:
                self._line.refuse(f"answers to the {len(ids):,} rows sent", rows)
            out += found
        return out

    def label(
        self,
        ids: Any,
        labels: Any = None,
        *,
        correct: Any = None,
        cannot_say: bool = False,
    ) -> Labelled:
        """Say what rows really are; in any order, late, again, or corrected.

        Parameters
        ----------
        ids : sequence (n,), or dict of id to label
        labels : sequence (n,), optional
            Classes by name or number.
        correct : bool sequence (n,), optional
            In the place of labels: whether the prediction was right.
        cannot_say : bool
            In the place of labels: nobody can tell.

        Examples
        --------
        >>> client = Client("http://127.0.0.1:8571")
        >>> client.label({"r1": "cat", "r2": "dog"})  # doctest: +SKIP
        Labelled(counted=2, repeated=0, corrected=0, kept=0, refused={})
        """
        entries = label_entries(ids, labels, correct=correct, cannot_say=cannot_say)
        counts, refused = dict.fromkeys(Labelled._fields[:4], 0), {}
        for first in range(0, len(entries), ROWS):
            body = dumped({"labels": entries[first : first + ROWS]})
            answer = self._line.call("POST", "/v1/labels", body)
            try:
                for name in counts:
                    counts[name] += answer.get(name, 0)
                for row in answer["rows"]:
                    if row["result"] == "refused":
                        refused[row["id"]] = str(row.get("why", ""))
            except (LookupError, TypeError):
                self._line.refuse("what became of labels", answer)
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
        """Take rows that wait for review; nobody else gets them for a while.

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
        asked = {"reviewer": reviewer, "order": order, "count": count}
        more = {"seconds": seconds, "skip": list(skip) or None}
        answer = self._send("POST", "/v1/review/lease", {**asked, **more})
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

        Returns what became of it: "counted", or "repeated" or "corrected" where the
        row had a label.
        """
        labels, truths = (
            [one] if one is not None else None for one in (label, correct)
        )
        (said,) = label_entries(
            [lease.id], labels, correct=truths, cannot_say=cannot_say
        )
        return self._answer(lease, said)

    def release(self, lease: Lease) -> str:
        """Give a leased row back, for another person to answer."""
        return self._answer(lease, {"release": True})

    def _answer(self, lease: Lease, said: dict[str, Any]) -> str:
        content = {"id": lease.id, "lease": lease.lease, **said}
        answer = self._send("POST", "/v1/review/answer", content)
        return str(answer.get("result", ""))

    def status(self) -> dict[str, Any]:
        """Return how the service does: gate, traffic, watch, alarms, review, latency.

        ``status()["watch"]["tests"]`` has the verdict and the estimate of each promise.
        """
        return self._send("GET", "/v1/status")

    def gates(self) -> list[dict[str, Any]]:
        """Return the versions of the gate, the newest first."""
        answer = self._send("GET", "/v1/gates")
        if not isinstance(answer.get("gates"), list):
            self._line.refuse("gates", answer)
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
            Rows from then on count; a datetime knows its time zone. After an alarm it
            is needed.
        confidence : float, optional
            Of the promise; by default that of the current gate.
        note : str, optional
        targets : float
            As in `calibrate`: frr=0.05. By default those of the current gate.
        """
        content = {
            "since": read_time(since),
            "targets": targets or None,
            "confidence": confidence,
            "note": note,
        }
        return self._send("POST", "/v1/recalibrate", content, once=True)

    def promote(self, version: int, *, anyway: bool = False) -> dict[str, Any]:
        """Let a version decide from now on.

        `anyway` also promotes a gate that rejects or accepts every row.
        """
        path = f"/v1/gates/{read_version(version)}/promote"
        return self._send("POST", path, {"anyway": anyway or None})

    def rollback(self) -> dict[str, Any]:
        """Let the version before decide again."""
        return self._send("POST", "/v1/gates/rollback", {}, once=True)

    def shadow(self, version: int | None) -> dict[str, Any]:
        """Let a version decide beside the current one, unheard; None ends that."""
        if version is None:
            return self._send("DELETE", "/v1/gates/shadow")
        return self._send("POST", f"/v1/gates/{read_version(version)}/shadow", {})

    def row(self, name: str) -> dict[str, Any]:
        """Return all that is known of a row, with the history of its labels."""
        return self._send("GET", f"/v1/rows/{quote(str(name), safe='')}")

    def forget(self, name: str) -> dict[str, Any]:
        """Remove what is known of a row."""
        return self._send("DELETE", f"/v1/rows/{quote(str(name), safe='')}")

    def _send(
        self, method: str, path: str, content: Any = None, *, once: bool = False
    ) -> dict[str, Any]:
        """Call the service; fields that are None are left out."""
        if content is not None:
            known = {name: one for name, one in content.items() if one is not None}
            content = dumped(known)
        return self._line.call(method, path, content, once=once)

    def _records(self, kind: type[Record], rows: Any) -> list[Record]:
        """Return rows of an answer; fields that a newer service adds are left out."""
        out: list[Record] = []
        try:
            for row in rows:
                known = {name: row[name] for name in kind._fields if name in row}
                known["doubt"] = float(known["doubt"])  # infinities are words
                out.append(kind(**known))
        except (LookupError, TypeError, ValueError):
            self._line.refuse("rows", rows)
        return out
