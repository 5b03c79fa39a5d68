"""The command that watches a gate: check."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import polars as pl
import typer
from rich.console import Console

from trustdoctor import envelope
from trustdoctor.arrays import Array
from trustdoctor.cli.exit_codes import ALARM
from trustdoctor.cli.options import (
    OUTPUT_PANEL,
    FileArgument,
    GateColumnOptions,
    GateOption,
    JsonOption,
    MemoryOption,
    QuietOption,
    SpreadsheetsOption,
    as_rate,
    as_share,
)
from trustdoctor.cli.output import print_written, write_result
from trustdoctor.cli.review_file import ReviewedRows, ReviewFile
from trustdoctor.engines import require_fitting
from trustdoctor.errors import InputError, LabelsMissingError
from trustdoctor.evaluation import check_labels
from trustdoctor.files import Columns, Source, find_source
from trustdoctor.gates import Gate
from trustdoctor.predictions import Predictions
from trustdoctor.progress import bar
from trustdoctor.report import make_console
from trustdoctor.watch import Watch, require_state

REVIEW_PANEL = "Review"
_DAY = 86400.0
_YES, _NO = ("true", "yes", "1", "1.0", "y", "t"), ("false", "no", "0", "0.0", "n", "f")

StateOption = Annotated[
    Path,
    typer.Option(
        metavar="STATE",
        help="What earlier checks saw; created if it does not exist. JSON, or a "
        "database if it ends in .db, for millions of ids.",
    ),
]
LevelOption = Annotated[
    str | None,
    typer.Option(
        metavar="RATE",
        help="Probability of ever raising a false alarm (default: 0.1).",
    ),
]
BatchOption = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="A name for these rows: a second delivery of it is not counted.",
    ),
]
LateOption = Annotated[
    bool,
    typer.Option(
        "--late",
        help="These rows were counted before, and have labels only now; FILE may be "
        "the one that --draw wrote, filled in.",
        rich_help_panel=REVIEW_PANEL,
    ),
]
RejectedOption = Annotated[
    str | None,
    typer.Option(
        metavar="RATE",
        help="The share of rejected rows that people review (with --review-accepted; "
        "default: 1).",
        rich_help_panel=REVIEW_PANEL,
    ),
]
AcceptedOption = Annotated[
    str | None,
    typer.Option(
        metavar="RATE",
        help="The share of accepted rows that people review, drawn at random, as 0.02.",
        rich_help_panel=REVIEW_PANEL,
    ),
]
ReviewedOption = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="The column that says which rows were drawn for review (default: rows "
        "with a label).",
        rich_help_panel=REVIEW_PANEL,
    ),
]
DrawOption = Annotated[
    Path | None,
    typer.Option(
        metavar="PATH",
        help="Draw rows to review, by their ids, and write them as CSV; their labels "
        "may come later.",
        rich_help_panel=REVIEW_PANEL,
    ),
]
NoiseOption = Annotated[
    str | None,
    typer.Option(
        metavar="RATE",
        help="The share of labels that may be wrong: the promise is tested for the "
        "true classes.",
        rich_help_panel=REVIEW_PANEL,
    ),
]
DeadlineOption = Annotated[
    float | None,
    typer.Option(
        metavar="DAYS",
        help="How many days to wait for a label (default: 30).",
        rich_help_panel=REVIEW_PANEL,
    ),
]
ReferenceOption = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="Labelled rows of the same model: also say which accuracy the model "
        "expects of itself. No guarantee.",
    ),
]
HtmlOption = Annotated[
    Path | None,
    typer.Option(
        metavar="PATH",
        help="Write the history as a page.",
        rich_help_panel=OUTPUT_PANEL,
    ),
]


@dataclass(frozen=True)
class _NewRows:
    """New rows of a file, or rows whose labels came late.

    Attributes
    ----------
    predictions : Predictions
    ids : array or None
        None unless a column of ids was named: each row then counts whenever it comes.
    reviewed : bool array or None
        The rows drawn for review, if a column says so.
    late : bool
        Whether they were counted before, and only their labels are new.
    """

    predictions: Predictions
    ids: Array | None
    reviewed: Array | None
    late: bool

    def odd_labels(self) -> tuple[str, ...]:
        """Return why an alarm may come of the labels."""
        rows = self.predictions
        return check_labels(rows).odd if rows.has_label.any() else ()


def check(  # noqa: PLR0913 - one parameter per option
    file: FileArgument,
    *,
    gate_path: GateOption,
    state: StateOption,
    level: LevelOption = None,
    batch: BatchOption = None,
    reference: ReferenceOption = None,
    review_rejected: RejectedOption = None,
    review_accepted: AcceptedOption = None,
    reviewed: ReviewedOption = None,
    draw: DrawOption = None,
    for_spreadsheets: SpreadsheetsOption = False,
    late: LateOption = False,
    deadline: DeadlineOption = None,
    label_noise: NoiseOption = None,
    columns: GateColumnOptions,
    html: HtmlOption = None,
    json_path: JsonOption = None,
    quiet: QuietOption = False,
    memory: MemoryOption,
) -> None:
    """Check on new rows whether a gate's promise still holds.

    The exit code is 1 if it does not, or if the accept rate has changed. With --ids
    each row counts once, and its label may come with a later file.
    """
    gate = Gate.load(gate_path)
    options = _watch_options(level, deadline, label_noise)
    options |= _review_rates(review_rejected, review_accepted)
    review_file = ReviewFile(for_spreadsheets, columns.last_line)
    _check_review_options(draw, reviewed, review_file, columns, late=late)
    require_state(state, gate, **options)
    with bar(quiet=quiet) as tell:
        tell(0.0, f"reading {file.name}")
        rows: _NewRows | ReviewedRows | None = None
        if late:
            rows = review_file.read(file, gate)
        if rows is None:
            rows = _read(find_source(file, columns), reviewed, memory, late=late)
            if reference is not None:
                options["reference"] = find_source(reference, columns).read()
    printed = json_path == "-"
    with Watch.open(state, gate, **options) as watch:
        if draw is None:
            _count(watch, rows, batch)
        else:
            _count_and_draw(watch, rows, batch, draw, review_file)
        # Within the block: if a result cannot be written, nothing is counted.
        odd_labels = rows.odd_labels()
        content = watch.to_dict() | {"warnings": list(odd_labels)}
        result = envelope.dump("check", 2, content)
        if html is not None:
            watch.to_html(html)
        if not printed:
            write_result(result, json_path)
    if printed:
        write_result(result, json_path)
    _show(make_console(quiet=quiet or printed), watch, odd_labels, draw, html)


def _count(watch: Watch, rows: _NewRows | ReviewedRows, batch: str | None) -> None:
    """Count new rows, or labels that came late."""
    if isinstance(rows, ReviewedRows):
        watch.label(
            errors=rows.errors, ids=rows.ids, batch=batch, undecided=rows.undecided
        )
    elif rows.late:
        watch.label(rows.predictions, ids=rows.ids, batch=batch)
    else:
        watch.update(
            rows.predictions, ids=rows.ids, batch=batch, reviewed=rows.reviewed
        )


def _count_and_draw(
    watch: Watch,
    rows: _NewRows | ReviewedRows,
    batch: str | None,
    draw: Path,
    review_file: ReviewFile,
) -> None:
    """Count new rows, and write those that are drawn for review."""
    assert isinstance(rows, _NewRows)  # --draw and --late exclude each other
    screened = watch.gate.screen(rows.predictions)
    drawn = watch.draw(screened, ids=rows.ids)
    watch.update(rows.predictions, ids=rows.ids, batch=batch, reviewed=drawn)
    review_file.write(draw, screened, rows.predictions, drawn)


def _show(
    console: Console, watch: Watch, odd_labels: tuple[str, ...], *written: Path | None
) -> None:
    """Say how the watch stands; an alarm is the exit code."""
    for line in odd_labels:
        console.print(
            f"Careful: the labels are odd. {line}", highlight=False, markup=False
        )
    console.print(repr(watch), highlight=False, soft_wrap=True, markup=False)
    print_written(console, *written)
    if watch.alarm:
        raise typer.Exit(ALARM)


def _watch_options(
    level: str | None, deadline: float | None, label_noise: str | None
) -> dict[str, Any]:
    """Return what a watch is to be started with, or to go on with."""
    options: dict[str, Any] = {}
    if level is not None:
        options["level"] = as_rate(level, "level")
    if deadline is not None:
        if not 0 < deadline < 1e6:
            message = f"expected --deadline in days, above 0, as 30, got {deadline:g}."
            raise InputError(message)
        options["deadline"] = deadline * _DAY
    if label_noise is not None:
        options["label_noise"] = as_share(label_noise, "label-noise")
    return options


def _review_rates(
    rejected: str | None, accepted: str | None
) -> dict[str, dict[str, float]]:
    """Return both rates if one was given, the other as its default."""
    if rejected is None and accepted is None:
        return {}
    rates = {
        "rejected": 1.0 if rejected is None else as_share(rejected, "review-rejected"),
        "accepted": 0.0 if accepted is None else as_share(accepted, "review-accepted"),
    }
    return {"review": rates}


def _check_review_options(
    draw: Path | None,
    reviewed: str | None,
    review_file: ReviewFile,
    columns: Columns,
    *,
    late: bool,
) -> None:
    """Refuse options about review that do not go together."""
    if draw is None:
        if review_file.for_spreadsheets and not late:
            message = (
                "--for-spreadsheets is about the file of --draw. Give --draw or --late."
            )
            raise InputError(message)
        return
    if reviewed is not None or late:
        message = (
            "--draw says which rows are reviewed. Leave --reviewed and --late out."
        )
        raise InputError(message)
    if columns.ids is None:
        message = "--draw draws rows by their ids. Name their column: --ids NAME."
        raise InputError(message)


def _read(source: Source, reviewed: str | None, memory: int, *, late: bool) -> _NewRows:
    require_fitting(source, memory, "check")
    predictions, table = source.load(*([reviewed] if reviewed else []))
    if late and predictions.labels is None:
        message = f"--late needs labels, and {source.name} has none."
        raise LabelsMissingError(message)
    ids = None if source.columns.ids is None else predictions.ids
    mask = None if reviewed is None else _as_mask(table[reviewed])
    return _NewRows(predictions, ids, mask, late)


def _as_mask(column: pl.Series) -> Array:
    """Return in which rows a column says yes."""
    words = column.cast(pl.String).str.strip_chars().str.to_lowercase()
    is_yes, is_no = words.is_in(_YES), words.is_in(_NO)
    is_neither = ~(is_yes | is_no).fill_null(value=False)
    if is_neither.any():
        row = int(is_neither.arg_max() or 0)
        message = (
            f"expected yes or no (1 or 0) in column {column.name!r}, got "
            f"{column[row]!r} at row {row}."
        )
        raise InputError(message)
    return is_yes.to_numpy()
