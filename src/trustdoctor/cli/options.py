"""Options that commands share, and groups of options that become one object."""

import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer

from trustdoctor.engines import ENGINES, Means, find_engine, parse_memory
from trustdoctor.errors import InputError
from trustdoctor.files import Columns, read_class_names
from trustdoctor.gates import AUTO, TARGETS
from trustdoctor.scores import SCORES, FittedScore, load_score, logit_scores

# The panels that --help shows options in, by what they are about.
TARGETS_PANEL = "Targets"
SCORE_PANEL = "Score"
COLUMNS_PANEL = "Columns"
OUTPUT_PANEL = "Output"
ENGINE_PANEL = "Engine"

FileArgument = Annotated[
    Path,
    typer.Argument(
        metavar="FILE",
        help="Predictions: .csv, .tsv, .jsonl, .parquet, .arrow, .npz or .npy; a "
        "folder of them, a quoted pattern, or - for standard input.",
    ),
]


def _scores_from(begun: str) -> list[str]:
    """Return the scores that a shell offers for what was typed."""
    return [name for name in logit_scores() if name.startswith(begun)]


GateOption = Annotated[
    Path, typer.Option("--gate", metavar="GATE", help="A gate's file, from calibrate.")
]
ScoreOption = Annotated[
    str | None,
    typer.Option(
        "--score",
        metavar="NAME",
        autocompletion=_scores_from,
        help=f"{', '.join(logit_scores())}; auto, which tunes one to the model on a "
        "third of the rows and calibrates on the others; or the FILE of a fitted "
        "score. By default alpha, or the confidence that was given.",
        rich_help_panel=SCORE_PANEL,
    ),
]
ScoresOption = Annotated[
    list[str] | None,
    typer.Option(
        "--score",
        metavar="NAME",
        autocompletion=_scores_from,
        help=f"Repeatable. {', '.join(logit_scores())}; all; or the FILE of a fitted "
        "score.",
        rich_help_panel=SCORE_PANEL,
    ),
]
TemperatureOption = Annotated[
    float,
    typer.Option(
        "--temperature",
        "-T",
        metavar="T",
        help="Divides the logits.",
        rich_help_panel=SCORE_PANEL,
    ),
]
JsonOption = Annotated[
    str | None,
    typer.Option(
        "--json",
        metavar="PATH",
        help="Write the result; - prints it.",
        rich_help_panel=OUTPUT_PANEL,
    ),
]
QuietOption = Annotated[
    bool,
    typer.Option(
        "--quiet",
        "-q",
        metavar="",
        help="Print nothing but errors.",
        rich_help_panel=OUTPUT_PANEL,
    ),
]


