"""An evaluation as one self-contained HTML page."""

from trustdoctor.report.page import Extras, frame, render

__all__ = ["Extras", "frame", "render"]
