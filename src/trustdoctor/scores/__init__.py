"""Doubts: the scores, and the one registry of them.

The imports are in the order in which scores are listed.
"""
# ruff: noqa: I001

from trustdoctor.scores import storage
from trustdoctor.scores.contract import (
    ROUNDING,
    FittedScore,
    GivenScore,
    LogitScore,
    Score,
    parameters_of,
)
from trustdoctor.scores.registry import (
    BASELINE,
    SCORES,
    allowed_scores,
    build_score,
    find_formula,
    find_score,
    is_registered,
    load_score,
    plain_scores,
    register,
    same_ranking,
    score_all,
    usual_score,
)
from trustdoctor.scores.softmax import (
    alpha,
    beta,
    energy,
    entropy,
    gen,
    margin,
    max_logit,
    msp,
)
from trustdoctor.scores.normalised import normalised_alpha, normalised_margin, pnorm
from trustdoctor.scores.mahalanobis import ClassMoments, Mahalanobis
from trustdoctor.scores.rel_u import RelU
from trustdoctor.scores.sirc import SIRC
from trustdoctor.scores.neighbours import KNN, TrustScore, ViM
from trustdoctor.scores.fusion import Fusion
from trustdoctor.scores.tuned_score import Tuned
from trustdoctor.scores.tuning import FAMILY, TUNED_FOR
from trustdoctor.scores import given
from trustdoctor.scores.logistic import fit_logistic, standardise

__all__ = [
    "BASELINE",
    "FAMILY",
    "KNN",
    "ROUNDING",
    "SCORES",
    "SIRC",
    "TUNED_FOR",
    "ClassMoments",
    "FittedScore",
    "Fusion",
    "GivenScore",
    "LogitScore",
    "Mahalanobis",
    "RelU",
    "Score",
    "TrustScore",
    "Tuned",
    "ViM",
    "allowed_scores",
    "alpha",
    "beta",
    "build_score",
    "energy",
    "entropy",
    "find_formula",
    "find_score",
    "fit_logistic",
    "gen",
    "given",
    "is_registered",
    "load_score",
    "margin",
    "max_logit",
    "msp",
    "normalised_alpha",
    "normalised_margin",
    "parameters_of",
    "plain_scores",
    "pnorm",
    "register",
    "same_ranking",
    "score_all",
    "standardise",
    "storage",
    "usual_score",
]
