"""Everything that is measured on labelled predictions, with intervals."""

from trustdoctor.evaluation.better import gains_over, say_better
from trustdoctor.evaluation.comparison import Comparison, compare
from trustdoctor.evaluation.confusions import DominantConfusion, dominant_confusion
from trustdoctor.evaluation.estimates import Settings
from trustdoctor.evaluation.evaluations import (
    DEFAULT_SCORES,
    Difference,
    Evaluation,
    default_scores,
    evaluate,
)
from trustdoctor.evaluation.protocols import (
    Protocols,
    evaluate_logits,
    evaluate_perturbed,
)
from trustdoctor.evaluation.suspect_rows import label_quality, repeats
from trustdoctor.evaluation.tally import Tally

__all__ = [
    "DEFAULT_SCORES",
    "Comparison",
    "Difference",
    "DominantConfusion",
    "Evaluation",
    "Protocols",
    "Settings",
    "Tally",
    "compare",
    "default_scores",
    "dominant_confusion",
    "evaluate",
    "evaluate_logits",
    "evaluate_perturbed",
    "gains_over",
    "label_quality",
    "repeats",
    "say_better",
]
