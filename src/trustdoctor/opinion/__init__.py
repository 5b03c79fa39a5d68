"""Asking again: about views of the same input, or a stronger model, or a person."""

from trustdoctor.opinion.cascade import Cascade
from trustdoctor.opinion.measured import Alone, Measured
from trustdoctor.opinion.measuring import LEVEL
from trustdoctor.opinion.policies import KINDS
from trustdoctor.opinion.second_opinion import SecondOpinion
from trustdoctor.opinion.stages import name_files, read_stage, require_different
from trustdoctor.opinion.views import View, image_views, table_views, text_views
from trustdoctor.opinion.walking import PERSON, Cascaded

__all__ = [
    "KINDS",
    "LEVEL",
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
