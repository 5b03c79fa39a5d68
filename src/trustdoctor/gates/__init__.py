"""Gates: a score, a threshold, and what was promised of them."""

from trustdoctor.gates.advice import (
    advise,
    advise_unlabelled,
    better_score,
    decides_nothing,
    remarks,
)
from trustdoctor.gates.calibration import (
    calibrate,
    calibrate_rows,
    calibrate_scores,
    run_calibration,
)
from trustdoctor.gates.calibration_rows import draw_from_clusters
from trustdoctor.gates.certificate import Certificate
from trustdoctor.gates.classes import Classes, check_same_classes
from trustdoctor.gates.expected_rates import calibrate_unlabelled
from trustdoctor.gates.gate import Gate, as_predictions
from trustdoctor.gates.gate_file import read_classes
from trustdoctor.gates.groups import GIVEN, PREDICTED
from trustdoctor.gates.label_draw import LabelDraw, draw
from trustdoctor.gates.label_plan import LabelPlan, plan
from trustdoctor.gates.margins import Margins
from trustdoctor.gates.outcome import (
    NO_OUTCOME,
    Decisions,
    ListCounts,
    Outcome,
    Screened,
    add_width,
)
from trustdoctor.gates.outlook import (
    PREVIEW_VALUES,
    Preview,
    more_rows,
    preview_gates,
    sufficient_rows,
)
from trustdoctor.gates.request import (
    Request,
    TargetValue,
    make_requests,
    needs_labels,
    requested_targets,
)
from trustdoctor.gates.rules import Cut, binomial_cdfs, midpoint
from trustdoctor.gates.sample import Fingerprint, Rows, Sample
from trustdoctor.gates.score_choice import AUTO, choose_score
from trustdoctor.gates.shortlist_calibration import (
    SHORTLIST_SEED,
    SHORTLIST_SHARE,
    calibrate_shortlist,
    conformal_rule,
    find_reference_set,
    is_order_statistic,
    require_scoring_gate,
    shortlist,
    shortlist_notes,
    shortlist_options,
    split_note,
    true_class_nonconformity,
    uncalibrated_shortlist,
)
from trustdoctor.gates.shortlists import (
    ListRule,
    Shortlist,
    describe_lists,
    read_shortlist,
    shortlist_content,
)
from trustdoctor.gates.streams import CalibrationSketch, ShortlistSketch
from trustdoctor.gates.targets import (
    TARGETS,
    ExpectedCounts,
    Rule,
    RuleOptions,
    Target,
    find_target,
    rate_fractions,
    register_target,
)

__all__ = [
    "AUTO",
    "GIVEN",
    "NO_OUTCOME",
    "PREDICTED",
    "PREVIEW_VALUES",
    "SHORTLIST_SEED",
    "SHORTLIST_SHARE",
    "TARGETS",
    "CalibrationSketch",
    "Certificate",
    "Classes",
    "Cut",
    "Decisions",
    "ExpectedCounts",
    "Fingerprint",
    "Gate",
    "LabelDraw",
    "LabelPlan",
    "ListCounts",
    "ListRule",
    "Margins",
    "Outcome",
    "Preview",
    "Request",
    "Rows",
    "Rule",
    "RuleOptions",
    "Sample",
    "Screened",
    "Shortlist",
    "ShortlistSketch",
    "Target",
    "TargetValue",
    "add_width",
    "advise",
    "advise_unlabelled",
    "as_predictions",
    "better_score",
    "binomial_cdfs",
    "calibrate",
    "calibrate_rows",
    "calibrate_scores",
    "calibrate_shortlist",
    "calibrate_unlabelled",
    "check_same_classes",
    "choose_score",
    "conformal_rule",
    "decides_nothing",
    "describe_lists",
    "draw",
    "draw_from_clusters",
    "find_reference_set",
    "find_target",
    "is_order_statistic",
    "make_requests",
    "midpoint",
    "more_rows",
    "needs_labels",
    "plan",
    "preview_gates",
    "rate_fractions",
    "read_classes",
    "read_shortlist",
    "register_target",
    "remarks",
    "requested_targets",
    "require_scoring_gate",
    "run_calibration",
    "shortlist",
    "shortlist_content",
    "shortlist_notes",
    "shortlist_options",
    "split_note",
    "sufficient_rows",
    "true_class_nonconformity",
    "uncalibrated_shortlist",
]
