"""Puts an evaluation, its charts and its findings into the template."""

import base64
import hashlib
import html
import json
import math
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from importlib.resources import files
from typing import Any

import numpy as np

from trustdoctor.charts import Positions, histogram, positions, reliability
from trustdoctor.curves import Array
from trustdoctor.errors import InputError
from trustdoctor.estimate import Estimate
from trustdoctor.evaluate import Difference, Evaluation
from trustdoctor.metrics import Confusion, confusion
from trustdoctor.predictions import Predictions
from trustdoctor.protocols import Protocols
from trustdoctor.report.findings import (
    MOST_CLASSES,
    Rate,
    by_class,
    confusions,
    extremes,
    rate,
)
from trustdoctor.scores import SCORES

MOST_TEXT = 400
MOST_NAME = 80
BASELINE = "msp"

Thumbnail = Callable[[int], bytes | None]


@dataclass(frozen=True)
class Extras:
    """What makes the page easier to read, where it is known.

    Attributes
    ----------
    class_names : sequence of str
    ids : sequence
        One a row; by default rows are numbered from 0.
    texts : sequence of str
        What was classified, one a row.
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
    ids: Sequence[Any] | None = None
    texts: Sequence[str] | None = None
    thumbnails: Thumbnail | None = None
    source: str = ""
    file: str = ""
    options: tuple[str, ...] = ()
    digest: str = ""
    perturbed: Mapping[str, Protocols] = field(default_factory=dict)


def render(found: Evaluation, predictions: Predictions, extras: Extras) -> str:
    """Return the page. The same evaluation gives the same bytes."""
    from jinja2 import Environment

    _check(predictions, extras)
    parts = {name: _file(name) for name in ("page.css", "page.js")}
    environment = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    environment.filters |= {"estimate": _estimate, "rate": _rate, "counts": _counts}
    template = environment.from_string(_file("page.html"))
    names = list(found.scores)
    wrong = predictions.errors
    scored = {name: _score(predictions, name, found) for name in names}
    charts = {name: positions(scores, wrong) for name, scores in scored.items()}
    first = names[0]
    at = _opening(charts[first], found.settings.points.coverage)
    threshold = float(charts[first].thresholds[at])
    accepted = np.asarray(scored[first], np.float64) <= threshold
    confidence = found.settings.confidence
    command = _command(found, extras)
    payload = {
        "hits": int((~wrong).sum()),
        "errors": found.n_errors,
        "confidence": confidence,
        "open": {"score": first, "at": at},
        "scores": {
            name: _chart(charts[name], scored[name], wrong, name) for name in names
        },
        "reliability": _bins(predictions, found),
        "command": command,
    }
    at_opening = confusion(scored[first], wrong, threshold=threshold)
    classes = by_class(predictions, accepted, confidence)
    confident, doubtful = extremes(predictions, scored[first])
    show = _Shower(predictions, scored[first], extras)
    return template.render(
        found=found,
        extras=extras,
        version=version("trustdoctor"),
        css=parts["page.css"],
        js=parts["page.js"],
        script_hash=_script_hash(parts["page.js"]),
        payload=_embedded(payload),
        rows=_score_rows(found),
        baseline=_baseline(found) if len(found.scores) > 1 else "",
        threshold=threshold,
        opened=at_opening,
        opening=_opened(at_opening, confidence),
        commands=_commands(command, first, threshold, at_opening.frr),
        notes=_notes(found),
        classes=classes[:MOST_CLASSES],
        n_classes_seen=len(classes),
        pairs=confusions(predictions, accepted),
        confident=[show(row) for row in confident],
        doubtful=[show(row) for row in doubtful],
        name_of=show.name_of,
        metrics=_METRICS,
        percent=lambda x: f"{x * 100:g}%",
    )


def frame(page: str, *, height: int = 900) -> str:
    """Return the page inside a frame, for a notebook's cell."""
    return (
        f'<iframe title="trustdoctor report" width="100%" height="{height}" '
        'sandbox="allow-scripts allow-forms" style="border:1px solid #ccc" '
        f'srcdoc="{html.escape(page, quote=True)}"></iframe>'
    )


_METRICS = (
    ("auroc", "AUROC"),
    ("frr_at_trr", "FRR@TRR"),
    ("aurc", "AURC"),
    ("risk_at_coverage", "risk@coverage"),
    ("coverage_at_risk", "coverage@risk"),
)


def _file(name: str) -> str:
    return (files("trustdoctor.report") / name).read_text(encoding="utf-8")


def _check(predictions: Predictions, extras: Extras) -> None:
    for name, wanted in (
        ("ids", len(predictions)),
        ("texts", len(predictions)),
        ("class_names", predictions.n_classes),
    ):
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


def _score(predictions: Predictions, name: str, found: Evaluation) -> Array:
    return np.asarray(SCORES[name](predictions, temperature=found.settings.temperature))


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
        "odds": SCORES[name].scale == "odds",
    }


def _rounded(edges: Array) -> list[float]:
    """Return edges in few digits, for their distance to each other."""
    digits = 5 - math.floor(math.log10(float(edges[-1] - edges[0])))
    return [round(float(edge), digits) for edge in edges]


def _bins(predictions: Predictions, found: Evaluation) -> list[list[float]]:
    at = found.settings
    bins = reliability(
        predictions, temperature=at.temperature, confidence=at.confidence
    )
    return [[b.n, b.confidence, b.accuracy, b.low, b.high] for b in bins]


