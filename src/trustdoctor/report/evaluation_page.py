"""Puts an evaluation, its charts and its tables into the template.

The page opens with what a reader without JavaScript sees, too: its script writes the
same words and numbers again whenever the threshold or the score changes.
"""

import math
from dataclasses import asdict
from pathlib import PurePath
from typing import Any

import numpy as np

from trustdoctor.arrays import Array
from trustdoctor.evaluation import DominantConfusion, Evaluation
from trustdoctor.gates import Outcome
from trustdoctor.metrics import (
    Estimate,
    ThresholdGrid,
    histogram,
    reliability_bins,
    share,
    threshold_grid,
)
from trustdoctor.predictions import Predictions
from trustdoctor.report.class_tables import (
    AcceptedCounts,
    TableSubjects,
    count_tables,
    find_subjects,
    table_places,
)
from trustdoctor.report.commands import Commands, offer_commands
from trustdoctor.report.extras import Extras
from trustdoctor.report.offers import (
    PRICE,
    Offer,
    about_place,
    best_score,
    choose_opening,
    make_offers,
    place_of,
    say_alike,
    without_promise,
)
from trustdoctor.report.row_examples import RowExamples, finite
from trustdoctor.report.template import fill_page
from trustdoctor.scores import SCORES

BASELINE = "msp"

FIRST_VALUES = {"risk": 0.01, "frr": 0.05, "coverage": 0.9}
"""What the page's questions show before anything is asked."""

_METRICS = (
    ("auroc", "AUROC"),
    ("frr_at_trr", "FRR@TRR"),
    ("aurc", "AURC"),
    ("risk_at_coverage", "risk@coverage"),
    ("coverage_at_risk", "coverage@risk"),
)


def render(evaluation: Evaluation, predictions: Predictions, extras: Extras) -> str:
    """Return the page. The same evaluation gives the same bytes."""
    extras = extras.of(predictions, evaluation.labelled_rows)
    return fill_page(
        "evaluation",
        scripts=("sortable_tables.js", "intervals.js", "commands.js"),
        evaluation=evaluation,
        extras=extras,
        metrics=_METRICS,
        percent=lambda rate: f"{rate * 100:g}%",
        **_content(evaluation, predictions, extras),
    )


def _content(
    evaluation: Evaluation, predictions: Predictions, extras: Extras
) -> dict[str, Any]:
    """Return what the template shows of the rows."""
    errors = predictions.errors
    doubts = {name: finite(evaluation.doubts[name]) for name in evaluation.scores}
    grids = {name: threshold_grid(scores, errors) for name, scores in doubts.items()}
    first, best = next(iter(grids)), best_score(evaluation)
    offers = _offers(doubts, evaluation, best, extras)
    if evaluation.odd_labels:
        reason = evaluation.odd_labels[0]
        offers = {name: without_promise(o, reason) for name, o in offers.items()}
    opening = choose_opening(offers[best], float(errors.mean())) if offers else None
    place = 0 if opening is None else place_of(opening, grids[best])
    threshold = float(grids[best].thresholds[place])
    subjects = find_subjects(predictions)
    outcome = Outcome.of(doubts[best] <= threshold, errors)
    commands = offer_commands(evaluation, extras)
    payload = _counts(evaluation, grids, doubts, subjects)
    payload |= _rows_and_classes(predictions, doubts, extras, subjects)
    payload |= {"command": asdict(commands), "elsewhere": bool(extras.calibrate_on)}
    for name, score_offers in offers.items():
        confusions = _confusions(
            predictions, subjects, doubts[name], grids[name], score_offers
        )
        payload["scores"][name]["offers"] = [
            _plain_offer(offer, grids[name]) | {"confusion": words}
            for offer, words in zip(score_offers, confusions, strict=True)
        ]
        note = _promise_note(name, first, extras)
        if evaluation.clustered_by:
            note = f"One row of each {evaluation.clustered_by} makes the gate. {note}"
        payload["scores"][name]["note"] = note
    content: dict[str, Any] = {
        "payload": payload,
        "score_rows": _score_rows(evaluation),
        "baseline": _baseline(evaluation) if len(grids) > 1 else "",
        "best": best,
        "alike": say_alike(evaluation, best),
        "opening": opening,
        "confusion": "",
        "about": "",
        "note": payload["scores"][best].get("note", ""),
        "chosen": FIRST_VALUES,
        "choices": _choices(offers.get(best, ())),
        "rates": _rates(outcome, evaluation.settings.confidence),
        "threshold": threshold,
        "commands": {},
        "offered": commands,
        "first": first,
        "price": PRICE,
        "cautions": _cautions(evaluation, best),
        "subjects": subjects,
        "named": payload["named"],
    }
    if opening is not None:
        payload["open"] = {
            "score": best,
            "at": place,
            "target": opening.target,
            "value": opening.value,
        }
        content |= {
            "confusion": _opening_confusion(payload, best, opening),
            "about": about_place(opening),
            "chosen": FIRST_VALUES | {opening.target: opening.value},
            "commands": _opening_commands(commands, best, threshold, opening),
        }
    return content


