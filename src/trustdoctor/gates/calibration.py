"""Calibration: from labelled predictions and a target to a gate with a certificate.

The pipeline is `run_calibration`, from top to bottom:

    draw     one row of each cluster; rows that a shortlist or the choice of the score
             needs are set aside, and have no part in the threshold
    choose   the score
    score    the rows
    cut      by the rule of the target, for all rows and for each group
    certify  the promise of the cut

The threshold is valid because the rows that set it chose nothing else: each rule is a
test on rows that are exchangeable with those to come (docs/guarantees.md; the theorems
are named in `rules` and `risk`).
"""

import math
import sys
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from trustdoctor.arrays import Array, as_groups
from trustdoctor.errors import InputError, OddLabelsWarning
from trustdoctor.evaluation import (
    LabelReport,
    constant_scores,
    is_constant,
    reversed_note,
    score_and_check_labels,
)
from trustdoctor.gates import rules
from trustdoctor.gates.calibration_rows import (
    CalibrationRows,
    cluster_note,
    draw_from_clusters,
)
from trustdoctor.gates.certificate import ODD_LABELS
from trustdoctor.gates.certification import certify
from trustdoctor.gates.classes import classes_of
from trustdoctor.gates.gate import Gate, on_confidences
from trustdoctor.gates.groups import (
    GIVEN,
    PREDICTED,
    GroupThreshold,
    cut_groups,
    split_groups,
)
from trustdoctor.gates.label_draw import LabelDraw
from trustdoctor.gates.outcome import (
    NO_OUTCOME,
    ClassCounts,
    Outcome,
    known_errors,
)
from trustdoctor.gates.request import (
    Request,
    TargetValue,
    choose_request,
    make_requests,
    requested_targets,
)
from trustdoctor.gates.rules import Cut, Mode
from trustdoctor.gates.sample import Rows, Sample, as_sample
from trustdoctor.gates.score_choice import AUTO, ScoreChoice, choose_score
from trustdoctor.gates.shortlist_calibration import (
    is_order_statistic,
    shortlist_options,
    split_note,
)
from trustdoctor.gates.shortlist_calibration import (
    shortlist as add_shortlist,
)
from trustdoctor.gates.shortlists import require_classes
from trustdoctor.gates.targets import TARGETS
from trustdoctor.metrics import Sketch
from trustdoctor.predictions import Predictions
from trustdoctor.scores import Score, default_score, find_score

CONSTANT_SCORE = "{} gives all rows one value, which cannot tell them apart"


