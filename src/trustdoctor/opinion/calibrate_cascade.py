"""From labelled rows and a target to a cascade: policies listed, tested, measured."""

import math
import warnings
from dataclasses import dataclass, replace
from numbers import Integral, Real
from typing import Any

import numpy as np
from msgspec import structs
from numpy.typing import NDArray

from trustdoctor.arrays import Array
from trustdoctor.errors import (
    InputError,
    LabelsMissingError,
    NoPolicyError,
    OddLabelsWarning,
)
from trustdoctor.evaluation import check_labels, reversed_note
from trustdoctor.gates import (
    TARGETS,
    Certificate,
    Fingerprint,
    calibrate_scores,
    conformal_rule,
    shortlist_notes,
    shortlist_options,
    true_class_nonconformity,
    uncalibrated_shortlist,
)
from trustdoctor.metrics import Confusion, Estimate, counts, normal_quantile
from trustdoctor.opinion.cascade import AVERAGE, OWN, Cascade, as_costs
from trustdoctor.opinion.policies import (
    CASCADE_TARGETS,
    COST_CONFIDENCE,
    Alone,
    Measured,
    PolicyCounts,
    StageDoubts,
    accepts,
    count_all,
    count_passed,
    count_some,
    list_policies,
    list_thresholds,
)
from trustdoctor.opinion.stages import Stages
from trustdoctor.predictions import UNKNOWN, Predictions

CLEARLY_CHEAPER = 0.8
"""The other way of combining is recommended if it costs less than this share."""

MIN_ROWS = 20
"""The fewest rows that can list policies and test them."""

MAX_SHOWN_POLICIES = 1500
"""The largest number of policies that are kept for the picture."""

RULE = (
    "Policies that nothing beats in cost and certainty were listed on other rows; "
    "binomial tests in a fixed sequence took the cheapest that passed."
)
ASSUMPTION = (
    "Future rows are exchangeable with the calibration rows, which had no part in the "
    "models or the score."
)


@dataclass(frozen=True, eq=False)
class CascadeRequest:
    """The options of a calibration, checked.

    Attributes
    ----------
    target : str
    value : float
    costs : tuple of float
    confidence : float
    share : float
    seed : int
    """

    target: str
    value: float
    costs: tuple[float, ...]
    confidence: float
    share: float
    seed: int

    @property
    def delta(self) -> float:
        """The probability, over calibrations, that the promise may fail."""
        return 1 - self.confidence

    @property
    def limit(self) -> float:
        """The largest rate that the promise allows."""
        return CASCADE_TARGETS[self.target].limit(self.value)


@dataclass(frozen=True, eq=False)
class SingleModel:
    """A model by itself on the test rows: doubts, errors, and what its gate accepts."""

    name: str
    cost: float
    doubts: Array
    wrong: Array
    accepted: Array


def check_request(  # noqa: PLR0913 - all options of a calibration
    target: dict[str, Any],
    costs: Any,
    stages: int,
    confidence: Any,
    share: Any,
    seed: Any,
) -> CascadeRequest:
    """Check the options of a calibration, before any model is asked."""
    unsuitable = [name for name in target if name not in CASCADE_TARGETS]
    if unsuitable or len(target) != 1:
        got = ", ".join(target) or "none"
        message = (
            "expected one promise for the whole cascade, out of "
            f"{', '.join(CASCADE_TARGETS)}, got {got}."
        )
        raise InputError(message)
    ((name, value),) = target.items()
    if costs is None:
        message = (
            "expected the costs of asking each model about a row, and of a person: "
            "costs=[0, 1, 10]."
        )
        raise InputError(message)
    for option, number in {"confidence": confidence, "share": share}.items():
        if not (isinstance(number, Real) and 0 < float(number) < 1):
            message = f"expected {option} between 0 and 1, got {number!r}."
            raise InputError(message)
    if not isinstance(seed, Integral) or isinstance(seed, bool) or seed < 0:
        message = f"expected a seed of 0 or more, got {seed!r}."
        raise InputError(message)
    value = TARGETS[name].check(value)
    costs = as_costs(costs, stages)
    return CascadeRequest(
        name, value, costs, float(confidence), float(share), int(seed)
    )


