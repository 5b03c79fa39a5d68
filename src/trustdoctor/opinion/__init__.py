"""A second opinion: views of the same input, asked about once more."""

from trustdoctor.opinion.second_opinion import SecondOpinion
from trustdoctor.opinion.views import View, image_views, table_views, text_views

__all__ = ["SecondOpinion", "View", "image_views", "table_views", "text_views"]