def calibrate(  # noqa: PLR0913 - options, by keyword only
    predictions: Predictions,
    *,
    risk: TargetValue = None,
    frr: TargetValue = None,
    trr: TargetValue = None,
    joint: TargetValue = None,
    coverage: TargetValue = None,
    cost: float | None = None,
    threshold: float | None = None,
    target: Mapping[str, TargetValue] | None = None,
    score: str | Score | None = None,
    temperature: float = 1.0,
    confidence: float = 0.9,
    mode: Mode | None = None,
    label_noise: float = 0.0,
    groups: str | ArrayLike | None = None,
    grouped_by: str = "",
    clusters: ArrayLike | None = None,
    seed: int = 0,
    shortlist: float | Mapping[str, Any] | None = None,
    draw: LabelDraw | None = None,
) -> Gate:
    """Choose the threshold that keeps a promise on rows to come.

    The gate scores by itself, so score and threshold cannot disagree. Give one target,
    or two: frr with trr, or risk with coverage, frr or trr.

    Parameters
    ----------
    predictions : Predictions
        Calibration rows that had no part in choosing the score. All targets but
        `coverage` and `threshold` need labels; rows without one are then left out.
    risk, frr, trr, joint, coverage, cost, threshold : float, or sequence of float
        The target. Several values must have been fixed before anybody looked at these
        rows: they share the level, and the strictest that can be promised is taken.

        risk : at most this share of the accepted predictions is wrong.
        frr : at most this share of the correct predictions is rejected.
        trr : at least this share of the errors is rejected.
        joint : at most this share of all predictions is both wrong and accepted.
        coverage : at least this share of the predictions is accepted.
        cost : an error let through costs as much as this number of rejections. No
            promise.
        threshold : the threshold itself, chosen by other means. No promise.
    target : dict, optional
        The same by name, for targets of your own: ``{"share": 0.5}``.
    score : str or Score, optional
        A name from `SCORES`, or a fitted score, as `compare` recommends it. By default
        alpha, or the confidence of answers that have one. "auto": `tune` chooses it for
        the target on a random third of the rows, 2,000 at most, which then have no part
        in the promise.
    temperature : float
        Divides the logits, for a score that has a temperature.
    confidence : float
        The probability, over calibrations, that the promise holds.
    mode : str, optional
        "confidence" (the default), or "expectation": the promised rate holds on average
        over calibrations, so single ones break it; for `risk` read the certificate's
        notes on that. Not for two targets; `cost` promises nothing.
    label_noise : float
        The share of labels that may be wrong, independently of the score; the promise
        is then about the truth, not about the labels.
    groups : str or array (n,), optional
        A threshold and a promise for each group with enough rows; all promises hold
        together at `confidence`. "predicted": by predicted class. "given": by
        `predictions.groups`. Or each row's group.
    grouped_by : str
        The name of groups that are passed as an array.
    clusters : array (n,), optional
        Each row's cluster (a patient, a video), if rows are not independent. One row is
        drawn from each, and the promise is for a random row of a random cluster.
    seed : int
        Of that draw.
    shortlist : float or dict, optional
        Also give each rejected row a list of classes that holds the true one with this
        probability; a dict holds options of `shortlist`. If the target is one of frr,
        trr, joint, coverage and threshold, without groups, the same rows set both; else
        a third of them sets the lists, and has no part in the gate.
    draw : LabelDraw, optional
        How `trustdoctor.draw` chose the rows that were labelled: all of them, in any
        order, labelled or not. Rows that `td.read` read from a file of `trustdoctor
        draw` know it.

    Returns
    -------
    Gate
        With its certificate. If the rows are too few, the gate accepts or rejects
        everything, and its certificate says how often calibrations on such rows
        succeed.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> logits = 3 * rng.normal(size=(2000, 4))
    >>> labels = np.where(rng.random(2000) < 0.9, logits.argmax(1), 0)
    >>> gate = calibrate(Predictions.from_logits(logits, labels), frr=0.05)
    >>> gate.certificate.promise()
    'at most 5% of the correct predictions rejected, with confidence 0.9'
    """
    targets = requested_targets(
        target,
        risk=risk,
        frr=frr,
        trr=trr,
        joint=joint,
        coverage=coverage,
        cost=cost,
        threshold=threshold,
    )
    requests = make_requests(
        mode=mode,
        confidence=confidence,
        label_noise=label_noise,
        **targets,
    )
    return run_calibration(
        predictions,
        requests,
        score=score,
        temperature=temperature,
        groups=groups,
        grouped_by=grouped_by,
        clusters=clusters,
        seed=seed,
        shortlist=shortlist,
        draw=draw,
    ).gate


