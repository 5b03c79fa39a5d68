"""Options that commands share, and groups of options that become one object."""

import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer

from trustdoctor.atomic import require_writable
from trustdoctor.engines import ENGINES, Means, find_engine, parse_memory
from trustdoctor.errors import OutputError
from trustdoctor.files import Columns, Source
from trustdoctor.gates import TARGETS
from trustdoctor.scores import SCORES, FittedScore, load_score, plain_scores

FileArgument = Annotated[
    Path,
    typer.Argument(
        metavar="FILE",
        help="Predictions: a .parquet, .csv, .npz or .npy file, a folder of them, or a "
        "quoted pattern.",
    ),
]
GateOption = Annotated[
    Path, typer.Option("--gate", help="A gate's file, from calibrate.")
]
ScoreOption = Annotated[
    str,
    typer.Option(
        "--score",
        metavar="NAME",
        help=f"{', '.join(plain_scores())}; or the FILE of a fitted score.",
    ),
]
ScoresOption = Annotated[
    list[str] | None,
    typer.Option(
        "--score",
        metavar="NAME",
        help=f"Repeatable. {', '.join(plain_scores())}; all; or the FILE of a fitted "
        "score.",
    ),
]
TemperatureOption = Annotated[
    float, typer.Option("--temperature", "-T", help="Divides the logits.")
]
JsonOption = Annotated[
    str | None,
    typer.Option("--json", metavar="PATH", help="Write the result; - prints it."),
]
QuietOption = Annotated[
    bool, typer.Option("--quiet", "-q", help="Print nothing but errors.")
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
    """

    options: Callable[[], Iterator[Option]]
    make: Callable[..., Any]

    def parameters(self) -> list[inspect.Parameter]:
        """Return the options as parameters that Typer understands."""
        return [
            inspect.Parameter(
                one.name,
                inspect.Parameter.KEYWORD_ONLY,
                default=one.default,
                annotation=Annotated[
                    one.kind, typer.Option(help=one.help, metavar=one.metavar)
                ],
            )
            for one in self.options()
        ]


def takes(**groups: OptionGroup) -> Callable[[Any], Any]:
    """Let a command take groups of options, each as one argument."""

    def decorate(function: Any) -> Any:
        own = inspect.signature(function)
        members = {name: group.parameters() for name, group in groups.items()}

        @wraps(function)
        def run(**given: Any) -> Any:
            for name, group in groups.items():
                values = {p.name: given.pop(p.name) for p in members[name]}
                given[name] = group.make(**values)
            return function(**given)

        shown = [q for n, p in own.parameters.items() for q in members.get(n, [p])]
        run.__signature__ = own.replace(parameters=shown)  # type: ignore[attr-defined]
        return run

    return decorate


def _column_options() -> Iterator[Option]:
    for name, text in (
        ("logits", "Where the logits are: an array, a list column or a prefix."),
        ("probs", "Where the probabilities are, likewise."),
        ("labels", "The column of true labels."),
        ("features", "Where the features are, for scores that need them."),
    ):
        yield Option(name, str | None, text, metavar="NAME")


def _gate_column_options() -> Iterator[Option]:
    yield from _column_options()
    text = "The column of groups, for thresholds of their own."
    yield Option("groups", str | None, text, metavar="NAME")


def _target_options() -> Iterator[Option]:
    for target in TARGETS.values():
        yield Option(target.name, float | None, target.help)


def _memory_options() -> Iterator[Option]:
    text = "Stay within, as 1GB (default: half of what is free)."
    yield Option("memory", str | None, text, metavar="SIZE")


def _means_options() -> Iterator[Option]:
    yield from _memory_options()
    text = f"{', '.join(ENGINES)}, or ray=ADDRESS of a cluster."
    yield Option("engine", str, text, "local", "NAME")


def _target(**values: float | None) -> dict[str, float]:
    return {name: value for name, value in values.items() if value is not None}


def _means(*, memory: str | None, engine: str) -> Means:
    return Means(find_engine(engine), parse_memory(memory))


def _memory(*, memory: str | None) -> int:
    return parse_memory(memory)


COLUMNS = OptionGroup(_column_options, Columns)
GATE_COLUMNS = OptionGroup(_gate_column_options, Columns)
TARGET = OptionGroup(_target_options, _target)
MEANS = OptionGroup(_means_options, _means)
MEMORY = OptionGroup(_memory_options, _memory)


def named_score(name: str) -> str | FittedScore:
    """Return a score's name, or the fitted score in the file of that name."""
    path = Path(name)
    if name not in SCORES and (path.suffix or path.exists()):
        return load_score(path)
    return name


def named_scores(
    names: list[str] | None, *, logits: bool
) -> list[str | FittedScore] | None:
    """Return the scores asked for; "all" stands for those that the file allows."""
    if not names:
        return None
    every = plain_scores(logits=logits) if "all" in names else []
    own = [named_score(name) for name in names if name != "all"]
    return [*own, *every]


def check_output_path(path: str | Path | None, file: Path | None = None) -> None:
    """Say before any work why a result cannot be written there."""
    if path is None or str(path) == "-":
        return
    if require_writable(path) == (file and file.resolve()):
        message = f"the output {path} is the input itself or another output."
        raise OutputError(message)


def check_outputs(source: Source, *outputs: str | Path | None) -> None:
    """Refuse to write over an input, or two results into one file."""
    inputs = {file.resolve() for file in source.files}
    places = [Path(p).resolve() for p in outputs if p is not None and str(p) != "-"]
    if len(source.files) > 1 and any(place in inputs for place in places):
        message = "an output is one of the inputs. Name another file."
        raise OutputError(message)
    if len(set(places)) < len(places):
        message = "two outputs go to one file. Name another for one of them."
        raise OutputError(message)