def _counts(
    evaluation: Evaluation,
    grids: dict[str, ThresholdGrid],
    doubts: dict[str, Array],
    subjects: TableSubjects,
) -> dict[str, Any]:
    """Return the counts that the page's script works with."""
    assert evaluation.predictions is not None
    errors = evaluation.predictions.errors
    scores = {}
    for name, grid in grids.items():
        at = table_places(subjects, len(grid.thresholds), len(grids))
        counts = count_tables(subjects, doubts[name], errors, grid.thresholds, at)
        curve = _curve(grid, doubts[name], errors, name)
        scores[name] = curve | _table_steps(counts)
    return {
        "correct": evaluation.n - evaluation.n_errors,
        "errors": evaluation.n_errors,
        "confidence": evaluation.settings.confidence,
        "reliability": _reliability(evaluation),
        "scores": scores,
    }


def _rows_and_classes(
    predictions: Predictions,
    doubts: dict[str, Array],
    extras: Extras,
    subjects: TableSubjects,
) -> dict[str, Any]:
    """Return single rows, and classes by their names."""
    examples = RowExamples(predictions, doubts, extras)
    name = examples.class_name
    pairs = zip(subjects.pairs, subjects.sizes, strict=True)
    return {
        "classes": [name(int(label)) for label in subjects.classes],
        "pairs": [
            [name(int(label)), name(int(predicted)), int(size)]
            for (label, predicted), size in pairs
        ],
        "rows": examples.rows,
        "kinds": examples.kinds,
        "named": bool(extras.class_names) or predictions.answers_known,
    }


def _curve(
    grid: ThresholdGrid, scores: Array, errors: Array, name: str
) -> dict[str, Any]:
    """Return the thresholds of a score, with steps of counts, which are short."""
    edges, right, wrong = histogram(scores, errors)
    return {
        "thresholds": grid.thresholds.tolist(),
        "correct": np.diff(grid.correct, prepend=0).tolist(),
        "errors": np.diff(grid.errors, prepend=0).tolist(),
        "distinct": grid.distinct,
        "step": grid.step,
        "edges": _rounded_edges(edges),
        "right": right.tolist(),
        "wrong": wrong.tolist(),
        "odds": _registered(name).scale == "odds",
        "negated": name == "confidence",
    }


def _table_steps(counts: AcceptedCounts) -> dict[str, Any]:
    """Return counts as steps from one threshold to the next, which are short."""

    def steps(totals: Array) -> list[list[int]]:
        return np.diff(totals, axis=1, prepend=0).tolist()

    return {
        "tableAt": counts.at.tolist(),
        "classRight": steps(counts.right),
        "classWrong": steps(counts.wrong),
        "pairWrong": steps(counts.pairs),
    }


def _rounded_edges(edges: Array) -> list[float]:
    """Return edges with as few digits as their distance allows."""
    span = float(edges[-1] - edges[0])
    if not span > 0:  # the scores are one number
        return edges.tolist()
    digits = 5 - math.floor(math.log10(span))
    return [round(float(edge), digits) for edge in edges]


