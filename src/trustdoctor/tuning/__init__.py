"""Tuning: choosing the score that suits a model, on labelled rows."""

from trustdoctor.tuning.selection import FAMILY, TUNED_FOR
from trustdoctor.tuning.tuned_score import Tuned, tune

__all__ = ["FAMILY", "TUNED_FOR", "Tuned", "tune"]
