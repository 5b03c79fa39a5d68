"""Gates: a score, a threshold, and what was promised of them."""

from trustdoctor.gates.advice import (
    advise,
    advise_unlabelled,
    better_score,
    calibrate_aloud,
    decides_nothing,
    remarks,
)
from trustdoctor.gates.calibration import (
    AUTO,
    GIVEN,
    calibrate,
    calibrate_rows,
    calibrate_scores,
    needs_labels,
)
from trustdoctor.gates.certificate import Certificate
from trustdoctor.gates.certifying import with_notes
from trustdoctor.gates.classes import Classes, check_same_classes
from trustdoctor.gates.clusters import draw_from_clusters
from trustdoctor.gates.deciding import PREDICTED
from trustdoctor.gates.gate import Gate, as_predictions
from trustdoctor.gates.gate_file import read_classes
from trustdoctor.gates.list_file import list_content, read_shortlist
from trustdoctor.gates.listing import (
    LIST_SEED,
    LIST_SHARE,
    aside_note,
    bare_lists,
    by_rank,
    find_rule,
    list_notes,
    list_options,
    list_rows,
    require_scoring,
    shortlist,
    true_strangeness,
)
from trustdoctor.gates.margins import Margins
from trustdoctor.gates.missing_labels import calibrate_unlabelled
from trustdoctor.gates.outcome import (
    NOTHING,
    Lists,
    Outcome,
    Screened,
    require_one_width,
)
from trustdoctor.gates.outlook import (
    PREVIEW_VALUES,
    Preview,
    preview_gates,
    sufficient_rows,
)
from trustdoctor.gates.rules import Cut, at_most_each, between
from trustdoctor.gates.sample import Fingerprint, Rows, Sample
from trustdoctor.gates.shortlists import ListRule, Shortlist, describe_lists
from trustdoctor.gates.sketches import ListSketches, Sketches
from trustdoctor.gates.swaps import find_swaps
from trustdoctor.gates.targets import (
    TARGETS,
    Expected,
    Rule,
    Target,
    Terms,
    find_target,
    observe,
    register_target,
)

__all__ = [
    "AUTO",
    "GIVEN",
    "LIST_SEED",
    "LIST_SHARE",
    "NOTHING",
    "PREDICTED",
    "PREVIEW_VALUES",
    "TARGETS",
    "Certificate",
    "Classes",
    "Cut",
    "Expected",
    "Fingerprint",
    "Gate",
    "ListRule",
    "ListSketches",
    "Lists",
    "Margins",
    "Outcome",
    "Preview",
    "Rows",
    "Rule",
    "Sample",
    "Screened",
    "Shortlist",
    "Sketches",
    "Target",
    "Terms",
    "advise",
    "advise_unlabelled",
    "as_predictions",
    "aside_note",
    "at_most_each",
    "bare_lists",
    "better_score",
    "between",
    "by_rank",
    "calibrate",
    "calibrate_aloud",
    "calibrate_rows",
    "calibrate_scores",
    "calibrate_unlabelled",
    "check_same_classes",
    "decides_nothing",
    "describe_lists",
    "draw_from_clusters",
    "find_rule",
    "find_swaps",
    "find_target",
    "list_content",
    "list_notes",
    "list_options",
    "list_rows",
    "needs_labels",
    "observe",
    "preview_gates",
    "read_classes",
    "read_shortlist",
    "register_target",
    "remarks",
    "require_one_width",
    "require_scoring",
    "shortlist",
    "sufficient_rows",
    "true_strangeness",
    "with_notes",
]
