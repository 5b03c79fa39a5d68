"""The command that makes a gate: calibrate."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import typer

from trustdoctor.cli.options import (
    COLUMNS_PANEL,
    OUTPUT_PANEL,
    TARGETS_PANEL,
    FileArgument,
    GateColumnOptions,
    MeansOptions,
    OddLabelsOption,
    OptionGroup,
    QuietOption,
    ScoreOption,
    TemperatureOption,
    as_doubt,
    as_rate,
    as_target,
    level_group,
    named_score,
    option,
    target_options,
)
from trustdoctor.cli.output import refuse_trivial, refusing_odd_labels
from trustdoctor.engines import (
    Means,
    calibrate_files,
    list_files,
    require_fitting,
    tuned,
)
from trustdoctor.errors import InputError
from trustdoctor.files import Columns, Source, find_source, warn_of_answers
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
from trustdoctor.report import make_console, show_gate

OnAverageOption = Annotated[
    bool,
    typer.Option(
        "--on-average",
        help="Promise the rate on average over calibrations, not with confidence.",
        rich_help_panel=TARGETS_PANEL,
    ),
]
PerClassOption = Annotated[
    bool,
    typer.Option(
        "--per-class",
        help="A threshold for each predicted class.",
        rich_help_panel=TARGETS_PANEL,
    ),
]
NoLabelsOption = Annotated[
    bool,
    typer.Option(
        "--no-labels",
        help="Trust the model's own probabilities: no guarantee.",
        rich_help_panel=TARGETS_PANEL,
    ),
]
NoiseOption = Annotated[
    str | None,
    typer.Option(
        metavar="RATE",
        help="The share of labels that may be wrong: the promise is about the true "
        "classes.",
        rich_help_panel=TARGETS_PANEL,
    ),
]
AccuracyOption = Annotated[
    str | None,
    typer.Option(
        metavar="RATE",
        help="With --no-labels: the model's accuracy, known from elsewhere.",
        rich_help_panel=TARGETS_PANEL,
    ),
]
ClustersOption = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="The column of clusters, if rows belong together (a patient, a video): "
        "one row is drawn from each.",
        rich_help_panel=COLUMNS_PANEL,
    ),
]
SeedOption = Annotated[
    int,
    typer.Option(
        metavar="N",
        help="Seed of the draw from clusters.",
        rich_help_panel=COLUMNS_PANEL,
    ),
]
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
PassedOption = Annotated[
    bool,
    typer.Option(
        "--passed",
        help="With --risk: list the thresholds that passed, with their p-values.",
        rich_help_panel=OUTPUT_PANEL,
    ),
]
TrivialOption = Annotated[
    bool,
    typer.Option(
        "--allow-trivial",
        help="Write the gate even if it accepts or rejects everything.",
        rich_help_panel=OUTPUT_PANEL,
    ),
]


@dataclass(frozen=True)
class _ListOptions:
    """The lists of classes that were asked for.

    Attributes
    ----------
    shortlist : dict or None
        The options of `trustdoctor.shortlist`; None for no lists.
    gate : Path or None
        The gate to give lists to, instead of making one.
    """

    shortlist: dict[str, Any] | None = None
    gate: Path | None = None


def _list_options() -> list[inspect.Parameter]:
    return [
        option(
            "shortlist",
            str | None,
            "Also lists of classes for rejected rows, which hold the true class at "
            "this rate: 0.95 or 95%.",
            panel=TARGETS_PANEL,
            metavar="RATE",
        ),
        option(
            "shortlist_method",
            str | None,
            "lac (default): all classes of some probability. aps, raps: adaptive "
            "lists.",
            panel=TARGETS_PANEL,
            metavar="NAME",
        ),
        option(
            "shortlist_size",
            int | None,
            "Longer lists become a full review.",
            panel=TARGETS_PANEL,
            metavar="N",
        ),
        option(
            "gate",
            Path | None,
            "Instead of a target: add lists to this gate, set by the rows of FILE.",
            panel=TARGETS_PANEL,
            metavar="GATE",
        ),
    ]


def _as_lists(
    *,
    shortlist: str | None,
    shortlist_method: str | None,
    shortlist_size: int | None,
    gate: Path | None,
) -> _ListOptions:
    options: dict[str, Any] = {}
    if shortlist_method is not None:
        options["method"] = shortlist_method
    if shortlist_size is not None:
        options["max_size"] = shortlist_size
    if shortlist is not None:
        return _ListOptions({"level": as_rate(shortlist, "shortlist"), **options}, gate)
    if options or gate is not None:
        message = (
            "--shortlist-method, --shortlist-size and --gate are about lists. Give "
            "--shortlist RATE, as 95%, or leave them out."
        )
        raise InputError(message)
    return _ListOptions()


TargetOptions = Annotated[dict[str, Any], OptionGroup(target_options, as_target)]
LevelOption = Annotated[
    float | None, level_group("the probability that the promise holds (default: 0.9)")
]
ListOptions = Annotated[_ListOptions, OptionGroup(_list_options, _as_lists)]


def calibrate(  # noqa: PLR0913 - one parameter per option
    file: FileArgument,
    *,
    target: TargetOptions,
    level: LevelOption,
    lists: ListOptions,
    on_average: OnAverageOption = False,
    per_class: PerClassOption = False,
    no_labels: NoLabelsOption = False,
    label_noise: NoiseOption = None,
    accuracy: AccuracyOption = None,
    score: ScoreOption = None,
    temperature: TemperatureOption = 1.0,
    columns: GateColumnOptions,
    clusters: ClustersOption = None,
    seed: SeedOption = 0,
    output: GateOutputOption,
    passed: PassedOption = False,
    allow_trivial: TrivialOption = False,
    allow_odd_labels: OddLabelsOption = False,
    quiet: QuietOption = False,
    means: MeansOptions,
) -> None:
    """Choose a threshold that keeps a promise, and write it as a gate.

    Give one target, or two: --frr with --trr, or --risk with --coverage, --frr or
    --trr; a RATE is 0.05 or 5%. Several values that you fixed before you looked at the
    rows, as --risk 1%,2%,5%, share the level: the strictest that can be promised is
    taken. If the gate would accept or reject everything, or the labels cannot be right,
    nothing is written and the exit code is 3.
    """
    # An option that was not given is None, so that each way can tell what it refuses.
    options: dict[str, Any] = {
        "score": None if score is None else named_score(score),
        "temperature": temperature,
        "mode": "expectation" if on_average else None,
        "groups": _group_kind(columns, per_class=per_class),
        "confidence": level or 0.9,
        "shortlist": lists.shortlist,
        "accuracy": None if accuracy is None else as_rate(accuracy, "accuracy"),
        "clusters": clusters,
        "label_noise": (
            None if label_noise is None else as_rate(label_noise, "label-noise")
        ),
    }
    if accuracy is not None and not no_labels:
        message = "--accuracy goes with --no-labels. Leave it out."
        raise InputError(message)
    remarks: list[str] = []
    with bar(quiet=quiet) as tell:
        tell(0.0, f"reading {file.name}")
        labels = not no_labels and (lists.shortlist is not None or needs_labels(target))
        source = find_source(file, replace(columns, need_labels=labels))
        means = replace(means, progress=tell)
        odd_labels = refusing_odd_labels(output, allow=allow_odd_labels)
        with tuned(source, means.memory), odd_labels:
            options = {k: v for k, v in options.items() if v is not None}
            target = _on_doubt(target, options.get("score", source.scores[0]))
            if no_labels:
                gate = _calibrate_unlabelled(
                    source, target, options, means, remarks.append
                )
            elif lists.gate is not None:
                options |= target
                gate = _add_lists(source, lists.gate, options, means, remarks.append)
            else:
                options |= target
                gate = calibrate_files(
                    source, seed=seed, means=means, remark=remarks.append, **options
                )
            remarks += warn_of_answers(source)
    if decides_nothing(gate) and not allow_trivial:
        refuse_trivial(gate, output, remarks)
    if passed:
        remarks.append(_passed_thresholds(gate))
    gate.save(output)
    show_gate(make_console(quiet=quiet), gate, output, remarks)


def _on_doubt(target: dict[str, Any], score: Any) -> dict[str, Any]:
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


def _passed_thresholds(gate: Gate) -> str:
    """Return the thresholds that passed, one per line."""
    assert gate.certificate is not None
    if not gate.certificate.passed:
        message = "--passed lists thresholds of --risk without groups. Leave it out."
        raise InputError(message)
    return "\n".join(gate.certificate.passed_lines(gate.score_name))


def _group_kind(columns: Columns, *, per_class: bool) -> str | None:
    """Return what the gate's groups are: predicted classes, a column, or nothing."""
    if per_class and columns.groups is not None:
        message = "expected --per-class or --groups NAME, got both. Leave one out."
        raise InputError(message)
    if per_class:
        return PREDICTED
    return None if columns.groups is None else GIVEN


