"""Decide which predictions of a classifier to trust.

    import trustdoctor as td

    p = td.Predictions.from_logits(logits, labels)
    td.evaluate(p)                        # how far can these predictions be trusted
    gate = td.calibrate(td.alpha(p.logits), p.errors, frr=0.05, score="alpha")
    gate.screen(new).accepted             # which of others to accept

Scores are doubts: higher means trust less. A row is rejected iff its score is above
the threshold.
"""

from trustdoctor import adapters, errors
from trustdoctor.calibrate import calibrate
from trustdoctor.certificate import Certificate
from trustdoctor.combine import Combination, combine
from trustdoctor.compare import Comparison, compare
from trustdoctor.evaluate import Evaluation, evaluate
from trustdoctor.gate import Gate
from trustdoctor.intervals import clopper_pearson, delong, delong_difference
from trustdoctor.metrics import (
    Confusion,
    Points,
    augrc,
    aupr,
    aurc,
    auroc,
    brier,
    confusion,
    coverage_at_risk,
    eaurc,
    ece,
    frr_at_trr,
    measure,
    nll,
    risk_at_coverage,
    risk_coverage,
    roc,
    trr_at_frr,
)
from trustdoctor.opinion import Opinions, SecondOpinion
from trustdoctor.predictions import Predictions
from trustdoctor.protocols import Protocols, evaluate_perturbed
from trustdoctor.scores import (
    SCORES,
    Score,
    alpha,
    beta,
    energy,
    entropy,
    gen,
    margin,
    max_logit,
    msp,
    pnorm,
)
from trustdoctor.scores.distance import Mahalanobis
from trustdoctor.scores.views import View, image_views, table_views, text_views
from trustdoctor.select import Selection, calibrate_unlabelled, select
from trustdoctor.sketch import Sketch
from trustdoctor.tally import Tally
from trustdoctor.watch import Watch

__version__ = "0.1.0"

__all__ = [
    "SCORES",
    "Certificate",
    "Combination",
    "Comparison",
    "Confusion",
    "Evaluation",
    "Gate",
    "Mahalanobis",
    "Opinions",
    "Points",
    "Predictions",
    "Protocols",
    "Score",
    "SecondOpinion",
    "Selection",
    "Sketch",
    "Tally",
    "View",
    "Watch",
    "adapters",
    "alpha",
    "augrc",
    "aupr",
    "aurc",
    "auroc",
    "beta",
    "brier",
    "calibrate",
    "calibrate_unlabelled",
    "clopper_pearson",
    "combine",
    "compare",
    "confusion",
    "coverage_at_risk",
    "delong",
    "delong_difference",
    "eaurc",
    "ece",
    "energy",
    "entropy",
    "errors",
    "evaluate",
    "evaluate_perturbed",
    "frr_at_trr",
    "gen",
    "image_views",
    "margin",
    "max_logit",
    "measure",
    "msp",
    "nll",
    "pnorm",
    "risk_at_coverage",
    "risk_coverage",
    "roc",
    "select",
    "table_views",
    "text_views",
    "trr_at_frr",
]
