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
    GateOption,
    JsonOption,
    QuietOption,
    SpreadsheetsOption,
    as_rate,
    as_share,
)
from trustdoctor.cli.output import check_outputs, write_result, wrote
from trustdoctor.cli.review_file import Answered, ReviewFile
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
        help="What earlier checks saw; made if it is not there. JSON, or a database by "
        "the suffix .db, for millions of ids.",
    ),
]
LevelOption = Annotated[
    str | None,
    typer.Option(
        metavar="RATE",
        help="Probability of a false alarm, forever (default: 0.1).",
    ),
]
BatchOption = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="What these rows are called: a second delivery is not counted.",
    ),
]
LateOption = Annotated[
    bool,
    typer.Option(
        "--late",
        metavar="",
        help="Rows seen before, whose labels came only now; FILE may be the one that "
        "--draw wrote, filled in.",
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
        help="The column that says which rows were drawn for review (default: those "
        "with a label).",
        rich_help_panel=REVIEW_PANEL,
    ),
]
DrawOption = Annotated[
    Path | None,
    typer.Option(
        metavar="PATH",
        help="Draw the rows to review, by their ids, and write them as CSV; their "
        "labels may come later.",
        rich_help_panel=REVIEW_PANEL,
    ),
]
NoiseOption = Annotated[
    str | None,
    typer.Option(
        metavar="RATE",
        help="The share of labels that may be wrong: the truth is tested, and not the "
        "labels.",
        rich_help_panel=REVIEW_PANEL,
    ),
]
DeadlineOption = Annotated[
    float | None,
    typer.Option(
        metavar="DAYS",
        help="How long a label is waited for (default: 30).",
        rich_help_panel=REVIEW_PANEL,
    ),
]
ReferenceOption = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="Labelled rows of the same model: then it also says which accuracy the "
        "model expects of itself. No guarantee.",
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
class _Given:
    """Rows of a file, and what is said of them."""

    predictions: Predictions
    ids: Array | None
    reviewed: Array | None
    late: bool

    def odd_labels(self) -> tuple[str, ...]:
        """Return why an alarm may come of the labels."""
        rows = self.predictions
        return check_labels(rows).odd if rows.has_label.any() else ()

    def count(
        self, watch: Watch, batch: str | None, draw: Path | None, file: ReviewFile
    ) -> None:
        """Count the rows, and write those that are drawn for review."""
        rows, reviewed = self.predictions, self.reviewed
        if self.late:
            watch.label(rows, ids=self.ids, batch=batch)
            return
        if draw is not None:
            screened = watch.gate.screen(rows)
            reviewed = watch.draw(screened, ids=self.ids)
        watch.update(rows, ids=self.ids, batch=batch, reviewed=reviewed)
        if draw is not None and reviewed is not None:
            file.write(draw, screened, rows, reviewed)


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
    columns: Columns,
    html: HtmlOption = None,
    json_path: JsonOption = None,
    quiet: QuietOption = False,
    memory: int,
) -> None:
    """Check on new rows whether a gate's promise still holds.

    The exit code is 1 where it does not, or where the accept rate has changed. With
    --ids each row counts once, and its label may come with a later file.
    """
    gate = Gate.load(gate_path)
    options = _options(level, review_rejected, review_accepted, deadline)
    if label_noise is not None:
        options["label_noise"] = as_share(label_noise, "label-noise")
    _check_draw(draw, reviewed, columns, late=late)
    if for_spreadsheets and draw is None and not late:
        message = (
            "--for-spreadsheets is about the file of --draw. Give --draw or --late."
        )
        raise InputError(message)
    review_file = ReviewFile(for_spreadsheets, columns.last_line)
    require_state(state, gate, **options)
    with bar(quiet=quiet) as tell:
        tell(0.0, f"reading {file.name}")
        given: _Given | Answered | None = review_file.read(file, gate) if late else None
        if given is None:
            source = find_source(file, columns)
            check_outputs(source, state, json_path, html, draw)
            given = _read(source, reviewed, memory, late=late)
            options |= _reference(reference, columns)
    with Watch.open(state, gate, **options) as watch:
        odd = given.odd_labels() if isinstance(given, _Given) else ()
        given.count(watch, batch, draw, review_file)
        _write(watch, odd, html, json_path)  # or else nothing is counted
    printed = json_path == "-"
    if printed:
        write_result(_result(watch, odd), json_path)
    _show(make_console(quiet=quiet or printed), watch, odd, draw, html)


