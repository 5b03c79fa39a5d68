"""Options that commands share, and groups of options that become one argument."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Annotated, Any, Self

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


def _complete_score(prefix: str) -> list[str]:
    """Return the scores that a shell offers after this prefix."""
    return [name for name in logit_scores() if name.startswith(prefix)]


GateOption = Annotated[
    Path, typer.Option("--gate", metavar="GATE", help="A gate's file, from calibrate.")
]
ScoreOption = Annotated[
    str | None,
    typer.Option(
        "--score",
        metavar="NAME",
        autocompletion=_complete_score,
        help=f"{', '.join(logit_scores())}; auto, which tunes a score to the model on "
        "a third of the rows and calibrates on the others; or the FILE of a fitted "
        "score. Default: alpha, or the confidence or doubt that FILE states.",
        rich_help_panel=SCORE_PANEL,
    ),
]
ScoresOption = Annotated[
    list[str] | None,
    typer.Option(
        "--score",
        metavar="NAME",
        autocompletion=_complete_score,
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
        help="Divide the logits by T.",
        rich_help_panel=SCORE_PANEL,
    ),
]
JsonOption = Annotated[
    str | None,
    typer.Option(
        "--json",
        metavar="PATH",
        help="Write the result as JSON; - prints it.",
        rich_help_panel=OUTPUT_PANEL,
    ),
]
QuietOption = Annotated[
    bool,
    typer.Option(
        "--quiet",
        "-q",
        help="Print nothing but errors.",
        rich_help_panel=OUTPUT_PANEL,
    ),
]
SpreadsheetsOption = Annotated[
    bool,
    typer.Option(
        "--for-spreadsheets",
        help="In CSV: put an apostrophe before text that would be a formula.",
        rich_help_panel=OUTPUT_PANEL,
    ),
]
LAST_LINE_HELP = (
    "keep: accept a CSV file whose last line has no line end or too few values."
)
LastLineOption = Annotated[
    str | None,
    typer.Option(metavar="keep", help=LAST_LINE_HELP, rich_help_panel=COLUMNS_PANEL),
]
OddLabelsOption = Annotated[
    bool,
    typer.Option(
        "--allow-odd-labels",
        help="Go on even if the labels cannot be right (shifted, reversed).",
        rich_help_panel=OUTPUT_PANEL,
    ),
]


@dataclass(frozen=True)
class OptionGroup:
    """Options that a command takes as one argument.

    A parameter of a command names it in its annotation, beside the argument's type.

    Attributes
    ----------
    options : callable
        Returns them as parameters that Typer understands. It is called when a command
        is built, when all targets and engines are registered.
    make : callable
        From their values, by name, to the argument.
    """

    options: Callable[[], list[inspect.Parameter]]
    make: Callable[..., Any]


def option(  # noqa: PLR0913 - what Typer is told
    name: str,
    kind: Any,
    text: str,
    *,
    panel: str,
    default: Any = None,
    metavar: str | None = None,
) -> inspect.Parameter:
    """Return an option as a parameter that Typer understands; `text` is its help."""
    # A flag has one spelling: without it, Typer would add --no-NAME.
    spellings = [f"--{name.replace('_', '-')}"] if kind is bool else []
    info = typer.Option(*spellings, help=text, metavar=metavar, rich_help_panel=panel)
    return inspect.Parameter(
        name,
        inspect.Parameter.KEYWORD_ONLY,
        default=default,
        annotation=Annotated[kind, info],
    )


@dataclass(frozen=True)
class CommandSignature:
    """The parameters of a command, of which some are groups of options.

    Attributes
    ----------
    signature : inspect.Signature
        Of the command itself.
    groups : dict
        By parameter, the group and its options.
    """

    signature: inspect.Signature
    groups: dict[str, tuple[OptionGroup, list[inspect.Parameter]]]

    @classmethod
    def of(cls, command: Callable[..., None]) -> Self:
        """Return the signature of a command."""
        signature = inspect.signature(command)
        groups = {
            name: (group, group.options())
            for name, parameter in signature.parameters.items()
            for group in getattr(parameter.annotation, "__metadata__", ())
            if isinstance(group, OptionGroup)
        }
        return cls(signature, groups)

    def flat(self) -> inspect.Signature:
        """Return the signature with every option as a parameter, as Typer reads it."""
        options: dict[str, inspect.Parameter] = {}
        for name, parameter in self.signature.parameters.items():
            for single in self.groups[name][1] if name in self.groups else [parameter]:
                options.setdefault(single.name, single)  # groups may share an option
        return self.signature.replace(parameters=list(options.values()))

    def arguments(self, values: dict[str, Any]) -> dict[str, Any]:
        """Return the command's arguments from the values of all options."""
        arguments = {}
        for name in self.signature.parameters:
            if name in self.groups:
                group, options = self.groups[name]
                arguments[name] = group.make(
                    **{o.name: values[o.name] for o in options}
                )
            else:
                arguments[name] = values[name]
        return arguments