def calibrate_scores(  # noqa: PLR0913 - options, by keyword only
    scores: ArrayLike | Sketch,
    errors: ArrayLike | None = None,
    *,
    risk: TargetValue = None,
    frr: TargetValue = None,
    trr: TargetValue = None,
    joint: TargetValue = None,
    coverage: TargetValue = None,
    cost: float | None = None,
    threshold: float | None = None,
    target: Mapping[str, TargetValue] | None = None,
    confidence: float = 0.9,
    mode: Mode | None = None,
    label_noise: float = 0.0,
    groups: ArrayLike | None = None,
    grouped_by: str = "",
    clusters: ArrayLike | None = None,
    seed: int = 0,
) -> Gate:
    """Choose a threshold for scores of your own; the gate has no score.

    Parameters
    ----------
    scores : array (n,), or Sketch
        Doubts of calibration rows, higher meaning trust less; or a sketch of them and
        of their errors, whose threshold lies on the safe side of the rows' own.
    errors : bool array (n,), optional
        Whether each prediction is wrong; not needed for `coverage` and `threshold`.
    risk, frr, trr, joint, coverage, cost, threshold, target
        The target, as in `calibrate`.
    confidence, mode, label_noise
        As in `calibrate`.
    groups, grouped_by
        Each row's group, and what the groups are.
    clusters, seed
        Each row's cluster, from which one row is drawn, as in `calibrate`.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> errors = rng.random(2000) < 0.1
    >>> gate = calibrate_scores(rng.normal(size=2000) + 2 * errors, errors, risk=0.05)
    >>> gate.score is None, gate.accept([-2.0, 9.0])
    (True, array([ True, False]))
    """
    if isinstance(scores, Predictions):
        message = "expected scores (n,), got predictions. Use calibrate(predictions)."
        raise InputError(message)
    targets = requested_targets(
        target,
        risk=risk,
        frr=frr,
        trr=trr,
        joint=joint,
        coverage=coverage,
        cost=cost,
        threshold=threshold,
    )
    requests = make_requests(
        mode=mode,
        confidence=confidence,
        label_noise=label_noise,
        **targets,
    )
    sample, notes = as_sample(scores, errors), tuple[str, ...]()
    if clusters is not None:
        sample, groups, notes = _one_score_per_cluster(sample, clusters, groups, seed)
    gate = calibrate_sample(
        sample, requests, groups=groups, grouped_by=grouped_by or GIVEN
    )
    return gate.with_notes(*notes)


def _one_score_per_cluster(
    sample: Sample, clusters: Any, groups: Any, seed: int
) -> tuple[Sample, Any, tuple[str, ...]]:
    """Return one row of each cluster, its group, and a note on the draw."""
    if not isinstance(sample, Rows):
        message = "clusters need all rows, and a sketch counts them. Pass the scores."
        raise InputError(message)
    n = len(sample)
    drawn = draw_from_clusters(clusters, rows=n, seed=seed)
    groups = None if groups is None else as_groups(groups, rows=n)[drawn]
    return sample[drawn], groups, (cluster_note(len(drawn), n, seed),)


@dataclass(frozen=True, eq=False)
class Calibration:
    """A gate, and what made it: advice on a calibration needs both.

    Attributes
    ----------
    gate : Gate
    requests : list of Request
        One for each candidate value, strictest first.
    sample : Sample
        The doubts and errors that set the threshold.
    predictions : Predictions or None
        The rows that they belong to, if all are in memory.
    choice : ScoreChoice or None
        If some of the rows chose the score.
    """

    gate: Gate
    requests: list[Request]
    sample: Sample
    predictions: Predictions | None = None
    choice: ScoreChoice | None = None


def run_calibration(  # noqa: C901, PLR0913 - the steps of a calibration, in order
    predictions: Predictions,
    requests: list[Request],
    *,
    score: str | Score | None = None,
    temperature: float = 1.0,
    groups: Any = None,
    grouped_by: str = "",
    clusters: Any = None,
    seed: int = 0,
    shortlist: Any = None,
    draw: LabelDraw | None = None,
) -> Calibration:
    """Draw the rows, choose the score, score, cut and certify; see `calibrate`."""
    rows = CalibrationRows.of(predictions, groups)
    if draw is None and predictions.draw_design:
        draw = LabelDraw.from_text(predictions.draw_design)
    if draw is not None:
        score = score or draw.score
        _check_draw_options(score, shortlist, clusters)
        requests = [replace(request, looks=draw.looks) for request in requests]
    rows, cluster_notes = rows.one_per_cluster(clusters, seed)
    list_settings = None if shortlist is None else shortlist_options(shortlist)
    list_rows = None
    if list_settings is not None and not _can_list_same_rows(rows, requests, score):
        rows, list_rows = rows.set_list_rows_aside()
    n_gate_rows = len(rows.predictions)

    chosen_score, rows, choice = _chosen_score(score, temperature, rows, requests[0])

    notes, label_report = rows.notes(), LabelReport()
    if requests[0].needs_labels and rows.predictions.has_label.any():
        doubts, label_report = score_and_check_labels(rows.predictions, chosen_score)
    else:
        doubts = np.asarray(chosen_score(rows.predictions))
    if draw is not None:
        draw.check(doubts, chosen_score, requests[0].target)
    if requests[0].needs_labels:
        rows, doubts, missing_notes = rows.leave_out_unlabelled(doubts)
        notes = (*notes, *label_report.notes, *missing_notes)
    errors = known_errors(rows.predictions)
    sample = as_sample(doubts, errors, rounding=chosen_score.rounding)

    gate = calibrate_sample(
        sample,
        requests,
        score=chosen_score,
        groups=rows.groups,
        grouped_by=groups if isinstance(groups, str) else grouped_by or GIVEN,
        notes=notes,
        odd_labels=label_report.odd,
        n_always_rejected=_n_always_rejected(rows.predictions),
    )
    gate = replace(
        gate,
        on_confidences=on_confidences(rows.predictions),
        classes=classes_of(rows.predictions),
        decided_by=rows.predictions.decided_by,
    ).with_notes(*_neglected_class_notes(gate, rows, doubts))
    if choice is not None:
        gate = gate.with_notes(*choice.notes(gate, rows.predictions))

    if list_settings is not None:
        gate = _with_lists(gate, rows, list_rows, n_gate_rows, list_settings)
    gate = gate.with_notes(*cluster_notes)
    if draw is not None:
        gate = draw.within(gate)
    return Calibration(gate, requests, sample, rows.predictions, choice)


