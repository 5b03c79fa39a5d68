"""Commands that measure: demo, diagnose, compare."""

from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

import polars as pl
import typer
from rich.console import Console

from trustdoctor import engines, evaluation
from trustdoctor.cli.options import (
    OUTPUT_PANEL,
    FileArgument,
    JsonOption,
    QuietOption,
    ScoresOption,
    TemperatureOption,
    named_score,
    named_scores,
)
from trustdoctor.cli.places import check_outputs
from trustdoctor.cli.printing import write_result, wrote
from trustdoctor.demo import MODELS, bundled_file, save_demo
from trustdoctor.engines import Means, require_fitting, tuned
from trustdoctor.errors import InputError, missing_package
from trustdoctor.evaluation import evaluate, evaluate_logits, repeats
from trustdoctor.files import (
    Columns,
    Source,
    find_source,
    read,
    read_perturbed,
    thumbnails,
    warn_of_answers,
)
from trustdoctor.predictions import Intake, Predictions
from trustdoctor.progress import bar
from trustdoctor.report import make_console, show_comparison, show_evaluation
from trustdoctor.scores import FittedScore, Score, logit_scores

PAGE_PANEL = "Page"

ScoreOutputOption = Annotated[
    Path | None,
    typer.Option(
        "--output",
        "-o",
        metavar="PATH",
        help="Where to write the recommended fitted score.",
        rich_help_panel=OUTPUT_PANEL,
    ),
]
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
PbbOption = Annotated[
    bool,
    typer.Option(
        "--pbb", metavar="", help="Train a small CNN and perturb its inputs instead."
    ),
]
BundledOption = Annotated[
    str,
    typer.Option(
        metavar="NAME",
        help=f"Whose predictions: {' or '.join(MODELS)}, a smaller model, of the same "
        "rows.",
    ),
]
SaveOption = Annotated[
    Path | None,
    typer.Option(
        metavar="FOLDER",
        help="Write the rows into a folder, to try other commands on.",
        rich_help_panel=OUTPUT_PANEL,
    ),
]
SeedOption = Annotated[int, typer.Option(metavar="N", help="Of the split into thirds.")]


def demo(  # noqa: PLR0913 - one parameter per option
    *,
    pbb: PbbOption = False,
    model: BundledOption = "densenet",
    score: ScoresOption = None,
    temperature: TemperatureOption = 1.0,
    save: SaveOption = None,
    json_path: JsonOption = None,
    quiet: QuietOption = False,
) -> None:
    """Diagnose the bundled predictions of a model on the CIFAR-10 test set."""
    if pbb:
        _demo_pbb(alone=save is None and json_path is None)
        return
    file = bundled_file(model)
    console = make_console(quiet=quiet or json_path == "-")
    name = MODELS[model][0]
    console.print(f"Bundled: {name} on the 10,000 CIFAR-10 test images.\n")
    with bar(quiet=quiet) as tell:
        predictions = read(file)
        scores = named_scores(score, logit_scores())
        found = evaluate(
            predictions, scores=scores, temperature=temperature, progress=tell
        )
    write_result(found.to_json(), json_path)
    show_evaluation(console, found)
    if save is not None:
        wrote(console, *save_demo(predictions, save))
    console.print(
        "\nNext: trustdoctor diagnose YOUR_FILE, or trustdoctor --help", highlight=False
    )


def _demo_pbb(*, alone: bool) -> None:
    if not alone:
        message = "--pbb trains a model of its own. Leave --save and --json out."
        raise InputError(message)
    for package in ("torch", "sklearn"):
        if find_spec(package) is None:
            raise missing_package(
                what="demo --pbb", package=package, extra="torch,sklearn"
            )
    from trustdoctor.demo.digits import main as run_digits

    run_digits()


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


def compare(  # noqa: PLR0913 - one parameter per option
    file: FileArgument,
    *,
    level: float | None,
    seed: SeedOption = 0,
    columns: Columns,
    html: HtmlOption = None,
    calibrate_on: CalibrateOnOption = None,
    output: ScoreOutputOption = None,
    json_path: JsonOption = None,
    quiet: QuietOption = False,
    memory: int,
) -> None:
    """Say which score to use: all that the file allows, judged against softmax.

    Give calibrate other rows than these: --score NAME, or --score FILE of -o.
    """
    page = Page(html, None, None, calibrate_on)
    page.check()
    with bar(quiet=quiet) as tell:
        tell(0.0, f"reading {file.name}")
        source = find_source(file, columns)
        check_outputs(source, json_path, output, html)
        require_fitting(source, memory, "compare")
        source.require_labels("compare")
        predictions = source.read()
        tell(0.3, "comparing scores")
        sure = 0.95 if level is None else level
        found = evaluation.compare(predictions, confidence=sure, seed=seed)
        best = found.score
        if output is not None and isinstance(best, FittedScore):
            best.save(output)
        if html is not None:
            about = page.about(source, file)
            about |= page.other_rows(source, columns)
            found.to_html(html, options=columns.options(), **about)
    write_result(found.to_json(), json_path)
    console = make_console(quiet=quiet or json_path == "-")
    show_comparison(console, found)
    for line in (*Intake.of(predictions).lines(), *warn_of_answers(source)):
        console.print(f"- {line}", highlight=False)
    _tell_score(console, output, best)
    wrote(console, html)


def _tell_score(console: Console, output: Path | None, best: Score) -> None:
    """Say where the recommended score is, or that it needs no file."""
    if output is None or isinstance(best, FittedScore):
        wrote(console, output)
        return
    line = (
        f"{output} was not written: {best.name} needs no file. Calibrate with "
        f"--score {best.name}."
    )
    console.print(line, highlight=False)