def _reliability(evaluation: Evaluation) -> list[list[float | None]]:
    settings = evaluation.settings
    assert evaluation.predictions is not None
    if not evaluation.calibration:
        return []
    bins = reliability_bins(
        evaluation.predictions,
        temperature=settings.temperature,
        confidence=settings.confidence,
        doubts=evaluation.doubts,
    )
    return [
        [b.n, b.confidence, b.accuracy.value, b.accuracy.low, b.accuracy.high]
        for b in bins
    ]


def _score_rows(
    evaluation: Evaluation,
) -> list[tuple[str, dict[str, Estimate], Estimate | None]]:
    """Return each score with its metrics and its paired difference to the baseline."""
    return [
        (name, metrics, _auroc_gain(evaluation, name))
        for name, metrics in evaluation.scores.items()
    ]


def _auroc_gain(evaluation: Evaluation, name: str) -> Estimate | None:
    """Return how much AUROC a score has more than the baseline."""
    pair = {name, _baseline(evaluation)}
    for difference in evaluation.differences:
        if (
            difference.metric == "auroc"
            and {difference.first, difference.second} == pair
        ):
            if difference.first == name:
                return difference
            low, high = (
                None if end is None else -end
                for end in (difference.high, difference.low)
            )
            return Estimate(-(difference.value or 0.0), low, high)
    return None


def _baseline(evaluation: Evaluation) -> str:
    """Return what scores are compared with: softmax response, or the first."""
    return BASELINE if BASELINE in evaluation.scores else next(iter(evaluation.scores))


def _cautions(evaluation: Evaluation, best: str) -> list[str]:
    """Return what is to be known before the numbers are used, each once."""
    estimates = [e for metrics in evaluation.scores.values() for e in metrics.values()]
    estimates += evaluation.calibration.values()
    notes = dict.fromkeys(estimate.note for estimate in estimates)
    cautions = [f"Careful: {note}." for note in notes if note]
    auroc = evaluation.scores[best]["auroc"]
    if auroc.high is not None and auroc.high < 0.5:
        cautions.insert(
            0,
            f"{best} ranks wrong answers below right ones: AUROC {auroc.percent()} %, "
            "where 50% is chance. Check the labels, and which way the numbers go.",
        )
    elif auroc.low is not None and auroc.low <= 0.5:
        cautions.insert(
            0,
            f"{best} does not clearly tell wrong answers from right ones here: AUROC "
            f"{auroc.percent()} %, where 50% is chance. A gate on it is of little use.",
        )
    return cautions


def _rates(outcome: Outcome, confidence: float) -> dict[str, Estimate]:
    """Return the rates at the threshold that the page opens with."""
    undefined = {name: share(0, 0) for name in ("frr", "trr", "risk")}
    n_rejected = outcome.rows - outcome.accepted
    rejected = share(n_rejected, outcome.rows, confidence=confidence)
    rates = outcome.rates(confidence=confidence)
    return undefined | rates | {"rejected": rejected}


def _offers(
    doubts: dict[str, Array], evaluation: Evaluation, best: str, extras: Extras
) -> dict[str, tuple[Offer, ...]]:
    """Return what gates would promise, by score; those that rank alike share it."""
    assert evaluation.predictions is not None
    errors = evaluation.predictions.errors
    if errors.all() or not errors.any():
        return {}

    def score_offers(name: str, *, count_rows: bool = False) -> tuple[Offer, ...]:
        return make_offers(
            doubts[name],
            errors,
            extras.calibration_rows,
            clusters=evaluation.clusters,
            count_rows=count_rows,
        )

    rankings = {
        name: getattr(_registered(name), "ranks_as", "") or name for name in doubts
    }
    offers = {rankings[best]: score_offers(best, count_rows=True)}
    for name, ranking in rankings.items():
        if ranking not in offers:
            offers[ranking] = score_offers(name)
    return {name: offers[ranking] for name, ranking in rankings.items()}


