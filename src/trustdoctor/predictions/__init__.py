"""What a classifier said, checked once."""

from trustdoctor.predictions.logits import (
    Predictions,
    refuse_probabilities,
    require_predictions,
)
from trustdoctor.predictions.opinions import Opinions
from trustdoctor.predictions.topk import TopK

__all__ = [
    "Opinions",
    "Predictions",
    "TopK",
    "refuse_probabilities",
    "require_predictions",
]
