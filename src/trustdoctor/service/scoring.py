"""Scoring rows of several requests together, each as if it had come alone."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, chain, pairwise
from typing import Any

import msgspec
import numpy as np

from trustdoctor.errors import InputError, TrustDoctorError
from trustdoctor.gates import PREDICTED, Gate, Screened
from trustdoctor.predictions import (
    MIN_SIMPLEX_ROWS,
    Predictions,
    assume_logits,
    on_simplex,
)
from trustdoctor.service.problems import ProblemError
from trustdoctor.service.request_rows import as_array, digests_of
from trustdoctor.service.schemas import DecideRequest, Name
from trustdoctor.service.times import made_ids

LOOK_LIKE_PROBS = (
    "expected logits, but the latest rows are all probabilities (not negative, sum 1). "
    'Send them as "probs".'
)


class Scored(msgspec.Struct):
    """What a gate says of the rows of one request.

    Attributes
    ----------
    doubts : list of float
    accepted : list of bool
    predicted : list
        Names where the gate or the rows have them, else numbers.
    shortlists : list of lists or None, or None
        Classes, of rejected rows; None where the gate has no lists.
    """

    doubts: list[float]
    accepted: list[bool]
    predicted: list[Name]
    shortlists: list[list[Name] | None] | None = None


@dataclass(frozen=True)
class Version:
    """A gate of the store.

    Attributes
    ----------
    number : int
    gate : Gate
    """

    number: int
    gate: Gate

    def __post_init__(self) -> None:
        """Refuse gates that cannot decide from a request alone."""
        require_served(self.gate)

    @property
    def names(self) -> tuple[str, ...] | None:
        """The classes by name, where the gate knows them."""
        classes = self.gate.classes
        return classes if isinstance(classes, tuple) else None

    @property
    def n_classes(self) -> int | None:
        """How many classes there are, where the gate knows."""
        classes = self.gate.classes
        return len(classes) if isinstance(classes, tuple) else classes

    def predictions(
        self,
        rows: DecideRequest,
        labels: Any = None,
        *,
        correct: Any = None,
    ) -> Predictions:
        """Return rows as predictions; labels are names or numbers, None if unknown."""
        names, values = self.names, as_array(rows.values)
        if rows.kind == "topk":
            return Predictions.from_topk(
                values, self._numbers(rows), labels, n_classes=self.n_classes
            )
        features = None if rows.features is None else as_array(rows.features)
        beside: dict[str, Any] = {"features": features}
        if rows.groups is not None:
            beside["groups"] = rows.groups
        if rows.kind in ("confidence", "doubt"):
            make = getattr(Predictions, f"from_{rows.kind}")
            said = None if rows.predicted is None else list(map(str, rows.predicted))
            made: Predictions = make(values, correct, predicted=said, **beside)
            return made
        if names is not None and len(names) != values.shape[1]:
            names = None  # `check_classes` says what is wrong
        beside |= {"class_names": names}
        if rows.kind == "probs":
            return Predictions.from_probs(values, labels, **beside)
        with assume_logits():
            return Predictions.from_logits(values, labels, **beside)

    def _numbers(self, rows: DecideRequest) -> list[list[int]]:
        """Return the classes of top-k answers as numbers."""
        assert rows.classes is not None
        places = {name: at for at, name in enumerate(self.names or ())}
        out = []
        for own in rows.classes:
            odd = [one for one in own if one not in places and type(one) is not int]
            if odd:
                message = (
                    f"expected classes by number{' or name' if places else ''}, got "
                    f"{odd[0]!r}, which this gate does not know."
                )
                raise ProblemError(400, message)
            out.append([one if type(one) is int else places[str(one)] for one in own])
        return out

    def screen(self, rows: DecideRequest) -> Scored:
        """Score rows and decide on each."""
        if self.gate.groups and self.gate.grouped_by != PREDICTED and not rows.groups:
            message = (
                "expected a group in every row, as this gate has thresholds for groups "
                f"({self.gate.grouped_by}), got none. Send it."
            )
            raise ProblemError(400, message)
        found = self.predictions(rows)
        by_class = self.gate.grouped_by == PREDICTED
        own: Any = rows.groups if self.gate.groups and not by_class else None
        if self.gate.groups and by_class and rows.kind == "topk":
            own = self._said(found, rows)  # which has no names of its own
        done = self.gate.screen(found, groups=own)
        return Scored(
            np.asarray(done.scores, np.float64).tolist(),
            np.asarray(done.accepted).tolist(),
            self._said(found, rows),
            self._lists(done, found),
        )

    def _said(self, found: Predictions, rows: DecideRequest) -> list[Name]:
        if rows.kind in ("confidence", "doubt"):
            return rows.predicted or [""] * len(rows)
        numbers: list[Any] = np.asarray(found.predicted).tolist()
        names = self.names
        return numbers if names is None else [names[at] for at in numbers]

    def _lists(
        self, done: Screened, found: Predictions
    ) -> list[list[Name] | None] | None:
        """Return the classes that rejected rows may be, the most probable first."""
        if done.shortlist is None:
            return None
        names = self.names
        out: list[list[Name] | None] = [None] * len(done.accepted)
        for row in np.flatnonzero(~np.asarray(done.accepted)).tolist():
            order = np.argsort(-found.logits[row], kind="stable")
            own: list[Any] = order[done.shortlist[row][order]].tolist()
            out[row] = own if names is None else [names[at] for at in own]
        return out


def require_served(gate: Gate) -> None:
    """Refuse gates that cannot decide from a request alone, and say why."""
    why = ""
    if gate.margins is not None:
        why = "it asks for a second opinion, which takes the model and its data"
    elif gate.score is None:
        why = "it names no score, so it cannot score rows by itself"
    elif gate.decided_by:
        why = f"it is about decisions of the system's own ({gate.decided_by})"
    elif gate.scorer.needs & {"gradients", "model"}:
        why = f"its score {gate.score} needs the model's gradients"
    if why:
        message = (
            f"this gate cannot be served: {why}. Calibrate one with alpha, beta or "
            "another score of logits, probabilities or confidence."
        )
        raise InputError(message)


@dataclass(frozen=True)
class Together:
    """Requests that were scored as one.

    Attributes
    ----------
    places : list of int
        Which of those that came they are.
    requests : list of Rows
    rows : Rows
        All of them, in order.
    done : Scored or Exception
        What the gate says of all rows, or why it cannot.
    """

    places: list[int]
    requests: list[DecideRequest]
    rows: DecideRequest
    done: Scored | Exception


class Scorer:
    """Scores what concurrent requests bring, by one call per kind of row."""

    def __init__(self) -> None:
        self._like_probs = 0  # rows in a row, sent as logits, that are probabilities

    def score(
        self, version: Version, requests: Sequence[DecideRequest]
    ) -> list[Scored | Exception]:
        """Return what the gate says of each request, or why it cannot."""
        out: list[Scored | Exception] = [ProblemError(500, "")] * len(requests)
        for own in self.together(version, requests):
            ends = [0, *accumulate(map(len, own.requests))]
            whole = own.done
            each: Sequence[Scored | Exception] = (
                [whole] * len(own.places)
                if isinstance(whole, Exception)
                else parted(whole, ends)
            )
            for at, done in zip(own.places, each, strict=True):
                out[at] = done
        return out

    def together(
        self, version: Version, requests: Sequence[DecideRequest]
    ) -> list[Together]:
        """Return what the gate says of requests that are alike, together."""
        alike: dict[Any, list[int]] = {}
        for at, rows in enumerate(requests):
            alike.setdefault(_shape(rows), []).append(at)
        out = []
        for places in alike.values():
            out += self._score(version, places, [requests[at] for at in places])
        return out

    def _score(
        self, version: Version, places: list[int], requests: list[DecideRequest]
    ) -> list[Together]:
        whole = joined(requests)
        done: Scored | Exception
        if whole.kind == "logits" and self._look_like_probs(whole):
            done = ProblemError(400, LOOK_LIKE_PROBS)
            return [Together(places, requests, whole, done)]
        try:
            done = version.screen(whole)
        except (TrustDoctorError, ValueError, OverflowError) as error:
            if len(requests) > 1:  # one is wrong, and the others are not to suffer
                each = zip(places, requests, strict=True)
                return [self._score(version, [at], [one])[0] for at, one in each]
            done = error
        return [Together(places, requests, whole, done)]

    def _look_like_probs(self, rows: DecideRequest) -> bool:
        first = rows.values[0]
        # The first row answers for nearly all logits, at no cost.
        like = min(first) >= 0 and abs(sum(first) - 1) < 0.01
        like = like and on_simplex(as_array(rows.values))
        self._like_probs = self._like_probs + len(rows) if like else 0
        return self._like_probs >= MIN_SIMPLEX_ROWS


def _shape(rows: DecideRequest) -> Any:
    """Return what rows must share to be scored together."""
    first = rows.values[0]
    return (
        rows.kind,
        len(first) if hasattr(first, "__len__") else 0,
        None if rows.features is None else len(rows.features[0]),
        None if rows.groups is None else {type(one) for one in rows.groups} == {int},
        rows.predicted is None,
    )


def joined(requests: Sequence[DecideRequest]) -> DecideRequest:
    """Return the rows of several requests as those of one."""
    first = requests[0]
    if len(requests) == 1:
        return first

    def lists(name: str) -> Any:
        if getattr(first, name) is None:
            return None
        return [one for rows in requests for one in getattr(rows, name)]

    if any(isinstance(rows.values, np.ndarray) for rows in requests):
        values = np.concatenate([as_array(rows.values) for rows in requests])
    else:
        values = lists("values")
    given = [rows.payloads or [None] * len(rows) for rows in requests]
    known = any(rows.digests is not None for rows in requests)
    ready = all(rows.answers is not None for rows in requests)
    return DecideRequest(
        first.kind,
        values,
        [one for rows in requests for one in rows.ids or made_ids(len(rows))],
        lists("classes"),
        lists("predicted"),
        lists("groups"),
        lists("features"),
        [*chain.from_iterable(given)] if any(r.payloads for r in requests) else None,
        answers=[a for rows in requests for a in rows.answers or ()] if ready else None,
        digests=[*chain.from_iterable(map(digests_of, requests))] if known else None,
    )


def parted(done: Scored, ends: list[int]) -> list[Scored]:
    """Return what is said of each request, where they begin and end."""
    return [
        Scored(
            done.doubts[first:last],
            done.accepted[first:last],
            done.predicted[first:last],
            None if done.shortlists is None else done.shortlists[first:last],
        )
        for first, last in pairwise(ends)
    ]
