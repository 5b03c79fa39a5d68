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
from trustdoctor.gates.deciding import PREDICTED
from trustdoctor.gates.gate import Gate, as_predictions
from trustdoctor.gates.listing import shortlist
from trustdoctor.gates.margins import Margins
from trustdoctor.gates.outcome import NOTHING, Outcome, Screened, require_one_width
from trustdoctor.gates.rules import Cut, at_most_each, between
from trustdoctor.gates.sample import Rows, Sample
from trustdoctor.gates.selection import (
    Selection,
    select,
)
from trustdoctor.gates.shortlists import Shortlist, describe_lists
from trustdoctor.gates.sketches import Sketches
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
from trustdoctor.gates.unlabelled import calibrate_unlabelled

__all__ = [
    "AUTO",
    "GIVEN",
    "NOTHING",
    "PREDICTED",
    "TARGETS",
    "Certificate",
    "Cut",
    "Expected",
    "Gate",
    "Margins",
    "Outcome",
    "Rows",
    "Rule",
    "Sample",
    "Screened",
    "Selection",
    "Shortlist",
    "Sketches",
    "Target",
    "Terms",
    "advise",
    "advise_unlabelled",
    "as_predictions",
    "at_most_each",
    "better_score",
    "between",
    "calibrate",
    "calibrate_aloud",
    "calibrate_rows",
    "calibrate_scores",
    "calibrate_unlabelled",
    "decides_nothing",
    "describe_lists",
    "find_target",
    "needs_labels",
    "observe",
    "register_target",
    "remarks",
    "require_one_width",
    "select",
    "shortlist",
]
