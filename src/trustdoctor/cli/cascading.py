"""The command that makes a cascade, and what screen does with one."""

from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any

import numpy as np
import polars as pl
import typer

from trustdoctor import envelope
from trustdoctor.cli.cascade_options import Asking
from trustdoctor.cli.exit_codes import TRIVIAL
from trustdoctor.cli.options import (
    OUTPUT_PANEL,
    TARGETS_PANEL,
    OddLabelsOption,
    QuietOption,
    as_rate,
)
from trustdoctor.cli.places import check_outputs
from trustdoctor.cli.printing import (
    one_line,
    print_file,
    refusing_odd_labels,
    spelled_for,
    write_result,
    wrote,
)
from trustdoctor.engines import require_fitting
from trustdoctor.errors import InputError, NoPolicyError
from trustdoctor.files import (
    Columns,
    Source,
    check_names,
    check_output,
    find_source,
    suffix_of,
    write_decided,
)
from trustdoctor.gates import describe_lists
from trustdoctor.opinion import (
    Cascade,
    Cascaded,
    name_files,
    read_stage,
    require_different,
)
from trustdoctor.predictions import Predictions
from trustdoctor.progress import bar
from trustdoctor.report import (
    make_console,
    show_cascade,
    show_cascaded,
    summarize_cascaded,
)

ADDED = ("predicted", "score", "accepted", "asked", "cost", "goes_to")

FilesArgument = Annotated[
    list[Path],
    typer.Argument(
        metavar="FILE...",
        help="What each model says of the same rows, the cheapest model first; or a "
        "language model's endpoint (.json).",
    ),
]
CostsOption = Annotated[
    str,
    typer.Option(
        metavar="A,B,C",
        help="What asking each model about a row costs, and last a person: 0,1,10.",
        rich_help_panel=TARGETS_PANEL,
    ),
]
NamesOption = Annotated[
    str | None,
    typer.Option(
        metavar="A,B",
        help="What the models are called (default: the names of the files).",
    ),
]
ScoreNameOption = Annotated[
    str, typer.Option("--score", metavar="NAME", help="The score that doubts.")
]
CombineOption = Annotated[
    str,
    typer.Option(
        metavar="HOW",
        help="average: a stage answers with the mean of all models asked so far. own: "
        "with its own answer.",
    ),
]
ShortlistOption = Annotated[
    str | None,
    typer.Option(
        metavar="RATE",
        help="Also lists of classes for the rows that go to a person, which hold the "
        "true one so often.",
        rich_help_panel=TARGETS_PANEL,
    ),
]
SeedOption = Annotated[
    int, typer.Option(metavar="N", help="Of the draw that parts the rows.")
]
CascadeOutputOption = Annotated[
    Path,
    typer.Option(
        "--output",
        "-o",
        metavar="CASCADE",
        help="Where to write the cascade (JSON).",
        rich_help_panel=OUTPUT_PANEL,
    ),
]
HtmlOption = Annotated[
    Path | None,
    typer.Option(
        metavar="PATH",
        help="Write the picture of cost against risk as a page.",
        rich_help_panel=OUTPUT_PANEL,
    ),
]


def cascade(  # noqa: PLR0913 - one parameter per option
    files: FilesArgument,
    *,
    costs: CostsOption,
    target: dict[str, float],
    level: float | None,
    names: NamesOption = None,
    score: ScoreNameOption = "alpha",
    combine: CombineOption = "average",
    shortlist: ShortlistOption = None,
    seed: SeedOption = 0,
    asking: Asking,
    columns: Columns,
    output: CascadeOutputOption,
    html: HtmlOption = None,
    allow_odd_labels: OddLabelsOption = False,
    quiet: QuietOption = False,
    memory: int,
) -> None:
    """Ask a small model first, a larger one where it doubts, and then a person.

    Picks the thresholds that cost least under one promise for the whole: --risk,
    --joint or --trr. Rows of the FILEs are matched by id. Where no policy keeps the
    promise, or labels cannot be right, nothing is written, and the exit code is 3.
    """
    options: dict[str, Any] = {"costs": _costs(costs), "confidence": level or 0.9}
    options |= {"score": score, "combine": combine, "seed": seed, **target}
    if shortlist is not None:
        options["shortlist"] = as_rate(shortlist, "shortlist")
    named = None if names is None else [name.strip() for name in names.split(",")]
    with bar(quiet=quiet) as tell:
        tell(0.0, f"reading {files[0].name}")
        given = read_stages(files, columns, asking, memory, output, html)
        tell(0.5, "calibrating")
        options |= {"names": named or name_files(files), "progress": tell}
        with refusing_odd_labels(output, allow=allow_odd_labels):
            found = _calibrated(given, options, output)
    if html is not None:
        found.to_html(html)
    found.save(output)
    show_cascade(make_console(quiet=quiet), found, output)
    wrote(make_console(quiet=quiet), html)


