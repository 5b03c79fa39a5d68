"""The command that evaluates labelled predictions: diagnose."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import typer

from trustdoctor import engines
from trustdoctor.cli.options import (
    ColumnOptions,
    FileArgument,
    JsonOption,
    MeansOptions,
    QuietOption,
    ScoresOption,
    TemperatureOption,
    named_scores,
)
from trustdoctor.cli.output import print_written, write_result
from trustdoctor.engines import Diagnosis, tuned
from trustdoctor.errors import InputError
from trustdoctor.evaluation import Evaluation, evaluate_logits, repeats
from trustdoctor.files import Columns, Source, find_source, read_perturbed, thumbnails
from trustdoctor.progress import bar
from trustdoctor.report import make_console, show_evaluation
from trustdoctor.scores import FittedScore

PAGE_PANEL = "Page"

HtmlOption = Annotated[
    Path | None,
    typer.Option(
        metavar="PAGE",
        help="Write one page to look at and to file.",
        rich_help_panel=PAGE_PANEL,
    ),
]
TextsOption = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="With --html: the column of the texts that were classified.",
        rich_help_panel=PAGE_PANEL,
    ),
]
PicturesOption = Annotated[
    str | None,
    typer.Option(
        "--thumbnails",
        metavar="NAME",
        help="With --html: a column, folder or Parquet file of pictures.",
        rich_help_panel=PAGE_PANEL,
    ),
]
CalibrateOnOption = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="With --html: other rows, for the gate that the page offers.",
        rich_help_panel=PAGE_PANEL,
    ),
]


def diagnose(  # noqa: PLR0913 - one parameter per option
    file: FileArgument,
    *,
    score: ScoresOption = None,
    temperature: TemperatureOption = 1.0,
    columns: ColumnOptions,
    html: HtmlOption = None,
    texts: TextsOption = None,
    pictures: PicturesOption = None,
    calibrate_on: CalibrateOnOption = None,
    json_path: JsonOption = None,
    quiet: QuietOption = False,
    means: MeansOptions,
) -> None:
    """Measure how far labelled predictions can be trusted.

    If they do not fit into memory, rows are counted in ranges of scores.
    """
    page = PageOptions(html, texts, pictures, calibrate_on)
    page.check()
    with bar(quiet=quiet) as tell:
        tell(0.0, f"reading {file.name}")
        source = find_source(file, replace(columns, texts=texts))
        means = replace(means, progress=tell)
        # Lines too long for the memory are refused before their columns are looked for.
        with tuned(source, means.memory):
            scores = named_scores(score, source.scores)
            options: dict[str, Any] = {"scores": scores, "temperature": temperature}
            if html is None:
                evaluation = engines.diagnose(source, means=means, **options)
            else:
                extras: dict[str, Any] = {}
                extras |= page.describe(source, file)
                extras |= _calibration(page, source, columns)
                extras["score_files"] = _score_files(score, scores)
                beside = [pictures] if pictures in source.names else []
                diagnosis = engines.diagnose_rows(
                    source, *filter(None, beside), means=means, **options
                )
                tell(0.95, f"writing {html.name}")
                extras |= _row_extras(page, source, diagnosis)
                evaluation = _write_page(html, diagnosis.evaluation, columns, extras)
    write_result(evaluation.to_json(), json_path)
    console = make_console(quiet=quiet or json_path == "-")
    show_evaluation(console, evaluation)
    print_written(console, html)


@dataclass(frozen=True)
class PageOptions:
    """Where a page goes, and what it shows beside the numbers."""

    html: Path | None
    texts: str | None = None
    thumbnails: str | None = None
    calibrate_on: Path | None = None

    def check(self) -> None:
        """Refuse options without a page, and a page that is printed."""
        if self.html is not None:
            if str(self.html) == "-":
                message = "the page goes to a file. Name one: --html report.html."
                raise InputError(message)
            return
        for name in ("texts", "thumbnails", "calibrate_on"):
            if getattr(self, name) is not None:
                flag = name.replace("_", "-")
                message = f"--{flag} is for the page. Give --html PAGE with it."
                raise InputError(message)

    def describe(self, source: Source, file: Path) -> dict[str, str]:
        """Return what every page says of the file."""
        return {
            "source": _printable(file.name),
            "file": _printable(file),
            "digest": source.digest,
        }

    def find_calibration_source(
        self, source: Source, columns: Columns
    ) -> Source | None:
        """Find the rows for the gate that the page offers, if they were named."""
        if self.calibrate_on is None:
            return None
        calibration_source = find_source(self.calibrate_on, columns)
        files = {file.resolve() for file in source.files}
        if files & {file.resolve() for file in calibration_source.files}:
            message = (
                f"--calibrate-on names the rows of the page, {self.calibrate_on}. Give "
                "other rows: trustdoctor split parts a file in two."
            )
            raise InputError(message)
        calibration_source.require_labels("--calibrate-on")
        return calibration_source


def _printable(path: str | Path) -> str:
    """Return a path for a page; names need not be UTF-8."""
    return str(path).encode("utf-8", "replace").decode()


def describe_calibration_file(page: PageOptions) -> dict[str, str]:
    """Return how a page names the rows for its gate."""
    if page.calibrate_on is None:
        return {}
    return {"calibrate_on": _printable(page.calibrate_on)}


def _calibration(page: PageOptions, source: Source, columns: Columns) -> dict[str, Any]:
    """Return what the page says of the rows for the gate that it offers."""
    calibration_source = page.find_calibration_source(source, columns)
    if calibration_source is None:
        return {}
    return {
        **describe_calibration_file(page),
        "calibration_rows": calibration_source.rows,
        "shared_rows": engines.count_shared_rows(source, calibration_source),
    }


def _score_files(names: list[str] | None, scores: list[Any] | None) -> dict[str, str]:
    """Return the files of fitted scores, by their names, for the page's commands."""
    files = [name for name in names or () if name != "all"]
    return {
        score.name: file
        for file, score in zip(files, scores or (), strict=False)  # then those of all
        if isinstance(score, FittedScore)
    }


def _row_extras(
    page: PageOptions, source: Source, diagnosis: Diagnosis
) -> dict[str, Any]:
    """Return what the page shows of single rows, and of perturbed inputs."""
    predictions, table = diagnosis.predictions, diagnosis.table
    pictures = None
    if page.thumbnails:
        pictures = thumbnails(page.thumbnails, source, table, predictions.ids)
    perturbed = read_perturbed(source.files[0]) if len(source.files) == 1 else {}
    return {
        "texts": table[page.texts].to_list() if page.texts else None,
        "thumbnails": pictures,
        "perturbed": {
            f"{score}, T {temperature:g}, epsilon {epsilon:g}": evaluate_logits(
                predictions, logits, score=score, temperature=temperature
            )
            for (score, temperature, epsilon), logits in perturbed.items()
        },
    }


def _write_page(
    html: Path, evaluation: Evaluation, columns: Columns, extras: dict[str, Any]
) -> Evaluation:
    """Write the page; return the evaluation, warned of texts that repeat."""
    warnings = (*evaluation.warnings, *repeats(texts=extras["texts"]))
    evaluation = replace(evaluation, warnings=warnings)
    evaluation.to_html(html, options=tuple(columns.options()), **extras)
    return evaluation
