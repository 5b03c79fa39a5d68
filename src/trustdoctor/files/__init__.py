"""Predictions from files, and decisions into files."""

from trustdoctor.files.annotations import SETTING, read_perturbed
from trustdoctor.files.answer_columns import warn_of_answers
from trustdoctor.files.arrays import NPY, NPZ
from trustdoctor.files.building import from_frame, from_table
from trustdoctor.files.columns import Columns, Layout, find_layout
from trustdoctor.files.decided import write_decided
from trustdoctor.files.dialect import STDIN
from trustdoctor.files.finding import find_source
from trustdoctor.files.formats import (
    FORMATS,
    Format,
    find_format,
    output_suffixes,
    register_format,
    suffix_of,
)
from trustdoctor.files.ipc import IPC
from trustdoctor.files.journal import Journal
from trustdoctor.files.json_lines import JSON_LINES
from trustdoctor.files.labels import as_text, class_numbers
from trustdoctor.files.parquet import PARQUET, ROW_GROUP
from trustdoctor.files.pictures import PICTURES, pillow, thumbnails
from trustdoctor.files.random_split import split_file
from trustdoctor.files.reading import read, read_class_names
from trustdoctor.files.responses import checked_choices, choice_probs, first_tokens
from trustdoctor.files.row_groups import RowGroup, read_row_groups
from trustdoctor.files.source import (
    POLARS_ERRORS,
    Source,
    first_line,
    unreadable,
)
from trustdoctor.files.spreadsheets import escaped, unescaped
from trustdoctor.files.tables import read_rows, read_values, write_logits
from trustdoctor.files.text import CSV, TSV, scan_table
from trustdoctor.files.writing import (
    ADDED,
    check_names,
    check_output,
    check_outside,
    plan_targets,
    sink,
    with_decisions,
)

__all__ = [
    "ADDED",
    "CSV",
    "FORMATS",
    "IPC",
    "JSON_LINES",
    "NPY",
    "NPZ",
    "PARQUET",
    "PICTURES",
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
    "write_logits",
]