def _calibrated(given: "Given", options: dict[str, Any], output: Path) -> Cascade:
    """Calibrate, or say that no policy keeps the promise, and end."""
    try:
        return Cascade.calibrate(given.stages, **given.options, **options)
    except NoPolicyError as error:
        line = f"{output} was not written: {error}"
        typer.echo(f"trustdoctor: {one_line(line)}", err=True)
        raise typer.Exit(TRIVIAL) from None


def _costs(text: str) -> list[float]:
    """Read costs with commas between them."""
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        message = (
            f"expected --costs as numbers, one per model and one for a person, as "
            f"0,1,10, got {text!r}."
        )
        raise InputError(message) from None


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


def is_cascade(path: Path) -> bool:
    """Tell whether a file holds a cascade, by what it says of itself."""
    text = envelope.read_bounded(path, "gate")
    try:
        content = envelope.parse(text)
    except ValueError:
        return False  # the gate's own reader says what is wrong
    return isinstance(content, dict) and content.get("trustdoctor") == "cascade"


def screen_cascade(  # noqa: PLR0913 - what the command was given
    files: list[Path],
    path: Path,
    *,
    columns: Columns,
    asking: Asking,
    output: Path | None,
    only: str | None,
    for_spreadsheets: bool,
    json_path: str | None,
    quiet: bool,
    memory: int,
) -> None:
    """Decide on the rows of some files, each what one stage says of them."""
    found = Cascade.load(path)
    require_different(files)
    found.require_order(name_files(files))
    printed = str(output) == "-"
    with bar(quiet=quiet) as tell, TemporaryDirectory() as folder:
        tell(0.0, f"reading {files[0].name}")
        given = read_stages(files, columns, asking, memory, output, json_path)
        target = Path(folder) / "decided.csv" if printed else output
        source = spelled_for(given.source, output, for_spreadsheets)
        _check_written(source, target, only, found)
        done = found.screen(given.stages, progress=tell, **given.options)
        if target is not None:
            write_decided(source, added_columns(done), target, only=only)
        if printed and target is not None:
            print_file(target)
    summary = summarize_cascaded(found, done)
    write_result(envelope.dump("screening", 1, summary), json_path)
    console = make_console(quiet=quiet or json_path == "-", stderr=printed)
    show_cascaded(console, found, done)
    wrote(console, None if printed else output)


def _check_written(
    source: Source, output: Path | None, only: str | None, cascade: Cascade
) -> None:
    """Say before any model is asked what cannot be written."""
    if only is not None and only not in ("accepted", "rejected"):
        message = f"expected --only accepted or rejected, got {only!r}."
        raise InputError(message)
    if output is None:
        if only is not None:
            message = "--only writes a part of the rows. Give -o FILE.csv or .parquet."
            raise InputError(message)
        return
    if not output.suffix:
        message = f"a cascade writes one file, got the folder {output}. Name a file."
        raise InputError(message)
    check_output(output, *source.files)
    if source.format.is_table:
        more = ["shortlist"] if cascade.shortlist is not None else []
        check_names(source, *ADDED, *more)


def added_columns(done: Cascaded) -> pl.DataFrame:
    """Return what is added to the rows."""
    names = done.predictions.class_names
    said: Any = done.predicted
    if names is not None:
        said = np.array(names, object)[done.predicted].astype(str)
    values = (said, done.scores, done.accepted, done.passes, done.costs)
    added: dict[str, Any] = dict(zip(ADDED, values, strict=False))
    added["goes_to"] = _texts_or_null(done.goes_to)
    if done.shortlist is not None:
        lists = describe_lists(done.shortlist, done.predictions)
        added["shortlist"] = _texts_or_null(lists)
    return pl.DataFrame(added)


def _texts_or_null(values: Any) -> pl.Series:
    """Return texts; null where there is none."""
    return pl.Series([text or None for text in values.tolist()], dtype=pl.String)
