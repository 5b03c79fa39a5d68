"""Row reductions: one formula per score, in C, in numpy and for every array library."""

from trustdoctor.kernels import _native
from trustdoctor.kernels._native import KINDS
from trustdoctor.kernels.rows import (
    Formula,
    Reductions,
    argmax,
    score_kinds,
    score_rows,
    sort,
)
from trustdoctor.kernels.threads import cores, map_threads

__all__ = [
    "KINDS",
    "Formula",
    "Reductions",
    "_native",
    "argmax",
    "cores",
    "map_threads",
    "score_kinds",
    "score_rows",
    "sort",
]
