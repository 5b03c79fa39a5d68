"""What a classifier said, checked once."""

from trustdoctor.predictions.answers import Answers, make_answers
from trustdoctor.predictions.decisions import (
    AS_PREDICTED,
    about_predictions,
    check_cutoff,
    refuse_decisions,
)
from trustdoctor.predictions.intake import NO_ROWS, Intake
from trustdoctor.predictions.labels import (
    UNKNOWN,
    compared_name,
    folded_name,
    is_missing,
    not_a_class,
    number_labels,
    plain_name,
)
from trustdoctor.predictions.logits import Predictions, require_predictions
from trustdoctor.predictions.opinions import Opinions
from trustdoctor.predictions.probabilities import (
    ENOUGH,
    NOT_LOGITS,
    on_simplex,
    refuse_probabilities,
    taken_for_logits,
)
from trustdoctor.predictions.topk import TopK

__all__ = [
    "AS_PREDICTED",
    "ENOUGH",
    "NOT_LOGITS",
    "NO_ROWS",
    "UNKNOWN",
    "Answers",
    "Intake",
    "Opinions",
    "Predictions",
    "TopK",
    "about_predictions",
    "check_cutoff",
    "compared_name",
    "folded_name",
    "is_missing",
    "make_answers",
    "not_a_class",
    "number_labels",
    "on_simplex",
    "plain_name",
    "refuse_decisions",
    "refuse_probabilities",
    "require_predictions",
    "taken_for_logits",
]
