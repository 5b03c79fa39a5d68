"""Puts an evaluation, its charts and its findings into the template.

The page opens with what a reader without JavaScript sees, too: its script writes the
same words and numbers again wherever the threshold or the score changes.
"""

import html
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
from trustdoctor.report.advice import PRICE, best_score, say_alike
from trustdoctor.report.commands import Commands, offer_commands
from trustdoctor.report.extras import Extras
from trustdoctor.report.findings import (
    Counted,
    Subjects,
    count_tables,
    find_subjects,
    table_places,
)
from trustdoctor.report.offers import (
    Offer,
    about_place,
    choose_opening,
    make_offers,
    place_of,
    without_promise,
)
from trustdoctor.report.shown_rows import ShownRows, finite
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


def render(found: Evaluation, predictions: Predictions, extras: Extras) -> str:
    """Return the page. The same evaluation gives the same bytes."""
    extras = extras.of(predictions, found.labelled_rows)
    return fill_page(
        "page",
        scripts=("intervals.js", "tables.js", "copying.js"),
        found=found,
        extras=extras,
        metrics=_METRICS,
        percent=lambda x: f"{x * 100:g}%",
        **_content(found, predictions, extras),
    )


def frame(page: str, *, height: int = 900) -> str:
    """Return the page inside a frame, for a notebook's cell."""
    return (
        f'<iframe title="trustdoctor report" width="100%" height="{height}" '
        'sandbox="allow-scripts allow-forms allow-downloads" '
        'style="border:1px solid #ccc" '
        f'srcdoc="{html.escape(page, quote=True)}"></iframe>'
    )


def _content(
    found: Evaluation, predictions: Predictions, extras: Extras
) -> dict[str, Any]:
    """Return what the template shows of the rows."""
    wrong = predictions.errors
    doubts = {name: finite(found.doubts[name]) for name in found.scores}
    charts = {name: threshold_grid(scores, wrong) for name, scores in doubts.items()}
    first, best = next(iter(charts)), best_score(found)
    offers = _offers(doubts, found, best, extras)
    if found.odd_labels:
        why = found.odd_labels[0]
        offers = {name: without_promise(own, why) for name, own in offers.items()}
    opened = choose_opening(offers[best], float(wrong.mean())) if offers else None
    place = 0 if opened is None else place_of(opened, charts[best])
    threshold = float(charts[best].thresholds[place])
    subjects = find_subjects(predictions)
    accepted = Outcome.of(doubts[best] <= threshold, wrong)
    commands = offer_commands(found, extras)
    payload = _payload(found, charts, doubts, subjects)
    payload |= _shown_rows(predictions, doubts, extras, subjects)
    payload |= {"command": asdict(commands), "elsewhere": bool(extras.calibrate_on)}
    for name, offered in offers.items():
        chart = charts[name]
        confusions = _confusions(predictions, subjects, doubts[name], chart, offered)
        payload["scores"][name]["offers"] = [
            _shown_offer(offer, chart) | {"confusion": words}
            for offer, words in zip(offered, confusions, strict=True)
        ]
        note = _promise_note(name, first, extras)
        if found.clustered_by:
            note = f"One row of each {found.clustered_by} makes the gate. {note}"
        payload["scores"][name]["note"] = note
    if opened is not None:
        payload["open"] = {"score": best, "at": place}
        payload["open"] |= {"target": opened.target, "value": opened.value}
    return {
        "payload": payload,
        "score_rows": _score_rows(found),
        "baseline": _baseline(found) if len(charts) > 1 else "",
        "best": best,
        "alike": say_alike(found, best),
        "opened": opened,
        "confusion": _opening_confusion(payload, best, opened),
        "about": "" if opened is None else about_place(opened),
        "note": payload["scores"][best].get("note", ""),
        "chosen": FIRST_VALUES | ({opened.target: opened.value} if opened else {}),
        "choices": _choices(offers.get(best, ())),
        "rates": _rates(accepted, found.settings.confidence),
        "threshold": threshold,
        "commands": {}
        if opened is None
        else _shown_commands(commands, best, threshold, opened),
        "offered": commands,
        "first": first,
        "price": PRICE,
        "cautions": _cautions(found, best),
        "subjects": subjects,
        "named": payload["named"],
    }


def _payload(
    found: Evaluation,
    charts: dict[str, ThresholdGrid],
    doubts: dict[str, Array],
    subjects: Subjects,
) -> dict[str, Any]:
    """Return the counts that the page's script works with."""
    assert found.predictions is not None
    wrong = found.predictions.errors
    return {
        "correct": found.n - found.n_errors,
        "errors": found.n_errors,
        "confidence": found.settings.confidence,
        "reliability": _bins(found),
        "scores": {
            name: _chart(own, doubts[name], wrong, name)
            | _tables(
                count_tables(
                    subjects,
                    doubts[name],
                    wrong,
                    own.thresholds,
                    table_places(subjects, len(own.thresholds), len(charts)),
                )
            )
            for name, own in charts.items()
        },
    }