ClustersOption = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="The column of clusters, where rows belong together (a patient, a video): "
        "one row is drawn from each.",
        rich_help_panel=COLUMNS_PANEL,
    ),
]
DrawSeedOption = Annotated[
    int,
    typer.Option(
        metavar="N", help="Of the draw from clusters.", rich_help_panel=COLUMNS_PANEL
    ),
]
PassedOption = Annotated[
    bool,
    typer.Option(
        "--passed",
        metavar="",
        help="With --risk: list thresholds that passed, with their p-values.",
        rich_help_panel=OUTPUT_PANEL,
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
NoiseOption = Annotated[
    str | None,
    typer.Option(
        metavar="RATE",
        help="The share of labels that may be wrong: the promise is about the truth.",
        rich_help_panel=TARGETS_PANEL,
    ),
]


SpreadsheetsOption = Annotated[
    bool,
    typer.Option(
        "--for-spreadsheets",
        metavar="",
        help="In CSV: an apostrophe before text that would be a formula.",
        rich_help_panel=OUTPUT_PANEL,
    ),
]
LAST_LINE = (
    "keep: take the last line of a CSV file as it stands, where it has no line end or "
    "too few values."
)
LastLineOption = Annotated[
    str | None,
    typer.Option(metavar="keep", help=LAST_LINE, rich_help_panel=COLUMNS_PANEL),
]
OddLabelsOption = Annotated[
    bool,
    typer.Option(
        "--allow-odd-labels",
        metavar="",
        help="Go on where labels cannot be right, as shifted or reversed ones.",
        rich_help_panel=OUTPUT_PANEL,
    ),
]


class Option(NamedTuple):
    """One option of a group."""

    name: str
    kind: Any
    help: str
    default: Any = None
    metavar: str | None = None


@dataclass(frozen=True)
class OptionGroup:
    """Options that become one object.

    Attributes
    ----------
    options : callable
        Returns each as an `Option`.
    make : callable
        From their values, by name, to the object.
    panel : str
        What --help shows them under.
    """

    options: Callable[[], Iterator[Option]]
    make: Callable[..., Any]
    panel: str

    def parameters(self) -> list[inspect.Parameter]:
        """Return the options as parameters that Typer understands."""
        return [
            inspect.Parameter(
                one.name,
                inspect.Parameter.KEYWORD_ONLY,
                default=one.default,
                annotation=Annotated[
                    one.kind,
                    typer.Option(
                        *([_flag(one.name)] if one.kind is bool else []),
                        help=one.help,
                        metavar="" if one.kind is bool else one.metavar,
                        rich_help_panel=self.panel,
                    ),
                ],
            )
            for one in self.options()
        ]


def _flag(name: str) -> str:
    """Return the only spelling of an option that is given or not: there is no --no-."""
    return f"--{name.replace('_', '-')}"


def takes(**groups: OptionGroup) -> Callable[[Any], Any]:
    """Let a command take groups of options, each as one argument."""

    def decorate(function: Any) -> Any:
        own = inspect.signature(function)
        members = {name: group.parameters() for name, group in groups.items()}

        @wraps(function)
        def run(**given: Any) -> Any:
            taken = {p.name for group in members.values() for p in group}
            made = {n: v for n, v in given.items() if n not in taken}
            for name, group in groups.items():
                made[name] = group.make(
                    **{p.name: given[p.name] for p in members[name]}
                )
            return function(**made)

        every = [q for n, p in own.parameters.items() for q in members.get(n, [p])]
        first: dict[str, inspect.Parameter] = {}
        for parameter in every:  # groups may share options
            first.setdefault(parameter.name, parameter)
        shown = list(first.values())
        run.__signature__ = own.replace(parameters=shown)  # type: ignore[attr-defined]
        return run

    return decorate


_COLUMNS = (
    ("logits", "Where the logits are: an array, a list column, a prefix, or columns "
     "A,B,C.", "NAME"),
    ("probs", "Where the probabilities are, likewise.", "NAME"),
    ("labels", "The column of true labels.", "NAME"),
    ("positive", "Of a binary model with one column: the label that it is about.",
     "LABEL"),
    ("doubt", "For answers without logits: the column of doubts.", "NAME"),
    ("predicted", "The system's own answers, where the largest probability does not "
     "decide, and of rows with --confidence or --doubt; blank: no answer.", "NAME"),
    ("correct", "With --confidence or --doubt: which answers are right.", "NAME"),
    ("choices", "For a language model's responses (.jsonl): the answers A,B,C.",
     "NAMES"),
    ("truth", "A table of ids and true labels, where FILE has none.", "PATH"),
    ("ids", "The column of ids.", "NAME"),
    ("features", "Where the features are, for scores that need them.", "NAME"),
)  # fmt: skip
_STATED = "For answers without logits: the column of confidences."


def column_options() -> Iterator[Option]:
    """Yield what names the columns of a file."""
    yield Option("confidence", str | None, _STATED, metavar="NAME")
    for name, text, metavar in _COLUMNS:
        yield Option(name, str | None, text, metavar=metavar)
    text = "A text file, one name per line in the order of the classes."
    yield Option("class_names", Path | None, text, metavar="PATH")
    text = "The number of the first class, in labels and columns."
    yield Option("first_class", int, text, 0, "N")
    text = "Probabilities or confidences are in percent."
    yield Option("percent", bool, text, default=False)
    text = (
        "Of two classes: the probability from which on the system answers the second."
    )
    yield Option("cutoff", str | None, text, metavar="RATE")
    text = "Probabilities are of one class against the rest: divide rows by their sums."
    yield Option("one_vs_rest", bool, text, default=False)
    yield Option("last_line", str | None, LAST_LINE, metavar="keep")


def _gate_column_options() -> Iterator[Option]:
    yield from column_options()
    text = "The column of groups, for thresholds of their own."
    yield Option("groups", str | None, text, metavar="NAME")


def _level_options(what: str) -> Callable[[], Iterator[Option]]:
    """Return an option that names a column, or says how sure a result is to be."""

    def options() -> Iterator[Option]:
        text = f"{_STATED} Or a RATE: {what}. Repeatable."
        yield Option("confidence", list[str] | None, text, metavar="NAME|RATE")

    return options


def _sharing(options: Callable[[], Iterator[Option]]) -> Callable[[], Iterator[Option]]:
    """Leave the option to the level that a command has as well."""

    def kept() -> Iterator[Option]:
        for one in options():
            kind = list[str] | None if one.name == "confidence" else one.kind
            yield one._replace(kind=kind)

    return kept


def _is_number(text: str) -> bool:
    try:
        return Decimal(text.strip().removesuffix("%")).is_finite()
    except InvalidOperation:
        return False


def as_columns(
    *,
    confidence: str | list[str] | None = None,
    class_names: Path | None,
    cutoff: str | None = None,
    **named: Any,
) -> Columns:
    """Return which columns were named; a number is not the name of a column."""
    given = [confidence] if isinstance(confidence, str) else confidence or []
    names = [
        name for name in given if isinstance(confidence, str) or not _is_number(name)
    ]
    if len(names) > 1:
        message = f"expected one column as --confidence, got {' and '.join(names)}."
        raise InputError(message)
    classes = None if class_names is None else tuple(read_class_names(class_names))
    stated = names[0] if names else None
    return Columns(
        confidence=stated,
        class_names=classes,
        names_file=class_names,
        cutoff=None if cutoff is None else as_rate(cutoff, "cutoff"),
        **named,
    )


def _level(*, confidence: list[str] | None) -> float | None:
    given = [text for text in confidence or [] if _is_number(text)]
    if len(given) > 1:
        message = f"expected one rate as --confidence, got {' and '.join(given)}."
        raise InputError(message)
    return as_rate(given[0], "confidence") if given else None


def target_options() -> Iterator[Option]:
    """Yield one option per target."""
    for target in TARGETS.values():
        rate = _is_rate(target.name)
        kind: Any = str | None if rate else float | None
        yield Option(target.name, kind, target.help, metavar="RATE" if rate else "X")


def _memory_options() -> Iterator[Option]:
    text = "Stay within, as 1GB (default: half of what is free)."
    yield Option("memory", str | None, text, metavar="SIZE")


def _means_options() -> Iterator[Option]:
    yield from _memory_options()
    text = f"{', '.join(ENGINES)}, or ray=ADDRESS of a cluster."
    yield Option("engine", str, text, "local", "NAME")


def _is_rate(name: str) -> bool:
    target = TARGETS[name]
    return target.counts is not None and (target.low, target.high) == (0.0, 1.0)


def as_target(**values: str | float | None) -> dict[str, Any]:
    """Return the targets that were given, rates as numbers, several as a list.

    Examples
    --------
    >>> as_target(risk="1%,5%", frr=None)
    {'risk': [0.01, 0.05]}
    """
    target: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, str):
            rates = [as_rate(text, name) for text in value.split(",")]
            target[name] = rates if len(rates) > 1 else rates[0]
        elif value is not None:
            target[name] = value
    return target


def as_rate(text: str, name: str) -> float:
    """Read a rate, as 0.05 or 5%; refuse a percentage without its sign.

    Examples
    --------
    >>> as_rate("0.05", "risk"), as_rate("5%", "risk")
    (0.05, 0.05)
    """
    option = f"--{name.replace('_', '-')}"
    plain = text.strip()
    percent = plain.endswith("%")
    try:
        number = Decimal(plain.removesuffix("%").strip()) / (100 if percent else 1)
    except InvalidOperation:
        number = Decimal(0)
    if number.is_finite() and 0 < number < 1:
        return float(number)
    message = f"expected {option} between 0 and 1, as 0.05 or 5%, got {text!r}."
    if number.is_finite() and 1 < number < 100 and not percent:
        share = (number / 100).normalize()
        message = (
            f"expected {option} between 0 and 1, got {text!r}. Did you mean "
            f"{share:f} or {plain}%?"
        )
    raise InputError(message)


def as_share(text: str, name: str) -> float:
    """Read a rate that may also be 0 or 1.

    Examples
    --------
    >>> as_share("100%", "review-rejected")
    1.0
    """
    plain = {"0": 0.0, "1": 1.0, "0%": 0.0, "100%": 1.0, "1.0": 1.0, "0.0": 0.0}
    known = plain.get(text.strip())
    return as_rate(text, name) if known is None else known


def _means(*, memory: str | None, engine: str) -> Means:
    return Means(find_engine(engine), parse_memory(memory))


def _memory(*, memory: str | None) -> int:
    return parse_memory(memory)


COLUMNS = OptionGroup(column_options, as_columns, COLUMNS_PANEL)
GATE_COLUMNS = OptionGroup(_gate_column_options, as_columns, COLUMNS_PANEL)
CALIBRATE_COLUMNS = OptionGroup(
    _sharing(_gate_column_options), as_columns, COLUMNS_PANEL
)
COMPARE_COLUMNS = OptionGroup(_sharing(column_options), as_columns, COLUMNS_PANEL)
PROMISE_LEVEL = OptionGroup(
    _level_options("the probability that the promise holds (default: 0.9)"),
    _level,
    COLUMNS_PANEL,
)
COMPARE_LEVEL = OptionGroup(
    _level_options("that no comparison errs, all together (default: 0.95)"),
    _level,
    COLUMNS_PANEL,
)
TARGET = OptionGroup(target_options, as_target, TARGETS_PANEL)
MEANS = OptionGroup(_means_options, _means, ENGINE_PANEL)
MEMORY = OptionGroup(_memory_options, _memory, ENGINE_PANEL)


def named_score(name: str) -> str | FittedScore:
    """Return a score's name, or the fitted score in the file of that name."""
    if not name.strip():
        message = (
            "expected a score's name or the FILE of a fitted score, got an empty "
            f"--score. Give one of {', '.join(logit_scores())}, or leave it out."
        )
        raise InputError(message)
    path = Path(name)
    if name.partition(":")[0] not in SCORES and (path.suffix or path.exists()):
        return load_score(path)
    return name


def named_scores(
    names: list[str] | None, allowed: list[str]
) -> list[str | FittedScore] | None:
    """Return the scores asked for; "all" stands for those that the file allows."""
    if not names:
        return None
    if AUTO in names:
        message = (
            "expected names of scores, got auto, which chooses one for calibrate. Use "
            "--score all to see them, or trustdoctor compare."
        )
        raise InputError(message)
    every = allowed if "all" in names else []
    own = [named_score(name) for name in names if name != "all"]
    return [*own, *every]
