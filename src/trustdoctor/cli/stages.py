"""The stages of a cascade, read from files, and the options about them."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import polars as pl

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
from trustdoctor.cli.output import (
    check_outputs,
)
from trustdoctor.engines import require_fitting
from trustdoctor.errors import InputError
from trustdoctor.files import (
    Columns,
    Source,
    find_source,
    suffix_of,
)
from trustdoctor.opinion import (
    CASCADE_TARGETS,
    read_stage,
    require_different,
)
from trustdoctor.predictions import Predictions

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
    yield from (one for one in target_options() if one.name in CASCADE_TARGETS)


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


@dataclass(frozen=True)
class Given:
    """Stages that were read from files.

    Attributes
    ----------
    stages : list
    options : dict
        How they are brought together.
    source : Source
        The first file.
    """

    stages: list[Any]
    options: dict[str, Any]
    source: Source


def read_stages(
    files: list[Path],
    columns: Columns,
    asking: Asking,
    memory: int,
    *outputs: str | Path | None,
) -> Given:
    """Read what each model said; a language model's endpoint is asked later."""
    require_different(files)
    stages: list[Any] = []
    first: Source | None = None
    labelled = False
    for file in files:
        if suffix_of(file) == ".json":
            stages.append(_endpoint(file, asking))
            continue
        bare = replace(columns, need_labels=False, labels=None)
        source = find_source(file, bare)
        check_outputs(source, *outputs)
        require_fitting(source, memory, "a cascade")
        first = source if first is None else first
        labelled |= columns.labels in (None, *source.names)
        stages.append(read_stage(file, columns))
    if first is None or not isinstance(stages[0], Predictions):
        message = (
            "expected a FILE of predictions first, and language models after it, got "
            f"{files[0].name}."
        )
        raise InputError(message)
    if not labelled:
        message = f"no FILE has a column {columns.labels!r}. Check --labels."
        raise InputError(message)
    _require_ids(files, stages, asking)
    options: dict[str, Any] = {"by_position": asking.by_position}
    if all(isinstance(stage, Predictions) for stage in stages):
        return Given(stages, options, first)
    known = [stage for stage in stages if isinstance(stage, Predictions)]
    options |= {"data": _texts(first, asking.text), "ids": known[0].ids}
    options["by_position"] |= len(known) == 1  # the texts are beside the predictions
    return Given(stages, options, first)


def _require_ids(files: list[Path], stages: list[Any], asking: Asking) -> None:
    """Refuse several files that no ids match, unless they are said to be in order."""
    known = [
        (file, stage)
        for file, stage in zip(files, stages, strict=True)
        if isinstance(stage, Predictions)
    ]
    bare = [file for file, stage in known if stage.ids is None]
    if bare and len(known) > 1 and not asking.by_position:
        message = (
            f"expected ids in every FILE, {bare[0]} has no column id. Name it with "
            "--ids NAME, or say --by-position if the rows are in the same order."
        )
        raise InputError(message)


def _endpoint(file: Path, asking: Asking) -> Any:
    """Return the language model that a file names."""
    from trustdoctor.adapters.endpoint import Endpoint

    found = Endpoint.load(file)
    beside = found.answers or file.with_name(f"{file.stem}.answers.jsonl")
    calls = found.max_calls if asking.max_calls is None else asking.max_calls
    return replace(found, answers=asking.answers or beside, max_calls=calls)


def _texts(source: Source, column: str | None) -> list[str]:
    """Return the texts that a language model is asked about."""
    if column is None:
        message = (
            "a language model is asked about texts: name their column in "
            f"{source.name} with --text NAME."
        )
        raise InputError(message)
    texts = source.load(column)[1][column].cast(pl.String)
    if texts.null_count():
        row = int(texts.is_null().arg_max() or 0)
        message = f"column {column!r} has no text at row {row}. Give it one."
        raise InputError(message)
    return texts.to_list()
