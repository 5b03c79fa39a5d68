"""The stages of a cascade, read from files, and the options about them."""

import inspect
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import polars as pl

from trustdoctor.cli.options import OptionGroup, as_columns, column_options, option
from trustdoctor.engines import require_fitting
from trustdoctor.errors import InputError
from trustdoctor.files import Columns, Source, find_source, suffix_of
from trustdoctor.opinion import read_stage, require_different
from trustdoctor.predictions import Predictions

CASCADE_PANEL = "Cascade"

_NOT_OF_STAGES = (
    *("confidence", "doubt", "predicted", "correct", "choices", "features", "cutoff"),
)


@dataclass(frozen=True)
class StageOptions:
    """How rows of several files are matched, and how language models are asked."""

    by_position: bool = False
    text: str | None = None
    answers: Path | None = None
    max_calls: int | None = None


def _stage_options() -> list[inspect.Parameter]:
    return [
        option(
            "by_position",
            bool,
            "Rows of all FILEs are in the same order; by default ids match them.",
            panel=CASCADE_PANEL,
            default=False,
        ),
        option(
            "text",
            str | None,
            "The column of the first FILE that a language model is asked about.",
            panel=CASCADE_PANEL,
            metavar="NAME",
        ),
        option(
            "answers",
            Path | None,
            "Where to keep a language model's answers (default: beside its FILE).",
            panel=CASCADE_PANEL,
            metavar="PATH",
        ),
        option(
            "max_calls",
            int | None,
            "At most N calls to a language model; a later run continues.",
            panel=CASCADE_PANEL,
            metavar="N",
        ),
    ]


def _stage_column_options() -> list[inspect.Parameter]:
    """Return the options for columns of whole answers, which a cascade compares."""
    return [o for o in column_options() if o.name not in _NOT_OF_STAGES]


StageInputOptions = Annotated[StageOptions, OptionGroup(_stage_options, StageOptions)]
StageColumnOptions = Annotated[Columns, OptionGroup(_stage_column_options, as_columns)]


@dataclass(frozen=True)
class StageInputs:
    """Stages that were read from files.

    Attributes
    ----------
    stages : list
        Predictions, or the endpoint of a language model.
    options : dict
        Of `Cascade.calibrate` and `Cascade.screen`: how rows are matched.
    source : Source
        The first file.
    """

    stages: list[Any]
    options: dict[str, Any]
    source: Source


def read_stages(
    files: list[Path], columns: Columns, options: StageOptions, memory: int
) -> StageInputs:
    """Read each model's predictions; a language model's endpoint is asked later."""
    require_different(files)
    stages: list[Any] = []
    sources = []
    for file in files:
        if suffix_of(file) == ".json":
            stages.append(_load_endpoint(file, options))
            continue
        # Labels may be missing here: one labelled FILE is enough.
        source = find_source(file, replace(columns, need_labels=False, labels=None))
        require_fitting(source, memory, "a cascade")
        sources.append(source)
        stages.append(read_stage(file, columns))
    if not isinstance(stages[0], Predictions):
        message = (
            "expected a FILE of predictions first, and language models after it, got "
            f"{files[0].name}."
        )
        raise InputError(message)
    if not any(columns.labels in (None, *source.names) for source in sources):
        message = f"no FILE has a column {columns.labels!r}. Check --labels."
        raise InputError(message)
    _require_ids(files, stages, options)
    answered = [stage for stage in stages if isinstance(stage, Predictions)]
    matching: dict[str, Any] = {"by_position": options.by_position}
    if len(answered) < len(stages):
        matching |= {"data": _texts(sources[0], options.text), "ids": answered[0].ids}
        # With one file of predictions, its own texts are in its order.
        matching["by_position"] |= len(answered) == 1
    return StageInputs(stages, matching, sources[0])


def _require_ids(files: list[Path], stages: list[Any], options: StageOptions) -> None:
    """Refuse several files that no ids match, unless --by-position says their order."""
    predictions = {
        file: stage
        for file, stage in zip(files, stages, strict=True)
        if isinstance(stage, Predictions)
    }
    without_ids = [file for file, stage in predictions.items() if stage.ids is None]
    if without_ids and len(predictions) > 1 and not options.by_position:
        message = (
            f"expected ids in every FILE, {without_ids[0]} has no column id. Name it "
            "with --ids NAME, or say --by-position if the rows are in the same order."
        )
        raise InputError(message)


def _load_endpoint(file: Path, options: StageOptions) -> Any:
    """Return the language model that a file names."""
    from trustdoctor.adapters.endpoint import Endpoint

    endpoint = Endpoint.load(file)
    beside = file.with_name(f"{file.stem}.answers.jsonl")
    return replace(
        endpoint,
        answers=options.answers or endpoint.answers or beside,
        max_calls=(
            endpoint.max_calls if options.max_calls is None else options.max_calls
        ),
    )


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
