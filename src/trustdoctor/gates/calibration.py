"""From labelled predictions and a target to a gate with a certificate."""

import math
import sys
from dataclasses import replace
from typing import Any

from trustdoctor.errors import InputError
from trustdoctor.gates import rules
from trustdoctor.gates.asked import Ask
from trustdoctor.gates.certificate import Certificate
from trustdoctor.gates.classes import classes_of, predicted_groups
from trustdoctor.gates.gate import PREDICTED, Gate, GroupRule, is_unit
from trustdoctor.gates.missing import leave_out_unlabelled
from trustdoctor.gates.outcome import NOTHING, Outcome, known_errors
from trustdoctor.gates.rules import Cut, Mode
from trustdoctor.gates.sample import Sample, as_sample
from trustdoctor.gates.targets import TARGETS
from trustdoctor.predictions import Predictions, TopK
from trustdoctor.scores import Score, find_score, usual_score

EXCHANGEABLE = (
    "Future rows are exchangeable with the calibration rows, which did not choose the "
    "score or its temperature."
)
UNSEEN = (
    "The rows were counted in ranges of scores, and this threshold lies within one: "
    "what it does to them was not counted."
)
NOTHING_ASSUMED = "Nothing is promised, so nothing is assumed."
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
    min_coverage: float = 0.3,
    groups: Any = None,
    grouped_by: str = "",
    **target: float,
) -> Gate:
    """Choose the threshold that keeps a promise on rows to come.

    The gate scores by itself, so score and threshold cannot disagree. Give one target,
    or frr and trr together.

    Parameters
    ----------
    predictions : Predictions, or TopK
        Calibration rows that had no part in choosing the score. With labels, but for
        `coverage` and `threshold`; rows that have none are left out where labels are
        needed.
    score : str or Score, optional
        A name from `SCORES`, or a fitted score, as `compare` recommends it. By default
        alpha; for answers with a confidence, that. "auto": the score with the largest
        AUROC on 30% of the rows, a random part that the promise then does not use.
    temperature : float
        Divides the logits, for a score that has a temperature.
    confidence : float
        The probability, over calibrations, that the promise holds.
    mode : str, optional
        "confidence" (the default), or "expectation": the promised rate holds on average
        over calibrations. Not for `risk`, nor for frr with trr; `cost` has neither.
    method : str, optional
        For `risk`: "sequence" (the default), "sgr" or "grid" (for scores whose risk is
        not monotone).
    min_coverage : float
        For `risk` by sequence: the coverage where the main sequence starts.
    groups : str or array (n,), optional
        A threshold and a promise for each group with enough rows, all promises together
        at `confidence`. "predicted": by predicted class. "given": by the predictions'
        own groups. Or each row's group.
    grouped_by : str
        What groups that are given as an array are called.
    target
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
        everything and its certificate says how many would be needed.

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
    options |= {"min_coverage": min_coverage, **target}
    if score == AUTO:
        from trustdoctor.gates.selection import select_auto

        found = select_auto(predictions, temperature=temperature)
        return found.calibrate(groups=groups, grouped_by=grouped_by, **options)
    ready = find_score(score or usual_score(predictions), temperature=temperature)
    if isinstance(groups, str):
        grouped_by, groups = groups, groups_of(predictions, groups)
    notes: tuple[str, ...] = ()
    if needs_labels(target):
        predictions, groups, notes = leave_out_unlabelled(predictions, ready, groups)
    bare = Gate(0.0, score=ready, temperature=temperature)  # type: ignore[arg-type]
    gate = calibrate_sample(
        as_sample(bare.doubts(predictions), known_errors(predictions)),
        score=ready,
        notes=notes,
        barred=barred_rows(predictions),
        groups=groups,
        grouped_by=grouped_by or GIVEN,
        **options,
    )
    return replace(gate, unit=is_unit(predictions), classes=classes_of(predictions))


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


def calibrate_scores(
    scores: Any,
    errors: Any = None,
    *,
    groups: Any = None,
    grouped_by: str = "",
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
    options
        Targets, confidence, mode, method and min_coverage, as in `calibrate`.

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
    sample = as_sample(scores, errors)
    by = grouped_by or GIVEN
    return calibrate_sample(sample, groups=groups, grouped_by=by, **options)


def calibrate_rows(scores: Any, errors: Any, *, score: Score, **options: Any) -> Gate:
    """Calibrate on doubts that `score` has about these rows, for adapters.

    An adapter scores by itself where the doubt is about a label that is not the
    largest logit's.
    """
    return calibrate_sample(as_sample(scores, errors), score=score, **options)


def needs_labels(target: dict[str, Any]) -> bool:
    """Tell whether one of the targets that are asked for needs labels."""
    asked = [name for name, value in target.items() if value is not None]
    return any(TARGETS[name].needs_labels for name in asked if name in TARGETS)


def barred_rows(predictions: Predictions | TopK) -> int:
    """Return how many rows are rejected whatever the threshold."""
    ambiguous = getattr(predictions, "ambiguous", None)
    return 0 if ambiguous is None else int(ambiguous.sum())


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
    min_coverage: float = 0.3,
    notes: tuple[str, ...] = (),
    barred: int = 0,
    **target: Any,
) -> Gate:
    """Calibrate on a sample of any kind; see `calibrate`.

    `barred` rows, whose score is inf, are rejected whatever the threshold.
    """
    asked = {name: value for name, value in target.items() if value is not None}
    ask = Ask(asked, mode, method, confidence, min_coverage)
    _require_labels(rows, ask)
    noted = list(notes)
    delta = 1 - confidence
    parts: dict[Any, Sample] | None = None
    if groups is not None:
        parts = _parts(rows, groups, ask)
        delta = _shared_delta(delta, len(parts), ask, noted)
    pooled = _barring(ask.cut_and_needed(rows, delta), rows, ask, barred)
    at = rules.place(pooled, rows)
    own: dict[Any, GroupRule] = {}
    if parts is not None:
        own = _group_rules(parts, ask, delta, GroupRule(at, pooled.state), barred)
        noted += _bare_note(own)
    gate = Gate(
        at,
        score,  # type: ignore[arg-type]
        state=pooled.state,
        groups=own,
        grouped_by=grouped_by if own else "",
    )
    seen = _seen(gate, rows, parts)
    certificate = _certificate(ask, rows, pooled, seen, noted)
    return replace(gate, certificate=certificate)


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


def _certificate(
    ask: Ask, rows: Sample, cut: Cut, seen: Outcome | None, notes: list[str]
) -> Certificate:
    if seen is None:
        notes.append(UNSEEN)
    else:
        values = zip(ask.targets, ask.target.values(), strict=True)
        noted = [(target.note, value) for target, value in values if target.note]
        notes += [note(seen.decisions, v, ask.confidence) for note, v in noted]
    if seen is not None and not rows.labelled:
        seen = Outcome(seen.rows, seen.accepted)
    promised = ask.promised and not cut.broken
    return Certificate(
        target=ask.target,
        rule=ask.words,
        assumption=EXCHANGEABLE
        if any(target.assumes for target in ask.targets)
        else NOTHING_ASSUMED,
        mode=ask.how if promised else "none",
        confidence=ask.confidence,
        n=len(rows),
        n_correct=len(rows) - rows.n_errors if rows.labelled else -1,
        n_errors=rows.n_errors if rows.labelled else -1,
        observed={} if seen is None else dict(seen.rates(confidence=ask.confidence)),
        trivial=cut.trivial,
        rows_needed=cut.needed,
        fingerprint=rows.fingerprint,
        notes=tuple(notes),
        feasible=cut.feasible,
    )


def _parts(rows: Sample, groups: Any, ask: Ask) -> dict[Any, Sample]:
    alone = [target.name for target in ask.targets if not target.per_group]
    if alone:
        message = f"a {alone[0]} that is given is for all rows: leave groups out."
        raise InputError(message)
    return dict(rows.split(groups))


def _shared_delta(delta: float, groups: int, ask: Ask, notes: list[str]) -> float:
    """Share the risk of a broken promise among the groups and the pooled threshold."""
    if ask.how == "expectation" or not ask.promised:
        return delta
    notes.append(
        "The promise holds in each group that has one, not for all rows together. "
        f"{groups} groups and the pooled threshold share the risk of a broken promise: "
        f"each is calibrated at confidence {1 - delta / (groups + 1):.6g}."
    )
    return delta / (groups + 1)


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
            f"of {len(rows):,} are ambiguous, and those are always rejected. Ask for "
            "less, or for trr, risk or joint."
        )
        raise InputError(message)
    return replace(cut, state="threshold", at=sys.float_info.max, side="exact")


def _group_rules(
    given: dict[Any, Sample], ask: Ask, delta: float, pooled: GroupRule, barred: int
) -> dict[Any, GroupRule]:
    """Return each group's rule; the pooled one, bare, where its rows are too few."""
    out: dict[Any, GroupRule] = {}
    for name, rows in given.items():
        cut = _barring(ask.cut(rows, delta), rows, ask, barred)
        rule = GroupRule(rules.place(cut, rows), cut.state, promised=not cut.broken)
        rule = replace(pooled, promised=False) if cut.short else rule
        out[name] = replace(rule, n=len(rows))
    return out


def _bare_note(own: dict[Any, GroupRule]) -> list[str]:
    bare = [str(name) for name, rule in own.items() if not rule.promised]
    if not bare:
        return []
    named = ", ".join(bare[:20]) + (" ..." if len(bare) > 20 else "")
    return [f"Too few rows for a promise; pooled threshold without one: {named}."]


def _seen(gate: Gate, rows: Sample, parts: dict[Any, Sample] | None) -> Outcome | None:
    """Count what the gate does to the calibration rows, where that is known."""
    if parts is None:
        return _decided(rows, gate)
    total = NOTHING
    for name, own in parts.items():
        part = _decided(own, gate.groups[name])
        if part is None:
            return None
        total += part
    return total


def _decided(rows: Sample, rule: Gate | GroupRule) -> Outcome | None:
    if rule.state != "threshold":
        return Outcome.at(rule.state, rows.n_errors, len(rows))
    seen = rows.confusion(rule.threshold)
    return None if seen is None else Outcome(seen.n, seen.fa + seen.ta, seen)
