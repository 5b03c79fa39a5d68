"""Calibration of shortlists, on the rows that set the gate's threshold or on others.

On other rows the threshold is the ceil((m + 1) level)-th smallest nonconformity of the
true class, over the m rows that the gate rejects: split conformal prediction (Vovk et
al. 2005, chapter 4) with the gate's decision as the category (Mondrian, section 4.5).

On the rows that set the gate's threshold the rejected rows are a selection, and a new
row has a part in it: had it been a calibration row, and one of these the new row, the
threshold could differ. So the reference set holds the rows that would still be rejected
if the new row, an error and rejected, took their place (Jin and Ren 2024). A new row
that is correct needs no list, since the prediction is on every list. If the threshold
lies next to an order statistic, the reference set holds all rejected errors, and the
rejected correct rows that one more error would leave rejected; but not the row next to
the threshold, whose membership depends on the new row. One more row, which no list
covers, makes up for it.

If rows were counted in ranges of scores, the threshold lies next to the end of a range,
which its rows move. An error belongs to the reference set if it lies beyond all ranges
where the threshold could then be; one within them counts as a row that no list covers.

References
----------
Vovk, Gammerman and Shafer, Algorithmic Learning in a Random World, 2005.
Jin and Ren, Confidence on the Focal: Conformal Prediction with Selection-Conditional
Coverage, 2024.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from numbers import Real
from typing import Any

import numpy as np
from msgspec import structs
from numpy.typing import NDArray

from trustdoctor.arrays import Array, as_groups
from trustdoctor.errors import InputError
from trustdoctor.gates.certification import EXCHANGEABLE
from trustdoctor.gates.gate import Gate
from trustdoctor.gates.request import Request
from trustdoctor.gates.rules import Cut, as_fraction, threshold_of
from trustdoctor.gates.sample import Fingerprint, Rows, Sample
from trustdoctor.gates.shortlists import (
    FREE,
    PENALTY,
    ListRule,
    Shortlist,
    require_classes,
    row_blocks,
)
from trustdoctor.gates.targets import TARGETS
from trustdoctor.metrics import CELLS, CellScores, Sketch, fit_cells
from trustdoctor.predictions import Predictions
from trustdoctor.scores import ROUNDING

LEVEL = 0.95
SHORTLIST_SHARE = 1 / 3
"""The share of the labelled rows that set the lists if the others set the gate."""

SHORTLIST_SEED = 0
"""The seed of the permutation that splits them."""

OPTIONS = ("level", "method", "penalty", "free", "max_size")


def shortlist(  # noqa: PLR0913 - options, by keyword only
    gate: Gate,
    predictions: Predictions,
    *,
    level: float = LEVEL,
    method: str = "lac",
    penalty: float | None = None,
    free: int | None = None,
    max_size: int | None = None,
    groups: Any = None,
) -> Gate:
    """Give a gate short lists of classes for the rows that it rejects.

    A list holds the true class with probability at least `level`, among the rejected
    rows and on average over calibrations; in each group if the gate has groups.

    Parameters
    ----------
    gate : Gate
        One that scores by itself.
    predictions : Predictions
        Labelled rows that had no part in the gate. If its target is frr, trr, joint,
        coverage or threshold, they may also be the rows that set its threshold.
    level : float
        From 0.5 to below 1.
    method : str
        "lac" (the default): every class above some probability. "aps": the most
        probable classes up to some mass. "raps": as "aps", but every rank beyond the
        first `free` costs `penalty`.
    max_size : int, optional
        A longer list becomes a full review, which holds every class.
    groups : array (n,), optional
        Each row's group, for a gate with groups; by default `predictions.groups`.

    Examples
    --------
    >>> from trustdoctor import calibrate
    >>> rng = np.random.default_rng(0)
    >>> logits = rng.normal(size=(4000, 5)) * 2
    >>> labels = [rng.choice(5, p=np.exp(z) / np.exp(z).sum()) for z in logits]
    >>> p = Predictions.from_logits(logits, labels)
    >>> gate = shortlist(calibrate(p[:2000], frr=0.05), p[2000:])
    >>> gate.screen(p).shortlist.shape
    (4000, 5)
    """
    require_scoring_gate(gate)
    require_classes(predictions)
    uncalibrated = uncalibrated_shortlist(
        predictions.n_classes,
        level=level,
        method=method,
        penalty=penalty,
        free=free,
        max_size=max_size,
    )
    if gate.groups and groups is None:
        groups = gate.groups_of(predictions)
    labelled, doubts = predictions.has_label, np.asarray(gate.doubts(predictions))
    rows = predictions.labelled("a shortlist")
    if groups is not None:
        groups = as_groups(groups, rows=len(labelled))[labelled]
    if not labelled.all():
        refuse_labelled_subset(gate, Fingerprint.of(doubts))
    return calibrate_shortlist(
        gate, uncalibrated, rows, doubts[labelled], groups=groups
    )


def uncalibrated_shortlist(  # noqa: PLR0913 - options, by keyword only
    n_classes: int,
    *,
    level: float = LEVEL,
    method: str = "lac",
    penalty: float | None = None,
    free: int | None = None,
    max_size: int | None = None,
) -> Shortlist:
    """Return a shortlist without a threshold, so that lists hold every class."""
    raps = method == "raps"
    if not raps and (penalty, free) != (None, None):
        message = f"penalty and free belong to raps, not to {method}. Leave them out."
        raise InputError(message)
    return Shortlist(
        level,
        ListRule(math.inf, 0),
        n_classes,
        method,
        penalty=(PENALTY if penalty is None else penalty) if raps else 0.0,
        free=(FREE if free is None else free) if raps else 0,
        max_size=max_size,
    )


def refuse_labelled_subset(gate: Gate, rows: Fingerprint) -> None:
    """Refuse rows that set a threshold without labels if only some have a label."""
    if gate.certificate is not None and gate.certificate.fingerprint == rows.digest:
        message = (
            "some of the rows that set the threshold have no label, and lists cannot "
            "be calibrated on the labelled ones alone: they need other rows. Split the "
            "rows, or use calibrate(..., shortlist=...), which does."
        )
        raise InputError(message)


def calibrate_shortlist(  # noqa: PLR0913 - what lists are made of
    gate: Gate,
    uncalibrated: Shortlist,
    rows: Predictions,
    doubts: Array,
    *,
    predicted: Array | None = None,
    groups: Any = None,
) -> Gate:
    """Set the threshold of lists on labelled rows, given their doubts."""
    assert rows.labels is not None
    predicted = rows.predicted if predicted is None else predicted
    errors = np.asarray(predicted != rows.labels)
    reference = ~np.asarray(gate.accept(doubts, groups=groups))
    uncovered = 0
    same_rows = are_gate_rows(gate, Fingerprint.of(doubts, errors))
    if same_rows:
        reference_set = find_reference_set(
            gate, Rows(doubts, errors, gate.require_score().rounding)
        )
        reference, uncertain = reference_set.members(doubts, errors, reference)
        uncovered = uncertain + 1
    scores = np.full(len(errors), -np.inf)  # of rows whose prediction is true
    wrong_rows = np.flatnonzero(reference & errors)
    scores[wrong_rows] = true_class_nonconformity(
        uncalibrated, rows, wrong_rows, predicted
    )
    level = uncalibrated.level
    rule = conformal_rule(scores[reference], level, uncovered=uncovered)
    group_rules: dict[Any, ListRule] = {}
    if gate.groups:
        group_of_row = as_groups(groups, rows=len(errors))
        group_rules = {
            name: conformal_rule(scores[reference & (group_of_row == name)], level)
            for name in gate.groups
        }
    calibrated = replace(
        uncalibrated, rule=rule, groups=group_rules, same_rows=same_rows
    )
    return with_shortlist(gate, calibrated)


def with_shortlist(gate: Gate, calibrated: Shortlist) -> Gate:
    """Return the gate with this shortlist, whose promise its certificate states."""
    gate = replace(gate, shortlist=calibrated)
    if gate.certificate is None:
        return gate
    certificate = structs.replace(gate.certificate, assumption=EXCHANGEABLE)
    gate = replace(gate, certificate=certificate)
    return gate.with_notes(*shortlist_notes(calibrated))


def true_class_nonconformity(
    shortlist: Shortlist, rows: Predictions, indices: Array, predicted: Array
) -> Array:
    """Return the nonconformity of the true class of the rows with these indices."""
    assert rows.labels is not None
    true_scores = np.empty(len(indices))
    for block in row_blocks((len(indices), rows.n_classes)):
        block_rows = indices[block]
        scores = shortlist.nonconformity(rows.logits[block_rows], predicted[block_rows])
        labels = rows.labels[block_rows][:, None]
        true_scores[block] = np.take_along_axis(scores, labels, 1)[:, 0]
    return true_scores


def conformal_rule(scores: Array, level: float, *, uncovered: int = 0) -> ListRule:
    """Return the threshold that covers a new row's true class with probability `level`.

    `scores` are the nonconformities of the true classes in the reference set; a further
    `uncovered` rows count as of infinite nonconformity.
    """
    m = len(scores)
    k = conformal_rank(m + uncovered, level)
    if k > m:
        return ListRule(math.inf, m)
    return ListRule(threshold_above_ties(Rows(scores, rounding=ROUNDING), k), m)


def threshold_above_ties(scores: Sample, k: int) -> float:
    """Return a threshold just above the k-th smallest score and all tied with it."""
    score = scores.of_kind("all").kth(k)[1]
    # Another runtime (ONNX, a GPU) rounds otherwise, and must list the same classes.
    margin = ROUNDING * max(1.0, abs(score)) if math.isfinite(score) else 0.0
    return score + margin


def conformal_rank(rows: int, level: float) -> int:
    """Return ceil((m + 1) level), for m rows and the level as an exact decimal.

    Of m + 1 exchangeable scores the new one is at most the k-th smallest of the others
    with probability k / (m + 1) or more.

    Examples
    --------
    >>> conformal_rank(19, 0.95), conformal_rank(9, 0.7)
    (19, 7)
    """
    # In floats 10 * 0.7 is above 7, and the rank would be 8.
    return math.ceil((rows + 1) * as_fraction(level))


def are_gate_rows(gate: Gate, rows: Fingerprint) -> bool:
    """Return whether these rows set the gate's threshold.

    If they did, they are refused unless the threshold lies next to an order statistic.
    """
    # Any other threshold would have to be found again for every row whose place a new
    # one could take.
    certificate = gate.certificate
    if certificate is None:
        return False
    unlabelled = replace(rows, labelled=False)
    if certificate.fingerprint not in (rows.digest, unlabelled.digest):
        return False
    target, several = certificate.target, certificate.candidates > 1
    if gate.groups or several or not is_order_statistic(target):
        circumstance = " in groups" if gate.groups else ""
        circumstance += " at one of several values" if several else ""
        message = (
            f"these rows set the threshold for {' and '.join(target)}{circumstance}: "
            "its lists need other rows. Split the rows, or use calibrate(..., "
            "shortlist=...), which does."
        )
        raise InputError(message)
    return True


def is_order_statistic(target: Mapping[str, Any]) -> bool:
    """Return whether a threshold lies next to an order statistic, or is chosen by hand.

    If there are several values, the rows choose one, and with it the rank.
    """
    return len(target) == 1 and all(
        TARGETS[name].by_rank and isinstance(value, Real)
        for name, value in target.items()
    )


def require_scoring_gate(gate: Any) -> None:
    """Refuse a gate that cannot get a shortlist."""
    if not isinstance(gate, Gate) or gate.score is None or gate.margins is not None:
        got = type(gate).__name__
        if isinstance(gate, Gate):
            got = "a gate without a score, or with views"
        message = (
            "expected a gate that scores predictions by itself, from calibrate, got "
            f"{got}."
        )
        raise InputError(message)
    if gate.shortlist is not None:
        message = "this gate has a shortlist. Give the gate without it."
        raise InputError(message)


def shortlist_notes(shortlist: Shortlist) -> list[str]:
    """Say what the lists promise, which rows set them, and if those are too few."""
    rule, groups = shortlist.rule, shortlist.groups
    source = "rows that had no part in the gate"
    if shortlist.same_rows:
        source = "the rows that set the threshold, by selection-conditional calibration"
    notes = [
        f"Shortlist: {shortlist.promise()}. {rule.rows:,} rejected rows set it, of "
        f"{source}."
    ]
    full_reviews = [
        name for name, list_rule in groups.items() if list_rule.threshold == math.inf
    ]
    if (not groups and rule.threshold == math.inf) or full_reviews:
        names = f" in {', '.join(map(str, full_reviews[:20]))}" if full_reviews else ""
        # The least m with conformal_rank(m + same_rows, level) <= m.
        level = as_fraction(shortlist.level)
        least = max(math.ceil((1 + shortlist.same_rows) * level / (1 - level)), 1)
        notes.append(
            f"Too few rejected rows for a list{names}, or their true classes too "
            f"improbable: each gets a full review. At least {least:,} are needed."
        )
    return notes


def split_note(list_rows: int, gate_rows: int) -> str:
    """Say how many rows set the lists, and how many the gate."""
    return (
        f"{list_rows:,} labelled rows, drawn at random, set the lists and had no part "
        f"in the gate; {gate_rows:,} others set the gate."
    )


def shortlist_options(requested: Any) -> dict[str, Any]:
    """Return the options of `shortlist`, from a level or a mapping of options."""
    if not isinstance(requested, Mapping):
        return {"level": requested}
    unknown = [name for name in requested if name not in OPTIONS]
    if unknown:
        message = (
            f"expected {', '.join(OPTIONS)} as options of a shortlist, got "
            f"{unknown[0]!r}. Leave it out."
        )
        raise InputError(message)
    return dict(requested)


@dataclass(frozen=True)
class ReferenceSet:
    """The rows that a gate would reject if a new, rejected error took their place.

    Attributes
    ----------
    correct : float
        Correct rows above this score are rejected.
    errors : tuple of float, or None
        Errors above the second number are rejected, those below the first are not, and
        between them it is uncertain. None if these are exactly the rejected errors.
    """

    correct: float
    errors: tuple[float, float] | None = None

    def members(
        self, doubts: Array, errors: Array, rejected: Array
    ) -> tuple[NDArray[np.bool_], int]:
        """Return the mask of the members, and the number of uncertain errors."""
        d = np.asarray(doubts, np.float64)
        certain_errors, uncertain = errors & rejected, 0
        if self.errors is not None:
            low, high = self.errors
            certain_errors = errors & (d > high)
            uncertain = int((errors & (low <= d) & (d <= high)).sum())
        return certain_errors | (~errors & rejected & (d > self.correct)), uncertain


def find_reference_set(gate: Gate, rows: Sample) -> ReferenceSet:
    """Return the reference set of a gate's lists among the rows that set the gate."""
    certificate = gate.certificate
    assert certificate is not None
    mode: Any = None if certificate.mode == "none" else certificate.mode
    request = Request(
        certificate.target,
        mode,
        confidence=certificate.confidence,
        label_noise=certificate.label_noise,
    )

    def find_cut(sample: Any) -> Cut:
        return request.cut(sample, 1 - certificate.confidence)

    cut = find_cut(rows)
    reproduced = (cut.state, threshold_of(cut, rows)) == (gate.state, gate.threshold)
    if reproduced and _scores_are_exact(rows):
        # If a new rejected error takes the place of a rejected error, the threshold
        # stays where it is; in the place of a correct row it is one more error.
        swapped = _ScoreRanges.of(rows).with_swap("correct", -1, math.inf)
        if swapped is None:
            return ReferenceSet(math.inf)
        return ReferenceSet(threshold_of(find_cut(swapped), swapped))
    if isinstance(rows, Rows):  # the gate was calibrated on ranges of their scores
        sketch = Sketch()
        sketch.update(rows.scores, rows.errors)
        rows = sketch.tied(rows.rounding)
    ranges = _ScoreRanges.of(rows)
    _, correct = ranges.threshold_range("correct", find_cut)
    return ReferenceSet(correct, ranges.threshold_range("errors", find_cut))


