"""From a cut to its certificate: what is promised, and what to know of it."""

from typing import Any

from trustdoctor.gates.certificate import Certificate
from trustdoctor.gates.groups import GroupCuts
from trustdoctor.gates.outcome import Outcome
from trustdoctor.gates.outlook import (
    Outlook,
    find_sufficient_rows,
    passed_by_chance,
)
from trustdoctor.gates.request import Request
from trustdoctor.gates.risk import passed_thresholds
from trustdoctor.gates.rules import Cut
from trustdoctor.gates.sample import Sample
from trustdoctor.gates.targets import TARGETS

EXCHANGEABLE = (
    "Future rows are exchangeable with the calibration rows, which did not choose the "
    "score or its temperature."
)
UNSEEN = (
    "The rows were counted in ranges of scores, and this threshold lies within one: "
    "what it does to them was not counted."
)
OVER_CALIBRATIONS = (
    "Confidence {} is over calibrations: repeated on new rows, at least {} of 100 keep "
    "the promise, counting those that accept or reject everything. If most "
    "calibrations on so few rows accept nothing, trust one that accepts something less."
)
NOISE_SCALED = (
    "Up to {:.6g}% of the labels may be wrong, independently of the score: {} was "
    "tested at {:.6g}% instead of {:.6g}%, since wrong labels can hide errors."
)
NOISE_SAFE = (
    "Up to {:.6g}% of the labels may be wrong, independently of the score: that only "
    "makes this gate more careful, as long as it accepts correct predictions more "
    "readily than errors."
)
ON_AVERAGE = (
    "The promise is on average over calibrations, not for this one: up to about half "
    "of single gates exceed it. Proved: a new row is wrong and accepted with a "
    "probability of at most {:.6g}% of that of being accepted, had its label been "
    "known to the same rule. Where most calibrations accept nothing, those that accept "
    "something exceed the rate, on real files by more than three times "
    "(docs/few_labels.md)."
)
BY_CHANCE = (
    "Careful: it passed with no error among {}, and would have failed with one. By the "
    "errors among all rows that was chance, and such gates break their promise more "
    "often than the confidence says. Calibrate on more rows."
)
NOTHING_ASSUMED = "Nothing is promised, so nothing is assumed."


def certify(  # noqa: PLR0913 - what a certificate is made of
    request: Request,
    sample: Sample,
    cut: Cut,
    outcome: Outcome | None,
    *,
    group_cuts: GroupCuts | None = None,
    notes: tuple[str, ...] = (),
) -> Certificate:
    """Return the certificate of a cut.

    `outcome` is what the cut did to the calibration rows, if that was counted.
    """
    promised = request.promised and (
        group_cuts.promised if group_cuts else cut.promised
    )
    mode = request.promise_mode if promised else "none"
    risk = request.tested_values.get("risk", 0.0)
    chance_rows = (
        group_cuts.passed_by_chance if group_cuts else _chance_rows(sample, cut, risk)
    )
    notes = (*notes, *(group_cuts.notes if group_cuts else ()))
    notes += (*_noise_notes(request), *_outcome_notes(request, outcome))
    counts = outcome.counts if outcome is not None and sample.labelled else None
    assumes = any(target.assumes_exchangeable for target in request.targets)
    return Certificate(
        target=request.target,
        rule=request.rule_words,
        assumption=EXCHANGEABLE if assumes else NOTHING_ASSUMED,
        mode=mode,
        confidence=request.confidence,
        n=len(sample),
        n_errors=sample.n_errors if sample.labelled else None,
        accepted=None if outcome is None else outcome.accepted,
        accepted_errors=None if counts is None else counts.accepted_errors,
        trivial=cut.trivial,
        outlook=outlooks(request, sample, cut),
        fingerprint=sample.fingerprint,
        notes=(*notes, *_confidence_notes(request, mode, chance_rows)),
        feasible=cut.feasible,
        passed=passed_thresholds(sample, cut, risk)
        if cut.passed and not group_cuts
        else (),
        passed_by_chance=mode != "none" and bool(chance_rows),
        label_noise=request.label_noise,
        candidates=request.candidates,
    )


def outlooks(request: Request, sample: Sample, cut: Cut) -> tuple[Outlook, ...]:
    """Return how often calibrations on such rows succeed, if this one did not."""
    has_both = sample.labelled and 0 < sample.n_errors < len(sample)
    if not (request.promised and cut.failed and has_both):
        return ()
    return find_sufficient_rows(sample, request.cut_all)


def _noise_notes(request: Request) -> list[str]:
    """Say what wrong labels do to the promise, if some may be wrong."""
    if not request.label_noise or not request.promised:
        return []
    noise, notes = 100 * request.label_noise, []
    for name, tested in request.tested_values.items():
        if not TARGETS[name].scaled_by_noise:
            notes.append(NOISE_SAFE.format(noise))
            continue
        limits = 100 * tested, 100 * request.target[name]
        notes.append(NOISE_SCALED.format(noise, name, *limits))
    return list(dict.fromkeys(notes))


def _outcome_notes(request: Request, outcome: Outcome | None) -> list[str]:
    """Return the targets' notes on the outcome on the calibration rows."""
    if outcome is None:
        return [UNSEEN]
    values = zip(request.targets, request.target.values(), strict=True)
    return [
        target.note(outcome.decisions, value, request.confidence)
        for target, value in values
        if target.note
    ]


def _chance_rows(sample: Sample, cut: Cut, risk: float) -> dict[Any, int]:
    """Return the accepted rows if the cut passed by chance, under an empty name."""
    if not passed_by_chance(sample, cut, risk):
        return {}
    return {"": max(passed.last for passed in cut.passed)}


def _confidence_notes(
    request: Request, mode: str, chance_rows: dict[Any, int]
) -> list[str]:
    """Say what the confidence means, and which gates deserve less of it."""
    if mode == "expectation" and "risk" in request.target:
        return [ON_AVERAGE.format(100 * request.target["risk"])]
    if mode != "confidence":
        return []
    confidence = request.confidence
    notes = [OVER_CALIBRATIONS.format(f"{confidence:g}", f"{100 * confidence:.6g}")]
    if chance_rows:
        groups = [
            f"{accepted:,} accepted rows{f' in group {name}' if name != '' else ''}"
            for name, accepted in chance_rows.items()
        ]
        notes.append(
            BY_CHANCE.format(", ".join(groups[:5]) + " ..." * (len(groups) > 5))
        )
    return notes
