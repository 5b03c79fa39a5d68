"""What a classifier said, checked once."""

from trustdoctor.predictions.answers import Answers, make_answers
from trustdoctor.predictions.intake import NO_ROWS, Intake
from trustdoctor.predictions.labels import (
    AS_PREDICTED,
    UNKNOWN,
    as_prediction_error,
    check_cutoff,
    comparable_name,
    folded_name,
    is_missing,
    number_labels,
    plain_name,
    refuse_decisions,
    unknown_class_message,
)
from trustdoctor.predictions.predictions import (
    Opinions,
    Predictions,
    require_predictions,
)
from trustdoctor.predictions.probabilities import (
    MIN_SIMPLEX_ROWS,
    NOT_LOGITS,
    assume_logits,
    on_simplex,
    refuse_probabilities,
)
from trustdoctor.predictions.topk import TopK

__all__ = [
    "AS_PREDICTED",
    "MIN_SIMPLEX_ROWS",
    "NOT_LOGITS",
    "NO_ROWS",
    "UNKNOWN",
    "Answers",
    "Intake",
    "Opinions",
    "Predictions",
    "TopK",
    "as_prediction_error",
    "assume_logits",
    "check_cutoff",
    "comparable_name",
    "folded_name",
    "is_missing",
    "make_answers",
    "number_labels",
    "on_simplex",
    "plain_name",
    "refuse_decisions",
    "refuse_probabilities",
    "require_predictions",
    "unknown_class_message",
]
