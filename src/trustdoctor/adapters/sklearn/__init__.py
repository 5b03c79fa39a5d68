"""scikit-learn: a classifier with a gate, and predictions of any classifier."""

from trustdoctor.adapters.sklearn.classifier import (
    CROSS_FITTED,
    CROSS_FITTED_LISTS,
    OUT_OF_FOLD,
    TrustedClassifier,
    predictor,
)

__all__ = [
    "CROSS_FITTED",
    "CROSS_FITTED_LISTS",
    "OUT_OF_FOLD",
    "TrustedClassifier",
    "predictor",
]
