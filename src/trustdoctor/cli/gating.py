"""Commands around a gate: calibrate, screen."""

from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any

import typer

from trustdoctor import engines, envelope
from trustdoctor.cli.options import (
    OUTPUT_PANEL,
    TARGETS_PANEL,
    AccuracyOption,
    ClustersOption,
    DrawSeedOption,
    FileArgument,
    JsonOption,
    PassedOption,
    QuietOption,
    ScoreOption,
    TemperatureOption,
    as_rate,
    named_score,
)
from trustdoctor.cli.places import check_outputs
from trustdoctor.cli.printing import print_file, refuse_trivial, write_result, wrote
from trustdoctor.engines import Means, calibrate_files, require_fitting, tuned
from trustdoctor.errors import InputError
from trustdoctor.files import (
    Columns,
    Source,
    check_output,
    find_source,
)
from trustdoctor.gates import (
    AUTO,
    GIVEN,
    PREDICTED,
    Gate,
    advise_unlabelled,
    calibrate_unlabelled,
    decides_nothing,
    needs_labels,
)
from trustdoctor.progress import bar
from trustdoctor.report import (
    make_console,
    show_gate,
    show_screened,
    summarize_screened,
)
from trustdoctor.scores import Score

GATE_PANEL = "Gate"

GateOutputOption = Annotated[
    Path,
    typer.Option(
        "--output",
        "-o",
        metavar="GATE",
        help="Where to write the gate (JSON).",
        rich_help_panel=OUTPUT_PANEL,
    ),
]
TrivialOption = Annotated[
    bool,
    typer.Option(
        "--allow-trivial",
        metavar="",
        help="Write a gate that accepts or rejects everything, too.",
        rich_help_panel=OUTPUT_PANEL,
    ),
]
ModeOption = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="confidence (default) or expectation.",
        rich_help_panel=TARGETS_PANEL,
    ),
]
MethodOption = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="For --risk: sequence (default), sgr or grid.",
        rich_help_panel=TARGETS_PANEL,
    ),
]
PerClassOption = Annotated[
    bool,
    typer.Option(
        "--per-class",
        metavar="",
        help="A threshold for each predicted class.",
        rich_help_panel=TARGETS_PANEL,
    ),
]
NoLabelsOption = Annotated[
    bool,
    typer.Option(
        "--no-labels",
        metavar="",
        help="Trust the model itself: no guarantee.",
        rich_help_panel=TARGETS_PANEL,
    ),
]
OptionalGateOption = Annotated[
    Path | None,
    typer.Option(
        "--gate",
        metavar="GATE",
        help="A gate's file, from calibrate.",
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


def calibrate(  # noqa: PLR0913 - one parameter per option
    file: FileArgument,
    *,
    target: dict[str, float],
    level: float | None,
    mode: ModeOption = None,
    method: MethodOption = None,
    per_class: PerClassOption = False,
    no_labels: NoLabelsOption = False,
    accuracy: AccuracyOption = None,
    score: ScoreOption = None,
    temperature: TemperatureOption = 1.0,
    columns: Columns,
    clusters: ClustersOption = None,
    seed: DrawSeedOption = 0,
    output: GateOutputOption,
    passed: PassedOption = False,
    allow_trivial: TrivialOption = False,
    quiet: QuietOption = False,
    means: Means,
) -> None:
    """Choose a threshold that keeps a promise, and write it as a gate.

    Give one target, or two: --frr with --trr, or --risk with --coverage, --frr or
    --trr; a RATE is 0.05 or 5%. A gate that would accept or reject everything is not
    written, and the exit code is 3.
    """
    given: dict[str, Any] = {"temperature": temperature, "mode": mode, "method": method}
    given |= {"groups": _groups(columns, per_class), "confidence": level or 0.9}
    given |= _named(score, accuracy, clusters, seed)
    labels, said = needs_labels(target) and not no_labels, list[str]()
    with bar(quiet=quiet) as tell:
        tell(0.0, f"reading {file.name}")
        source = find_source(file, replace(columns, need_labels=labels))
        check_outputs(source, output)
        given |= _on_the_score(target, given.get("score", source.scores[0]))
        given["means"] = replace(means, progress=tell)
        with tuned(source, means.memory):
            run = _unlabelled if no_labels else _labelled
            gate = run(source, given, said)
    if decides_nothing(gate) and not allow_trivial:
        refuse_trivial(gate, output, said)
    said += _passed(gate) if passed else []
    gate.save(output)
    show_gate(make_console(quiet=quiet), gate, output, said)


def _named(
    score: str | None, accuracy: str | None, clusters: str | None, seed: int
) -> dict[str, Any]:
    """Return those options that were given."""
    out: dict[str, Any] = {} if score is None else {"score": named_score(score)}
    if accuracy is not None:
        out["accuracy"] = as_rate(accuracy, "accuracy")
    return out if clusters is None else out | {"clusters": clusters, "seed": seed}


def _on_the_score(target: dict[str, float], score: Any) -> dict[str, float]:
    """Return the target, a threshold on the scale of the doubt."""
    if "threshold" not in target:
        return target
    if score == AUTO:
        message = (
            "--score auto chooses a score, and a threshold belongs to one. Name it: "
            "--score alpha."
        )
        raise InputError(message)
    return target | {"threshold": as_doubt(target["threshold"], score)}


def _passed(gate: Gate) -> list[str]:
    """Return the thresholds that passed, as lines to print."""
    assert gate.certificate is not None
    if not gate.certificate.passed:
        message = "--passed lists thresholds of --risk without groups. Leave it out."
        raise InputError(message)
    return ["\n".join(gate.certificate.passed_lines(gate.score))]


def _groups(columns: Columns, per_class: bool) -> str | None:  # noqa: FBT001
    if per_class and columns.groups is not None:
        message = "expected --per-class or --groups NAME, got both. Leave one out."
        raise InputError(message)
    if per_class:
        return PREDICTED
    return None if columns.groups is None else GIVEN


def _labelled(source: Source, given: dict[str, Any], said: list[str]) -> Gate:
    return calibrate_files(source, remark=said.append, **given)


def _unlabelled(source: Source, given: dict[str, Any], said: list[str]) -> Gate:
    """Calibrate without labels, on rows that are read at once."""
    means = given.pop("means")
    del given["confidence"]  # there is no promise
    given.pop("seed", None)
    others = [given.pop(n, None) for n in ("groups", "mode", "method", "clusters")]
    if any(value is not None for value in others):
        message = "--no-labels has no groups, clusters, mode or method. Leave them out."
        raise InputError(message)
    if given.get("score") == AUTO:
        message = "--score auto needs labels to choose by. Name a score: --score alpha."
        raise InputError(message)
    require_fitting(source, means.memory, "--no-labels")
    predictions = source.read()
    gate = calibrate_unlabelled(predictions, **given)
    if decides_nothing(gate):
        said.append(advise_unlabelled(predictions, **given))
    return gate


def screen(  # noqa: PLR0913 - one parameter per option
    file: FileArgument,
    *,
    gate_path: OptionalGateOption = None,
    gamma: GammaOption = None,
    threshold: ThresholdOption = None,
    score: OptionalScoreOption = None,
    temperature: OptionalTemperatureOption = None,
    columns: Columns,
    output: OutputOption = None,
    only: OnlyOption = None,
    resume: ResumeOption = False,
    json_path: JsonOption = None,
    quiet: QuietOption = False,
    means: Means,
) -> None:
    """Accept or reject each prediction of a file, by a gate or a threshold."""
    _check_screen_outputs(file, output, json_path)
    printed = str(output) == "-"
    with bar(quiet=quiet) as tell, TemporaryDirectory() as folder:
        tell(0.0, f"reading {file.name}")
        source = find_source(file, replace(columns, need_labels=False))
        gate = _gate(source, gamma, threshold, gate_path, score, temperature)
        check_outputs(source, json_path, output)
        means = replace(means, progress=tell)
        target = Path(folder) / "decided.csv" if printed else output
        with tuned(source, means.memory, whole=output is not None):
            done = engines.screen(
                source, gate, target, only=only, resume=resume, means=means
            )
        if printed and target is not None:
            print_file(target)
    summary = summarize_screened(gate, done)
    write_result(envelope.dump("screening", 1, summary), json_path)
    console = make_console(quiet=quiet or json_path == "-", stderr=printed)
    show_screened(console, gate, done)
    if "predicted" in source.names and source.layout.predicted != "predicted":
        line = "- The column predicted is the file's own, and was kept as it is."
        console.print(line, highlight=False)
    wrote(console, None if printed else output)


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


def as_doubt(threshold: float, score: Any) -> float:
    """Return a threshold on the doubt; one on a confidence is its least value."""
    return 0 - threshold if score == "confidence" else threshold
