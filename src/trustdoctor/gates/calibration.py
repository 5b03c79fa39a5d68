"""From labelled predictions and a target to a gate with a certificate."""

import math
import sys
import warnings
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from trustdoctor.arrays import as_groups
from trustdoctor.errors import InputError, OddLabelsWarning
from trustdoctor.evaluation import (
    LabelReport,
    check_labels,
    constant_scores,
    is_constant,
    reversed_line,
)
from trustdoctor.gates import rules
from trustdoctor.gates.asked import START, Ask
from trustdoctor.gates.certificate import ODD_LABELS
from trustdoctor.gates.certifying import certify, with_notes
from trustdoctor.gates.classes import ClassCounts, classes_of, predicted_groups
from trustdoctor.gates.clusters import (
    draw_from_clusters,
    draw_note,
    one_per_cluster,
    repeat_notes,
)
from trustdoctor.gates.deciding import PREDICTED, GroupRule
from trustdoctor.gates.gate import Gate, is_unit
from trustdoctor.gates.group_rules import group_rules, split_rows
from trustdoctor.gates.missing_labels import drop_unlabelled
from trustdoctor.gates.outcome import NO_OUTCOME, Outcome, known_errors
from trustdoctor.gates.outlook import fails
from trustdoctor.gates.rules import Cut, Mode
from trustdoctor.gates.sample import Rows, Sample, as_sample
from trustdoctor.gates.targets import TARGETS
from trustdoctor.predictions import Intake, Predictions, TopK
from trustdoctor.scores import Score, default_score, find_score

SAME_SCORE = "{} gives all rows one value, which cannot tell them apart"

AUTO = "auto"
"""The name that stands for the score that some of the rows choose."""

GIVEN = "given"
"""What `grouped_by` says where the groups are the rows' own, without a name."""


