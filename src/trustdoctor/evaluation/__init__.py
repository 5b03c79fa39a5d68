"""Everything that is measured on labelled predictions, with intervals."""

from trustdoctor.evaluation.clustered_errors import ClusteredErrors
from trustdoctor.evaluation.comparison import CandidateResult, Comparison, compare
from trustdoctor.evaluation.confusions import DominantConfusion, dominant_confusion
from trustdoctor.evaluation.differences import (
    Difference,
    better_score_sentence,
    gains_over,
)
from trustdoctor.evaluation.duplicates import repeated_rows, repeats
from trustdoctor.evaluation.evaluations import (
    DEFAULT_SCORES,
    Evaluation,
    EvaluationSettings,
    evaluate,
    evaluate_scores,
    named_scores,
)
from trustdoctor.evaluation.label_checks import (
    check_labels,
    constant_scores,
    count_labels,
    is_constant,
    label_quality,
    reversed_note,
    score_and_check_labels,
)
from trustdoctor.evaluation.label_counts import LabelCounts, LabelReport
from trustdoctor.evaluation.model_benchmark import Benchmark, benchmark
from trustdoctor.evaluation.protocols import (
    Protocols,
    evaluate_logits,
    evaluate_perturbed,
)
from trustdoctor.evaluation.tally import Tally

__all__ = [
    "DEFAULT_SCORES",
    "Benchmark",
    "CandidateResult",
    "ClusteredErrors",
    "Comparison",
    "Difference",
    "DominantConfusion",
    "Evaluation",
    "EvaluationSettings",
    "LabelCounts",
    "LabelReport",
    "Protocols",
    "Tally",
    "benchmark",
    "better_score_sentence",
    "check_labels",
    "compare",
    "constant_scores",
    "count_labels",
    "dominant_confusion",
    "evaluate",
    "evaluate_logits",
    "evaluate_perturbed",
    "evaluate_scores",
    "gains_over",
    "is_constant",
    "label_quality",
    "named_scores",
    "repeated_rows",
    "repeats",
    "reversed_note",
    "score_and_check_labels",
]
