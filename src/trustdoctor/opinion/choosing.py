"""From labelled rows and a target to a cascade: policies listed, tested, measured."""

import warnings
from dataclasses import replace
from numbers import Integral, Real
from typing import Any

import numpy as np
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
    Outcome,
    conformal_rule,
    find_target,
    shortlist_notes,
    shortlist_options,
    true_class_nonconformity,
    uncalibrated_shortlist,
)
from trustdoctor.metrics import Confusion, counts
from trustdoctor.opinion.cascade import AVERAGE, OWN, Cascade, as_costs
from trustdoctor.opinion.measuring import (
    Wanted,
    each_alone,
    measure_cascade,
    spent_and_accepted,
)
from trustdoctor.opinion.policies import (
    KINDS,
    Counted,
    Heard,
    count_passed,
    count_some,
    list_policies,
)
from trustdoctor.opinion.stages import Stages
from trustdoctor.predictions import UNKNOWN, Predictions

CLEARLY = 0.8
"""What another way of combining must cost of this one, to be named."""

FEWEST = 20
"""Rows that a cascade needs at least, to list policies and to test them."""

RULE = (
    "Policies that nothing beats in cost and certainty were listed on other rows; "
    "binomial tests in a fixed sequence took the cheapest that passed."
)
ASSUMPTION = (
    "Future rows are exchangeable with the calibration rows, which had no part in the "
    "models or the score."
)


def calibrate_taken(
    taken: Stages, wanted: Wanted, *, score: str, combine: str, shortlist: Any = None
) -> Cascade:
    """Calibrate on stages that are brought together, all asked about all rows."""
    size = len(taken.each)
    open_ = (np.inf,) * size
    bare = Cascade(taken.names, open_, wanted.costs, score, combine)
    _check_score(bare)
    own = None if shortlist is None else shortlist_options(shortlist)
    # Refuses bad options before any model is asked.
    uncalibrated_shortlist(2, **(own or {}))
    rows = _labelled(taken)
    lists, choose, test = _parts(len(rows), wanted, lists=own is not None)
    every = [taken.ask(k, rows) for k in range(size)]
    labels = _known_labels(taken, rows, every[0].n_classes)
    answers = list(bare.judge(every, labels))
    heard = _heard(bare, answers)
    odd = _odd_labels(bare, every, labels, heard)
    if odd:
        warnings.warn(" ".join(odd), OddLabelsWarning, stacklevel=3)
    policies = _list(heard[choose], wanted, len(test))
    tested, passed = _tested(heard[test], policies, wanted)
    if not passed:
        raise NoPolicyError(_no_policy(tested, wanted))
    thresholds = tuple(map(float, tested.thresholds[passed - 1]))
    classes = taken.names_now or answers[0].n_classes
    cascade = replace(bare, thresholds=thresholds, classes=classes)
    used = np.append(choose, test)
    alone = each_alone(
        [replace(p, labels=labels) for p in every], cascade, wanted, used, test
    )
    measured = measure_cascade(
        cascade, heard, choose, test, tested, passed, wanted, alone
    )
    seen = tested.confusion(passed - 1)
    certificate = _certificate(seen, heard, choose, test, wanted)
    certificate = replace(
        certificate,
        notes=(
            *(f"The labels are odd. {line}" for line in odd),
            *certificate.notes,
            *_other_way(bare, every, labels, choose, wanted),
        ),
    )
    cascade = replace(cascade, certificate=certificate, measured=measured)
    return cascade if own is None else _listed(cascade, answers, heard, lists, own)


def _odd_labels(
    bare: Cascade, every: list[Predictions], labels: Array, heard: Heard
) -> list[str]:
    """Return why nothing may rest on the labels, by what each model says."""
    out = []
    for k, name in enumerate(bare.stages):
        stage_counts = counts(heard.doubts[:, k], heard.wrong[:, k])
        turned = reversed_note(stage_counts, bare.score)
        odd = check_labels(replace(every[k], labels=labels)).odd
        out += [f"{name}: {line}" for line in (*odd, turned) if line]
    return out