_CONFIDENCE_HELP = "For answers without logits: the column of confidences."
_COLUMN_HELP = (
    ("logits", "The logits: an array, a list column, a prefix of columns, or columns "
     "A,B,C.", "NAME"),
    ("probs", "The probabilities, named likewise.", "NAME"),
    ("labels", "The column of true labels.", "NAME"),
    ("positive", "For a binary model with one column: the label that it is about.",
     "LABEL"),
    ("doubt", "For answers without logits: the column of doubts.", "NAME"),
    ("predicted", "The system's own answers, if the largest probability does not "
     "decide, or for rows with --confidence or --doubt; blank: no answer.", "NAME"),
    ("correct", "With --confidence or --doubt: which answers are right.", "NAME"),
    ("choices", "For a language model's responses (.jsonl): the answers A,B,C.",
     "NAMES"),
    ("truth", "A table of ids and true labels, if FILE has none.", "PATH"),
    ("ids", "The column of ids.", "NAME"),
    ("features", "The features, for scores that need them; named as logits.", "NAME"),
)  # fmt: skip


def _column(name: str, kind: Any, text: str, **more: Any) -> inspect.Parameter:
    return option(name, kind, text, panel=COLUMNS_PANEL, **more)


def column_options() -> list[inspect.Parameter]:
    """Return the options that name the columns of a file."""
    return [
        _column("confidence", str | None, _CONFIDENCE_HELP, metavar="NAME"),
        *(
            _column(name, str | None, text, metavar=metavar)
            for name, text, metavar in _COLUMN_HELP
        ),
        _column(
            "class_names",
            Path | None,
            "A text file, one name per line in the order of the classes.",
            metavar="PATH",
        ),
        _column(
            "first_class",
            int,
            "The number of the first class, in labels and columns.",
            default=0,
            metavar="N",
        ),
        _column(
            "percent",
            bool,
            "Probabilities or confidences are percentages.",
            default=False,
        ),
        _column(
            "cutoff",
            str | None,
            "With two classes: the probability from which on the system answers the "
            "second.",
            metavar="RATE",
        ),
        _column(
            "one_vs_rest",
            bool,
            "Each probability is of one class against the rest: divide rows by their "
            "sums.",
            default=False,
        ),
        _column("last_line", str | None, LAST_LINE_HELP, metavar="keep"),
    ]


def gate_column_options() -> list[inspect.Parameter]:
    """Return the options that name the columns of a file that a gate is about."""
    text = "The column of groups; each group has its own threshold."
    return [*column_options(), _column("groups", str | None, text, metavar="NAME")]


def pool_column_options() -> list[inspect.Parameter]:
    """Return the options that name the columns of a file without labels."""
    about_labels = ("labels", "correct", "truth")
    return [option for option in column_options() if option.name not in about_labels]


def as_columns(
    *,
    confidence: str | list[str] | None = None,
    class_names: Path | None,
    cutoff: str | None = None,
    **names: Any,
) -> Columns:
    """Return which columns were named.

    Commands with a level take a list as confidence; its numbers are that level.
    """
    column = confidence
    if isinstance(confidence, list):
        columns = [name for name in confidence if not _is_number(name)]
        if len(columns) > 1:
            message = (
                f"expected one column as --confidence, got {' and '.join(columns)}."
            )
            raise InputError(message)
        column = columns[0] if columns else None
    classes = None if class_names is None else tuple(read_class_names(class_names))
    return Columns(
        confidence=column,  # type: ignore[arg-type]
        class_names=classes,
        names_file=class_names,
        cutoff=None if cutoff is None else as_rate(cutoff, "cutoff"),
        **names,
    )


