"""Puts an evaluation, its charts and its findings into the template."""

import base64
import html
import math
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from trustdoctor.arrays import Array
from trustdoctor.errors import InputError
from trustdoctor.evaluation import Evaluation, Protocols
from trustdoctor.gates import Gate, Outcome
from trustdoctor.metrics import (
    Estimate,
    Positions,
    Share,
    confusion,
    histogram,
    positions,
    reliability_bins,
    share,
)
from trustdoctor.predictions import Answers, Predictions
from trustdoctor.report.findings import MOST_CLASSES, by_class, confusions, extremes
from trustdoctor.report.template import MOST_NAME, fill_page, shorten
from trustdoctor.scores import SCORES

BASELINE = "msp"

Thumbnail = Callable[[int], bytes | None]


@dataclass(frozen=True)
class Extras:
    """What makes the page easier to read, where it is known.

    Attributes
    ----------
    class_names : sequence of str
        By default the predictions' own.
    ids : sequence
        One per row; by default the predictions' own, or numbers from 0.
    texts : sequence of str
        What was classified, one per row.
    thumbnails : callable
        Row number to a small JPEG or PNG, or None.
    source, file : str
        What the predictions came from: its name, and its path for commands.
    options : tuple of str
        Options of the command line that reading it takes.
    digest : str
        The file's SHA-256.
    perturbed : dict of str to Protocols
        Scores at perturbed inputs, by name.
    """

    class_names: Sequence[str] | None = None
    ids: Any = None
    texts: Sequence[str] | None = None
    thumbnails: Thumbnail | None = None
    source: str = ""
    file: str = ""
    options: tuple[str, ...] = ()
    digest: str = ""
    perturbed: Mapping[str, Protocols] = field(default_factory=dict)


def render(found: Evaluation, predictions: Predictions, extras: Extras) -> str:
    """Return the page. The same evaluation gives the same bytes."""
    names = extras.class_names or predictions.class_names
    extras = _of_kept(replace(extras, class_names=names), found.kept, predictions)
    _check(predictions, extras)
    content = _content(found, predictions, extras)
    return fill_page(
        "page",
        found=found,
        extras=extras,
        metrics=_METRICS,
        percent=lambda x: f"{x * 100:g}%",
        **content,
    )


def _of_kept(extras: Extras, kept: Array | None, predictions: Predictions) -> Extras:
    """Return what is known of the rows that have a label, where some have none."""
    listed: dict[str, Any] = {
        name: list(given)
        for name in ("ids", "texts")
        for given in [getattr(extras, name)]
        if hasattr(given, "__len__") and not isinstance(given, str)
    }
    extras = replace(extras, **listed)  # a Series is looked up by its index
    if kept is not None:
        every: Any = extras.thumbnails
        chosen: dict[str, Any] = {}
        for name in ("ids", "texts"):
            given = getattr(extras, name)
            if hasattr(given, "__len__") and len(given) > kept[-1]:
                chosen[name] = [given[row] for row in kept]
        if predictions.ids is None:
            chosen.setdefault("ids", kept.tolist())
        if callable(every):
            chosen["thumbnails"] = lambda row: every(int(kept[row]))
        extras = replace(extras, **chosen)
    ids = predictions.ids if extras.ids is None else extras.ids
    return replace(extras, ids=ids)


def _content(
    found: Evaluation, predictions: Predictions, extras: Extras
) -> dict[str, Any]:
    """Return what the template shows of the rows."""
    wrong, names = predictions.errors, list(found.scores)
    found = replace(found, doubts={n: _finite(s) for n, s in found.doubts.items()})
    charts = {name: positions(found.doubts[name], wrong) for name in names}
    first = names[0]
    scores = found.doubts[first]
    at = _opening(charts[first], found.settings.points.coverage)
    threshold = float(charts[first].thresholds[at])
    accepted = np.asarray(scores, np.float64) <= threshold
    confidence = found.settings.confidence
    command = _command(found, extras)
    opened = confusion(scores, wrong, threshold=threshold)
    classes = by_class(predictions, accepted, confidence)
    confident, doubtful = extremes(predictions, scores)
    show = _Shower(predictions, scores, extras)
    return {
        "payload": _payload(found, charts, at, command),
        "rows": _score_rows(found),
        "baseline": _baseline(found) if len(names) > 1 else "",
        "threshold": threshold,
        "opened": opened,
        "opening": _opened(Outcome.of(accepted, wrong), confidence),
        "commands": _commands(command, first, threshold, opened.frr),
        "notes": _notes(found),
        "classes": classes[:MOST_CLASSES],
        "n_classes_seen": len(classes),
        "pairs": confusions(predictions, accepted),
        "softmax": not isinstance(predictions, Answers),
        "named": extras.class_names or not isinstance(predictions, Answers),
        "rejects": Gate(threshold, score=_named(first)).rejects(threshold),
        "confident": [show(row) for row in confident],
        "doubtful": [show(row) for row in doubtful],
        "name_of": show.name_of,
    }


def _payload(
    found: Evaluation, charts: dict[str, Positions], at: int, command: dict[str, str]
) -> dict[str, Any]:
    """Return what the page's script works with."""
    assert found.predictions is not None
    wrong = found.predictions.errors
    return {
        "correct": int((~wrong).sum()),
        "errors": found.n_errors,
        "confidence": found.settings.confidence,
        "open": {"score": next(iter(charts)), "at": at},
        "scores": {
            name: _chart(chart, found.doubts[name], wrong, name)
            for name, chart in charts.items()
        },
        "reliability": _bins(found),
        "command": command,
    }