def _other_way(
    bare: Cascade, every: list[Predictions], labels: Array, rows: Array, wanted: Wanted
) -> list[str]:
    """Say where combining answers in the other way would cost clearly less."""
    if len(every) == 1:
        return []
    costs = []
    for combine in (bare.combine, OWN if bare.combine == AVERAGE else AVERAGE):
        way = replace(bare, combine=combine)
        try:
            heard = _heard(way, list(way.judge(every, labels)))[rows]
        except InputError:  # a score that needs the logits of one model
            return []
        listed = _list(heard, wanted, len(rows))
        due = listed.p_values(wanted.target, wanted.value) <= 1 - wanted.confidence
        costs.append(float(listed.cost[due].min()) if due.any() else np.inf)
    if np.isinf(costs[0]) or not costs[1] < CLEARLY * costs[0]:
        return []
    return [
        f"On the rows that listed policies, combine='{combine}' (--combine {combine}) "
        f"looks cheaper: {costs[1]:.4g} against {costs[0]:.4g} per row. Use it "
        "instead; those rows test nothing, so the promise holds."
    ]


def _list(heard: Heard, wanted: Wanted, rows: int) -> Counted:
    return list_policies(
        heard,
        wanted.costs,
        wanted.target,
        wanted.value,
        rows=rows,
        delta=1 - wanted.confidence,
    )


def _check_score(bare: Cascade) -> None:
    """Refuse a score that the mean of several models does not have."""
    if bare.combine == OWN or len(bare.stages) == 1:
        return
    try:
        bare.scorer(Predictions.from_probs([[0.9, 0.1]]))
    except InputError as error:
        message = (
            f"the score {bare.score} needs the logits of one model, and the mean of "
            "several has none. Take alpha, beta or msp, or combine='own' (--combine "
            "own)."
        )
        raise InputError(message) from error


def _labelled(taken: Stages) -> NDArray[np.int64]:
    """Return the rows that have a label: no model is asked about the others."""
    if taken.labels is None:
        message = (
            "a cascade needs labels to be calibrated, and none were given. Pass "
            "labels=, or --labels NAME."
        )
        raise LabelsMissingError(message)
    rows = np.flatnonzero(taken.labels != UNKNOWN)
    taken.require_rows(rows)
    return rows


def _known_labels(taken: Stages, rows: Array, classes: int) -> NDArray[np.int64]:
    """Return the labels of rows, now that it is known how many classes there are."""
    assert taken.labels is not None
    labels = taken.labels[rows]
    if labels.max() >= classes:
        row = int(rows[int(labels.argmax())])
        message = (
            f"expected labels from 0 to {classes - 1}, got {labels.max()} at row {row}."
            " Number the classes in the order of the models' answers."
        )
        raise InputError(message)
    return labels


def check_wanted(  # noqa: PLR0913 - what is asked for
    target: dict[str, Any],
    costs: Any,
    stages: int,
    confidence: Any,
    share: Any,
    seed: Any,
) -> Wanted:
    """Check what is asked for, before any model is."""
    asked = {name: value for name, value in target.items() if value is not None}
    odd = [name for name in asked if name not in KINDS]
    if odd:
        find_target(odd[0])  # says so of what is no target at all
    if odd or len(asked) != 1:
        got = ", ".join(asked) or "none"
        message = (
            f"expected one promise for the whole cascade, out of {', '.join(KINDS)}, "
            f"got {got}."
        )
        raise InputError(message)
    ((name, value),) = asked.items()
    if costs is None:
        message = (
            "expected the costs of asking each model about a row, and of a person: "
            "costs=[0, 1, 10]."
        )
        raise InputError(message)
    shares = {"confidence": confidence, "share": share}
    for what, one in shares.items():
        if not (isinstance(one, Real) and 0 < float(one) < 1):
            message = f"expected {what} between 0 and 1, got {one!r}."
            raise InputError(message)
    if not isinstance(seed, Integral) or isinstance(seed, bool) or seed < 0:
        message = f"expected a seed of 0 or more, got {seed!r}."
        raise InputError(message)
    value = TARGETS[name].check(value)
    own = float(confidence), float(share), int(seed)
    return Wanted(name, value, as_costs(costs, stages), *own)