def calibrate(  # noqa: PLR0913 - options, by keyword only
    predictions: Predictions | TopK,
    *_errors: Any,  # of version 0.1, which took scores and errors
    score: str | Score | None = None,
    temperature: float = 1.0,
    confidence: float = 0.9,
    mode: Mode | None = None,
    method: str | None = None,
    min_coverage: float = START,
    label_noise: float = 0.0,
    groups: Any = None,
    grouped_by: str = "",
    clusters: Any = None,
    seed: int = 0,
    shortlist: Any = None,
    **target: Any,
) -> Gate:
    """Choose the threshold that keeps a promise on rows to come.

    The gate scores by itself, so score and threshold cannot disagree. Give one target,
    or two: frr with trr, or risk with coverage, frr or trr.

    Parameters
    ----------
    predictions : Predictions, or TopK
        Calibration rows that had no part in choosing the score. With labels, but for
        `coverage` and `threshold`; rows that have none are left out where labels are
        needed.
    score : str or Score, optional
        A name from `SCORES`, or a fitted score, as `compare` recommends it. By default
        alpha; for answers with a confidence, that. "auto": `tune` chooses it for the
        target on a third of the rows, 2,000 at most, a random part that the promise
        then does not use.
    temperature : float
        Divides the logits, for a score that has a temperature.
    confidence : float
        The probability, over calibrations, that the promise holds.
    mode : str, optional
        "confidence" (the default), or "expectation": the promised rate holds on average
        over calibrations. Not for `risk`, nor for two targets; `cost` has neither.
    method : str, optional
        For `risk`: "sequence" (the default), "sgr" or "grid" (for scores whose risk is
        not monotone).
    min_coverage : float
        For `risk` by sequence: the coverage where the main sequence starts.
    label_noise : float
        The share of labels that may be wrong, independently of the score; the promise
        is about the truth then, and not about the labels.
    groups : str or array (n,), optional
        A threshold and a promise for each group with enough rows, all promises together
        at `confidence`. "predicted": by predicted class. "given": by the predictions'
        own groups. Or each row's group.
    grouped_by : str
        What groups that are given as an array are called.
    clusters : array (n,), optional
        Each row's cluster (a patient, a video), where rows are not independent. One row
        is drawn from each, and the promise is for a random row of a random cluster.
    seed : int
        Of that draw.
    shortlist : float or dict, optional
        Also give rejected rows a list of classes that holds the true one so often; see
        `shortlist`, whose options a dict names. Where the target is one of frr, trr,
        joint, coverage and threshold, without groups, the same rows set both; else a
        third of them, which then has no part in the gate.
    target
        A value, or several that were fixed before these rows were looked at: they share
        the level, and the strictest that can be promised is taken.

        frr : at most this share of the correct predictions is rejected.
        trr : at least this share of the errors is rejected.
        risk : at most this share of the accepted predictions is wrong.
        joint : at most this share of all predictions is both wrong and accepted.
        coverage : at least this share of the predictions is accepted.
        cost : an error let through costs as much as so many rejections. No promise.
        threshold : the threshold itself, chosen otherwise (by eye, say). No promise.

    Returns
    -------
    Gate
        With its certificate. Where the rows are too few, the gate accepts or rejects
        everything and its certificate says how often calibrations on such rows succeed.

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
    _require_predictions_alone(predictions, _errors)
    options: dict[str, Any] = {"confidence": confidence, "mode": mode, "method": method}
    options |= {"min_coverage": min_coverage, "label_noise": label_noise, **target}
    if clusters is not None or shortlist is not None:
        options |= {"score": score, "temperature": temperature, "groups": groups}
        options |= {"grouped_by": grouped_by, "shortlist": shortlist}
        return _on_some(predictions, clusters, seed, options)
    if score == AUTO:
        from trustdoctor.gates.auto import choose_auto

        found = choose_auto(predictions, temperature=temperature, **options)
        return found.calibrate(groups=groups, grouped_by=grouped_by, **options)
    ready = find_score(score or default_score(predictions), temperature=temperature)
    if isinstance(groups, str):
        grouped_by, groups = groups, groups_of(predictions, groups)
    bare = Gate(0.0, score=ready, temperature=temperature)  # type: ignore[arg-type]
    return _calibrated(predictions, bare, groups, grouped_by or GIVEN, options)


def _on_some(
    predictions: Any, clusters: Any, seed: int, options: dict[str, Any]
) -> Gate:
    """Calibrate on one row per cluster, or on rows that a shortlist leaves."""
    from trustdoctor.gates.shortlist_calibration import calibrate_listed

    if clusters is None:
        return calibrate_listed(predictions, options.pop("shortlist"), options)
    some, groups, notes = one_per_cluster(
        predictions, clusters, options["groups"], seed
    )
    return with_notes(calibrate(some, **options | {"groups": groups}), *notes)


def _calibrated(
    predictions: Any, bare: Gate, groups: Any, grouped_by: str, options: dict[str, Any]
) -> Gate:
    """Calibrate on the doubts that a gate without a threshold has of the rows."""
    score, notes, odd = bare.scorer, repeat_notes(predictions), tuple[str, ...]()
    if isinstance(predictions, Predictions):
        notes = (*notes, *Intake.of(predictions).decision_lines())
    if needs_labels(options):
        odd, more = label_report(predictions)
        notes = (*notes, *more)
        kept = drop_unlabelled(predictions, score, groups)
        predictions, groups, notes = *kept[:2], (*notes, *kept[2])
    doubts = bare.doubts(predictions)
    gate = calibrate_sample(
        as_sample(doubts, known_errors(predictions), rounding=score.rounding),
        score=score,
        notes=notes,
        odd_labels=odd,
        barred=barred_rows(predictions),
        groups=groups,
        grouped_by=grouped_by,
        **options,
    )
    gate = replace(gate, unit=is_unit(predictions), classes=classes_of(predictions))
    gate = replace(gate, decided_by=getattr(predictions, "decided_by", ""))
    return with_notes(gate, *_class_notes(gate, predictions, doubts, groups))


def label_report(predictions: Any) -> LabelReport:
    """Return what looks wrong about labels, where there are some."""
    if isinstance(predictions, Predictions) and predictions.has_label.any():
        return check_labels(predictions)
    return LabelReport()


def _class_notes(
    gate: Gate, predictions: Any, doubts: Any, groups: Any
) -> Iterator[str]:
    """Say which predicted classes the gate hardly ever accepts."""
    if gate.state == "threshold" and gate.grouped_by != PREDICTED:
        accepted = np.asarray(gate.accept(doubts, groups=groups))
        counts = ClassCounts.of(predictions, accepted)
        if counts is not None and counts.neglected():
            yield counts.neglected()


def _require_predictions_alone(predictions: Any, errors: Any) -> None:
    if errors or not isinstance(predictions, (Predictions, TopK)):
        kind = type(predictions).__name__
        message = (
            f"expected Predictions alone, got {kind}{' and errors' * bool(errors)}. "
            "Build them with Predictions.from_logits or from_probs, so that the gate "
            "scores by itself; for scores of your own use calibrate_scores(scores, "
            "errors, ...)."
        )
        raise InputError(message)


def calibrate_scores(  # noqa: PLR0913 - options, by keyword only
    scores: Any,
    errors: Any = None,
    *,
    groups: Any = None,
    grouped_by: str = "",
    clusters: Any = None,
    seed: int = 0,
    **options: Any,
) -> Gate:
    """Choose a threshold for scores of your own; the gate names no score.

    Parameters
    ----------
    scores : array (n,), or Sketch
        Doubts of calibration rows, higher meaning trust less; or a sketch of them,
        which knows the errors. Its threshold lies on the safe side of that of the rows
        themselves.
    errors : bool array (n,), optional
        Where the prediction is wrong; not needed for `coverage` and `threshold`.
    groups, grouped_by
        Each row's group, and what the groups are.
    clusters, seed
        Each row's cluster, of which one row is drawn, as in `calibrate`.
    options
        Targets, confidence, mode, method, min_coverage and label_noise, as in
        `calibrate`.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> errors = rng.random(2000) < 0.1
    >>> gate = calibrate_scores(rng.normal(size=2000) + 2 * errors, errors, risk=0.05)
    >>> gate.score is None, gate.accept([-2.0, 9.0])
    (True, array([ True, False]))
    """
    if isinstance(scores, (Predictions, TopK)):
        message = "expected scores (n,), got predictions. Use calibrate(predictions)."
        raise InputError(message)
    named = {"score", "temperature"} & set(options)
    if named:
        message = (
            f"calibrate_scores takes no {sorted(named)[0]}: its gate names none. Use "
            "calibrate(predictions, score=...) for a gate that scores by itself."
        )
        raise InputError(message)
    sample, notes = as_sample(scores, errors), tuple[str, ...]()
    if clusters is not None:
        sample, groups, notes = _drawn(sample, clusters, groups, seed)
    by = grouped_by or GIVEN
    gate = calibrate_sample(sample, groups=groups, grouped_by=by, **options)
    return with_notes(gate, *notes)


def _drawn(
    sample: Sample, clusters: Any, groups: Any, seed: int
) -> tuple[Sample, Any, tuple[str, ...]]:
    """Return one row of each cluster, its group, and what to say of the draw."""
    if not isinstance(sample, Rows):
        message = "clusters need all rows, and a sketch counts them. Give the scores."
        raise InputError(message)
    n = len(sample)
    drawn = draw_from_clusters(clusters, rows=n, seed=seed)
    groups = None if groups is None else as_groups(groups, rows=n)[drawn]
    note = draw_note(len(drawn), n, seed)
    return sample[drawn], groups, (note,)


def calibrate_rows(scores: Any, errors: Any, *, score: Score, **options: Any) -> Gate:
    """Calibrate on doubts that `score` has about these rows, for adapters.

    An adapter scores by itself where the doubt is about a label that is not the
    largest logit's.
    """
    rows = as_sample(scores, errors, rounding=score.rounding)
    return calibrate_sample(rows, score=score, **options)


def needs_labels(target: dict[str, Any]) -> bool:
    """Tell whether one of the targets that are asked for needs labels."""
    asked = [name for name, value in target.items() if value is not None]
    return any(TARGETS[name].needs_labels for name in asked if name in TARGETS)


def barred_rows(predictions: Predictions | TopK) -> int:
    """Return how many rows are rejected whatever the threshold."""
    return (
        0
        if predictions.always_rejected is None
        else int(predictions.always_rejected.sum())
    )


def groups_of(predictions: Predictions | TopK, by: str) -> Any:
    """Return the groups of rows: predicted classes, or the predictions' own."""
    if by == PREDICTED:
        return predicted_groups(predictions)
    own = getattr(predictions, "groups", None)
    if by != GIVEN or own is None:
        message = (
            "expected groups='predicted', groups='given' with predictions that have "
            f"groups, or each row's group; got {by!r}."
        )
        raise InputError(message)
    return own


