"""Single rows as a page shows them: by id, with their text and picture."""

import base64
from typing import Any

import numpy as np

from trustdoctor.arrays import Array
from trustdoctor.predictions import Predictions
from trustdoctor.report.class_tables import MOST_ROWS, extremes
from trustdoctor.report.extras import Extras
from trustdoctor.report.template import MOST_NAME, shorten

WITH_TEXTS, WITH_PICTURES = 25, 10
"""Rows of each kind and score that are shown with texts, and with pictures."""

_LARGEST = 1e300


class RowExamples:
    """The rows that a page shows, each once, whatever the score.

    Attributes
    ----------
    rows : list of dict
        What is shown of each.
    kinds : dict of str to two lists of [place, doubt]
        Of each score: the most confident errors, and the most doubtful correct rows. A
        doubt of -inf is None.
    """

    def __init__(
        self, predictions: Predictions, doubts: dict[str, Array], extras: Extras
    ) -> None:
        self.predictions, self.extras = predictions, extras
        self.rows: list[dict[str, Any]] = []
        self._places: dict[int, int] = {}
        limit = MOST_ROWS if extras.texts is None else WITH_TEXTS
        if extras.thumbnails:
            limit = WITH_PICTURES
        self.kinds = {
            name: [
                [[self._place(row), _finite_or_none(scores[row])] for row in rows]
                for rows in extremes(predictions, scores, limit)
            ]
            for name, scores in doubts.items()
        }

    def _place(self, row: int) -> int:
        if row not in self._places:
            self._places[row] = len(self.rows)
            self.rows.append(self._describe(row))
        return self._places[row]

    def class_name(self, label: int) -> str:
        """Return the name of a class, if it has one."""
        names = self.extras.class_names
        if label < 0:
            return "(no answer)"
        if names is None:
            return str(label) if self.predictions.answers_known else ""
        return shorten(names[label], MOST_NAME) if label < len(names) else ""

    def _describe(self, row: int) -> dict[str, Any]:
        labels = self.predictions.require_labels("rows")
        extras = self.extras
        cells = {
            "id": shorten(row if extras.ids is None else extras.ids[row], MOST_NAME),
            "label": self.class_name(int(labels[row])),
            "predicted": self.class_name(int(self.predictions.predicted[row])),
        }
        if extras.texts is not None:
            cells["text"] = shorten(extras.texts[row])
        if extras.thumbnails:
            cells["image"] = _data_url(extras.thumbnails(row))
        return cells


def _data_url(picture: bytes | None) -> str:
    if picture is None:
        return ""
    kind = "png" if picture.startswith(b"\x89PNG") else "jpeg"
    return f"data:image/{kind};base64,{base64.b64encode(picture).decode()}"


def _finite_or_none(doubt: float) -> float | None:
    return float(doubt) if np.isfinite(doubt) else None


def finite(scores: Array) -> Array:
    """Return scores for charts: those of inf a little above all others.

    Finite ones are clipped so that sums and differences of them are finite, too.
    """
    scores = scores.astype(np.float64)
    scores = np.where(np.isfinite(scores), np.clip(scores, -_LARGEST, _LARGEST), scores)
    infinite = np.isposinf(scores)
    if not infinite.any():
        return scores
    highest = float(np.max(scores[~infinite], initial=0.0))
    return np.where(infinite, highest + max(1.0, abs(highest)) / 10, scores)