def _parts(
    rows: int, wanted: Wanted, *, lists: bool
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Part the labelled rows: for shortlists, for listing policies, for tests."""
    order = np.random.default_rng(wanted.seed).permutation(rows)
    first = rows // 3 if lists else 0
    second = first + max(1, round(wanted.share * (rows - first)))
    if rows - first < FEWEST or second >= rows:
        message = (
            f"expected at least {FEWEST} labelled rows to list policies and to test "
            f"them{' beside a third for the lists' * lists}, and a share that leaves "
            f"some to test, got {rows:,} rows and share {wanted.share:g}."
        )
        raise InputError(message)
    return order[:first], order[first:second], order[second:]


def _heard(bare: Cascade, answers: list[Predictions]) -> Heard:
    score = bare.scorer
    doubts = [np.asarray(score(answer), np.float64) for answer in answers]
    wrong = [answer.errors for answer in answers]
    return Heard(np.stack(doubts, 1), np.stack(wrong, 1), own=bare.combine == OWN)


def _tested(rows: Heard, policies: Counted, wanted: Wanted) -> tuple[Counted, int]:
    """Test policies until one fails; return those that were, and how many passed."""
    delta, step = 1 - wanted.confidence, 16
    for end in range(step, len(policies) + step, step):
        tested = count_some(rows, wanted.costs, policies.thresholds[:end])
        passed = count_passed(tested, wanted.target, wanted.value, delta)
        if passed < len(tested):
            return tested[np.arange(passed + 1)], passed
    return tested, passed


def _no_policy(tested: Counted, wanted: Wanted) -> str:
    target, limit = wanted.target, KINDS[wanted.target].limit(wanted.value)
    whole, wrong = int(tested.whole(target)[0]), int(tested.wrong[0])
    p = float(tested.p_values(target, wanted.value)[0])
    what = {"risk": "accepted answers", "joint": "rows", "trr": "errors"}[target]
    easier = "lower" if target == "trr" else "higher"
    answers = "answer" if wrong == 1 else "answers"
    return (
        f"no policy keeps {target} {wanted.value:g} at confidence "
        f"{wanted.confidence:g}: the likeliest accepted {wrong:,} wrong {answers} of "
        f"{whole:,} {what}, allowed is a share of {limit:.4g} (p = {p:.3g}, at most "
        f"{1 - wanted.confidence:.3g} passes). Ask for a {easier} {target}, or give "
        "more rows."
    )


def _certificate(
    seen: Confusion, heard: Heard, choose: Array, test: Array, wanted: Wanted
) -> Certificate:
    rows, accepted = seen.n, seen.n_accepted
    rates = Outcome(rows, accepted, seen).rates(confidence=wanted.confidence)
    used = np.append(choose, test)
    notes = (
        f"{len(choose):,} rows listed the policies, {rows:,} others tested them. An "
        "error is a wrong label where the row stopped.",
        f"Confidence {wanted.confidence:g} is over calibrations: repeated on new rows, "
        f"at least {100 * wanted.confidence:.6g} of 100 keep the promise, counting "
        "those in which no policy passes.",
    )
    return Certificate(
        {wanted.target: wanted.value},
        RULE,
        ASSUMPTION,
        "confidence",
        wanted.confidence,
        rows,
        seen.n_correct,
        seen.n_errors,
        observed=dict(rates),
        fingerprint=Fingerprint.of(
            heard.doubts[used].ravel(), heard.wrong[used].ravel()
        ).digest,
        notes=notes,
    )


def _listed(
    cascade: Cascade,
    answers: list[Predictions],
    heard: Heard,
    rows: Array,
    options: dict[str, Any],
) -> Cascade:
    """Set lists for rows that go to a person, on rows that had no other part."""
    last = answers[cascade.asked[-1]]
    short = uncalibrated_shortlist(last.n_classes, **options)
    _, accepted = spent_and_accepted(heard[rows], cascade)
    going = rows[~accepted]
    strange = np.full(len(going), -np.inf)
    hard = heard.wrong[going, cascade.asked[-1]]
    strange[hard] = true_class_nonconformity(short, last, going[hard], last.predicted)
    short = replace(short, rule=conformal_rule(strange, short.level))
    assert cascade.certificate is not None
    every = (
        f": every class of probability {short.least_probability:.3g} or more"
        if short.least_probability
        else ""
    )
    words = (
        f"Shortlist: the list of a row that goes to a person holds the true class with "
        f"probability at least {short.level:g} among such rows, on average over "
        f"calibrations. {len(going):,} such rows, of {len(rows):,} that had no other "
        f"part, set it{every}."
    )
    notes = (*cascade.certificate.notes, words, *shortlist_notes(short)[1:])
    certificate = replace(cascade.certificate, notes=notes)
    return replace(cascade, shortlist=short, certificate=certificate)