def calibrate_sample(  # noqa: PLR0913 - options, by keyword only
    rows: Sample,
    *,
    score: Score | None = None,
    groups: Any = None,
    grouped_by: str = GIVEN,
    confidence: float = 0.9,
    mode: Mode | None = None,
    method: str | None = None,
    min_coverage: float = START,
    label_noise: float = 0.0,
    notes: tuple[str, ...] = (),
    odd_labels: tuple[str, ...] = (),
    barred: int = 0,
    **target: Any,
) -> Gate:
    """Calibrate on a sample of any kind; see `calibrate`.

    `barred` rows, whose score is inf, are rejected whatever the threshold.
    `odd_labels` says what is odd about the labels: a warning, and a note.
    """
    target = {name: value for name, value in target.items() if value is not None}
    values = fixed_values(target)
    m = len(values)
    requests = [
        Ask(value, mode, method, confidence, min_coverage, label_noise, m)
        for value in values
    ]
    ask = choose_value(rows, requests)
    _require_labels(rows, ask)
    named = "the score" if score is None else score.name
    odd = _warn_of_odd_labels(rows, ask, odd_labels, named)
    notes = (*odd, *notes, *_choice_notes(rows, ask, target, groups))
    if ask.promised:
        notes += constant_scores({named: rows.counts})

    def bar(cut: Cut, some: Sample) -> Cut:
        cut = _barring(cut, some, ask, barred)
        return _without_order(cut, some, named) if ask.promised else cut

    parts = None if groups is None else split_rows(rows, groups, ask)
    pooled = bar(ask.cut(rows, ask.delta), rows)
    at = rules.place(pooled, rows)
    notes += _moved_note(ask, at)
    grouped = None
    if parts is not None:
        grouped = group_rules(parts, ask, GroupRule(at, pooled.state), bar)
    gate = Gate(
        at,
        score,  # type: ignore[arg-type]
        state=pooled.state,
        groups=grouped.rules if grouped else {},
        grouped_by=grouped_by if grouped else "",
    )
    seen = _seen(gate, rows, parts)
    certificate = certify(ask, rows, pooled, seen, grouped=grouped, notes=notes)
    return replace(gate, certificate=certificate)


