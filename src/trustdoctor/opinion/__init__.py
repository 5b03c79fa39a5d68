"""Asking again: about views of the same input, or a stronger model, or a person."""

from trustdoctor.opinion.cascade import Cascade
from trustdoctor.opinion.policies import (
    CASCADE_TARGETS,
    COST_CONFIDENCE,
    Alone,
    Measured,
)
from trustdoctor.opinion.run import PERSON, Cascaded
from trustdoctor.opinion.second_opinion import SecondOpinion
from trustdoctor.opinion.stages import name_files, read_stage, require_different
from trustdoctor.opinion.views import View, image_views, table_views, text_views

__all__ = [
    "CASCADE_TARGETS",
    "COST_CONFIDENCE",
    "PERSON",
    "Alone",
    "Cascade",
    "Cascaded",
    "Measured",
    "SecondOpinion",
    "View",
    "image_views",
    "name_files",
    "read_stage",
    "require_different",
    "table_views",
    "text_views",
]
