"""File formats, one module each, and the registry of all."""

from trustdoctor.files.formats.arrays import NPY, NPZ
from trustdoctor.files.formats.csv import CSV, TSV, dialect_of, scan_table
from trustdoctor.files.formats.dialect import STDIN, sniff, spool_stdin
from trustdoctor.files.formats.ipc import IPC
from trustdoctor.files.formats.json_lines import JSON_LINES
from trustdoctor.files.formats.parquet import (
    PARQUET,
    ROW_GROUP,
    RowGroup,
    read_row_groups,
)
from trustdoctor.files.formats.registry import (
    FORMATS,
    Format,
    find_format,
    output_suffixes,
    register_format,
    suffix_of,
)

__all__ = [
    "CSV",
    "FORMATS",
    "IPC",
    "JSON_LINES",
    "NPY",
    "NPZ",
    "PARQUET",
    "ROW_GROUP",
    "STDIN",
    "TSV",
    "Format",
    "RowGroup",
    "dialect_of",
    "find_format",
    "output_suffixes",
    "read_row_groups",
    "register_format",
    "scan_table",
    "sniff",
    "spool_stdin",
    "suffix_of",
]
