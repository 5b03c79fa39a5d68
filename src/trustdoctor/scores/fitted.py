"""The scores that are fitted, by name; each says what it needs and saves itself."""

from typing import Any

from trustdoctor.scores.distance import Mahalanobis
from trustdoctor.scores.neighbours import KNN, TrustScore, ViM
from trustdoctor.scores.relative import SIRC, Fusion, RelU

FITTED: dict[str, Any] = {
    score.name: score
    for score in (Mahalanobis, RelU, SIRC, KNN, TrustScore, ViM, Fusion)
}
"""Classes with `fit`, `save` and `load`."""