def _is_number(text: str) -> bool:
    try:
        return Decimal(text.strip().removesuffix("%")).is_finite()
    except InvalidOperation:
        return False


def level_group(what: str) -> OptionGroup:
    """Return the option --confidence, which names a column or gives a level.

    It stands before the columns, which share it.
    """
    text = f"{_CONFIDENCE_HELP} Or a RATE: {what}. Repeatable."
    return OptionGroup(
        lambda: [_column("confidence", list[str] | None, text, metavar="NAME|RATE")],
        _as_level,
    )


def _as_level(*, confidence: list[str] | None) -> float | None:
    numbers = [text for text in confidence or [] if _is_number(text)]
    if len(numbers) > 1:
        message = f"expected one rate as --confidence, got {' and '.join(numbers)}."
        raise InputError(message)
    return as_rate(numbers[0], "confidence") if numbers else None


def target_options() -> list[inspect.Parameter]:
    """Return one option per target."""
    options = []
    for target in TARGETS.values():
        is_rate = target.fraction is not None and (target.low, target.high) == (
            0.0,
            1.0,
        )
        kind: Any = str | None if is_rate else float | None
        metavar = "RATE" if is_rate else "X"
        options.append(
            option(target.name, kind, target.help, panel=TARGETS_PANEL, metavar=metavar)
        )
    return options


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
    flag = f"--{name.replace('_', '-')}"
    plain = text.strip()
    has_percent_sign = plain.endswith("%")
    try:
        number = Decimal(plain.removesuffix("%").strip())
    except InvalidOperation:
        number = Decimal(0)
    rate = number / 100 if has_percent_sign else number
    if rate.is_finite() and 0 < rate < 1:
        return float(rate)
    message = f"expected {flag} between 0 and 1, as 0.05 or 5%, got {text!r}."
    if rate.is_finite() and 1 < rate < 100 and not has_percent_sign:
        share = (number / 100).normalize()
        message = (
            f"expected {flag} between 0 and 1, got {text!r}. Did you mean "
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
    bounds = {"0": 0.0, "1": 1.0, "0%": 0.0, "100%": 1.0, "1.0": 1.0, "0.0": 0.0}
    bound = bounds.get(text.strip())
    return as_rate(text, name) if bound is None else bound


def _memory_options() -> list[inspect.Parameter]:
    text = "The most memory to use, as 4GB (default: half of what is free)."
    return [option("memory", str | None, text, panel=ENGINE_PANEL, metavar="SIZE")]


def _engine_options() -> list[inspect.Parameter]:
    text = f"{', '.join(ENGINES)}, or ray=ADDRESS of a cluster."
    engine = option(
        "engine", str, text, panel=ENGINE_PANEL, default="local", metavar="NAME"
    )
    return [*_memory_options(), engine]


def _as_memory(*, memory: str | None) -> int:
    return parse_memory(memory)


def _as_means(*, memory: str | None, engine: str) -> Means:
    return Means(find_engine(engine), parse_memory(memory))


ColumnOptions = Annotated[Columns, OptionGroup(column_options, as_columns)]
PoolColumnOptions = Annotated[Columns, OptionGroup(pool_column_options, as_columns)]
GateColumnOptions = Annotated[Columns, OptionGroup(gate_column_options, as_columns)]
MemoryOption = Annotated[int, OptionGroup(_memory_options, _as_memory)]
MeansOptions = Annotated[Means, OptionGroup(_engine_options, _as_means)]


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
    scores = [named_score(name) for name in names if name != "all"]
    return [*scores, *(allowed if "all" in names else [])]


def as_doubt(threshold: float, score: Any) -> float:
    """Return a threshold on the doubt; one on a confidence is its least value."""
    return 0 - threshold if score == "confidence" else threshold
