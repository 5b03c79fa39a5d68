"""Everything that is measured on labelled predictions, with intervals."""

from trustdoctor.evaluation.clustered_errors import ClusteredErrors
from trustdoctor.evaluation.comparison import Comparison, compare
from trustdoctor.evaluation.confusions import DominantConfusion, dominant_confusion
from trustdoctor.evaluation.differences import Difference, gains_over, say_better
from trustdoctor.evaluation.duplicates import repeated_rows, repeats
from trustdoctor.evaluation.evaluations import (
    DEFAULT_SCORES,
    Evaluation,
    Settings,
    default_scores,
    evaluate,
)
from trustdoctor.evaluation.label_checks import (
    LabelReport,
    check_labels,
    constant_scores,
    count_labels,
    count_neighbours,
    is_constant,
    label_quality,
    reversed_line,
)
from trustdoctor.evaluation.label_counts import LabelCounts
from trustdoctor.evaluation.protocols import (
    Protocols,
    evaluate_logits,
    evaluate_perturbed,
)
from trustdoctor.evaluation.tally import Tally

__all__ = [
    "DEFAULT_SCORES",
    "ClusteredErrors",
    "Comparison",
    "Difference",
    "DominantConfusion",
    "Evaluation",
    "LabelCounts",
    "LabelReport",
    "Protocols",
    "Settings",
    "Tally",
    "check_labels",
    "compare",
    "constant_scores",
    "count_labels",
    "count_neighbours",
    "default_scores",
    "dominant_confusion",
    "evaluate",
    "evaluate_logits",
    "evaluate_perturbed",
    "gains_over",
    "is_constant",
    "label_quality",
    "repeated_rows",
    "repeats",
    "reversed_line",
    "say_better",
]
