"""What people look at: the page, the terminal, figures."""

from trustdoctor.report.cascade_page import render_cascade
from trustdoctor.report.comparison_page import render_comparison
from trustdoctor.report.evaluation_page import render
from trustdoctor.report.extras import Extras
from trustdoctor.report.figures import (
    Bars,
    Line,
    Panel,
    Picture,
    plot_benchmark,
    plot_cascade,
    plot_histogram,
    plot_plan,
    plot_reliability,
    plot_risk_coverage,
    plot_roc,
    save_picture,
)
from trustdoctor.report.template import (
    embed_json,
    hash_content,
    make_environment,
    read_asset,
)
from trustdoctor.report.terminal import (
    make_console,
    needed_words,
    show_cascade,
    show_cascaded,
    show_comparison,
    show_evaluation,
    show_gate,
    show_screened,
    summarize_cascaded,
    summarize_screened,
    trivial_words,
)
from trustdoctor.report.theme import COLOURS, RIGHT, WRONG
from trustdoctor.report.watch_page import render_watch, write_watch

__all__ = [
    "COLOURS",
    "RIGHT",
    "WRONG",
    "Bars",
    "Extras",
    "Line",
    "Panel",
    "Picture",
    "embed_json",
    "hash_content",
    "make_console",
    "make_environment",
    "needed_words",
    "plot_benchmark",
    "plot_cascade",
    "plot_histogram",
    "plot_plan",
    "plot_reliability",
    "plot_risk_coverage",
    "plot_roc",
    "read_asset",
    "render",
    "render_cascade",
    "render_comparison",
    "render_watch",
    "save_picture",
    "show_cascade",
    "show_cascaded",
    "show_comparison",
    "show_evaluation",
    "show_gate",
    "show_screened",
    "summarize_cascaded",
    "summarize_screened",
    "trivial_words",
    "write_watch",
]
