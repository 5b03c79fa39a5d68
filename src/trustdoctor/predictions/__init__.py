"""Predictions and answers of a classifier, checked once."""

from trustdoctor.predictions.answers import (
    TOPK_TOLERANCE,
    Answers,
    TopClasses,
    make_answers,
)
from trustdoctor.predictions.intake import NO_ROWS, Intake
from trustdoctor.predictions.labels import (
    AS_PREDICTED,
    OUTSIDE,
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
    require_all_classes,
    require_predictions,
)
from trustdoctor.predictions.probabilities import (
    MIN_SIMPLEX_ROWS,
    NOT_LOGITS,
    PROBS_TOLERANCE,
    assume_logits,
    on_simplex,
    refuse_probabilities,
)

__all__ = [
    "AS_PREDICTED",
    "MIN_SIMPLEX_ROWS",
    "NOT_LOGITS",
    "NO_ROWS",
    "OUTSIDE",
    "PROBS_TOLERANCE",
    "TOPK_TOLERANCE",
    "UNKNOWN",
    "Answers",
    "Intake",
    "Opinions",
    "Predictions",
    "TopClasses",
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
    "require_all_classes",
    "require_predictions",
    "unknown_class_message",
]
