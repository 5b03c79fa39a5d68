"""The command that decides on rows: screen."""

from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any

import numpy as np
import polars as pl
import typer
from rich.console import Console

from trustdoctor import engines, envelope
from trustdoctor.cli.commands.calibrate import as_doubt
from trustdoctor.cli.options import (
    OUTPUT_PANEL,
    JsonOption,
    QuietOption,
    SpreadsheetsOption,
    named_score,
)
from trustdoctor.cli.output import (
    check_outputs,
    print_file,
    spelled_for,
    write_result,
    wrote,
)
from trustdoctor.cli.stages import Asking, read_stages
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
from trustdoctor.gates import AUTO, Gate, Outcome, describe_lists
from trustdoctor.opinion import (
    Cascade,
    Cascaded,
    name_files,
    require_different,
)
from trustdoctor.progress import bar
from trustdoctor.report import (
    make_console,
    show_cascaded,
    show_screened,
    summarize_cascaded,
    summarize_screened,
)
from trustdoctor.scores import Score

ADDED = ("predicted", "score", "accepted", "asked", "cost", "goes_to")

GATE_PANEL = "Gate"

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
        help="Instead: reject where the score's ratio exceeds it.",
        rich_help_panel=GATE_PANEL,
    ),
]
ThresholdOption = Annotated[
    float | None,
    typer.Option(
        metavar="X",
        help="Instead: reject where the score itself exceeds it; of a confidence, "
        "where it is below.",
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
        help="With a threshold: divides the logits.",
        rich_help_panel=GATE_PANEL,
    ),
]
OutputOption = Annotated[
    Path | None,
    typer.Option(
        "--output",
        "-o",
        metavar="PATH",
        help="Rows with predicted, score and accepted added (in NPZ these alone): a "
        "file, a folder for one file each, or - to print CSV.",
        rich_help_panel=OUTPUT_PANEL,
    ),
]
OnlyOption = Annotated[
    str | None,
    typer.Option(
        metavar="WHICH",
        help="Write these rows alone: accepted or rejected.",
        rich_help_panel=OUTPUT_PANEL,
    ),
]
ResumeOption = Annotated[
    bool,
    typer.Option(
        "--resume",
        metavar="",
        help="Keep what a stopped run left in the folder.",
        rich_help_panel=OUTPUT_PANEL,
    ),
]


def screen(  # noqa: PLR0913 - one parameter per option
    files: ScreenedArgument,
    *,
    gate_path: OptionalGateOption = None,
    gamma: GammaOption = None,
    threshold: ThresholdOption = None,
    score: OptionalScoreOption = None,
    temperature: OptionalTemperatureOption = None,
    columns: Columns,
    asking: Asking,
    output: OutputOption = None,
    only: OnlyOption = None,
    for_spreadsheets: SpreadsheetsOption = False,
    resume: ResumeOption = False,
    json_path: JsonOption = None,
    quiet: QuietOption = False,
    means: Means,
) -> None:
    """Accept or reject each prediction of a file, by a gate or a threshold.

    By a cascade: give one FILE per stage, in their order. Without the last ones, rows
    still in doubt go to the stage that `goes_to` names.
    """
    _check_screen_outputs(files[0], output, json_path)
    named = (gamma, threshold, score, temperature)
    asked: dict[str, Any] = {"columns": columns, "output": output, "only": only}
    asked |= {"json_path": json_path, "quiet": quiet}
    asked["for_spreadsheets"] = for_spreadsheets
    if gate_path is not None and is_cascade(gate_path):
        _require_plain(resume, means, *named)
        asked |= {"asking": asking, "memory": means.memory}
        screen_cascade(files, gate_path, **asked)
    else:
        file, gate = _only_file(files, asking), (gate_path, *named)
        _screen_gate(file, gate, resume=resume, means=means, **asked)