def _shown_rows(
    predictions: Predictions,
    doubts: dict[str, Array],
    extras: Extras,
    subjects: Subjects,
) -> dict[str, Any]:
    """Return single rows, and classes by their names."""
    rows = ShownRows(predictions, doubts, extras)
    return {
        "classes": [rows.name_of(int(label)) for label in subjects.classes],
        "pairs": _named_pairs(subjects, rows),
        "rows": rows.rows,
        "kinds": rows.kinds,
        "named": bool(extras.class_names) or predictions.answers_known,
    }


def _named_pairs(subjects: Subjects, rows: ShownRows) -> list[list[Any]]:
    return [
        [rows.name_of(int(label)), rows.name_of(int(predicted)), int(n)]
        for (label, predicted), n in zip(subjects.pairs, subjects.sizes, strict=True)
    ]


def _chart(
    chart: ThresholdGrid, scores: Array, wrong: Array, name: str
) -> dict[str, Any]:
    edges, right, bad = histogram(scores, wrong)
    return {
        "thresholds": chart.thresholds.tolist(),
        "correct": np.diff(chart.correct, prepend=0).tolist(),
        "errors": np.diff(chart.errors, prepend=0).tolist(),
        "distinct": chart.distinct,
        "step": chart.step,
        "edges": _rounded(edges),
        "right": right.tolist(),
        "wrong": bad.tolist(),
        "odds": _score(name).scale == "odds",
        "negated": name == "confidence",
    }


def _tables(counted: Counted) -> dict[str, Any]:
    """Return counts as steps from one threshold to the next, which are short."""

    def steps(counts: Array) -> list[list[int]]:
        return np.diff(counts, axis=1, prepend=0).tolist()

    return {
        "tableAt": counted.at.tolist(),
        "classRight": steps(counted.right),
        "classWrong": steps(counted.wrong),
        "pairWrong": steps(counted.pairs),
    }


def _rounded(edges: Array) -> list[float]:
    """Return edges in few digits, for their distance to each other."""
    span = float(edges[-1] - edges[0])
    if not span > 0:  # the scores are one number
        return edges.tolist()
    digits = 5 - math.floor(math.log10(span))
    return [round(float(edge), digits) for edge in edges]


def _bins(found: Evaluation) -> list[list[float | None]]:
    at = found.settings
    assert found.predictions is not None
    if not found.calibration:
        return []
    bins = reliability_bins(
        found.predictions,
        temperature=at.temperature,
        confidence=at.confidence,
        doubts=found.doubts,
    )
    return [
        [b.n, b.confidence, b.accuracy.value, b.accuracy.low, b.accuracy.high]
        for b in bins
    ]


def _score_rows(
    found: Evaluation,
) -> list[tuple[str, dict[str, Estimate], Estimate | None]]:
    """Return each score with its metrics and its paired difference to the baseline."""
    return [
        (name, metrics, _against(found, name)) for name, metrics in found.scores.items()
    ]


def _against(found: Evaluation, name: str) -> Estimate | None:
    other = _baseline(found)
    for d in found.differences:
        if d.metric == "auroc" and {d.first, d.second} == {name, other}:
            if d.first == name:
                return d
            low, high = (None if end is None else -end for end in (d.high, d.low))
            return Estimate(-(d.value or 0.0), low, high)
    return None


def _baseline(found: Evaluation) -> str:
    """Return what scores are compared with: softmax response, or the first."""
    return BASELINE if BASELINE in found.scores else next(iter(found.scores))


def _cautions(found: Evaluation, best: str) -> list[str]:
    """Return what is to be known before the numbers are used, each once."""
    cells = [cell for metrics in found.scores.values() for cell in metrics.values()]
    cells += found.calibration.values()
    out = [f"Careful: {note}." for note in dict.fromkeys(c.note for c in cells) if note]
    area = found.scores[best]["auroc"]
    if area.high is not None and area.high < 0.5:
        out.insert(
            0,
            f"{best} ranks wrong answers below right ones: AUROC {area.percent()} %, "
            "where 50% is chance. Check the labels, and which way the numbers go.",
        )
    elif area.low is not None and area.low <= 0.5:
        out.insert(
            0,
            f"{best} does not clearly tell wrong answers from right ones here: AUROC "
            f"{area.percent()} %, where 50% is chance. A gate on it is of little use.",
        )
    return out