def _check_draw_options(score: str | Score, shortlist: Any, clusters: Any) -> None:
    """Refuse what labels that were drawn for one score and a gate do not allow."""
    if score == AUTO or shortlist is not None or clusters is not None:
        message = (
            "rows that trustdoctor draw chose for a named score and a gate choose no "
            "score, set no lists, and have no clusters. Leave score='auto', shortlist "
            "and clusters out."
        )
        raise InputError(message)


def _n_always_rejected(predictions: Predictions) -> int:
    always_rejected = predictions.always_rejected
    return 0 if always_rejected is None else int(always_rejected.sum())


def _neglected_class_notes(
    gate: Gate, rows: CalibrationRows, doubts: Array
) -> Iterator[str]:
    """Say which predicted classes the gate rarely accepts."""
    if gate.state == "threshold" and gate.grouped_by != PREDICTED:
        accepted = np.asarray(gate.accept(doubts, groups=rows.groups))
        counts = ClassCounts.of(rows.predictions, accepted)
        if counts is not None and counts.neglected():
            yield counts.neglected()


def _can_list_same_rows(
    rows: CalibrationRows, requests: list[Request], score: Any
) -> bool:
    """Return whether the rows that set the threshold may set the lists as well.

    They may if the threshold lies next to an order statistic of known rank, so that a
    calibration row and a new one can change places (Jin and Ren 2024).
    """
    require_classes(rows.predictions)
    return (
        rows.groups is None
        and score != AUTO
        and (requests[0].needs_labels or bool(rows.predictions.has_label.all()))
        and len(requests) == 1
        and is_order_statistic(requests[0].target)
    )


def _with_lists(
    gate: Gate,
    rows: CalibrationRows,
    list_rows: CalibrationRows | None,
    n_gate_rows: int,
    settings: dict[str, Any],
) -> Gate:
    """Return the gate with lists that its own rows, or those set aside, calibrate."""
    if list_rows is None:
        return add_shortlist(gate, rows.predictions, **settings)
    groups, predictions = list_rows.groups, list_rows.predictions
    gate = add_shortlist(gate, predictions, groups=groups, **settings)
    return gate.with_notes(split_note(len(predictions), n_gate_rows))


def _chosen_score(
    score: str | Score | None,
    temperature: float,
    rows: CalibrationRows,
    request: Request,
) -> tuple[Score, CalibrationRows, ScoreChoice | None]:
    """Return the score, and the rows that had no part in choosing it."""
    if score == AUTO:
        choice = choose_score(rows.predictions, request, temperature=temperature)
        return choice.score, rows[choice.calibrating_rows], choice
    name_or_score = score or default_score(rows.predictions)
    return find_score(name_or_score, temperature=temperature), rows, None


