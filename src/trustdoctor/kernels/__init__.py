"""Reductions of rows, sorting and bets; in C where that pays."""

from trustdoctor.kernels import _native
from trustdoctor.kernels._native import KINDS
from trustdoctor.kernels.ranks import order, place, sort, split
from trustdoctor.kernels.rows import (
    Formula,
    Reductions,
    argmax,
    check_temperature,
    normalise,
    score_kinds,
    score_rows,
)
from trustdoctor.kernels.threads import cores, map_threads
from trustdoctor.kernels.wealth import bet

__all__ = [
    "KINDS",
    "Formula",
    "Reductions",
    "_native",
    "argmax",
    "bet",
    "check_temperature",
    "cores",
    "map_threads",
    "normalise",
    "order",
    "place",
    "score_kinds",
    "score_rows",
    "sort",
    "split",
]