def _screen_gate(  # noqa: PLR0913 - what the command was given
    file: Path,
    named: tuple[Any, ...],
    *,
    columns: Columns,
    output: Path | None,
    only: str | None,
    for_spreadsheets: bool,
    resume: bool,
    json_path: str | None,
    quiet: bool,
    means: Means,
) -> None:
    """Decide by a gate, or by a threshold."""
    printed = str(output) == "-"
    with bar(quiet=quiet) as tell, TemporaryDirectory() as folder:
        tell(0.0, f"reading {file.name}")
        source = find_source(file, replace(columns, need_labels=False))
        source = spelled_for(source, output, for_spreadsheets)
        gate = _gate(source, *named)
        check_outputs(source, json_path, output)
        means = replace(means, progress=tell)
        target = Path(folder) / "decided.csv" if printed else output
        with tuned(source, means.memory, all_columns=output is not None):
            done = engines.screen(
                source, gate, target, only=only, resume=resume, means=means
            )
        if printed and target is not None:
            print_file(target)
    summary = summarize_screened(gate, done)
    write_result(envelope.dump("screening", 1, summary), json_path)
    console = make_console(quiet=quiet or json_path == "-", stderr=printed)
    _show(console, gate, done, source)
    wrote(console, None if printed else output)


def _show(console: Console, gate: Gate, done: Outcome, source: Source) -> None:
    """Say what was decided, and where the rows have a column `predicted` themselves."""
    show_screened(console, gate, done)
    if "predicted" in source.names and source.layout.predicted != "predicted":
        line = "- The column predicted is the file's own, and was kept as it is."
        console.print(line, highlight=False)


def _require_plain(resume: bool, means: Means, *others: Any) -> None:  # noqa: FBT001
    """Refuse what a cascade does not do."""
    if resume or means.engine.name != "local" or any(o is not None for o in others):
        message = (
            "a cascade names its score and thresholds, and reads its files at once: "
            "leave --resume, --engine, --gamma, --threshold, --score and --temperature "
            "out."
        )
        raise InputError(message)


def _only_file(files: list[Path], asking: Asking) -> Path:
    """Return the file that a gate decides on; several are for a cascade."""
    if len(files) > 1:
        pattern = files[-1].with_name(f"*{files[-1].suffix}")
        message = (
            f"expected one FILE, got {len(files)}: a gate takes one, a cascade one per "
            f"stage. For many files quote a pattern, as '{pattern}', or name the "
            "folder."
        )
        raise InputError(message)
    if asking != Asking():
        message = (
            "--by-position, --text, --answers and --max-calls are for cascades. Leave "
            "them out."
        )
        raise InputError(message)
    return files[0]


def _check_screen_outputs(
    file: Path, output: Path | None, json_path: str | None
) -> None:
    """Say before any work what cannot be written."""
    if output is not None and output.suffix:
        check_output(output, file)
    if str(output) == json_path == "-":
        message = "expected one result on standard output, got --json - and -o -."
        raise InputError(message)


def _gate(  # noqa: PLR0913 - one parameter per option
    source: Source,
    path: Path | None,
    gamma: float | None,
    threshold: float | None,
    score: str | None,
    temperature: float | None,
) -> Gate:
    if sum(given is not None for given in (gamma, threshold, path)) != 1:
        message = "expected one of --gate, --gamma and --threshold. Give one of them."
        raise InputError(message)
    if path is not None:
        if score is not None or temperature is not None:
            message = "a gate names its own score and temperature. Leave these out."
            raise InputError(message)
        return Gate.load(path)
    at = 1.0 if temperature is None else temperature
    named: Any = named_score(source.scores[0] if score is None else score)
    if named == AUTO:
        message = (
            "--score auto chooses a score for calibrate, and a threshold belongs to "
            "one score. Name it: --score alpha."
        )
        raise InputError(message)
    if gamma is not None and not isinstance(named, Score):
        return Gate.from_gamma(gamma, score=named, temperature=at)
    if gamma is not None:
        message = "--gamma goes with a score's name. Use --threshold."
        raise InputError(message)
    assert threshold is not None
    if source.columns.percent and abs(threshold) > 1:
        threshold /= 100
    return Gate(as_doubt(threshold, named), score=named, temperature=at)


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
