"""The command that decides on rows: screen."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any

import polars as pl
import typer
from rich.console import Console

from trustdoctor import engines, envelope
from trustdoctor.cli.options import (
    OUTPUT_PANEL,
    GateColumnOptions,
    JsonOption,
    MeansOptions,
    QuietOption,
    SpreadsheetsOption,
    as_doubt,
    named_score,
)
from trustdoctor.cli.output import (
    print_file,
    print_written,
    write_result,
    written_for_spreadsheets,
)
from trustdoctor.cli.stages import StageInputOptions, StageOptions, read_stages
from trustdoctor.engines import Means, tuned
from trustdoctor.errors import InputError
from trustdoctor.files import (
    Columns,
    Source,
    check_names,
    check_output,
    find_source,
    write_decided,
)
from trustdoctor.gates import AUTO, Gate, describe_lists
from trustdoctor.opinion import Cascade, Cascaded, name_files, require_different
from trustdoctor.progress import bar
from trustdoctor.report import (
    make_console,
    show_cascaded,
    show_screened,
    summarize_cascaded,
    summarize_screened,
)
from trustdoctor.scores import Score, find_score

GATE_PANEL = "Gate"
CASCADE_COLUMNS = ("predicted", "score", "accepted", "asked", "cost", "goes_to")
"""What a cascade adds to the rows."""

ScreenedArgument = Annotated[
    list[Path],
    typer.Argument(
        metavar="FILE",
        help="Predictions: .csv, .tsv, .jsonl, .parquet, .arrow, .npz or .npy; a "
        "folder of them, a quoted pattern, or - for standard input. For a cascade one "
        "per stage.",
    ),
]
OptionalGateOption = Annotated[
    Path | None,
    typer.Option(
        "--gate",
        metavar="GATE",
        help="A gate's file, from calibrate, or a cascade's.",
        rich_help_panel=GATE_PANEL,
    ),
]
GammaOption = Annotated[
    float | None,
    typer.Option(
        metavar="X",
        help="Instead: reject if the score's ratio exceeds X.",
        rich_help_panel=GATE_PANEL,
    ),
]
ThresholdOption = Annotated[
    float | None,
    typer.Option(
        metavar="X",
        help="Instead: reject if the score itself exceeds X; a confidence, if it is "
        "below X.",
        rich_help_panel=GATE_PANEL,
    ),
]
OptionalScoreOption = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="With a threshold: a name (default: alpha), or a fitted score's FILE.",
        rich_help_panel=GATE_PANEL,
    ),
]
OptionalTemperatureOption = Annotated[
    float | None,
    typer.Option(
        "--temperature",
        "-T",
        metavar="T",
        help="With a threshold: divide the logits by T.",
        rich_help_panel=GATE_PANEL,
    ),
]
OutputOption = Annotated[
    Path | None,
    typer.Option(
        "--output",
        "-o",
        metavar="PATH",
        help="Rows with predicted, score and accepted added (in NPZ only these): a "
        "file, a folder for one file each, or - to print CSV.",
        rich_help_panel=OUTPUT_PANEL,
    ),
]
OnlyOption = Annotated[
    str | None,
    typer.Option(
        metavar="WHICH",
        help="Write only these rows: accepted or rejected.",
        rich_help_panel=OUTPUT_PANEL,
    ),
]
ResumeOption = Annotated[
    bool,
    typer.Option(
        "--resume",
        help="Keep what a stopped run left in the folder.",
        rich_help_panel=OUTPUT_PANEL,
    ),
]


@dataclass(frozen=True)
class _GateOptions:
    """What names the gate: its file, or a threshold of some score."""

    file: envelope.ParsedFile | None
    gamma: float | None
    threshold: float | None
    score: str | None
    temperature: float | None

    @property
    def are_of_a_threshold(self) -> bool:
        """Whether any says more than the file."""
        others = (self.gamma, self.threshold, self.score, self.temperature)
        return any(value is not None for value in others)


@dataclass(frozen=True)
class _ResultOptions:
    """Where decided rows and their summary go."""

    output: Path | None
    only: str | None
    for_spreadsheets: bool
    json_path: str | None
    quiet: bool

    @property
    def is_printed(self) -> bool:
        """Whether rows go to standard output."""
        return str(self.output) == "-"

    def prepare(self, source: Source) -> Source:
        """Return a source whose rows are written as was asked for."""
        if not self.for_spreadsheets:
            return source
        return written_for_spreadsheets(source, self.output)

    @contextmanager
    def rows_path(self) -> Iterator[Path | None]:
        """Yield where to write the rows; those to print pass through a file."""
        if not self.is_printed:
            yield self.output
            return
        with TemporaryDirectory() as folder:
            path = Path(folder) / "decided.csv"
            yield path
            print_file(path)

    def write_summary(self, summary: dict[str, Any]) -> Console:
        """Write the summary, and return where to show it."""
        write_result(envelope.dump("screening", 2, summary), self.json_path)
        quiet = self.quiet or self.json_path == "-"
        return make_console(quiet=quiet, stderr=self.is_printed)


def screen(  # noqa: PLR0913 - one parameter per option
    files: ScreenedArgument,
    *,
    gate_path: OptionalGateOption = None,
    gamma: GammaOption = None,
    threshold: ThresholdOption = None,
    score: OptionalScoreOption = None,
    temperature: OptionalTemperatureOption = None,
    columns: GateColumnOptions,
    inputs: StageInputOptions,
    output: OutputOption = None,
    only: OnlyOption = None,
    for_spreadsheets: SpreadsheetsOption = False,
    resume: ResumeOption = False,
    json_path: JsonOption = None,
    quiet: QuietOption = False,
    means: MeansOptions,
) -> None:
    """Accept or reject each prediction of a file, by a gate or a threshold.

    By a cascade: give one FILE per stage, in their order. Without the last ones, rows
    still in doubt go to the stage that `goes_to` names.
    """
    if str(output) == json_path == "-":
        message = "expected one result on standard output, got --json - and -o -."
        raise InputError(message)
    results = _ResultOptions(output, only, for_spreadsheets, json_path, quiet)
    gate_file = None if gate_path is None else envelope.parse_file(gate_path, "gate")
    options = _GateOptions(gate_file, gamma, threshold, score, temperature)
    if gate_file is not None and gate_file.kind == "cascade":
        if resume or means.engine.name != "local" or options.are_of_a_threshold:
            message = (
                "a cascade names its score and thresholds, and reads its files at "
                "once: leave --resume, --engine, --gamma, --threshold, --score and "
                "--temperature out."
            )
            raise InputError(message)
        cascade = Cascade.load(gate_file)
        _screen_by_cascade(cascade, files, results, columns, inputs, means.memory)
    else:
        file = _require_one(files, inputs)
        _screen_by_gate(options, file, results, columns, means, resume=resume)


def _screen_by_gate(  # noqa: PLR0913 - what the command was given
    options: _GateOptions,
    file: Path,
    results: _ResultOptions,
    columns: Columns,
    means: Means,
    *,
    resume: bool,
) -> None:
    """Decide by a gate, or by a threshold."""
    with bar(quiet=results.quiet) as tell, results.rows_path() as rows_path:
        tell(0.0, f"reading {file.name}")
        source = find_source(file, replace(columns, need_labels=False))
        source = results.prepare(source)
        gate = _make_gate(options, source)
        with tuned(source, means.memory, all_columns=rows_path is not None):
            outcome = engines.screen(
                source,
                gate,
                rows_path,
                only=results.only,
                resume=resume,
                means=replace(means, progress=tell),
            )
    console = results.write_summary(summarize_screened(gate, outcome))
    show_screened(console, gate, outcome)
    if "predicted" in source.names and source.layout.predicted != "predicted":
        line = "- The column predicted is the file's own, and was kept as it is."
        console.print(line, highlight=False)
    print_written(console, None if results.is_printed else results.output)


def _require_one(files: list[Path], inputs: StageOptions) -> Path:
    """Return the file that a gate decides on; several are for a cascade."""
    if len(files) > 1:
        pattern = files[-1].with_name(f"*{files[-1].suffix}")
        message = (
            f"expected one FILE, got {len(files)}: a gate takes one, a cascade one per "
            f"stage. For many files quote a pattern, as '{pattern}', or name the "
            "folder."
        )
        raise InputError(message)
    if inputs != StageOptions():
        message = (
            "--by-position, --text, --answers and --max-calls are for cascades. Leave "
            "them out."
        )
        raise InputError(message)
    return files[0]


def _make_gate(options: _GateOptions, source: Source) -> Gate:
    """Return the gate of a file, or one of a threshold for these rows."""
    gamma, threshold = options.gamma, options.threshold
    if sum(value is not None for value in (gamma, threshold, options.file)) != 1:
        message = "expected one of --gate, --gamma and --threshold. Give one of them."
        raise InputError(message)
    if options.file is not None:
        if options.are_of_a_threshold:
            message = "a gate names its own score and temperature. Leave these out."
            raise InputError(message)
        return Gate.load(options.file)
    temperature = 1.0 if options.temperature is None else options.temperature
    name = source.scores[0] if options.score is None else options.score
    score: Any = named_score(name)
    if score == AUTO:
        message = (
            "--score auto chooses a score for calibrate, and a threshold belongs to "
            "one score. Name it: --score alpha."
        )
        raise InputError(message)
    if gamma is not None:
        if isinstance(score, Score):
            message = "--gamma goes with a score's name. Use --threshold."
            raise InputError(message)
        return Gate.from_gamma(gamma, score=score, temperature=temperature)
    assert threshold is not None
    if source.columns.percent and abs(threshold) > 1:
        threshold /= 100
    ready = find_score(score, temperature=temperature)
    return Gate(as_doubt(threshold, ready.name), ready)


def _screen_by_cascade(  # noqa: PLR0913 - what the command was given
    cascade: Cascade,
    files: list[Path],
    results: _ResultOptions,
    columns: Columns,
    inputs: StageOptions,
    memory: int,
) -> None:
    """Decide on the rows of some files, each with the predictions of one stage."""
    require_different(files)
    cascade.require_order(name_files(files))
    with bar(quiet=results.quiet) as tell, results.rows_path() as rows_path:
        tell(0.0, f"reading {files[0].name}")
        stage_inputs = read_stages(files, columns, inputs, memory)
        source = results.prepare(stage_inputs.source)
        _check_cascade_output(source, rows_path, results.only, cascade)
        cascaded = cascade.screen(
            stage_inputs.stages, progress=tell, **stage_inputs.options
        )
        if rows_path is not None:
            added = cascade_columns(cascaded)
            write_decided(source, added, rows_path, only=results.only)
    console = results.write_summary(summarize_cascaded(cascade, cascaded))
    show_cascaded(console, cascade, cascaded)
    print_written(console, None if results.is_printed else results.output)


def _check_cascade_output(
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
    check_output(output)
    if source.format.is_table:
        lists = ["shortlist"] if cascade.shortlist is not None else []
        check_names(source, *CASCADE_COLUMNS, *lists)


def cascade_columns(cascaded: Cascaded) -> pl.DataFrame:
    """Return what a cascade adds to the rows."""
    added = cascaded.to_frame().rename({"doubt": "score"}).select(CASCADE_COLUMNS)
    added = added.cast({"goes_to": pl.String})
    if cascaded.shortlist is None:
        return added
    lists = describe_lists(cascaded.shortlist, cascaded.predictions)
    texts = [text or None for text in lists.tolist()]
    return added.with_columns(pl.Series("shortlist", texts, dtype=pl.String))