def calibrate_rows(  # noqa: PLR0913 - options, by keyword only
    scores: Any,
    errors: Any,
    *,
    requests: list[Request],
    score: Score,
    groups: Any = None,
    grouped_by: str = GIVEN,
    n_always_rejected: int = 0,
) -> Gate:
    """Calibrate on doubts that `score` has about these rows, for adapters.

    An adapter scores by itself if its doubts are about other labels than those of the
    largest logits.
    """
    return calibrate_sample(
        as_sample(scores, errors, rounding=score.rounding),
        requests,
        score=score,
        groups=groups,
        grouped_by=grouped_by,
        n_always_rejected=n_always_rejected,
    )


def calibrate_sample(  # noqa: PLR0913 - what a gate is made of
    sample: Sample,
    requests: list[Request],
    *,
    score: Score | None = None,
    groups: Any = None,
    grouped_by: str = GIVEN,
    notes: tuple[str, ...] = (),
    odd_labels: tuple[str, ...] = (),
    n_always_rejected: int = 0,
) -> Gate:
    """Cut a sample by the strictest request that it allows, and certify the cut.

    The score of `n_always_rejected` rows is inf. `odd_labels` says what is odd about
    the labels, for a warning and a note.
    """
    request = choose_request(sample, requests)
    _require_labels(sample, request)
    score_name = "the score" if score is None else score.name
    odd_notes = _warn_of_odd_labels(sample, request, odd_labels, score_name)
    notes = (*odd_notes, *notes, *_candidate_notes(sample, request, requests, groups))
    if request.promised:
        notes += constant_scores({score_name: sample.counts})

    def adjust(cut: Cut, rows: Sample) -> Cut:
        """Return the cut, changed if rows have the score inf or all the same score."""
        cut = _below_infinity(cut, rows, request, n_always_rejected)
        return _on_constant_score(cut, rows, score_name) if request.promised else cut

    samples = None if groups is None else split_groups(sample, groups, request)
    cut = adjust(request.cut_all(sample), sample)
    threshold = rules.threshold_of(cut, sample)
    notes += _moved_note(request, threshold)
    pooled, group_cuts = GroupThreshold(threshold, cut.state), None
    if samples is not None:
        group_cuts = cut_groups(samples, request, pooled, adjust)
    thresholds = group_cuts.thresholds if group_cuts else {}
    outcome = (
        _outcome(sample, pooled)
        if samples is None
        else _outcome_of_groups(samples, thresholds)
    )
    return Gate(
        threshold,
        score,
        state=cut.state,
        certificate=certify(
            request, sample, cut, outcome, group_cuts=group_cuts, notes=notes
        ),
        groups=thresholds,
        grouped_by=grouped_by if group_cuts else "",
    )


def _moved_note(request: Request, threshold: float) -> tuple[str, ...]:
    """Say if a threshold chosen by hand was moved to leave room for rounding."""
    requested = request.target.get("threshold", threshold)
    if requested == threshold or not math.isfinite(threshold):
        return ()
    return (
        f"The threshold {requested!r} lies on scores of these rows, which other "
        f"runtimes round differently. It was moved to {threshold!r}, so that all of "
        "them accept these rows.",
    )


def _candidate_notes(
    sample: Sample, request: Request, requests: list[Request], groups: Any
) -> Iterator[str]:
    """Say that the value is one of several candidates, and what the choice cost."""
    if request.candidates == 1:
        return
    ((name, value),) = request.target.items()
    values = ", ".join(
        f"{100 * v:.6g}%" for v in sorted(other.target[name] for other in requests)
    )
    cut = request.cut_all(sample)
    rank = "strictest" if not cut.failed else "least strict"
    allowed = "that these rows allow" if not cut.failed else "and none passed"
    yield (
        f"{100 * value:.6g}% is the {rank} of {request.candidates} values fixed in "
        f"advance ({values}) {allowed}. Each was tested at 1/{request.candidates} of "
        "the level, so that the choice costs no confidence."
    )
    if groups is not None:  # the pooled threshold does not decide their rows
        return
    alone = request.cut(sample, 1 - request.confidence)
    coverages = [_share_accepted(sample, c) for c in (cut, alone)]
    if None not in coverages:
        yield (
            f"Requested alone, {100 * value:.6g}% would accept {coverages[1]:.1%} of "
            f"these rows; with the choice it is {coverages[0]:.1%}."
        )


