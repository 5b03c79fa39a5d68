"""The command that evaluates labelled predictions: diagnose."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import polars as pl
import typer

from trustdoctor import engines
from trustdoctor.cli.options import (
    FileArgument,
    JsonOption,
    QuietOption,
    ScoresOption,
    TemperatureOption,
    named_score,
    named_scores,
)
from trustdoctor.cli.output import check_outputs, write_result, wrote
from trustdoctor.engines import Means, require_fitting, tuned
from trustdoctor.errors import InputError
from trustdoctor.evaluation import evaluate_logits, repeats
from trustdoctor.files import (
    Columns,
    Source,
    find_source,
    read_perturbed,
    thumbnails,
)
from trustdoctor.predictions import Predictions
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
        help="With --html: other rows, which may make the gate that the page offers.",
        rich_help_panel=PAGE_PANEL,
    ),
]


def diagnose(  # noqa: PLR0913 - one parameter per option
    file: FileArgument,
    *,
    score: ScoresOption = None,
    temperature: TemperatureOption = 1.0,
    columns: Columns,
    html: HtmlOption = None,
    texts: TextsOption = None,
    pictures: PicturesOption = None,
    calibrate_on: CalibrateOnOption = None,
    json_path: JsonOption = None,
    quiet: QuietOption = False,
    means: Means,
) -> None:
    """Measure how far labelled predictions can be trusted.

    Where they do not fit into the memory, rows are counted in ranges of scores.
    """
    page = Page(html, texts, pictures, calibrate_on, tuple(score or ()))
    page.check()
    with bar(quiet=quiet) as tell:
        tell(0.0, f"reading {file.name}")
        source = find_source(file, replace(columns, texts=texts))
        check_outputs(source, json_path, html)
        means = replace(means, progress=tell)
        # Lines too long for the memory are refused before their columns are looked for.
        with tuned(source, means.memory):
            options: dict[str, Any] = {
                "scores": named_scores(score, source.scores),
                "temperature": temperature,
            }
            if html is None:
                found = engines.diagnose(source, means=means, **options)
            else:
                found = page.write(source, file, columns, means, options)
    write_result(found.to_json(), json_path)
    console = make_console(quiet=quiet or json_path == "-")
    show_evaluation(console, found)
    wrote(console, html)


@dataclass(frozen=True)
class Page:
    """What `diagnose --html` was asked to show."""

    html: Path | None
    texts: str | None
    thumbnails: str | None
    calibrate_on: Path | None = None
    score: tuple[str, ...] = ()

    def check(self) -> None:
        """Refuse options without a page, and a page that is printed."""
        if self.html is not None:
            if str(self.html) == "-":
                message = "the page goes to a file. Name one: --html report.html."
                raise InputError(message)
            return
        for name in ("texts", "thumbnails", "calibrate_on"):
            if getattr(self, name) is not None:
                option = name.replace("_", "-")
                message = f"--{option} is for the page. Give --html PAGE with it."
                raise InputError(message)

    def write(
        self,
        source: Source,
        file: Path,
        columns: Columns,
        means: Means,
        options: dict[str, Any],
    ) -> Any:
        """Evaluate rows that are read at once, and write the page."""
        assert self.html is not None
        if not means.engine.in_memory:
            message = "a page shows rows, and another engine counts them: use --engine "
            message += "local, or make it from a sample."
            raise InputError(message)
        calibration = self._calibration(source, columns)
        require_fitting(source, means.memory, "a page")
        source.require_labels("diagnose")
        more = [self.thumbnails] if self.thumbnails in source.names else []
        found, predictions, table = engines.evaluate_read(
            source, *filter(None, more), progress=means.progress, **options
        )
        means.tell(0.95, f"writing {self.html.name}")
        extras = self._extras(source, file, predictions, table) | calibration
        again = repeats(texts=extras["texts"])
        found = replace(found, warnings=(*found.warnings, *again))
        found.to_html(self.html, options=tuple(columns.options()), **extras)
        return found

    def _calibration(self, source: Source, columns: Columns) -> dict[str, Any]:
        """Return the rows that may make the gate, and the files of fitted scores."""
        named = ((name, named_score(name)) for name in self.score if name != "all")
        files = {s.name: text for text, s in named if isinstance(s, FittedScore)}
        other = self.other_rows(source, columns)
        if other:
            rest = find_source(Path(other["calibrate_on"]), columns)
            return other | {
                "score_files": files,
                "calibration_rows": rest.rows,
                "shared_rows": engines.count_shared_rows(source, rest),
            }
        return {"score_files": files}

    def other_rows(self, source: Source, columns: Columns) -> dict[str, str]:
        """Return the file that may make the gate, where one was named."""
        if self.calibrate_on is None:
            return {}
        other = find_source(self.calibrate_on, columns)
        same = {file.resolve() for file in source.files}
        if same & {file.resolve() for file in other.files}:
            message = (
                f"--calibrate-on names the rows of the page, {self.calibrate_on}. Give "
                "other rows: trustdoctor split parts a file in two."
            )
            raise InputError(message)
        other.require_labels("--calibrate-on")
        shown = str(self.calibrate_on).encode("utf-8", "replace").decode()
        return {"calibrate_on": shown}

    def about(self, source: Source, file: Path) -> dict[str, str]:
        """Return what every page says of the file."""
        return {
            "source": file.name.encode("utf-8", "replace").decode(),
            "file": str(file).encode("utf-8", "replace").decode(),
            "digest": source.digest,
        }

    def _extras(
        self, source: Source, file: Path, predictions: Predictions, table: pl.DataFrame
    ) -> dict[str, Any]:
        """Return what the page shows beside the evaluation."""
        pictures = None
        if self.thumbnails:
            pictures = thumbnails(self.thumbnails, source, table, predictions.ids)
        perturbed = read_perturbed(source.files[0]) if len(source.files) == 1 else {}
        return {
            **self.about(source, file),
            "texts": table[self.texts].to_list() if self.texts else None,
            "thumbnails": pictures,
            "perturbed": {
                f"{score}, T {t:g}, epsilon {eps:g}": evaluate_logits(
                    predictions, logits, score=score, temperature=t
                )
                for (score, t, eps), logits in perturbed.items()
            },
        }
