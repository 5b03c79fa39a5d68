"""Single rows as a page shows them: by id, with their text and picture."""

import base64
from typing import Any

import numpy as np

from trustdoctor.arrays import Array
from trustdoctor.predictions import Predictions
from trustdoctor.report.extras import Extras
from trustdoctor.report.findings import MOST_ROWS, extremes
from trustdoctor.report.template import MOST_NAME, shorten

WITH_TEXTS, WITH_PICTURES = 25, 10
"""Rows of each kind and score that are shown with texts, and with pictures."""


class ShownRows:
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
        self.kinds = {
            name: [
                [[self._place(row), _number(scores[row])] for row in rows]
                for rows in extremes(predictions, scores, self._most)
            ]
            for name, scores in doubts.items()
        }

    @property
    def _most(self) -> int:
        if self.extras.thumbnails:
            return WITH_PICTURES
        return MOST_ROWS if self.extras.texts is None else WITH_TEXTS

    def _place(self, row: int) -> int:
        if row not in self._places:
            self._places[row] = len(self.rows)
            self.rows.append(self._shown(row))
        return self._places[row]

    def name_of(self, label: int) -> str:
        """Return a class by its name, where it has one."""
        names = self.extras.class_names
        if label < 0:
            return "(no answer)"
        if names is None:
            return str(label) if self.predictions.answers_known else ""
        return shorten(names[label], MOST_NAME) if label < len(names) else ""

    def _shown(self, row: int) -> dict[str, Any]:
        labels = self.predictions.require_labels("rows")
        extras = self.extras
        identity = row if extras.ids is None else extras.ids[row]
        out = {
            "id": shorten(identity, MOST_NAME),
            "label": self.name_of(int(labels[row])),
            "predicted": self.name_of(int(self.predictions.predicted[row])),
        }
        if extras.texts is not None:
            out["text"] = shorten(extras.texts[row])
        if extras.thumbnails:
            out["image"] = self._image(row)
        return out

    def _image(self, row: int) -> str:
        assert self.extras.thumbnails is not None
        raw = self.extras.thumbnails(row)
        if raw is None:
            return ""
        kind = "png" if raw.startswith(b"\x89PNG") else "jpeg"
        return f"data:image/{kind};base64,{base64.b64encode(raw).decode()}"


def _number(doubt: float) -> float | None:
    return float(doubt) if np.isfinite(doubt) else None


def finite(scores: Array) -> Array:
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


_FAR = 1e300
