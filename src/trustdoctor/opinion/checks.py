"""What each view does to the answers."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from trustdoctor.arrays import Array
from trustdoctor.metrics import auroc
from trustdoctor.predictions import Opinions


@dataclass(frozen=True)
class ViewCheck:
    """What one view does.

    Attributes
    ----------
    name : str
    agreement : float
        Share of rows whose answer is that of the clean input.
    confidence : float
        The model's mean confidence on the view less that on the clean input.
    accuracy : float or None
        Of the view's own answers less that of the clean ones, where labels are known.
    auroc : float or None
        Of clean input and this view less that of the clean input alone.
    keep : bool
        False where it costs more than a point of accuracy and finds no more errors
        (without labels: a point of confidence), and where it changes nothing.
    reason : str
        Why to drop it.
    """

    name: str
    agreement: float
    confidence: float
    accuracy: float | None
    auroc: float | None
    keep: bool
    reason: str = ""


def check_views(found: Opinions, names: Sequence[str]) -> list[ViewCheck]:
    """Report what each view does, from what the model said of it."""
    p, out = found.predictions, []
    for k, name in enumerate(names, start=1):
        agreement = float((found.answers[:, k] == p.predicted).mean())
        sure = float(found.confidence[:, k].mean() - found.confidence[:, 0].mean())
        accuracy = gain = None
        reason = "" if sure > -0.01 else "the model is less sure of it"
        if p.labels is not None:
            own = found.answers[:, k] != p.labels
            accuracy = float(p.errors.mean() - own.mean())
            if p.errors.any() and not p.errors.all():
                pair = _pair(found, k)
                gain = auroc(pair, p.errors) - auroc(found.doubts[:, 0], p.errors)
            harms = accuracy <= -0.01 and (gain is None or gain <= 0)
            reason = "it costs accuracy and finds no errors" if harms else ""
        same = np.allclose(found.confidence[:, k], found.confidence[:, 0], atol=1e-6)
        if same and agreement == 1:
            reason = reason or "it changes nothing"
        kept = not reason
        out.append(ViewCheck(name, agreement, sure, accuracy, gain, kept, reason))
    return out


def _pair(found: Opinions, k: int) -> Array:
    """Return a doubt from clean input and one view: its own confidence in the label."""
    agree = found.answers[:, k] == found.predictions.predicted
    sure = np.clip(found.confidence[:, k], 1e-12, 1 - 1e-12)
    own = np.log((1 - sure) / sure)
    return np.asarray(found.doubts[:, 0] + np.where(agree, own, -own))