def _moved_note(ask: Ask, at: float) -> tuple[str, ...]:
    """Say where a threshold that was given had to make room for rounding."""
    given = ask.target.get("threshold", at)
    if given == at or not math.isfinite(at):
        return ()
    return (
        f"The threshold {given!r} lies on scores of these rows, which other runtimes "
        f"round otherwise. It was moved to {at!r}, so that all of them accept these "
        "rows.",
    )


def fixed_values(target: dict[str, Any]) -> list[dict[str, Any]]:
    """Return a target's values that were fixed in advance, the strictest first.

    Examples
    --------
    >>> fixed_values({"risk": [0.05, 0.01]})
    [{'risk': 0.01}, {'risk': 0.05}]
    >>> fixed_values({"risk": 0.05, "coverage": 0.5})
    [{'risk': 0.05, 'coverage': 0.5}]
    """
    several = [n for n, v in target.items() if isinstance(v, (list, tuple))]
    if not several:
        return [target]
    (name, *others), values = several, list(target[several[0]])
    if others or len(target) > 1 or name not in TARGETS or not TARGETS[name].promised:
        message = (
            "several values go with one target that is promised: risk, joint, frr, trr "
            f"or coverage, alone; got {' and '.join(target)}. Give one value each."
        )
        raise InputError(message)
    checked = {TARGETS[name].check(value) for value in values}
    if len(values) < 2 or len(checked) < len(values):
        message = (
            f"expected two or more different values of {name}, got {values!r}. Give "
            "a single value as it is."
        )
        raise InputError(message)
    strictest = sorted(checked, reverse=TARGETS[name].at_least)
    return [{name: value} for value in strictest]


def choose_value(rows: Sample, requests: list[Ask]) -> Ask:
    """Return the strictest request that the rows allow; the last where none does.

    Each is tested at its share of the level, so all that pass hold together, and the
    choice among them may rest on the same rows (Bonferroni).
    """
    first = requests[0]
    if first.choices > 1 and first.how != "confidence":
        message = (
            "several values share the confidence, and mode='expectation' has none. "
            "Give one value, or leave mode out."
        )
        raise InputError(message)
    unlabelled = not rows.labelled and any(t.needs_labels for t in first.targets)
    if len(requests) == 1 or unlabelled:
        return first
    able = (ask for ask in requests if not fails(ask.cut(rows, ask.delta)))
    return next(able, requests[-1])


