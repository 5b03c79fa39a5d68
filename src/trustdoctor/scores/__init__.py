"""Scores: how much to doubt each prediction, and the registry of all scores.

The order of the imports is the order in which messages and tables list the scores.
"""
# ruff: noqa: I001

from trustdoctor.scores import storage
from trustdoctor.scores.contract import (
    ROUNDING,
    FittedScore,
    GivenScore,
    LogitScore,
    Score,
    default_parameters,
)
from trustdoctor.scores.registry import (
    BASELINE,
    SCORES,
    available_scores,
    build_score,
    find_logit_score,
    find_score,
    is_registered,
    load_score,
    logit_scores,
    register,
    same_ranking,
    setting_name,
    score_all,
    score_together,
    default_score,
)
from trustdoctor.scores.documents import (
    ScoreDocument,
    read_score,
    save_beside,
    score_document,
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
from trustdoctor.scores.normalisation import normalised_alpha, normalised_margin, pnorm
from trustdoctor.scores.mahalanobis import ClassMoments, Mahalanobis
from trustdoctor.scores.rel_u import RelU
from trustdoctor.scores.features import KNN, SIRC, TrustScore, ViM
from trustdoctor.scores.fusion import Fusion, fit_logistic, standardise

register(GivenScore("confidence"))
register(GivenScore("doubt"))

__all__ = [
    "BASELINE",
    "KNN",
    "ROUNDING",
    "SCORES",
    "SIRC",
    "ClassMoments",
    "FittedScore",
    "Fusion",
    "GivenScore",
    "LogitScore",
    "Mahalanobis",
    "RelU",
    "Score",
    "ScoreDocument",
    "TrustScore",
    "ViM",
    "alpha",
    "available_scores",
    "beta",
    "build_score",
    "default_parameters",
    "default_score",
    "energy",
    "entropy",
    "find_logit_score",
    "find_score",
    "fit_logistic",
    "gen",
    "is_registered",
    "load_score",
    "logit_scores",
    "margin",
    "max_logit",
    "msp",
    "normalised_alpha",
    "normalised_margin",
    "pnorm",
    "read_score",
    "register",
    "same_ranking",
    "save_beside",
    "score_all",
    "score_document",
    "score_together",
    "setting_name",
    "standardise",
    "storage",
]