def calibrate_stages(
    stages: Stages,
    request: CascadeRequest,
    *,
    score: str,
    combine: str,
    shortlist: Any = None,
) -> Cascade:
    """Calibrate on aligned stages; all are asked about all labelled rows."""
    size = len(stages.each)
    all_stop = (np.inf,) * size
    uncalibrated = Cascade(stages.names, all_stop, request.costs, score, combine)
    _check_score(uncalibrated)
    list_options = None if shortlist is None else shortlist_options(shortlist)
    # Refuses bad options before any model is asked.
    uncalibrated_shortlist(2, **(list_options or {}))
    rows = _labelled_rows(stages)
    list_rows, choose, test = _divided_rows(
        len(rows), request, lists=list_options is not None
    )
    predictions = [stages.ask(k, rows) for k in range(size)]
    labels = _checked_labels(stages, rows, predictions[0].n_classes)
    predictions = [replace(p, labels=labels) for p in predictions]
    answers = list(uncalibrated.answers(predictions, labels))
    doubts = _stage_doubts(uncalibrated, answers)
    label_warnings = _label_warnings(uncalibrated, predictions, doubts)
    if label_warnings:
        warnings.warn(" ".join(label_warnings), OddLabelsWarning, stacklevel=3)

    policies = _listed_policies(doubts[choose], request, len(test))
    tested, passed = _tested_policies(doubts[test], policies, request)
    if not passed:
        raise NoPolicyError(_no_policy_message(tested, request))
    cascade = replace(
        uncalibrated,
        thresholds=tuple(map(float, tested.thresholds[passed - 1])),
        classes=stages.names_now or answers[0].n_classes,
    )

    models = _single_models(
        predictions, cascade, request, np.append(choose, test), test
    )
    measured = _measurements(
        cascade, doubts, choose, test, tested, passed, request, models
    )
    certificate = _certificate(
        tested.confusion(passed - 1), doubts, choose, test, request
    )
    notes = (
        *(f"The labels are odd. {line}" for line in label_warnings),
        *certificate.notes,
        *_cheaper_combination(uncalibrated, predictions, choose, request),
    )
    certificate = structs.replace(certificate, notes=notes)
    cascade = replace(cascade, certificate=certificate, measured=measured)
    if list_options is None:
        return cascade
    return _with_shortlist(cascade, answers, doubts, list_rows, list_options)


def _check_score(cascade: Cascade) -> None:
    """Refuse a score that is not defined for the mean of several models."""
    if cascade.combine == OWN or len(cascade.stages) == 1:
        return
    try:
        cascade.scorer(Predictions.from_probs([[0.9, 0.1]]))
    except InputError as error:
        message = (
            f"the score {cascade.score} needs the logits of one model, and the mean of "
            "several has none. Take alpha, beta or msp, or combine='own' (--combine "
            "own)."
        )
        raise InputError(message) from error


def _labelled_rows(stages: Stages) -> NDArray[np.int64]:
    """Return the rows that have a label: no model is asked about the others."""
    if stages.labels is None:
        message = (
            "a cascade needs labels to be calibrated, and none were given. Pass "
            "labels=, or --labels NAME."
        )
        raise LabelsMissingError(message)
    rows = np.flatnonzero(stages.labels != UNKNOWN)
    stages.require_rows(rows)
    return rows