def _choice_notes(
    rows: Sample, ask: Ask, target: dict[str, Any], groups: Any
) -> Iterator[str]:
    """Say that the value is one of several, and what having the choice cost."""
    if ask.choices == 1:
        return
    ((name, value),) = ask.target.items()
    values = ", ".join(f"{100 * v:.6g}%" for v in sorted(target[name]))
    chosen = ask.cut(rows, ask.delta)
    which = "strictest" if not fails(chosen) else "least strict"
    allowed = "that these rows allow" if not fails(chosen) else "and none passed"
    yield (
        f"{100 * value:.6g}% is the {which} of {ask.choices} values fixed in advance "
        f"({values}) {allowed}. Each was tested at 1/{ask.choices} of the level, so "
        "that the choice costs no confidence."
    )
    if groups is not None:  # which accept by thresholds of their own
        return
    coverages = [
        _share_accepted(rows, cut)
        for cut in (chosen, ask.cut(rows, 1 - ask.confidence))
    ]
    if None not in coverages:
        yield (
            f"Asked for alone, {100 * value:.6g}% would accept {coverages[1]:.1%} of "
            f"these rows; with the choice it is {coverages[0]:.1%}."
        )


def _share_accepted(rows: Sample, cut: Cut) -> float | None:
    """Return the share of the rows that a cut accepts; None where it is not known."""
    if cut.state != "threshold":
        return float(cut.state == "accept-all")
    counts = rows.confusion(rules.place(cut, rows))
    return None if counts is None else counts.coverage


def _require_labels(rows: Sample, ask: Ask) -> None:
    needy = [target.name for target in ask.targets if target.needs_labels]
    if needy and not rows.labelled:
        free = " and ".join(n for n, t in TARGETS.items() if not t.needs_labels)
        message = (
            f"{needy[0]} needs to know which predictions are wrong: by labels, or of "
            f"answers by --correct NAME; only {free} do without. --no-labels trusts "
            "the model itself."
        )
        raise InputError(message)


def _warn_of_odd_labels(
    rows: Sample, ask: Ask, odd_labels: tuple[str, ...], score: str
) -> tuple[str, ...]:
    """Warn of labels that cannot be right, and return it as notes."""
    if not any(target.needs_labels for target in ask.targets):
        return ()
    turned = reversed_line(rows.counts, score)
    odd = (*odd_labels, *((turned,) if turned else ()))
    notes = tuple(f"{ODD_LABELS} {line}" for line in odd)
    if odd:
        warnings.warn(" ".join(odd), OddLabelsWarning, stacklevel=5)
    return notes


def _without_order(cut: Cut, rows: Sample, score: str) -> Cut:
    """Say of a threshold on a constant score that it accepts all rows, or none."""
    if cut.state != "threshold" or not is_constant(rows.counts):
        return cut
    accepts = rules.place(cut, rows) >= rows.of_kind("all").kth(len(rows))[1]
    state: Any = "accept-all" if accepts else "reject-all"
    return replace(cut, state=state, trivial=SAME_SCORE.format(score))


def _barring(cut: Cut, rows: Sample, ask: Ask, barred: int) -> Cut:
    """Return a cut that rejects rows of score inf, or say that none keeps the promise.

    Such rows are rejected in any case, so a promise that too few are rejected breaks.
    """
    finite = cut.state == "threshold" and rules.place(cut, rows) < math.inf
    if not barred or finite or cut.state == "reject-all":
        return cut
    if any(target.safe == "accept" for target in ask.targets):
        message = (
            f"{' and '.join(ask.target)} cannot be promised on these rows: {barred:,} "
            f"of {len(rows):,} are ambiguous or have no answer or confidence, and "
            "those are always rejected. Ask for less, or for trr, risk or joint."
        )
        raise InputError(message)
    return replace(cut, state="threshold", at=sys.float_info.max, side="exact")


def _seen(gate: Gate, rows: Sample, parts: dict[Any, Sample] | None) -> Outcome | None:
    """Count what the gate does to the calibration rows, where that is known."""
    if parts is None:
        return _decided(rows, gate)
    total = NO_OUTCOME
    for name, own in parts.items():
        part = _decided(own, gate.groups[name])
        if part is None:
            return None
        total += part
    return total


def _decided(rows: Sample, rule: Gate | GroupRule) -> Outcome | None:
    if rule.state != "threshold":
        return Outcome.of_state(rule.state, rows.n_errors, len(rows))
    seen = rows.confusion(rule.threshold)
    return None if seen is None else Outcome(seen.n, seen.n_accepted, seen)
