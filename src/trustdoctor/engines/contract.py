"""What an engine is: it splits rows, calls the core on each batch, and merges.

To add one, write an `Engine` with `fold` and `map`, and `register_engine` it; every
command that takes ``--engine`` then runs on it.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol, Self, TypeVar

from trustdoctor.arrays import Array
from trustdoctor.errors import InputError
from trustdoctor.files import Source
from trustdoctor.gates import Outcome
from trustdoctor.predictions import Predictions
from trustdoctor.progress import Pace

SHORTLIST = "shortlist"
"""The column of lists, where the gate has a shortlist."""

Added = dict[str, Array]
Decide = Callable[[Predictions], tuple[Added, Outcome]]
"""A function of a batch that returns the columns to add, and what was counted."""


class State(Protocol):
    """What rows add up to: a `Tally`, a `CalibrationSketch`, or another."""

    def fresh(self) -> Self:
        """Return an empty state of the same kind."""

    def update(self, predictions: Predictions) -> None:
        """Count a batch of rows."""

    def merge(self, other: Self) -> None:
        """Count the rows of another state, too."""


AnyState = TypeVar("AnyState", bound=State)


class Engine(ABC):
    """Runs the core over any number of rows.

    Attributes
    ----------
    name : str
    in_memory : bool
        Whether rows that fit into the memory had better be read at once.
    """

    name: str
    in_memory: bool = False

    def check(self, source: Source, output: Path | None = None) -> Source:
        """Return the files to read, refusing those that cannot be read or written."""
        del output
        return source

    @abstractmethod
    def fold(
        self, source: Source, state: AnyState, *, memory: int | None, pace: Pace
    ) -> AnyState:
        """Count every row in the state, and return it."""

    @abstractmethod
    def map(  # noqa: PLR0913 - options, by keyword only
        self,
        source: Source,
        function: Decide,
        output: Path | None,
        *,
        alone: bool = False,
        only: str | None = None,
        memory: int | None,
        pace: Pace,
    ) -> Outcome:
        """Apply the function to every batch, and write what it adds beside the rows.

        Rows stay in their order. `alone` says that the file is one of many in a folder,
        and folders' names hold some of its columns. `only` writes just the "accepted"
        or just the "rejected" rows. Without an output rows are only counted.
        """

    def map_files(
        self,
        targets: list[tuple[Source, Path]],
        function: Decide,
        **options: Any,
    ) -> Iterator[tuple[Path, Outcome]]:
        """Map each file into one of its own; yield each as it is done.

        Options are those of `map`.
        """
        for source, target in targets:
            target.parent.mkdir(parents=True, exist_ok=True)
            outcome = self.map(source, function, target, alone=True, **options)
            yield source.files[0], outcome


ENGINES: dict[str, Callable[[str | None], Engine]] = {}
"""A function by each engine's name; from the address in ``NAME=ADDRESS`` to it."""


def register_engine(name: str, make: Callable[[str | None], Any]) -> None:
    """Add an engine; from then on ``--engine NAME`` and ``NAME=ADDRESS`` run on it."""
    if name in ENGINES:
        message = f"the name {name!r} is taken by an engine. Choose another."
        raise InputError(message)
    ENGINES[name] = make


def find_engine(name: str) -> Engine:
    """Return the engine: local, ray, or ray=ADDRESS of a running cluster."""
    kind, sign, address = name.partition("=")
    if kind not in ENGINES or (sign and not address):
        message = (
            f"expected an engine out of {', '.join(ENGINES)}, or NAME=ADDRESS, got "
            f"{name!r}."
        )
        raise InputError(message)
    return ENGINES[kind](address or None)
