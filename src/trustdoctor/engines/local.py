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
"""Memory for counting one score: its counts, and the temporary arrays of a batch."""

Result = TypeVar("Result")


class LocalEngine(Engine):
    """polars' streaming engine on this machine."""

    name = "local"
    in_memory = True

    def fold(
        self, source: Source, state: AnyState, *, memory: int | None, pace: Pace
    ) -> AnyState:
        """Count every row in the state, on as many threads as the memory allows."""
        limit = memory or parse_memory(None)
        source = with_room(source, limit)
        state_bytes = STATE_BYTES * getattr(state, "weight", 1)
        n_states = max(1, min(cores(), 8, (limit - BASE_MEMORY) // state_bytes))
        states = [state.fresh() for _ in range(n_states)]
        # polars calls `count` on its own threads. Each takes a state that is free, or
        # waits for one, so no two count into the same.
        free_states: queue.Queue[Any] = queue.Queue()
        for partial in states:
            free_states.put(partial)

        def count(columns: pl.Series) -> pl.Series:
            predictions = source.predictions(columns.struct.unnest())
            partial = free_states.get()
            try:
                partial.update(predictions)
            finally:
                free_states.put(partial)
            pace.add(len(predictions))
            return pl.repeat(None, len(columns), dtype=pl.Boolean, eager=True)

        counted = _on_batches(source, count, pl.Boolean)
        lazy = source.scan().select(counted.null_count())
        _run(source, lambda: lazy.collect(engine="streaming"))
        for partial in states:
            state.merge(partial)
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
        outcomes: list[Outcome] = []
        widths: set[int] = set()

        def decide(columns: pl.Series) -> pl.Series:
            predictions = source.predictions(columns.struct.unnest())
            add_width(widths, predictions.n_classes)
            added, outcome = function(predictions)
            outcomes.append(outcome)
            pace.add(len(predictions))
            return pl.DataFrame(added).to_struct()

        added_type = _added_type(source, function)
        decided = _on_batches(source, decide, added_type).alias(ADDED)
        if output is None:
            lazy = source.scan().select(decided.struct.field("accepted").sum())
            _run(source, lambda: lazy.collect(engine="streaming"))
        else:
            lists = [SHORTLIST] if getattr(function, "has_shortlist", False) else []
            lazy = with_decisions(
                source, decided, output, *lists, alone=alone, only=only
            )
            with replacing(output) as temporary:
                _run(source, lambda: sink(lazy, source, output, temporary), output)
        return sum(outcomes, NO_OUTCOME)


def _make(address: str | None) -> LocalEngine:
    if address is not None:
        message = f"the engine local has no address, got {address!r}. Leave it out."
        raise InputError(message)
    return LocalEngine()


register_engine("local", _make)


def _on_batches(
    source: Source, function: Callable[[pl.Series], pl.Series], dtype: Any
) -> pl.Expr:
    """Return a query that calls a function with every batch of the needed columns."""

    def call_unless_empty(rows: pl.Series) -> pl.Series:
        # `require_logits` asked all rows whether they are probabilities; a batch of
        # logits may look so by chance.
        with assume_logits():
            return function(rows) if len(rows) else pl.Series([], dtype=dtype)

    # Only elementwise functions get batches; for others polars gathers all rows.
    columns = pl.struct(source.needed)
    return columns.map_batches(
        call_unless_empty, return_dtype=dtype, is_elementwise=True
    )


def _run(
    source: Source, work: Callable[[], Result], output: Path | None = None
) -> Result:
    """Run a query; an error in the data names its file and row."""
    try:
        return work()
    except (*POLARS_ERRORS, TrustDoctorError) as error:
        # Batches fail in any order, and without their first row's number. Reading once
        # more, in order, finds the first bad row.
        source.locate()
        if output is not None:  # then columns beside the needed ones were read, too
            source.collect(source.scan().select(pl.all().null_count()))
        if isinstance(error, TrustDoctorError):
            where = "" if isinstance(error, FileError) else f"{source.name}: "
            message = f"{where}{first_line(error)}."  # polars appends its query plan
            raise FileError(message) from error
        if output is not None:  # all could be read, so writing failed
            reason = first_line(error)
            message = f"cannot write {output}: {reason}. Nothing was changed."
            raise OutputError(message) from error
        raise FileError(unreadable(source, error)) from error


def _added_type(source: Source, function: Decide) -> pl.Struct:
    """Return the type of what is added, from a row or, without any, from the schema."""
    row = source.head(source.needed, 1)
    if len(row) == 0:
        return _added_type_without_rows(source, function)
    try:
        added, _ = function(source.predictions(row))
    except InputError as error:
        source.locate()
        message = f"{source.files[0]}: {error}"
        raise FileError(message) from error
    return pl.Struct({name: pl.Series(values).dtype for name, values in added.items()})


def _added_type_without_rows(source: Source, function: Decide) -> pl.Struct:
    layout = source.layout
    values_type = source.schema[source.needed[0]]
    number = getattr(values_type, "inner", values_type)
    added: dict[str, Any] = {"id": pl.String} if layout.kind == "choices" else {}
    has_answer = not layout.holds_answers or layout.predicted is not None
    has_answer = has_answer or layout.kind == "choices"
    if has_answer and not getattr(function, "keeps_predicted", False):
        by_name = layout.class_names is not None or layout.holds_answers
        added["predicted"] = pl.String if by_name else pl.Int64
    added["score"] = pl.Float32 if number in (pl.Float32, pl.Float16) else pl.Float64
    added["accepted"] = pl.Boolean
    if getattr(function, "has_shortlist", False):
        added[SHORTLIST] = pl.String
    return pl.Struct(added)