def _show(
    console: Console, watch: Watch, odd: tuple[str, ...], *paths: Path | None
) -> None:
    """Say how the watch stands; an alarm is the exit code."""
    for line in odd:
        console.print(
            f"Careful: the labels are odd. {line}", highlight=False, markup=False
        )
    console.print(repr(watch), highlight=False, soft_wrap=True, markup=False)
    wrote(console, *paths)
    if watch.alarm:
        raise typer.Exit(ALARM)


def _write(
    watch: Watch, odd: tuple[str, ...], html: Path | None, json_path: str | None
) -> None:
    """Write how the watch stands into the files that were asked for."""
    if html is not None:
        watch.to_html(html)
    if json_path != "-":
        write_result(_result(watch, odd), json_path)


def _result(watch: Watch, odd: tuple[str, ...]) -> str:
    return envelope.dump("check", 2, watch.to_dict() | {"warnings": list(odd)})


def _options(
    level: str | None,
    rejected: str | None,
    accepted: str | None,
    deadline: float | None,
) -> dict[str, Any]:
    """Return what a watch is to be started with, or to go on with."""
    out: dict[str, Any] = {}
    if level is not None:
        out["level"] = as_rate(level, "level")
    if deadline is not None:
        if not 0 < deadline < 1e6:
            message = f"expected --deadline in days, above 0, as 30, got {deadline:g}."
            raise InputError(message)
        out["deadline"] = deadline * _DAY
    rates = _rates(rejected, accepted)
    return out if rates is None else out | {"review": rates}


def _rates(rejected: str | None, accepted: str | None) -> dict[str, float] | None:
    """Return the review rates, where they were given."""
    if rejected is None and accepted is None:
        return None
    return {
        "rejected": 1.0 if rejected is None else as_share(rejected, "review-rejected"),
        "accepted": 0.0 if accepted is None else as_share(accepted, "review-accepted"),
    }


def _check_draw(
    draw: Path | None, reviewed: str | None, columns: Columns, *, late: bool
) -> None:
    if draw is None:
        return
    if reviewed is not None or late:
        message = (
            "--draw says which rows are reviewed. Leave --reviewed and --late out."
        )
        raise InputError(message)
    if columns.ids is None:
        message = "--draw draws rows by their ids. Name their column: --ids NAME."
        raise InputError(message)


def _read(source: Source, reviewed: str | None, memory: int, *, late: bool) -> _Given:
    require_fitting(source, memory, "check")
    rows, table = source.load(*([reviewed] if reviewed else []))
    if late and rows.labels is None:
        message = f"--late needs labels, and {source.name} has none."
        raise LabelsMissingError(message)
    mask = None if reviewed is None else _as_mask(table[reviewed])
    named = source.columns.ids is not None
    return _Given(rows, rows.ids if named else None, mask, late)


def _as_mask(column: pl.Series) -> Array:
    """Return which rows a column says yes of."""
    words = column.cast(pl.String).str.strip_chars().str.to_lowercase()
    known = words.is_in(_YES), words.is_in(_NO)
    odd = ~(known[0] | known[1]).fill_null(value=False)
    if odd.any():
        row = int(odd.arg_max() or 0)
        message = (
            f"expected yes or no (1 or 0) in column {column.name!r}, got "
            f"{column[row]!r} at row {row}."
        )
        raise InputError(message)
    return known[0].to_numpy()


def _reference(file: Path | None, columns: Columns) -> dict[str, Any]:
    return {} if file is None else {"reference": find_source(file, columns).read()}