def _scores_are_exact(rows: Sample) -> bool:
    """Return whether every score is known, and would be with one score more."""
    if isinstance(rows, Sketch):
        return rows.cells.bits == 0 and len(rows.cells) < CELLS
    return rows.exact


@dataclass(frozen=True, eq=False)
class _ScoreRanges:
    """The part of a sample that rules by rank need: rows in ranges of scores."""

    low: Array
    high: Array
    correct: Array
    errors: Array
    rounding: float
    exact = True

    @classmethod
    def of(cls, rows: Sample) -> "_ScoreRanges":
        """Return ranges as wide as one more score could make them."""
        if isinstance(rows, Sketch):
            c = fit_cells(rows.cells, CELLS - 1)
            return cls(c.low, c.high, c.correct, c.errors, rows.rounding)
        counts = rows.counts
        low = np.asarray(counts.lowest, np.float64)
        high = np.asarray(counts.scores, np.float64)
        return cls(low, high, counts.correct, counts.errors, rows.rounding)

    def __len__(self) -> int:
        return int((self.correct + self.errors).sum())

    @property
    def n_errors(self) -> int:
        return int(self.errors.sum())

    def of_kind(self, kind: str) -> CellScores:
        sizes = {"correct": self.correct, "errors": self.errors}
        counts = self.correct + self.errors if kind == "all" else sizes[kind]
        return CellScores(self.low, self.high, counts)

    def with_swap(self, kind: str, position: int, score: float) -> Any:
        """Replace the first (0) or last (-1) row of a kind by an error of this score.

        None if there is no row of the kind. The score is inf or -inf.
        """
        counts = {"correct": self.correct.copy(), "errors": self.errors.copy()}
        ranges = np.flatnonzero(counts[kind])
        if not len(ranges):
            return None
        counts[kind][ranges[position]] -= 1
        index = 0 if score < 0 else len(self.low)
        return _ScoreRanges(
            np.insert(self.low, index, score),
            np.insert(self.high, index, score),
            np.insert(counts["correct"], index, 0),
            np.insert(counts["errors"], index, 1),
            self.rounding,
        )

    def threshold_range(
        self, kind: str, find_cut: Callable[[Any], Cut]
    ) -> tuple[float, float]:
        """Return the scores between which the threshold lies, whichever row is swapped.

        Both are included: a threshold half way to a score moves with it.
        """
        # A rule by rank is monotone in the scores, so the first row moved to the end
        # and the last row moved to the start give the extreme thresholds.
        lows, highs = [math.inf], [-math.inf]
        for position, score in ((0, math.inf), (-1, -math.inf)):
            swapped = self.with_swap(kind, position, score)
            if swapped is None:
                return -math.inf, math.inf
            low, high = swapped._scores_around(find_cut(swapped))
            lows.append(low)
            highs.append(high)
        return min(lows), max(highs)

    def _scores_around(self, cut: Cut) -> tuple[float, float]:
        """Return the scores next to the range that a cut lies in."""
        if cut.state != "threshold":
            end = math.inf if cut.state == "accept-all" else -math.inf
            return end, end
        if cut.side == "exact":
            return math.inf, cut.score  # nothing is between them
        scores, cell = self.of_kind("all"), int(np.searchsorted(self.high, cut.score))
        return scores.below(float(self.low[cell])), scores.above(float(self.high[cell]))
