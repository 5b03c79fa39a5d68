"""From a cut to its certificate: what is promised, and what to know of it."""

from dataclasses import replace
from typing import Any

from trustdoctor.gates.asked import Ask
from trustdoctor.gates.certificate import Certificate
from trustdoctor.gates.gate import Gate
from trustdoctor.gates.group_rules import Grouped
from trustdoctor.gates.outcome import Outcome
from trustdoctor.gates.outlook import passed_by_chance
from trustdoctor.gates.risk import list_passed
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
LUCK = (
    "Careful: it passed with no error among {}, where one would have been too many. By "
    "the errors among all rows that was luck, and such gates break their promise more "
    "often than the confidence says. Calibrate on more rows."
)
NOTHING_ASSUMED = "Nothing is promised, so nothing is assumed."


def certify(  # noqa: PLR0913 - what a certificate is made of
    ask: Ask,
    rows: Sample,
    cut: Cut,
    seen: Outcome | None,
    *,
    grouped: Grouped | None = None,
    notes: tuple[str, ...] = (),
) -> Certificate:
    """Return the certificate of a cut; `seen` is what it did to the rows, if known."""
    promised = ask.promised and (grouped.promised if grouped else not cut.broken)
    mode = ask.how if promised else "none"
    risk = ask.tested.get("risk", 0.0)
    lucky = grouped.lucky if grouped else _lucky(rows, cut, risk)
    notes = (*notes, *(grouped.notes if grouped else ()))
    notes += (*_noise_notes(ask), *_observed_notes(ask, seen))
    if seen is not None and not rows.labelled:
        seen = Outcome(seen.rows, seen.accepted)
    return Certificate(
        target=ask.target,
        rule=ask.words,
        assumption=EXCHANGEABLE
        if any(target.assumes for target in ask.targets)
        else NOTHING_ASSUMED,
        mode=mode,
        confidence=ask.confidence,
        n=len(rows),
        n_correct=len(rows) - rows.n_errors if rows.labelled else -1,
        n_errors=rows.n_errors if rows.labelled else -1,
        observed={} if seen is None else dict(seen.rates(confidence=ask.confidence)),
        trivial=cut.trivial,
        outlook=ask.outlook(rows, cut),
        fingerprint=rows.fingerprint,
        notes=(*notes, *_confidence_notes(ask, mode, lucky)),
        feasible=cut.feasible,
        passed=list_passed(rows, cut, risk) if cut.stages and not grouped else (),
        luck=mode != "none" and bool(lucky),
        label_noise=ask.label_noise,
        choices=ask.choices,
    )


def _noise_notes(ask: Ask) -> list[str]:
    """Say what wrong labels do to the promise, where some may be wrong."""
    if not ask.label_noise or not ask.promised:
        return []
    noise, notes = 100 * ask.label_noise, []
    for name, tested in ask.tested.items():
        if not TARGETS[name].scaled_by_noise:
            notes.append(NOISE_SAFE.format(noise))
            continue
        limits = 100 * tested, 100 * ask.target[name]
        notes.append(NOISE_SCALED.format(noise, name, *limits))
    return list(dict.fromkeys(notes))


def _observed_notes(ask: Ask, seen: Outcome | None) -> list[str]:
    """Say what targets have to say of what was seen."""
    if seen is None:
        return [UNSEEN]
    values = zip(ask.targets, ask.target.values(), strict=True)
    return [
        target.note(seen.decisions, value, ask.confidence)
        for target, value in values
        if target.note
    ]


def _lucky(rows: Sample, cut: Cut, risk: float) -> dict[Any, int]:
    """Return how many rows a gate accepts that passed by luck, by no group's name."""
    if not passed_by_chance(rows, cut, risk):
        return {}
    return {"": max(stage.last for stage in cut.stages)}


def _confidence_notes(ask: Ask, mode: str, lucky: dict[Any, int]) -> list[str]:
    """Say what the confidence counts, and which gates deserve less."""
    if mode != "confidence":
        return []
    sure = f"{ask.confidence:g}"
    notes = [OVER_CALIBRATIONS.format(sure, f"{100 * ask.confidence:.6g}")]
    if lucky:
        where = [f" in group {name}" if name != "" else "" for name in lucky]
        rows = [f"{accepted:,}" for accepted in lucky.values()]
        some = zip(rows[:5], where[:5], strict=True)
        named = ", ".join(f"{n} accepted rows{at}" for n, at in some)
        notes.append(LUCK.format(named + " ..." * (len(rows) > 5)))
    return notes


def with_notes(gate: Gate, *notes: str) -> Gate:
    """Return the gate, with more notes in its certificate."""
    assert gate.certificate is not None
    every = (*gate.certificate.notes, *notes)
    return replace(gate, certificate=replace(gate.certificate, notes=every))