def frame(page: str, *, height: int = 900) -> str:
    """Return the page inside a frame, for a notebook's cell."""
    return (
        f'<iframe title="trustdoctor report" width="100%" height="{height}" '
        'sandbox="allow-scripts allow-forms" style="border:1px solid #ccc" '
        f'srcdoc="{html.escape(page, quote=True)}"></iframe>'
    )


_FAR = 1e300
_METRICS = (
    ("auroc", "AUROC"),
    ("frr_at_trr", "FRR@TRR"),
    ("aurc", "AURC"),
    ("risk_at_coverage", "risk@coverage"),
    ("coverage_at_risk", "coverage@risk"),
)


def _check(predictions: Predictions, extras: Extras) -> None:
    for name, wanted in (
        ("ids", len(predictions)),
        ("texts", len(predictions)),
        ("class_names", predictions.n_classes),
    ):
        if name == "class_names" and isinstance(predictions, Answers):
            continue
        given = getattr(extras, name)
        if given is not None and not hasattr(given, "__len__"):
            message = f"expected {name} as a list, got {given!r}."
            raise InputError(message)
        if given is not None and len(given) != wanted:
            message = f"expected {wanted:,} {name}, got {len(given):,}."
            raise InputError(message)
    if extras.thumbnails is not None and not callable(extras.thumbnails):
        message = "expected thumbnails as a function of a row's number."
        raise InputError(message)


def _finite(scores: Array) -> Array:
    """Return scores for charts: those of inf a little above all others.

    Finite ones stay where sums and differences of them are finite, too.
    """
    scores = scores.astype(np.float64)
    scores = np.where(np.isfinite(scores), np.clip(scores, -_FAR, _FAR), scores)
    endless = np.isposinf(scores)
    if not endless.any():
        return scores
    top = float(np.max(scores[~endless], initial=0.0))
    return np.where(endless, top + max(1.0, abs(top)) / 10, scores)


def _opening(chart: Positions, coverage: float) -> int:
    """Return the lowest threshold that accepts so many rows."""
    return int(np.argmax(chart.coverage >= coverage))


def _chart(chart: Positions, scores: Array, wrong: Array, name: str) -> dict[str, Any]:
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
        "odds": SCORES[name.partition(":")[0]].scale == "odds",
        "flag": _flag(name),
        "negated": name == "confidence",
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


def _command(found: Evaluation, extras: Extras) -> dict[str, str]:
    """Return the parts of the commands that the page offers."""
    file = shlex.quote(extras.file or extras.source or "PREDICTIONS")
    options = "".join(f" {shlex.quote(option)}" for option in extras.options)
    if found.settings.temperature != 1:
        options += f" --temperature {found.settings.temperature!r}"
    return {"file": file, "options": options}


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


def _notes(found: Evaluation) -> list[str]:
    """Return what is to be known about the numbers, each once."""
    cells = [cell for metrics in found.scores.values() for cell in metrics.values()]
    cells += found.calibration.values()
    return list(dict.fromkeys(cell.note for cell in cells if cell.note))


def _opened(done: Outcome, confidence: float) -> dict[str, Share]:
    """Return the rates at the threshold that the page opens with."""
    none = {name: share(0, 0) for name in ("frr", "trr", "risk")}
    rejected = share(done.rows - done.accepted, done.rows, confidence=confidence)
    return none | done.rates(confidence=confidence) | {"rejected": rejected}


def _named(score: str) -> str | None:
    """Return a score's name, by which commands know it; None for a fitted one."""
    fitted = isinstance(SCORES[score.partition(":")[0]], type)
    return None if fitted else score


def _flag(score: str) -> str:
    """Return what --score takes: a name, or the file of a fitted score."""
    return _named(score) or f"{score}.safetensors"


def _commands(
    command: dict[str, str], score: str, threshold: float, frr: float
) -> dict[str, str]:
    """Return the two commands as the page opens, as its script writes them later."""
    rest = f"--score {_flag(score)}{command['options']} -o gate.json"
    target = 0.05
    if frr == frr:  # there are right predictions
        target = min(0.99, max(0.001, math.ceil(1000 * frr) / 1000))
    given = 0 - threshold if score == "confidence" else threshold
    own = f"{command['file']} --threshold={given}"
    return {
        "gate": f"trustdoctor calibrate {own} {rest}",
        "promise": f"trustdoctor calibrate OTHER_ROWS --frr {target:g} {rest}",
    }


class _Shower:
    """Describes single rows."""

    def __init__(self, predictions: Predictions, scores: Array, extras: Extras) -> None:
        self.predictions, self.scores, self.extras = predictions, scores, extras
        stated = getattr(predictions, "given", "") == "confidence"
        self.sign = -1 if stated else 1  # the doubt is minus the confidence

    def name_of(self, label: int) -> str:
        names = self.extras.class_names
        if names is None:
            return "" if isinstance(self.predictions, Answers) else str(label)
        return shorten(names[label], MOST_NAME) if label < len(names) else ""

    def __call__(self, row: int) -> dict[str, Any]:
        labels = self.predictions.require_labels("rows")
        extras = self.extras
        identity = row if extras.ids is None else extras.ids[row]
        return {
            "id": shorten(identity, MOST_NAME),
            "label": self.name_of(int(labels[row])),
            "predicted": self.name_of(int(self.predictions.predicted[row])),
            "score": f"{self.sign * float(self.scores[row]):.3f}",
            "text": None if extras.texts is None else shorten(extras.texts[row]),
            "image": self._image(row),
        }

    def _image(self, row: int) -> str | None:
        raw = self.extras.thumbnails(row) if self.extras.thumbnails else None
        if raw is None:
            return None
        kind = "png" if raw.startswith(b"\x89PNG") else "jpeg"
        return f"data:image/{kind};base64,{base64.b64encode(raw).decode()}"
