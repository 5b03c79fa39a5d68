"""The options that only cascades have."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from trustdoctor.cli.options import (
    COLUMNS_PANEL,
    TARGETS_PANEL,
    Option,
    OptionGroup,
    as_columns,
    as_rate,
    as_target,
    column_options,
    target_options,
)
from trustdoctor.opinion import KINDS

CASCADE_PANEL = "Cascade"


def _stage_column_options() -> Iterator[Option]:
    bare = {"confidence", "doubt", "predicted", "correct", "choices", "features"}
    bare |= {"cutoff"}
    yield from (one for one in column_options() if one.name not in bare)


def _cascade_level_options() -> Iterator[Option]:
    text = "The probability that the promise holds (default: 0.9)."
    yield Option("confidence", str | None, text, metavar="RATE")


def _cascade_level(*, confidence: str | None) -> float | None:
    return None if confidence is None else as_rate(confidence, "confidence")


def _cascade_target_options() -> Iterator[Option]:
    yield from (one for one in target_options() if one.name in KINDS)


def _asking_options() -> Iterator[Option]:
    text = "Rows of all FILEs are in the same order; by default ids match them."
    yield Option("by_position", bool, text, default=False)
    text = "The column of the first FILE that a language model is asked about."
    yield Option("text", str | None, text, metavar="NAME")
    text = "Where a language model's answers are kept (default: beside its FILE)."
    yield Option("answers", Path | None, text, metavar="PATH")
    text = "Calls to a language model, at most; a later run goes on."
    yield Option("max_calls", int | None, text, metavar="N")


@dataclass(frozen=True)
class Asking:
    """How the models of a cascade are asked."""

    by_position: bool = False
    text: str | None = None
    answers: Path | None = None
    max_calls: int | None = None


CASCADE_TARGET = OptionGroup(_cascade_target_options, as_target, TARGETS_PANEL)
CASCADE_LEVEL = OptionGroup(_cascade_level_options, _cascade_level, TARGETS_PANEL)
STAGE_COLUMNS = OptionGroup(_stage_column_options, as_columns, COLUMNS_PANEL)
ASKING = OptionGroup(_asking_options, Asking, CASCADE_PANEL)
