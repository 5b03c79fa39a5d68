"""One machine, any number of rows: in batches, on all cores, within a memory limit.

polars reads and writes the files in its streaming engine and calls the core on every
batch, several at a time. Scores and decisions are those of the rows at once; what is
counted merges, so batches may come in any order.
"""

import queue
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import polars as pl

from trustdoctor.atomic import replacing
from trustdoctor.engines.contract import (
    SHORTLIST,
    AnyState,
    Decide,
    Engine,
    register_engine,
)
from trustdoctor.engines.memory import BASE_MEMORY, parse_memory, with_room
from trustdoctor.errors import FileError, InputError, OutputError, TrustDoctorError
from trustdoctor.files import (
    ADDED,
    POLARS_ERRORS,
    Source,
    first_line,
    sink,
    unreadable,
    with_decisions,
)
from trustdoctor.gates import NO_OUTCOME, Outcome, add_width
from trustdoctor.kernels import cores
from trustdoctor.predictions import assume_logits
from trustdoctor.progress import Pace

STATE_BYTES = 60_000_000
"""What counting one score takes, with all that comes and goes."""

Result = TypeVar("Result")


class LocalEngine(Engine):
    """polars' streaming engine on this machine."""

    name = "local"
    in_memory = True

    def fold(
        self, source: Source, state: AnyState, *, memory: int | None, pace: Pace
    ) -> AnyState:
        """Hand every batch to one of a few states, each to one thread at a time.

        There are as many states as there are cores, and as there is room for.
        """
        limit = memory or parse_memory(None)
        source = with_room(source, limit)
        weight = STATE_BYTES * getattr(state, "weight", 1)
        count = max(1, min(cores(), 8, (limit - BASE_MEMORY) // weight))
        states = [state.fresh() for _ in range(count)]
        free: queue.Queue[Any] = queue.Queue()
        for one in states:
            free.put(one)

        def take(columns: pl.Series) -> pl.Series:
            predictions = source.predictions(columns.struct.unnest())
            own = free.get()
            try:
                own.update(predictions)
            finally:
                free.put(own)
            pace.add(len(predictions))
            return pl.repeat(None, len(columns), dtype=pl.Boolean, eager=True)

        batches = _on_batches(source, take, pl.Boolean)
        lazy = source.scan().select(batches.null_count())
        _run(source, lambda: lazy.collect(engine="streaming"))
        for one in states:
            state.merge(one)
        return state

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
        """Apply the function to every batch, and write what it adds beside the rows."""
        limit = memory or parse_memory(None)
        source = with_room(source, limit, all_columns=output is not None)
        found: list[Outcome] = []
        widths: set[int] = set()

        def decide(columns: pl.Series) -> pl.Series:
            predictions = source.predictions(columns.struct.unnest())
            add_width(widths, predictions.n_classes)
            added, done = function(predictions)
            found.append(done)
            pace.add(len(predictions))
            return pl.DataFrame(added).to_struct()

        decided = _on_batches(source, decide, _added(source, function)).alias(ADDED)
        if output is None:
            lazy = source.scan().select(decided.struct.field("accepted").sum())
            _run(source, lambda: lazy.collect(engine="streaming"))
        else:
            more = [SHORTLIST] if getattr(function, "listed", False) else []
            lazy = with_decisions(
                source, decided, output, *more, alone=alone, only=only
            )
            with replacing(output) as temporary:
                _run(source, lambda: sink(lazy, source, output, temporary), output)
        return sum(found, NO_OUTCOME)


def _make(address: str | None) -> LocalEngine:
    if address is not None:
        message = f"the engine local has no address, got {address!r}. Leave it out."
        raise InputError(message)
    return LocalEngine()


register_engine("local", _make)


def _on_batches(
    source: Source, function: Callable[[pl.Series], pl.Series], dtype: Any
) -> pl.Expr:
    def some(rows: pl.Series) -> pl.Series:
        with assume_logits():
            return function(rows) if len(rows) else pl.Series([], dtype=dtype)

    columns = pl.struct(source.needed)
    return columns.map_batches(some, return_dtype=dtype, is_elementwise=True)


def _run(
    source: Source, work: Callable[[], Result], output: Path | None = None
) -> Result:
    """Run a query; a user's mistake in the data is told with its row and file."""
    try:
        return work()
    except (*POLARS_ERRORS, TrustDoctorError) as error:
        source.locate()
        if output is not None:  # where all columns are read
            source.collect(source.scan().select(pl.all().null_count()))
        if isinstance(error, TrustDoctorError):  # polars adds lines of its own
            told = isinstance(error, FileError)
            where = "" if told else f"{source.name}: "
            message = f"{where}{first_line(error)}."
            raise FileError(message) from error
        if output is not None:  # all could be read
            reason = first_line(error)
            message = f"cannot write {output}: {reason}. Nothing was changed."
            raise OutputError(message) from error
        raise FileError(unreadable(source, error)) from error


def _added(source: Source, function: Decide) -> pl.Struct:
    """Return the type of what is added, from a row or, without any, from the schema."""
    row = source.head(source.needed, 1)
    if len(row) == 0:
        own, listed = (getattr(function, name, False) for name in ("own", "listed"))
        return _added_to_nothing(source, own=own, listed=listed)
    try:
        added, _ = function(source.predictions(row))
    except InputError as error:
        source.locate()
        message = f"{source.files[0]}: {error}"
        raise FileError(message) from error
    return pl.Struct({name: pl.Series(values).dtype for name, values in added.items()})


def _added_to_nothing(source: Source, *, own: bool, listed: bool) -> pl.Struct:
    """Return the type of what is added to a file without rows."""
    layout = source.layout
    inner = source.schema[source.needed[0]]
    single = getattr(inner, "inner", inner) in (pl.Float32, pl.Float16)
    kinds: dict[str, Any] = {"id": pl.String} if layout.kind == "choices" else {}
    if not own and (
        not layout.holds_answers or layout.kind == "choices" or layout.predicted
    ):
        named = layout.class_names is not None or layout.holds_answers
        kinds["predicted"] = pl.String if named else pl.Int64
    kinds["score"] = pl.Float32 if single else pl.Float64
    kinds |= {"accepted": pl.Boolean}
    return pl.Struct(kinds | ({SHORTLIST: pl.String} if listed else {}))