def _registered(name: str) -> Any:
    """Return the score that is registered by a name, whatever its parameters."""
    return SCORES[name.partition(":")[0]]


def _opening_confusion(payload: dict[str, Any], best: str, opening: Offer) -> str:
    offers = payload["scores"][best]["offers"]
    words: str = next(
        offer["confusion"]
        for offer in offers
        if (offer["target"], offer["value"]) == (opening.target, opening.value)
    )
    return words


def _plain_offer(offer: Offer, grid: ThresholdGrid) -> dict[str, Any]:
    """Return an offer as the page's script takes it."""
    return {
        "target": offer.target,
        "value": offer.value,
        "headline": offer.headline,
        "detail": offer.detail,
        "at": place_of(offer, grid),
        "about": about_place(offer),
    }


def _confusions(
    predictions: Predictions,
    subjects: TableSubjects,
    doubts: Array,
    grid: ThresholdGrid,
    offers: tuple[Offer, ...],
) -> list[str]:
    """Say of each offer which confusion most errors that go out have in common.

    Only the confusions that the page has: one that dominates is among them.
    """
    places = np.array([place_of(offer, grid) for offer in offers])
    if not len(subjects.pairs):
        return [""] * len(offers)
    at, columns = np.unique(places, return_inverse=True)
    counts = count_tables(subjects, doubts, predictions.errors, grid.thresholds, at)
    largest = counts.pairs.argmax(axis=0)
    labels = predictions.require_labels("confusions")
    sentences = []
    for place, column in zip(places, columns, strict=True):
        pair = largest[column]
        label, predicted = subjects.pairs[pair]
        confusion = DominantConfusion.dominating(
            int(label),
            int(predicted),
            n_out=int(counts.pairs[pair, column]),
            errors_out=int(grid.errors[place]),
            n_confused=int(subjects.sizes[pair]),
            n_labelled=int(np.count_nonzero(labels == label)),
            class_names=predictions.class_names,
        )
        sentences.append(f"On these rows: {confusion.sentence()}" if confusion else "")
    return sentences


def _promise_note(score: str, first: str, extras: Extras) -> str:
    """Say from which rows the offered command makes a gate, and whether it may."""
    if extras.calibrate_on:
        n_rows = extras.calibration_rows
        rows = f"{n_rows:,} rows" if n_rows else "rows"
        name = PurePath(extras.calibrate_on).name
        if extras.shared_rows:
            return (
                f"Careful: {extras.shared_rows:,} of the {rows} of {name} are rows of "
                "this page, too. If you choose the value or the score here, the "
                "promise does not hold: it needs rows that had no part in the choice."
            )
        return (
            f"{name} has {rows} that had no part in this page, so you may choose the "
            "value and the score here:"
        )
    if score != first:
        return (
            f"If you choose {score} because of these rows, other rows have to make the "
            f"gate, as below. If you wanted {score} and this value anyway, these may:"
        )
    return (
        "If you wanted this value before you saw the page, these rows may make the "
        "gate: nothing was chosen on them."
    )


def _choices(offers: tuple[Offer, ...]) -> dict[str, list[float]]:
    """Return the values that the page offers, by target."""
    choices: dict[str, list[float]] = {}
    for offer in offers:
        choices.setdefault(offer.target, []).append(offer.value)
    return choices


def _opening_commands(
    commands: Commands, score: str, threshold: float, opening: Offer
) -> dict[str, str]:
    """Return the commands as the page opens, as its script writes them later."""
    # On the command line, a threshold on a confidence is its least value.
    is_negated = commands.shell and score == "confidence"
    flag = commands.flags[score]
    before, between, after = commands.gate
    target = commands.target(opening.target, opening.value)
    cut = commands.target("threshold", 0 - threshold if is_negated else threshold)
    return {
        "promise": f"{before}{target}{between}{flag}{after}",
        "gate": f"{commands.cut[0]}{cut}{commands.cut[1]}{flag}{commands.cut[2]}",
        "menu": f"{commands.menu[0]}{flag}{commands.menu[1]}",
    }