def _divided_rows(
    rows: int, request: CascadeRequest, *, lists: bool
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Divide the labelled rows: for shortlists, for listing policies, for tests."""
    order = np.random.default_rng(request.seed).permutation(rows)
    first = rows // 3 if lists else 0
    second = first + max(1, round(request.share * (rows - first)))
    if rows - first < MIN_ROWS or second >= rows:
        message = (
            f"expected at least {MIN_ROWS} labelled rows to list policies and to test "
            f"them{' beside a third for the lists' * lists}, and a share that leaves "
            f"some to test, got {rows:,} rows and share {request.share:g}."
        )
        raise InputError(message)
    return order[:first], order[first:second], order[second:]


def _checked_labels(stages: Stages, rows: Array, classes: int) -> NDArray[np.int64]:
    """Return the labels of rows, checked against the number of classes."""
    # A model tells the number of classes only by its first answer.
    assert stages.labels is not None
    labels = stages.labels[rows]
    if labels.max() >= classes:
        row = int(rows[int(labels.argmax())])
        message = (
            f"expected labels from 0 to {classes - 1}, got {labels.max()} at row {row}."
            " Number the classes in the order of the models' answers."
        )
        raise InputError(message)
    return labels


def _stage_doubts(cascade: Cascade, answers: list[Predictions]) -> StageDoubts:
    score = cascade.scorer
    doubts = [np.asarray(score(answer), np.float64) for answer in answers]
    wrong = [answer.errors for answer in answers]
    return StageDoubts(
        np.stack(doubts, 1), np.stack(wrong, 1), separate=cascade.combine == OWN
    )


def _label_warnings(
    cascade: Cascade, predictions: list[Predictions], doubts: StageDoubts
) -> list[str]:
    """Return why nothing may rest on the labels, by each model's predictions."""
    lines = []
    for k, name in enumerate(cascade.stages):
        stage_counts = counts(doubts.doubts[:, k], doubts.wrong[:, k])
        reversed_scores = reversed_note(stage_counts, cascade.score)
        odd = check_labels(predictions[k]).odd
        lines += [f"{name}: {line}" for line in (*odd, reversed_scores) if line]
    return lines


def _listed_policies(
    doubts: StageDoubts, request: CascadeRequest, test_rows: int
) -> PolicyCounts:
    return list_policies(
        doubts,
        request.costs,
        request.target,
        request.value,
        rows=test_rows,
        delta=request.delta,
    )


def _tested_policies(
    doubts: StageDoubts, policies: PolicyCounts, request: CascadeRequest
) -> tuple[PolicyCounts, int]:
    """Test policies until one fails; return those that were, and how many passed."""
    # In steps: most lists are long, and most tests end after a few policies.
    step = 16
    for end in range(step, len(policies) + step, step):
        tested = count_some(doubts, request.costs, policies.thresholds[:end])
        passed = count_passed(tested, request.target, request.value, request.delta)
        if passed < len(tested):
            return tested[np.arange(passed + 1)], passed
    return tested, passed


def _no_policy_message(tested: PolicyCounts, request: CascadeRequest) -> str:
    target = request.target
    denominator, wrong = int(tested.denominator(target)[0]), int(tested.wrong[0])
    p = float(tested.p_values(target, request.value)[0])
    unit = {"risk": "accepted answers", "joint": "rows", "trr": "errors"}[target]
    easier = "lower" if target == "trr" else "higher"
    answers = "answer" if wrong == 1 else "answers"
    return (
        f"no policy keeps {target} {request.value:g} at confidence "
        f"{request.confidence:g}: the likeliest accepted {wrong:,} wrong {answers} of "
        f"{denominator:,} {unit}, allowed is a share of {request.limit:.4g} (p = "
        f"{p:.3g}, at most {request.delta:.3g} passes). Ask for a {easier} {target}, "
        "or give more rows."
    )


def _certificate(
    confusion: Confusion,
    doubts: StageDoubts,
    choose: Array,
    test: Array,
    request: CascadeRequest,
) -> Certificate:
    used = np.append(choose, test)
    notes = (
        f"{len(choose):,} rows listed the policies, {confusion.n:,} others tested "
        "them. An error is a wrong label where the row stopped.",
        f"Confidence {request.confidence:g} is over calibrations: repeated on new rows,"
        f" at least {100 * request.confidence:.6g} of 100 keep the promise, counting "
        "those in which no policy passes.",
    )
    return Certificate(
        target={request.target: request.value},
        rule=RULE,
        assumption=ASSUMPTION,
        mode="confidence",
        confidence=request.confidence,
        n=confusion.n,
        n_errors=confusion.n_errors,
        accepted=confusion.n_accepted,
        accepted_errors=confusion.accepted_errors,
        fingerprint=Fingerprint.of(
            doubts.doubts[used].ravel(), doubts.wrong[used].ravel()
        ).digest,
        notes=notes,
    )


def _cheaper_combination(
    cascade: Cascade,
    predictions: list[Predictions],
    choose: Array,
    request: CascadeRequest,
) -> list[str]:
    """Return a note if combining answers in the other way would cost clearly less."""
    if len(predictions) == 1:
        return []
    costs = []
    for combine in (cascade.combine, OWN if cascade.combine == AVERAGE else AVERAGE):
        other = replace(cascade, combine=combine)
        try:
            answers = list(other.answers(predictions, predictions[0].labels))
            doubts = _stage_doubts(other, answers)[choose]
        except InputError:  # a score that needs the logits of one model
            return []
        policies = _listed_policies(doubts, request, len(choose))
        passes = policies.p_values(request.target, request.value) <= request.delta
        costs.append(float(policies.cost[passes].min()) if passes.any() else np.inf)
    if np.isinf(costs[0]) or not costs[1] < CLEARLY_CHEAPER * costs[0]:
        return []
    return [
        f"On the rows that listed policies, combine='{combine}' (--combine {combine}) "
        f"looks cheaper: {costs[1]:.4g} against {costs[0]:.4g} per row. Use it "
        "instead; those rows test nothing, so the promise holds."
    ]


def _single_models(
    predictions: list[Predictions],
    cascade: Cascade,
    request: CascadeRequest,
    rows: Array,
    test: Array,
) -> list[SingleModel]:
    """Calibrate each model by itself for the same promise, on all rows."""
    models = []
    for k, model_predictions in enumerate(predictions):
        doubts = np.asarray(cascade.scorer(model_predictions), np.float64)
        wrong = model_predictions.errors
        with warnings.catch_warnings():  # the cascade itself has warned of the labels
            warnings.simplefilter("ignore", OddLabelsWarning)
            gate = calibrate_scores(
                doubts[rows],
                wrong[rows],
                target={request.target: request.value},
                confidence=request.confidence,
            )
        models.append(
            SingleModel(
                cascade.stages[k],
                request.costs[k],
                doubts[test],
                wrong[test],
                np.asarray(gate.accept(doubts[test])),
            )
        )
    return models


def _measurements(  # noqa: PLR0913 - what is measured, and on what
    cascade: Cascade,
    doubts: StageDoubts,
    choose: Array,
    test: Array,
    tested: PolicyCounts,
    passed: int,
    request: CascadeRequest,
    models: list[SingleModel],
) -> Measured:
    """Measure the cost of policies, and of each model alone, on the test rows."""
    target, person_cost = request.target, request.costs[-1]
    test_doubts = doubts[test]
    row_costs, accepted = _costs_and_accepted(test_doubts, cascade)
    chosen = tested[np.array([passed - 1])]
    grid = list_thresholds(doubts[choose])
    return Measured(
        target,
        request.limit,
        len(test),
        len(choose),
        Alone(
            "cascade",
            _mean(row_costs),
            float(chosen.rate(target)[0]),
            float((~accepted).mean()),
        ),
        tuple(_model_alone(model, row_costs, target, person_cost) for model in models),
        tuple((chosen.asked[0] / len(test)).tolist()),
        _shown_policies(count_all(test_doubts, request.costs, grid), request),
        _points(tested.rate(target), tested.cost),
        passed,
        {model.name: _curve(model, target, person_cost) for model in models},
    )


def _costs_and_accepted(
    doubts: StageDoubts, cascade: Cascade
) -> tuple[Array, NDArray[np.bool_]]:
    """Return the cost of each row, and which rows are accepted."""
    n = len(doubts)
    row_costs, in_doubt = np.zeros(n), np.ones(n, bool)
    for k in cascade.asked:
        row_costs[in_doubt] += cascade.costs[k]
        in_doubt &= ~accepts(doubts.doubts[:, k], cascade.thresholds[k])
    row_costs[in_doubt] += cascade.costs[-1]
    return row_costs, ~in_doubt


def _mean(values: Array) -> Estimate:
    """Return the mean of a cost, with its interval."""
    mean, n = float(values.mean()), len(values)
    half = normal_quantile(COST_CONFIDENCE) * float(values.std()) / math.sqrt(n)
    return Estimate(mean, mean - half, mean + half)


def _model_alone(
    model: SingleModel, row_costs: Array, target: str, person_cost: float
) -> Alone:
    """Return what a model does alone, and what it costs more than the cascade."""
    model_costs = model.cost + person_cost * ~model.accepted
    rate = _rate(model.accepted, model.wrong, target)
    to_person = float((~model.accepted).mean())
    more = _mean(model_costs - row_costs)
    return Alone(model.name, _mean(model_costs), rate, to_person, more)


def _rate(accepted: Array, wrong: Array, target: str) -> float:
    """Return the rate that the target bounds, of decisions on a model alone."""
    sizes = {"accepted": accepted.sum(), "rows": len(wrong), "errors": wrong.sum()}
    size = int(sizes[CASCADE_TARGETS[target].denominator])
    return float((accepted & wrong).sum() / max(1, size))


def _shown_policies(policies: PolicyCounts, request: CascadeRequest) -> Array:
    """Return rate and cost of policies that are near enough to be of interest."""
    rate = policies.rate(request.target)
    near = np.flatnonzero((rate <= 3 * request.limit) & (policies.accepted > 0))
    if len(near) > MAX_SHOWN_POLICIES:
        rng = np.random.default_rng(request.seed)
        near = rng.choice(near, MAX_SHOWN_POLICIES, replace=False)
    return _points(rate[near], policies.cost[near])


def _curve(model: SingleModel, target: str, person_cost: float) -> Array:
    """Return rate and cost of a model alone, at a hundred thresholds."""
    thresholds = np.quantile(model.doubts, np.linspace(0.01, 1, 100), method="lower")
    points = []
    for threshold in np.unique(thresholds):
        accepted = model.doubts <= threshold
        cost = model.cost + person_cost * float((~accepted).mean())
        points.append((_rate(accepted, model.wrong, target), cost))
    return _points(*np.array(points).T)


def _points(rate: Array, cost: Array) -> Array:
    """Return points of a picture, in six digits as its file has them."""
    pairs = zip(rate.tolist(), cost.tolist(), strict=True)
    return np.array([[float(f"{x:.6g}") for x in pair] for pair in pairs])


def _with_shortlist(
    cascade: Cascade,
    answers: list[Predictions],
    doubts: StageDoubts,
    rows: Array,
    options: dict[str, Any],
) -> Cascade:
    """Set lists for rows that go to a person, on rows that had no other part."""
    last = cascade.asked[-1]
    shortlist = uncalibrated_shortlist(answers[last].n_classes, **options)
    _, accepted = _costs_and_accepted(doubts[rows], cascade)
    person_rows = rows[~accepted]
    # A list holds the answer itself, so only a wrong one can make it miss the label.
    nonconformity = np.full(len(person_rows), -np.inf)
    wrong = doubts.wrong[person_rows, last]
    nonconformity[wrong] = true_class_nonconformity(
        shortlist, answers[last], person_rows[wrong], answers[last].predicted
    )
    rule = conformal_rule(nonconformity, shortlist.level)
    shortlist = replace(shortlist, rule=rule)
    assert cascade.certificate is not None
    all_classes = (
        f": every class of probability {shortlist.least_probability:.3g} or more"
        if shortlist.least_probability
        else ""
    )
    note = (
        f"Shortlist: the list of a row that goes to a person holds the true class with "
        f"probability at least {shortlist.level:g} among such rows, on average over "
        f"calibrations. {len(person_rows):,} such rows, of {len(rows):,} that had no "
        f"other part, set it{all_classes}."
    )
    notes = (*cascade.certificate.notes, note, *shortlist_notes(shortlist)[1:])
    certificate = structs.replace(cascade.certificate, notes=notes)
    return replace(cascade, shortlist=shortlist, certificate=certificate)
