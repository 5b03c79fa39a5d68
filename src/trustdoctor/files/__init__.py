"""Predictions from files, and decisions into files."""

from trustdoctor.files.column_advice import warn_of_answers
from trustdoctor.files.columns import Columns
from trustdoctor.files.extra_arrays import SETTING, read_perturbed
from trustdoctor.files.formats import (
    CSV,
    FORMATS,
    IPC,
    JSON_LINES,
    NPY,
    NPZ,
    PARQUET,
    ROW_GROUP,
    STDIN,
    TSV,
    Format,
    RowGroup,
    find_format,
    output_suffixes,
    read_row_groups,
    register_format,
    scan_table,
    suffix_of,
)
from trustdoctor.files.frames import from_frame, from_table
from trustdoctor.files.images import IMAGE_SUFFIXES, pillow, thumbnails
from trustdoctor.files.journal import Journal
from trustdoctor.files.label_file import write_label_file
from trustdoctor.files.labels import as_text, class_numbers
from trustdoctor.files.layout import Layout, find_layout
from trustdoctor.files.llm_responses import checked_choices, choice_probs, first_tokens
from trustdoctor.files.model_inputs import read_rows, read_values, write_logits
from trustdoctor.files.output import (
    ADDED,
    check_names,
    escaped,
    sink,
    unescaped,
    with_decisions,
    write_decided,
)
from trustdoctor.files.output_paths import check_output, check_outside, plan_targets
from trustdoctor.files.paths import find_source, read, read_class_names
from trustdoctor.files.random_split import split_file
from trustdoctor.files.source import (
    DRAW_COLUMN,
    POLARS_ERRORS,
    Source,
    first_line,
    unreadable,
)

__all__ = [
    "ADDED",
    "CSV",
    "DRAW_COLUMN",
    "FORMATS",
    "IMAGE_SUFFIXES",
    "IPC",
    "JSON_LINES",
    "NPY",
    "NPZ",
    "PARQUET",
    "POLARS_ERRORS",
    "ROW_GROUP",
    "SETTING",
    "STDIN",
    "TSV",
    "Columns",
    "Format",
    "Journal",
    "Layout",
    "RowGroup",
    "Source",
    "as_text",
    "check_names",
    "check_output",
    "check_outside",
    "checked_choices",
    "choice_probs",
    "class_numbers",
    "escaped",
    "find_format",
    "find_layout",
    "find_source",
    "first_line",
    "first_tokens",
    "from_frame",
    "from_table",
    "output_suffixes",
    "pillow",
    "plan_targets",
    "read",
    "read_class_names",
    "read_perturbed",
    "read_row_groups",
    "read_rows",
    "read_values",
    "register_format",
    "scan_table",
    "sink",
    "split_file",
    "suffix_of",
    "thumbnails",
    "unescaped",
    "unreadable",
    "warn_of_answers",
    "with_decisions",
    "write_decided",
    "write_label_file",
    "write_logits",
]
