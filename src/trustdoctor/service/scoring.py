"""Gates of the store score rows of several requests together, as if each came alone."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
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
from trustdoctor.service.request_rows import as_array, batch_key, join_requests
from trustdoctor.service.schemas import DecideRequest, Name

PROBS_SENT_AS_LOGITS = (
    "expected logits, got probabilities in all of the latest rows (not negative, "
    'sum 1). Send them as "probs".'
)


class ScoredRows(msgspec.Struct):
    """Doubts and decisions of a gate, by columns.

    Attributes
    ----------
    doubts : list of float
    accepted : list of bool
    predicted : list
        Names where the gate or the rows have them, else numbers.
    shortlists : list of lists or None, or None
        Classes, of rejected rows; None if the gate makes no shortlists.
    """

    doubts: list[float]
    accepted: list[bool]
    predicted: list[Name]
    shortlists: list[list[Name] | None] | None = None

    def split(self, sizes: Sequence[int]) -> list["ScoredRows"]:
        """Return the rows in consecutive parts of these sizes."""
        shortlists = self.shortlists
        return [
            ScoredRows(
                self.doubts[rows],
                self.accepted[rows],
                self.predicted[rows],
                None if shortlists is None else shortlists[rows],
            )
            for rows in consecutive_slices(sizes)
        ]


def consecutive_slices(sizes: Sequence[int]) -> list[slice]:
    """Return slices of these sizes, one after the other.

    Examples
    --------
    >>> consecutive_slices([2, 1])
    [slice(0, 2, None), slice(2, 3, None)]
    """
    ends = [0]
    for size in sizes:
        ends.append(ends[-1] + size)
    return [slice(*bounds) for bounds in pairwise(ends)]


@dataclass(frozen=True)
class GateVersion:
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
        """The names of the classes, if the gate knows them."""
        classes = self.gate.classes
        return classes if isinstance(classes, tuple) else None

    @property
    def n_classes(self) -> int | None:
        """The number of classes, if the gate knows it."""
        classes = self.gate.classes
        return len(classes) if isinstance(classes, tuple) else classes

    def predictions(
        self,
        request: DecideRequest,
        labels: Any = None,
        *,
        correct: Any = None,
    ) -> Predictions:
        """Return rows as predictions; labels are names or numbers, None if unknown."""
        names, values = self.names, as_array(request.values)
        if request.kind == "topk":
            return Predictions.from_topk(
                values, self._class_numbers(request), labels, n_classes=self.n_classes
            )
        features = None if request.features is None else as_array(request.features)
        options: dict[str, Any] = {"features": features}
        if request.groups is not None:
            options["groups"] = request.groups
        if request.kind in ("confidence", "doubt"):
            constructor = getattr(Predictions, f"from_{request.kind}")
            if request.predicted is not None:
                options["predicted"] = list(map(str, request.predicted))
            predictions: Predictions = constructor(values, correct, **options)
            return predictions
        if names is not None and len(names) != values.shape[1]:
            names = None  # `check_classes` says what is wrong
        options["class_names"] = names
        if request.kind == "probs":
            return Predictions.from_probs(values, labels, **options)
        with assume_logits():
            return Predictions.from_logits(values, labels, **options)

    def _class_numbers(self, request: DecideRequest) -> list[list[int]]:
        """Return the classes of top-k answers as numbers."""
        assert request.classes is not None
        numbers = {name: number for number, name in enumerate(self.names or ())}

        def as_number(label: Name) -> int:
            if type(label) is int:
                return label
            if label not in numbers:
                message = (
                    f"expected classes by number{' or name' if numbers else ''}, got "
                    f"{label!r}, which this gate does not know."
                )
                raise ProblemError(400, message)
            return numbers[str(label)]

        return [[*map(as_number, row_classes)] for row_classes in request.classes]

    def screen(self, request: DecideRequest) -> ScoredRows:
        """Score rows and decide on each."""
        gate = self.gate
        by_predicted = gate.grouped_by == PREDICTED
        if gate.groups and not by_predicted and not request.groups:
            message = (
                "expected a group in every row, as this gate has thresholds for groups "
                f"({gate.grouped_by}), got none. Send it."
            )
            raise ProblemError(400, message)
        predictions = self.predictions(request)
        groups: Any = None
        if gate.groups and not by_predicted:
            groups = request.groups
        elif gate.groups and request.kind == "topk":
            # Top-k rows are made without class names, so the gate cannot find them.
            groups = self._predicted(predictions, request)
        screened = gate.screen(predictions, groups=groups)
        return ScoredRows(
            np.asarray(screened.doubts, np.float64).tolist(),
            np.asarray(screened.accepted).tolist(),
            self._predicted(predictions, request),
            self._shortlists(screened, predictions),
        )

    def _predicted(
        self, predictions: Predictions, request: DecideRequest
    ) -> list[Name]:
        if request.kind in ("confidence", "doubt"):
            return request.predicted or [""] * len(request)
        numbers: list[Any] = np.asarray(predictions.predicted).tolist()
        names = self.names
        return numbers if names is None else [names[number] for number in numbers]

    def _shortlists(
        self, screened: Screened, predictions: Predictions
    ) -> list[list[Name] | None] | None:
        """Return the classes that rejected rows may be, the most probable first."""
        if screened.shortlist is None:
            return None
        names = self.names
        shortlists: list[list[Name] | None] = [None] * len(screened.accepted)
        for row in np.flatnonzero(~np.asarray(screened.accepted)).tolist():
            order = np.argsort(-predictions.logits[row], kind="stable")
            numbers: list[Any] = order[screened.shortlist[row][order]].tolist()
            shortlists[row] = (
                numbers if names is None else [names[number] for number in numbers]
            )
        return shortlists


def require_served(gate: Gate) -> None:
    """Refuse gates that cannot decide from a request alone, and say why."""
    reason = ""
    if gate.margins is not None:
        reason = "it asks for a second opinion, which takes the model and its data"
    elif gate.score is None:
        reason = "it names no score, so it cannot score rows by itself"
    elif gate.decided_by:
        reason = f"it is about decisions of the system's own ({gate.decided_by})"
    elif gate.score.needs & {"gradients", "model"}:
        reason = f"its score {gate.score_name} needs the model's gradients"
    if reason:
        message = (
            f"this gate cannot be served: {reason}. Calibrate one with alpha, beta or "
            "another score of logits, probabilities or confidence."
        )
        raise InputError(message)


@dataclass(frozen=True)
class ScoredBatch:
    """Requests that were scored as one.

    Attributes
    ----------
    request_indices : list of int
        Which of the requests that were to be scored they are.
    requests : list of DecideRequest
    joined : DecideRequest
        All their rows, in order.
    scored : ScoredRows or Exception
        The decisions on all rows, or why there are none.
    """

    request_indices: list[int]
    requests: list[DecideRequest]
    joined: DecideRequest
    scored: ScoredRows | Exception


class Scorer:
    """Scores what concurrent requests bring, by one call per kind of row."""

    def __init__(self) -> None:
        self._rows_like_probs = 0  # the latest, without another row between them

    def score(
        self, version: GateVersion, requests: Sequence[DecideRequest]
    ) -> list[ScoredRows | Exception]:
        """Return the decisions on each request, or why there are none."""
        results: dict[int, ScoredRows | Exception] = {}
        for batch in self.score_together(version, requests):
            scored = batch.scored
            if isinstance(scored, Exception):
                results |= dict.fromkeys(batch.request_indices, scored)
            else:
                parts = scored.split([*map(len, batch.requests)])
                results |= zip(batch.request_indices, parts, strict=True)
        return [results[index] for index in range(len(requests))]

    def score_together(
        self, version: GateVersion, requests: Sequence[DecideRequest]
    ) -> list[ScoredBatch]:
        """Return the decisions on all requests, in batches of like rows."""
        indices_by_key: dict[Any, list[int]] = {}
        for index, request in enumerate(requests):
            indices_by_key.setdefault(batch_key(request), []).append(index)
        batches = []
        for indices in indices_by_key.values():
            alike = [requests[index] for index in indices]
            batches += self._score_batch(version, indices, alike)
        return batches

    def _score_batch(
        self, version: GateVersion, indices: list[int], requests: list[DecideRequest]
    ) -> list[ScoredBatch]:
        joined = join_requests(requests)
        scored: ScoredRows | Exception
        if joined.kind == "logits" and self._look_like_probs(joined):
            scored = ProblemError(400, PROBS_SENT_AS_LOGITS)
            return [ScoredBatch(indices, requests, joined, scored)]
        try:
            scored = version.screen(joined)
        except (TrustDoctorError, ValueError, OverflowError) as error:
            if len(requests) > 1:  # one is wrong, and the others are not to suffer
                return [
                    self._score_batch(version, [index], [request])[0]
                    for index, request in zip(indices, requests, strict=True)
                ]
            scored = error
        return [ScoredBatch(indices, requests, joined, scored)]

    def _look_like_probs(self, request: DecideRequest) -> bool:
        first = request.values[0]
        # The first row answers for nearly all logits, at no cost.
        like_probs = min(first) >= 0 and abs(sum(first) - 1) < 0.01
        like_probs = like_probs and on_simplex(as_array(request.values))
        # Some logits look like that by chance; many rows in succession do not.
        self._rows_like_probs = (
            self._rows_like_probs + len(request) if like_probs else 0
        )
        return self._rows_like_probs >= MIN_SIMPLEX_ROWS