def _add_lists(
    source: Source,
    gate_path: Path,
    options: dict[str, Any],
    means: Means,
    remark: Callable[[str], object],
) -> Gate:
    """Give lists to a gate that was calibrated before."""
    shortlist = options.pop("shortlist")
    defaults = {"temperature": 1.0, "confidence": 0.9, "groups": GIVEN}
    if any(value != defaults.get(name) for name, value in options.items()):
        message = (
            "--gate names a gate that is made, which --shortlist gives lists: leave "
            "out targets, and what else makes a gate."
        )
        raise InputError(message)
    gate = Gate.load(gate_path)
    return list_files(source, gate, shortlist, means=means, remark=remark)


def _calibrate_unlabelled(
    source: Source,
    target: dict[str, Any],
    options: dict[str, Any],
    means: Means,
    remark: Callable[[str], object],
) -> Gate:
    """Calibrate without labels, on rows that are read at once."""
    refused = ("groups", "mode", "clusters", "shortlist", "label_noise")
    if any(name in options for name in refused):
        message = (
            "--no-labels has no groups, clusters, --on-average, shortlist or label "
            "noise. Leave them out."
        )
        raise InputError(message)
    if options.get("score") == AUTO:
        message = "--score auto needs labels to choose by. Name a score: --score alpha."
        raise InputError(message)
    del options["confidence"]  # there is no promise
    require_fitting(source, means.memory, "--no-labels")
    predictions = source.read()
    gate = calibrate_unlabelled(predictions, target=target, **options)
    if decides_nothing(gate):
        remark(advise_unlabelled(predictions, target, **options))
    return gate
