"""From labelled predictions and a target to a gate with a certificate."""

from dataclasses import dataclass, replace
from numbers import Real
from typing import Any

from trustdoctor.errors import InputError
from trustdoctor.gates import rules
from trustdoctor.gates.certificate import Certificate
from trustdoctor.gates.gate import PREDICTED, Gate, GroupRule
from trustdoctor.gates.outcome import NOTHING, Outcome
from trustdoctor.gates.rules import Cut, Mode
from trustdoctor.gates.sample import Sample, as_sample
from trustdoctor.gates.targets import TARGETS, Target, Terms, find_target
from trustdoctor.predictions import Predictions, TopK
from trustdoctor.scores import Score, find_score

EXCHANGEABLE = (
    "Future rows are exchangeable with the calibration rows, which did not choose the "
    "score or its temperature."
)
UNSEEN = (
    "The rows were counted in ranges of scores, and this threshold lies within one: "
    "what it does to them was not counted."
)
NOTHING_ASSUMED = "Nothing is promised, so nothing is assumed."
BOTH = "Order statistics of the correct rows' and of the errors' scores bound it."
TOGETHER = {"frr", "trr"}
"""The two targets that may be asked for at once."""

GIVEN = "given"
"""What `grouped_by` says where the groups are the rows' own, without a name."""


def calibrate(  # noqa: PLR0913 - options, by keyword only
    predictions: Predictions | TopK,
    *_errors: Any,  # of version 0.1, which took scores and errors
    score: str | Score = "alpha",
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
        `coverage` and `threshold`.
    score : str or Score
        A name from `SCORES`, or a fitted score, as `compare` recommends it.
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
    if _errors or not isinstance(predictions, (Predictions, TopK)):
        kind = type(predictions).__name__
        message = (
            f"expected Predictions alone, got {kind}{' and errors' * bool(_errors)}. "
            "Build them with Predictions.from_logits or from_probs, so that the gate "
            "scores by itself; for scores of your own use calibrate_scores(scores, "
            "errors, ...)."
        )
        raise InputError(message)
    ready = find_score(score, temperature=temperature)
    if isinstance(groups, str):
        grouped_by, groups = groups, groups_of(predictions, groups)
    bare = Gate(0.0, score=ready, temperature=temperature)  # type: ignore[arg-type]
    wrong = None if predictions.labels is None else predictions.errors
    return calibrate_sample(
        as_sample(bare.doubts(predictions), wrong),
        score=ready,
        confidence=confidence,
        mode=mode,
        method=method,
        min_coverage=min_coverage,
        groups=groups,
        grouped_by=grouped_by or GIVEN,
        **target,
    )


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


def groups_of(predictions: Predictions | TopK, by: str) -> Any:
    """Return the groups of rows: predicted classes, or the predictions' own."""
    if by == PREDICTED:
        return predictions.predicted
    own = getattr(predictions, "groups", None)
    if by != GIVEN or own is None:
        message = (
            "expected groups='predicted', groups='given' with predictions that have "
            f"groups, or each row's group; got {by!r}."
        )
        raise InputError(message)
    return own


@dataclass(frozen=True)
class Ask:
    """What is asked of a calibration."""

    target: dict[str, float]
    mode: Mode | None = None
    method: str | None = None
    confidence: float = 0.9
    min_coverage: float = 0.3

    def __post_init__(self) -> None:
        """Refuse what no rule gives."""
        for name in self.target:
            find_target(name)
        if len(self.target) != 1 and set(self.target) != TOGETHER:
            got = ", ".join(self.target) or "none"
            message = (
                f"expected one target out of {', '.join(TARGETS)}, or frr with trr; "
                f"got {got}."
            )
            raise InputError(message)
        checked = {name: find_target(name).check(v) for name, v in self.target.items()}
        object.__setattr__(self, "target", checked)
        self._check_mode()
        for one in self.targets:
            one.rule(self.method)
        for name in ("confidence", "min_coverage"):
            value = getattr(self, name)
            if not (isinstance(value, Real) and 0 < float(value) < 1):
                message = f"expected {name} between 0 and 1, got {value!r}."
                raise InputError(message)

    def _check_mode(self) -> None:
        if self.mode not in (None, "confidence", "expectation"):
            message = f"expected mode 'confidence' or 'expectation', got {self.mode!r}."
            raise InputError(message)
        name = next(iter(self.target))
        if self.mode is not None and not self.promised:
            message = f"{name} carries no promise: leave mode out."
            raise InputError(message)
        if self.mode != "expectation":
            return
        if len(self.target) == 2:
            message = (
                "frr and trr together have no rule in expectation. Leave mode out."
            )
            raise InputError(message)
        if not self.targets[0].in_expectation:
            message = (
                f"there is no rule for {name} in expectation. Use mode='confidence'."
            )
            raise InputError(message)

    @property
    def targets(self) -> list[Target]:
        """The targets that are asked for."""
        return [TARGETS[name] for name in self.target]

    @property
    def promised(self) -> bool:
        """Whether all of them carry a promise."""
        return all(target.promised for target in self.targets)

    @property
    def words(self) -> str:
        """The rule, in one sentence."""
        if len(self.target) == 2:
            return BOTH
        return self.targets[0].rule(self.method).words

    @property
    def how(self) -> Mode:
        """The mode, "confidence" where none was named."""
        return self.mode or "confidence"

    def cut(self, rows: Sample, delta: float) -> Cut:
        """Find the cut on some rows."""
        if len(self.target) == 2:
            return rules.both_cut(rows, **self.target, mode=self.how, delta=delta)
        terms = Terms(self.how, delta, self.min_coverage)
        (value,) = self.target.values()
        return self.targets[0].rule(self.method).cut(rows, value, terms)


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
    **target: Any,
) -> Gate:
    """Calibrate on a sample of any kind; see `calibrate`."""
    asked = {name: value for name, value in target.items() if value is not None}
    ask = Ask(asked, mode, method, confidence, min_coverage)
    _require_labels(rows, ask)
    notes: list[str] = []
    delta = 1 - confidence
    parts: dict[Any, Sample] | None = None
    if groups is not None:
        parts = _parts(rows, groups, ask)
        delta = _shared_delta(delta, len(parts), ask, notes)
    pooled = ask.cut(rows, delta)
    at = rules.place(pooled, rows)
    own: dict[Any, GroupRule] = {}
    if parts is not None:
        own = _group_rules(parts, ask, delta, GroupRule(at, pooled.state))
        notes += _bare_note(own)
    gate = Gate(
        at,
        score,  # type: ignore[arg-type]
        state=pooled.state,
        groups=own,
        grouped_by=grouped_by if own else "",
    )
    seen = _seen(gate, rows, parts)
    certificate = _certificate(ask, rows, pooled, seen, notes)
    return replace(gate, certificate=certificate)


def _require_labels(rows: Sample, ask: Ask) -> None:
    needy = [target.name for target in ask.targets if target.needs_labels]
    if needy and not rows.labelled:
        free = " and ".join(n for n, t in TARGETS.items() if not t.needs_labels)
        message = (
            f"{needy[0]} needs errors, so predictions with labels; only {free} do "
            "without. --no-labels trusts the model itself."
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


def _group_rules(
    given: dict[Any, Sample], ask: Ask, delta: float, pooled: GroupRule
) -> dict[Any, GroupRule]:
    """Return each group's rule; the pooled one, bare, where its rows are too few."""
    out: dict[Any, GroupRule] = {}
    for name, rows in given.items():
        cut = ask.cut(rows, delta)
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