def _share_accepted(sample: Sample, cut: Cut) -> float | None:
    """Return the share of the rows that a cut accepts; None if it is unknown."""
    if cut.state != "threshold":
        return float(cut.state == "accept-all")
    counts = sample.confusion(rules.threshold_of(cut, sample))
    return None if counts is None else counts.coverage


def _require_labels(sample: Sample, request: Request) -> None:
    needs_labels = [target.name for target in request.targets if target.needs_labels]
    if needs_labels and not sample.labelled:
        label_free = " and ".join(n for n, t in TARGETS.items() if not t.needs_labels)
        message = (
            f"{needs_labels[0]} needs to know which predictions are wrong: by labels, "
            f"or of answers by correct= (--correct NAME); only {label_free} do "
            "without. calibrate_unlabelled (--no-labels) trusts the model itself."
        )
        raise InputError(message)


def _warn_of_odd_labels(
    sample: Sample, request: Request, odd_labels: tuple[str, ...], score_name: str
) -> tuple[str, ...]:
    """Warn of labels that cannot be right, and return the warnings as notes."""
    if not request.needs_labels:
        return ()
    reversed_labels = reversed_note(sample.counts, score_name)
    odd = (*odd_labels, reversed_labels) if reversed_labels else odd_labels
    if odd:
        # The fifth frame is the caller of `calibrate`.
        warnings.warn(" ".join(odd), OddLabelsWarning, stacklevel=5)
    return tuple(f"{ODD_LABELS} {line}" for line in odd)


def _on_constant_score(cut: Cut, sample: Sample, score_name: str) -> Cut:
    """Return a threshold on a constant score as what it does: accept all, or none."""
    if cut.state != "threshold" or not is_constant(sample.counts):
        return cut
    largest = sample.of_kind("all").kth(len(sample))[1]
    accepts_all = rules.threshold_of(cut, sample) >= largest
    state: Any = "accept-all" if accepts_all else "reject-all"
    return replace(cut, state=state, trivial=CONSTANT_SCORE.format(score_name))


def _below_infinity(
    cut: Cut, sample: Sample, request: Request, n_always_rejected: int
) -> Cut:
    """Return a cut that rejects rows of score inf; refuse if that breaks the promise.

    Such rows are rejected in any case, so they alone may break a promise that few rows
    are rejected.
    """
    is_finite = cut.state == "threshold" and rules.threshold_of(cut, sample) < math.inf
    if not n_always_rejected or is_finite or cut.state == "reject-all":
        return cut
    if any(target.safe_side == "accept" for target in request.targets):
        message = (
            f"{' and '.join(request.target)} cannot be promised on these rows: "
            f"{n_always_rejected:,} of {len(sample):,} are ambiguous or have no answer "
            "or confidence, and those are always rejected. Ask for less, or for trr, "
            "risk or joint."
        )
        raise InputError(message)
    return replace(cut, state="threshold", score=sys.float_info.max, side="exact")


def _outcome_of_groups(
    samples: dict[Any, Sample], thresholds: dict[Any, GroupThreshold]
) -> Outcome | None:
    """Count what the thresholds do to their groups; None if that is unknown."""
    total = NO_OUTCOME
    for name, group_sample in samples.items():
        outcome = _outcome(group_sample, thresholds[name])
        if outcome is None:
            return None
        total += outcome
    return total


def _outcome(sample: Sample, threshold: GroupThreshold) -> Outcome | None:
    if threshold.state != "threshold":
        return Outcome.of_state(threshold.state, sample.n_errors, len(sample))
    confusion = sample.confusion(threshold.threshold)
    if confusion is None:  # the threshold lies within a range of a sketch
        return None
    return Outcome(confusion.n, confusion.n_accepted, confusion)
