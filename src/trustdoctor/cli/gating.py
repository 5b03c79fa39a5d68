"""Commands around a gate: calibrate, screen, check."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from trustdoctor import engines, envelope
from trustdoctor.cli.options import (
    FileArgument,
    GateOption,
    JsonOption,
    QuietOption,
    ScoreOption,
    TemperatureOption,
    check_output_path,
    check_outputs,
    named_score,
)
from trustdoctor.cli.printing import write_result, wrote
from trustdoctor.engines import Means, calibrate_files, require_fitting, tuned
from trustdoctor.errors import FileError, InputError, LabelsMissingError
from trustdoctor.files import (
    Columns,
    Source,
    check_output,
    find_source,
    partial_labels,
)
from trustdoctor.gates import (
    GIVEN,
    PREDICTED,
    TARGETS,
    Gate,
    calibrate_unlabelled,
)
from trustdoctor.progress import bar
from trustdoctor.report import (
    make_console,
    show_gate,
    show_screened,
    summarize_screened,
)
from trustdoctor.scores import Score
from trustdoctor.watch import Watch

GateOutputOption = Annotated[
    Path, typer.Option("--output", "-o", help="Where to write the gate (JSON).")
]
ConfidenceOption = Annotated[
    float, typer.Option(help="Probability that the promise holds.")
]
ModeOption = Annotated[
    str | None, typer.Option(help="confidence (default) or expectation.")
]
MethodOption = Annotated[
    str | None, typer.Option(help="For --risk: sequence (default), sgr or grid.")
]
PerClassOption = Annotated[
    bool, typer.Option("--per-class", help="A threshold for each predicted class.")
]
NoLabelsOption = Annotated[
    bool, typer.Option("--no-labels", help="Trust the model itself: no guarantee.")
]
AccuracyOption = Annotated[
    float | None, typer.Option(help="With --no-labels: the accuracy, if known.")
]


OptionalGateOption = Annotated[
    Path | None, typer.Option("--gate", help="A gate's file, from calibrate.")
]
GammaOption = Annotated[
    float | None, typer.Option(help="Reject where the score's ratio exceeds it.")
]
ThresholdOption = Annotated[
    float | None, typer.Option(help="Reject where the score itself exceeds it.")
]
OptionalScoreOption = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="With a threshold: a name (default: alpha), or a fitted score's FILE.",
    ),
]
OptionalTemperatureOption = Annotated[
    float | None, typer.Option("--temperature", "-T", help="Divides the logits.")
]
OutputOption = Annotated[
    Path | None,
    typer.Option(
        "--output",
        "-o",
        help="Rows with score and accepted added (in NPZ these two alone): a file, or "
        "a folder for one file each.",
    ),
]
ResumeOption = Annotated[
    bool, typer.Option("--resume", help="Keep what a stopped run left in the folder.")
]


def calibrate(  # noqa: PLR0913 - one parameter per option
    file: FileArgument,
    *,
    target: dict[str, float],
    output: GateOutputOption,
    confidence: ConfidenceOption = 0.9,
    mode: ModeOption = None,
    method: MethodOption = None,
    per_class: PerClassOption = False,
    no_labels: NoLabelsOption = False,
    accuracy: AccuracyOption = None,
    score: ScoreOption = "alpha",
    temperature: TemperatureOption = 1.0,
    quiet: QuietOption = False,
    columns: Columns,
    means: Means,
) -> None:
    """Choose a threshold that keeps a promise, and write it as a gate."""
    check_output_path(output, file)
    options: dict[str, Any] = {"mode": mode, "method": method}
    given: dict[str, Any] = {"temperature": temperature, "means": means}
    given |= {"score": named_score(score), "groups": _groups(columns, per_class)}
    if accuracy is not None and not no_labels:
        message = "--accuracy goes with --no-labels. Leave one out, or add it."
        raise InputError(message)
    with bar(quiet=quiet) as tell:
        tell(0.0, f"reading {file.name}")
        needs = any(TARGETS[name].needs_labels for name in target)
        labels = needs and not no_labels
        source = find_source(file, replace(columns, need_labels=labels))
        check_outputs(source, output)
        given["means"] = replace(means, progress=tell)
        with tuned(source, means.memory):
            if no_labels:
                given |= {"accuracy": accuracy}
                gate = _unlabelled(source, target, options, given)
            else:
                given |= {"confidence": confidence, **options, **target}
                gate = calibrate_files(source, **given)
    gate.save(output)
    show_gate(make_console(quiet=quiet), gate, output)


def _groups(columns: Columns, per_class: bool) -> str | None:  # noqa: FBT001
    if per_class and columns.groups is not None:
        message = "expected --per-class or --groups NAME, got both. Leave one out."
        raise InputError(message)
    if per_class:
        return PREDICTED
    return None if columns.groups is None else GIVEN


def _unlabelled(
    source: Source,
    target: dict[str, float],
    options: dict[str, Any],
    given: dict[str, Any],
) -> Gate:
    """Calibrate without labels, on rows that are read at once."""
    means, groups = given.pop("means"), given.pop("groups")
    if groups or any(value is not None for value in options.values()):
        message = "--no-labels has no groups, mode or method. Leave them out."
        raise InputError(message)
    require_fitting(source, means.memory, "--no-labels")
    given |= target
    return calibrate_unlabelled(source.read(), **given)


def screen(  # noqa: PLR0913 - one parameter per option
    file: FileArgument,
    *,
    gate_path: OptionalGateOption = None,
    gamma: GammaOption = None,
    threshold: ThresholdOption = None,
    score: OptionalScoreOption = None,
    temperature: OptionalTemperatureOption = None,
    output: OutputOption = None,
    resume: ResumeOption = False,
    json_path: JsonOption = None,
    quiet: QuietOption = False,
    columns: Columns,
    means: Means,
) -> None:
    """Accept or reject each prediction of a file, by a gate or a threshold."""
    gate = _gate(gamma, threshold, gate_path, score, temperature)
    check_output_path(json_path, file)
    if output is not None and output.suffix:
        check_output(output, file)
    with bar(quiet=quiet) as tell:
        tell(0.0, f"reading {file.name}")
        source = find_source(file, replace(columns, need_labels=False))
        check_outputs(source, json_path, output)
        means = replace(means, progress=tell)
        with tuned(source, means.memory):
            done = engines.screen(source, gate, output, resume=resume, means=means)
    summary = summarize_screened(gate, done)
    write_result(envelope.dump("screening", 1, summary), json_path)
    console = make_console(quiet=quiet or json_path == "-")
    show_screened(console, gate, done)
    if done.counts is None and source.has_labels:
        console.print("  some labels are missing or not classes: no rates shown")
    wrote(console, output)


def _gate(
    gamma: float | None,
    threshold: float | None,
    path: Path | None,
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
    named: Any = named_score(score or "alpha")
    if gamma is not None and not isinstance(named, Score):
        return Gate.from_gamma(gamma, score=named, temperature=at)
    if gamma is not None:
        message = "--gamma goes with a score's name. Use --threshold."
        raise InputError(message)
    assert threshold is not None
    return Gate(threshold, score=named, temperature=at)


def check(  # noqa: PLR0913 - one parameter per option
    file: FileArgument,
    *,
    gate_path: GateOption,
    state: Annotated[
        Path, typer.Option(help="What earlier checks saw; made if it is not there.")
    ],
    level: Annotated[
        float | None,
        typer.Option(help="Probability of a false alarm, forever (default: 0.1)."),
    ] = None,
    late: Annotated[
        bool,
        typer.Option("--late", help="Rows seen before, whose labels came only now."),
    ] = False,
    quiet: QuietOption = False,
    columns: Columns,
    memory: int,
) -> None:
    """Check on new rows whether a gate's promise still holds."""
    gate = Gate.load(gate_path)
    check_output_path(state, file)
    watch = _watch(gate, state, level)
    with bar(quiet=quiet) as tell:
        tell(0.0, f"reading {file.name}")
        source = find_source(file, replace(columns, need_labels=False))
        check_outputs(source, state)
        require_fitting(source, memory, "check")
        _count(watch, source, late=late)
    watch.save(state)
    make_console(quiet=quiet).print(repr(watch), highlight=False)


def _watch(gate: Gate, state: Path, level: float | None) -> Watch:
    if not state.exists():
        return gate.watch(level=0.1 if level is None else level)
    watch = Watch.load(state, gate)
    if level not in (None, watch.level):
        message = f"the state was begun at level {watch.level:g}. Leave --level out."
        raise InputError(message)
    return watch


def _count(watch: Watch, source: Source, *, late: bool) -> None:
    """Count the rows of some files, and their labels where these are known."""
    predictions, table = source.load()
    try:
        known = partial_labels(table, source.columns, predictions.n_classes)
    except InputError as error:
        message = f"{source.name}: {error}"
        raise FileError(message) from error
    if known is None and late:
        message = f"--late needs labels, and {source.name} has none."
        raise LabelsMissingError(message)
    wrong = None
    if known is not None:
        wrong = np.where(np.isnan(known), np.nan, known != predictions.predicted)
    (watch.label if late else watch.update)(predictions, wrong)
