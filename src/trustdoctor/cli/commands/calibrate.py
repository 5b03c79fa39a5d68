"""The command that makes a gate: calibrate."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from trustdoctor.cli.options import (
    OUTPUT_PANEL,
    TARGETS_PANEL,
    AccuracyOption,
    ClustersOption,
    DrawSeedOption,
    FileArgument,
    NoiseOption,
    OddLabelsOption,
    Option,
    OptionGroup,
    PassedOption,
    QuietOption,
    ScoreOption,
    TemperatureOption,
    as_rate,
    named_score,
    takes,
)
from trustdoctor.cli.output import check_outputs, refuse_trivial, refusing_odd_labels
from trustdoctor.engines import (
    Means,
    calibrate_files,
    list_files,
    require_fitting,
    tuned,
)
from trustdoctor.errors import InputError
from trustdoctor.files import (
    Columns,
    Source,
    find_source,
    warn_of_answers,
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
)

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


@dataclass(frozen=True)
class Lists:
    """What was asked of lists.

    Attributes
    ----------
    options : dict or None
        Of `trustdoctor.shortlist`; None where there are to be no lists.
    gate : Path or None
        The gate to give them to.
    """

    options: dict[str, Any] | None = None
    gate: Path | None = None


def _list_options() -> Iterator[Option]:
    text = (
        "Also lists of classes for rejected rows, which hold the true one so often: "
        "0.95 or 95%."
    )
    yield Option("shortlist", str | None, text, metavar="RATE")
    text = "lac (default): all classes of some probability. aps, raps: adaptive lists."
    yield Option("shortlist_method", str | None, text, metavar="NAME")
    text = "Longer lists become a full review."
    yield Option("shortlist_size", int | None, text, metavar="N")
    text = "Instead of a target: give this gate lists, set by the rows of FILE."
    yield Option("gate", Path | None, text, metavar="GATE")


def _lists(
    *,
    shortlist: str | None,
    shortlist_method: str | None,
    shortlist_size: int | None,
    gate: Path | None,
) -> Lists:
    others = {"method": shortlist_method, "max_size": shortlist_size}
    given = {name: value for name, value in others.items() if value is not None}
    if shortlist is not None:
        return Lists({"level": as_rate(shortlist, "shortlist"), **given}, gate)
    if given or gate is not None:
        message = (
            "--shortlist-method, --shortlist-size and --gate are about lists. Give "
            "--shortlist RATE, as 95%, or leave them out."
        )
        raise InputError(message)
    return Lists()


LISTS = OptionGroup(_list_options, _lists, TARGETS_PANEL)


@takes(lists=LISTS)
def calibrate(  # noqa: PLR0913 - one parameter per option
    file: FileArgument,
    *,
    target: dict[str, Any],
    level: float | None,
    lists: Lists,
    mode: ModeOption = None,
    method: MethodOption = None,
    per_class: PerClassOption = False,
    no_labels: NoLabelsOption = False,
    label_noise: NoiseOption = None,
    accuracy: AccuracyOption = None,
    score: ScoreOption = None,
    temperature: TemperatureOption = 1.0,
    columns: Columns,
    clusters: ClustersOption = None,
    seed: DrawSeedOption = 0,
    output: GateOutputOption,
    passed: PassedOption = False,
    allow_trivial: TrivialOption = False,
    allow_odd_labels: OddLabelsOption = False,
    quiet: QuietOption = False,
    means: Means,
) -> None:
    """Choose a threshold that keeps a promise, and write it as a gate.

    Give one target, or two: --frr with --trr, or --risk with --coverage, --frr or
    --trr; a RATE is 0.05 or 5%. Several values that you fixed before you looked at the
    rows, as --risk 1%,2%,5%, share the level: the strictest that can be promised is
    taken. A gate that would accept or reject everything is not written, nor one on
    labels that cannot be right, and the exit code is 3.
    """
    given: dict[str, Any] = {"temperature": temperature, "mode": mode, "method": method}
    given |= {"groups": _groups(columns, per_class), "confidence": level or 0.9}
    given |= _named(score, accuracy, clusters, seed, lists)
    if accuracy is not None and not no_labels:
        message = "--accuracy goes with --no-labels. Leave it out."
        raise InputError(message)
    if label_noise is not None:
        given["label_noise"] = as_rate(label_noise, "label-noise")
    run, said = _way(lists, no_labels=no_labels), list[str]()
    with bar(quiet=quiet) as tell:
        tell(0.0, f"reading {file.name}")
        labels = not no_labels and ("shortlist" in given or needs_labels(target))
        source = find_source(file, replace(columns, need_labels=labels))
        check_outputs(source, output)
        given["means"] = replace(means, progress=tell)
        odd = refusing_odd_labels(output, allow=allow_odd_labels)
        with tuned(source, means.memory), odd:
            given |= _on_the_score(target, given.get("score", source.scores[0]))
            gate = run(source, given, said)
            said += warn_of_answers(source)
    if decides_nothing(gate) and not allow_trivial:
        refuse_trivial(gate, output, said)
    said += _passed(gate) if passed else []
    gate.save(output)
    show_gate(make_console(quiet=quiet), gate, output, said)


def _named(
    score: str | None,
    accuracy: str | None,
    clusters: str | None,
    seed: int,
    lists: Lists,
) -> dict[str, Any]:
    """Return those options that were given."""
    out: dict[str, Any] = {} if score is None else {"score": named_score(score)}
    if lists.options is not None:
        out["shortlist"] = lists.options
    if accuracy is not None:
        out["accuracy"] = as_rate(accuracy, "accuracy")
    return out if clusters is None else out | {"clusters": clusters, "seed": seed}


def _on_the_score(target: dict[str, Any], score: Any) -> dict[str, Any]:
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


def _way(lists: Lists, *, no_labels: bool) -> Callable[..., Gate]:
    """Return how the gate is made."""
    if lists.gate is not None and not no_labels:
        return partial(_listed, lists.gate)
    return _unlabelled if no_labels else _labelled


def _listed(path: Path, source: Source, given: dict[str, Any], said: list[str]) -> Gate:
    """Give a gate that is made its lists."""
    means, wanted = given.pop("means"), given.pop("shortlist")
    usual = {"temperature": 1.0, "confidence": 0.9, "groups": GIVEN}
    if any(value not in (None, usual.get(name)) for name, value in given.items()):
        message = (
            "--gate names a gate that is made, which --shortlist gives lists: leave "
            "out targets, and what else makes a gate."
        )
        raise InputError(message)
    return list_files(source, Gate.load(path), wanted, means=means, remark=said.append)


def _labelled(source: Source, given: dict[str, Any], said: list[str]) -> Gate:
    return calibrate_files(source, remark=said.append, **given)


def _unlabelled(source: Source, given: dict[str, Any], said: list[str]) -> Gate:
    """Calibrate without labels, on rows that are read at once."""
    means = given.pop("means")
    del given["confidence"]  # there is no promise
    given.pop("seed", None)
    names = ("groups", "mode", "method", "clusters", "shortlist", "label_noise")
    others = [given.pop(name, None) for name in names]
    if any(value is not None for value in others):
        message = (
            "--no-labels has no groups, clusters, mode, method, shortlist or label "
            "noise. Leave them out."
        )
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


def as_doubt(threshold: float, score: Any) -> float:
    """Return a threshold on the doubt; one on a confidence is its least value."""
    return 0 - threshold if score == "confidence" else threshold
