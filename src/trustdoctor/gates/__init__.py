"""Gates: a score, a threshold, and what was promised of them."""

from trustdoctor.gates.calibration import (
    GIVEN,
    calibrate,
    calibrate_rows,
    calibrate_scores,
)
from trustdoctor.gates.certificate import Certificate
from trustdoctor.gates.gate import PREDICTED, Gate, as_predictions
from trustdoctor.gates.margins import Margins
from trustdoctor.gates.outcome import NOTHING, Outcome, Screened, require_one_width
from trustdoctor.gates.rules import Cut
from trustdoctor.gates.sample import Rows, Sample
from trustdoctor.gates.selection import Selection, select
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
    "Sketches",
    "Target",
    "Terms",
    "as_predictions",
    "calibrate",
    "calibrate_rows",
    "calibrate_scores",
    "calibrate_unlabelled",
    "find_target",
    "observe",
    "register_target",
    "require_one_width",
    "select",
]