def _rates(done: Outcome, confidence: float) -> dict[str, Estimate]:
    """Return the rates at the threshold that the page opens with."""
    none = {name: share(0, 0) for name in ("frr", "trr", "risk")}
    rejected = share(done.rows - done.accepted, done.rows, confidence=confidence)
    return none | done.rates(confidence=confidence) | {"rejected": rejected}


def _offers(
    doubts: dict[str, Array], found: Evaluation, best: str, extras: Extras
) -> dict[str, tuple[Offer, ...]]:
    """Return what gates would promise, by score; those that rank alike share it."""
    assert found.predictions is not None
    wrong = found.predictions.errors
    if wrong.all() or not wrong.any():
        return {}
    size = extras.calibration_rows

    def offers_of(name: str, *, count_rows: bool = False) -> tuple[Offer, ...]:
        return make_offers(
            doubts[name], wrong, size, clusters=found.clusters, count_rows=count_rows
        )

    rankings = {name: getattr(_score(name), "ranks_as", "") or name for name in doubts}
    offers = {rankings[best]: offers_of(best, count_rows=True)}
    for name, ranking in rankings.items():
        if ranking not in offers:
            offers[ranking] = offers_of(name)
    return {name: offers[ranking] for name, ranking in rankings.items()}


def _score(name: str) -> Any:
    return SCORES[name.partition(":")[0]]


def _opening_confusion(payload: dict[str, Any], best: str, opened: Offer | None) -> str:
    if opened is None:
        return ""
    asked = (opened.target, opened.value)
    every = payload["scores"][best]["offers"]
    words: str = next(
        o["confusion"] for o in every if (o["target"], o["value"]) == asked
    )
    return words


def _shown_offer(offer: Offer, chart: ThresholdGrid) -> dict[str, Any]:
    """Return an offer as the page's script takes it."""
    return {
        "target": offer.target,
        "value": offer.value,
        "headline": offer.headline,
        "detail": offer.detail,
        "at": place_of(offer, chart),
        "about": about_place(offer),
    }


def _confusions(
    predictions: Predictions,
    subjects: Subjects,
    doubts: Array,
    chart: ThresholdGrid,
    offers: tuple[Offer, ...],
) -> list[str]:
    """Say of each offer which confusion most errors that go out have in common.

    Of the confusions that the page has; one that dominates is among them.
    """
    places = np.array([place_of(offer, chart) for offer in offers])
    if not len(subjects.pairs):
        return [""] * len(offers)
    at, where = np.unique(places, return_inverse=True)
    counted = count_tables(subjects, doubts, predictions.errors, chart.thresholds, at)
    most = counted.pairs.argmax(axis=0)
    labels = predictions.require_labels("confusions")
    words = []
    for place, column in zip(places, where, strict=True):
        pair = most[column]
        label, predicted = subjects.pairs[pair]
        confusion = DominantConfusion.dominating(
            int(label),
            int(predicted),
            n_out=int(counted.pairs[pair, column]),
            errors_out=int(chart.errors[place]),
            n_confused=int(subjects.sizes[pair]),
            n_labelled=int(np.count_nonzero(labels == label)),
            class_names=predictions.class_names,
        )
        words.append(f"On these rows: {confusion.sentence()}" if confusion else "")
    return words


def _promise_note(score: str, first: str, extras: Extras) -> str:
    """Say from which rows the offered command makes a gate, and whether it may."""
    if extras.calibrate_on:
        rows = extras.calibration_rows
        many = f"{rows:,} rows" if rows else "rows"
        name = PurePath(extras.calibrate_on).name
        if extras.shared_rows:
            return (
                f"Careful: {extras.shared_rows:,} of the {many} of {name} are rows of "
                "this page, too. If you choose the value or the score here, the "
                "promise does not hold: it needs rows that had no part in the choice."
            )
        return (
            f"{name} has {many} that had no part in this page, so you may choose the "
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


def _shown_commands(
    commands: Commands, score: str, threshold: float, opened: Offer
) -> dict[str, str]:
    """Return the commands as the page opens, as its script writes them later."""
    negated = commands.shell and score == "confidence"
    flag = commands.flags[score]
    before, between, after = commands.gate
    target = commands.target(opened.target, opened.value)
    cut = commands.target("threshold", 0 - threshold if negated else threshold)
    return {
        "promise": f"{before}{target}{between}{flag}{after}",
        "gate": f"{commands.cut[0]}{cut}{commands.cut[1]}{flag}{commands.cut[2]}",
        "menu": f"{commands.menu[0]}{flag}{commands.menu[1]}",
    }