def _command(found: Evaluation, extras: Extras) -> dict[str, str]:
    """Return the parts of the commands that the page offers."""
    file = shlex.quote(extras.file or extras.source or "PREDICTIONS")
    options = "".join(f" {shlex.quote(option)}" for option in extras.options)
    if found.settings.temperature != 1:
        options += f" --temperature {found.settings.temperature!r}"
    return {"file": file, "options": options}


def _script_hash(script: str) -> str:
    """Return what lets this very script run, and no other."""
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


def _embedded(payload: dict[str, Any]) -> Any:
    """Return JSON that cannot end the element it stands in."""
    from markupsafe import Markup

    text = json.dumps(payload, separators=(",", ":"), allow_nan=False)
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return Markup(text)


def _score_rows(found: Evaluation) -> list[tuple[str, dict[str, Estimate], Any]]:
    """Return each score with its metrics and its paired difference to the baseline."""
    return [
        (name, metrics, _against(found, name)) for name, metrics in found.scores.items()
    ]


def _against(found: Evaluation, name: str) -> Difference | None:
    other = _baseline(found)
    for d in found.differences:
        if d.metric == "auroc" and {d.first, d.second} == {name, other}:
            if d.first == name:
                return d
            low, high = (None if end is None else -end for end in (d.high, d.low))
            return Difference("auroc", name, other, -d.value, low, high)
    return None


def _baseline(found: Evaluation) -> str:
    """Return what scores are compared with: softmax response, or the first."""
    return BASELINE if BASELINE in found.scores else next(iter(found.scores))


def _notes(found: Evaluation) -> list[str]:
    """Return what is to be known about the numbers, each once."""
    cells = [cell for metrics in found.scores.values() for cell in metrics.values()]
    cells += found.calibration.values()
    return list(dict.fromkeys(cell.note for cell in cells if cell.note))


def _opened(at: Confusion, confidence: float) -> dict[str, Rate]:
    """Return the rates at the threshold that the page opens with."""
    parts = {
        "coverage": (at.ta + at.fa, at.n),
        "rejected": (at.tr + at.fr, at.n),
        "risk": (at.fa, at.ta + at.fa),
        "trr": (at.tr, at.tr + at.fa),
        "frr": (at.fr, at.fr + at.ta),
    }
    return {name: rate(*part, confidence) for name, part in parts.items()}


def _commands(
    command: dict[str, str], score: str, threshold: float, frr: float
) -> dict[str, str]:
    """Return the two commands as the page opens, as its script writes them later."""
    rest = f"--score {score}{command['options']} -o gate.json"
    target = 0.05
    if frr == frr:  # there are right predictions
        target = min(0.99, max(0.001, math.ceil(1000 * frr) / 1000))
    own = f"{command['file']} --threshold={threshold}"
    return {
        "gate": f"trustdoctor calibrate {own} {rest}",
        "promise": f"trustdoctor calibrate OTHER_ROWS --frr {target:g} {rest}",
    }


class _Shower:
    """Describes single rows."""

    def __init__(self, predictions: Predictions, scores: Array, extras: Extras) -> None:
        self.predictions, self.scores, self.extras = predictions, scores, extras

    def name_of(self, label: int) -> str:
        names = self.extras.class_names
        return str(label) if names is None else _short(names[label], MOST_NAME)

    def __call__(self, row: int) -> dict[str, Any]:
        labels = self.predictions.require_labels("rows")
        extras = self.extras
        identity = row if extras.ids is None else extras.ids[row]
        return {
            "id": _short(identity, MOST_NAME),
            "label": self.name_of(int(labels[row])),
            "predicted": self.name_of(int(self.predictions.logits[row].argmax())),
            "score": f"{float(self.scores[row]):.3f}",
            "text": None if extras.texts is None else _short(extras.texts[row]),
            "image": self._image(row),
        }

    def _image(self, row: int) -> str | None:
        raw = self.extras.thumbnails(row) if self.extras.thumbnails else None
        if raw is None:
            return None
        kind = "png" if raw.startswith(b"\x89PNG") else "jpeg"
        return f"data:image/{kind};base64,{base64.b64encode(raw).decode()}"


def _short(text: Any, most: int = MOST_TEXT) -> str:
    """Return the beginning of a text, in one line."""
    if text is None:
        return ""
    if isinstance(text, bytes):
        text = text.decode("utf-8", "replace")
    whole = str(text)[: 4 * most].encode("utf-8", "replace").decode()
    plain = " ".join(whole.split())
    return plain if len(plain) <= most else plain[: most - 1] + "\u2026"


def _estimate(estimate: Estimate | Difference, *, sign: bool = False) -> str:
    """Show a number and its interval, in percent."""
    if estimate.value is None:
        return "-"
    form = "+.2f" if sign else ".2f"
    text = f"{estimate.value * 100:{form}}"
    if estimate.low is None or estimate.high is None:
        return text
    return f"{text} [{estimate.low * 100:{form}}, {estimate.high * 100:{form}}]"


def _rate(rate: Rate) -> str:
    return _estimate(Estimate(rate.value, rate.low, rate.high))


def _counts(rate: Rate) -> str:
    return f"{rate.part:,} of {rate.whole:,}"
