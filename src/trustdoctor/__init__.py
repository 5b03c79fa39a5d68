"""Decide which predictions of a classifier to trust.

    import trustdoctor as td

    p = td.Predictions.from_logits(logits, labels)
    td.evaluate(p)                        # how far can these predictions be trusted
    gate = td.Gate.from_gamma(0.5, score="alpha")
    gate.screen(p).accepted               # which of them to accept

Scores are doubts: higher means trust less. A row is rejected iff its score is above
the threshold.
"""

from trustdoctor import adapters, errors
from trustdoctor.combine import Combination, combine
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
)
from trustdoctor.scores.distance import Mahalanobis

__version__ = "0.1.0"

__all__ = [
    "SCORES",
    "Combination",
    "Confusion",
    "Evaluation",
    "Gate",
    "Mahalanobis",
    "Points",
    "Predictions",
    "Protocols",
    "Score",
    "adapters",
    "alpha",
    "augrc",
    "aupr",
    "aurc",
    "auroc",
    "beta",
    "brier",
    "clopper_pearson",
    "combine",
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
    "margin",
    "max_logit",
    "measure",
    "msp",
    "nll",
    "risk_at_coverage",
    "risk_coverage",
    "roc",
    "trr_at_frr",
]
