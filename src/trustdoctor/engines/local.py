"""One machine, any number of rows: in batches, on all cores, within a memory limit.

polars reads and writes the files in its streaming engine and calls the core on every
batch, several at a time. Scores and decisions are those of the rows at once; what is
counted merges (`sketch.py`), so batches may come in any order.
"""

import ctypes
import os
import queue
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import polars as pl

from trustdoctor.adapters.decisions import (
    ADDED,
    Journal,
    check_output,
    check_outside,
    plan_targets,
    sink,
    with_decisions,
)
from trustdoctor.adapters.files import first_line
from trustdoctor.adapters.scan import POLARS_ERRORS, Source, unreadable
from trustdoctor.errors import FileError, InputError, OutputError, TrustDoctorError
from trustdoctor.evaluate import DEFAULT_SCORES
from trustdoctor.gate import Gate
from trustdoctor.kernels import cores
from trustdoctor.output import replacing
from trustdoctor.progress import Pace, Tell
from trustdoctor.sketch import Sketch
from trustdoctor.summary import (
    NOTHING,
    Summary,
    require_one_width,
    screen_batch,
    summarize,
)
from trustdoctor.tally import Sketches, Tally

BASE_MEMORY = 500_000_000
"""What the libraries take, and what polars keeps of files in work."""

LEAST_MEMORY = 1_000_000_000
"""Bytes that the libraries and the batches in work need."""

STATE_BYTES = 60_000_000
"""What counting one score takes, with all that comes and goes."""

State = TypeVar("State")
Result = TypeVar("Result")


def parse_memory(text: str | None) -> int:
    """Read a memory limit, as 1GB or 4GB; by default half of what is free.

    Examples
    --------
    >>> parse_memory("1.5GB"), parse_memory("1GiB")
    (1500000000, 1073741824)
    """
    if text is None:
        return _free_memory() // 2
    found = re.fullmatch(r"\s*([0-9.]+)\s*([kMGT]?)(i?)B?\s*", text, re.IGNORECASE)
    try:
        number = float(found[1]) if found else 0.0
    except ValueError:
        number = 0.0
    if not found or not 0 < number < 1e15:
        message = f"expected a memory limit as 1GB or 4GB, got {text!r}."
        raise InputError(message)
    base = 1024 if found[3] else 1000
    limit = int(number * base ** " kmgt".index(found[2].lower() or " "))
    if limit < LEAST_MEMORY:
        message = (
            f"expected a memory limit of {LEAST_MEMORY // 10**6}MB or more, got "
            f"{text!r}: the libraries and the batches in work take that much."
        )
        raise InputError(message)
    return limit


def _free_memory() -> int:
    try:
        text = Path("/proc/meminfo").read_text(encoding="ascii")
        return int(text.split("MemAvailable:")[1].split()[0]) * 1024
    except (OSError, IndexError, ValueError):
        return 4 << 30


def fits(source: Source, memory: int, *, scores: int = 0) -> bool:
    """Say whether all rows may be read at once, and evaluated by so many scores."""
    if source.size > memory:
        return False
    needed = 3 * source.row_bytes + 60 + 110 * scores
    return source.about_rows * needed <= memory


def screen(  # noqa: PLR0913 - options, by keyword only
    source: Source,
    gate: Gate,
    output: Path | None,
    *,
    memory: int | None = None,
    resume: bool = False,
    progress: Tell | None = None,
) -> Summary:
    """Decide on every row, and write the rows with `score` and `accepted` added.

    Into a file all rows go in their order. Into a folder (a path without a suffix)
    each input file goes by itself, under its own name.

    Parameters
    ----------
    source : Source
    gate : Gate
    output : Path, optional
        Its suffix says the format.
    memory : int, optional
        Bytes to stay within.
    resume : bool
        For a folder: keep the files that an earlier, stopped run finished.
    progress : callable, optional
        Told the share done and the pace.
    """
    if resume and (output is None or output.suffix):
        message = "--resume goes on over a folder. Give a folder as the output."
        raise InputError(message)
    pace = Pace(progress, f"screening {source.name}", source.about_rows)
    if output is not None and not output.suffix:
        return _screen_folder(source, gate, output, memory, pace, resume=resume)
    if output is not None:
        check_output(output, *source.files)
        check_outside(source, output)
    with _within(memory, source):
        return _screen_file(source, gate, output, pace)


def screen_alone(
    source: Source, gate: Gate, output: Path, *, memory: int | None = None
) -> Summary:
    """Screen one file of a folder into one of its own, as `screen` does with each."""
    return _screen_alone(source, gate, output, memory, Pace(None, "", 1))


def _screen_alone(
    source: Source, gate: Gate, output: Path, memory: int | None, pace: Pace
) -> Summary:
    with _within(memory, source):
        return _screen_file(source, gate, output, pace, alone=True)


def diagnose(
    source: Source,
    tally: Tally,
    *,
    memory: int | None = None,
    progress: Tell | None = None,
) -> Tally:
    """Count every row in a tally, and return it."""

    def fresh() -> Tally:
        return Tally(tally.asked, temperature=tally.temperature, cells=tally.cells)

    weight = (len(tally.asked or DEFAULT_SCORES)) * STATE_BYTES
    for part in _fold(source, fresh, weight, memory=memory, progress=progress):
        tally.merge(part)
    return tally


def sketch(
    source: Source,
    sketches: Sketches,
    *,
    memory: int | None = None,
    progress: Tell | None = None,
) -> Sketches:
    """Count every row's score for a calibration, and return the counts."""

    def fresh() -> Sketches:
        return replace(sketches, pooled=Sketch(), classes={}, widths=set())

    for part in _fold(source, fresh, STATE_BYTES, memory=memory, progress=progress):
        sketches.merge(part)
    return sketches


def _fold(
    source: Source,
    fresh: Callable[[], State],
    weight: int,
    *,
    memory: int | None,
    progress: Tell | None,
) -> list[State]:
    """Hand every batch to one of a few states, each to one thread at a time.

    There are as many states as there are cores, and as there is room for by `weight`.
    """
    room = (memory or parse_memory(None)) - BASE_MEMORY
    count = max(1, min(cores(), 8, room // weight))
    pace = Pace(progress, f"reading {source.name}", source.about_rows)
    states = [fresh() for _ in range(count)]
    free: queue.Queue[State] = queue.Queue()
    for state in states:
        free.put(state)

    def take(columns: pl.Series) -> pl.Series:
        predictions = source.predictions(columns.struct.unnest())
        state: Any = free.get()
        try:
            state.update(predictions)
        finally:
            free.put(state)
        pace.add(len(predictions))
        return pl.repeat(None, len(columns), dtype=pl.Boolean, eager=True)

    require_rows(source)
    lazy = source.scan().select(_on_batches(source, take, pl.Boolean).null_count())
    with _within(memory, source):
        _run(source, lambda: lazy.collect(engine="streaming"))
    return states


def _on_batches(
    source: Source, function: Callable[[pl.Series], pl.Series], dtype: Any
) -> pl.Expr:
    columns = pl.struct(source.needed)
    return columns.map_batches(function, return_dtype=dtype, is_elementwise=True)


def _run(
    source: Source, work: Callable[[], Result], output: Path | None = None
) -> Result:
    """Run a query; a user's mistake in the data is told with its row and file."""
    try:
        return work()
    except (*POLARS_ERRORS, TrustDoctorError) as error:
        source.locate()
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


def require_rows(source: Source) -> None:
    """Refuse files without a row."""
    if source.is_empty:
        message = f"{source.files[0]} has no rows. Expected one line a prediction."
        raise FileError(message)


def _screen_file(
    source: Source, gate: Gate, output: Path | None, pace: Pace, *, alone: bool = False
) -> Summary:
    found: list[Summary] = []
    widths: set[int] = set()

    def decide(columns: pl.Series) -> pl.Series:
        predictions = source.predictions(columns.struct.unnest())
        require_one_width(widths, predictions.n_classes)
        screened = screen_batch(gate, predictions)
        found.append(summarize(predictions, screened.accepted))
        pace.add(len(predictions))
        added = {"score": screened.scores, "accepted": screened.accepted}
        return pl.DataFrame(added).to_struct()

    if not alone:
        require_rows(source)
    decided = _on_batches(source, decide, _added(source, gate)).alias(ADDED)
    if output is None:
        lazy = source.scan().select(decided.struct.field("accepted").sum())
        _run(source, lambda: lazy.collect(engine="streaming"))
    else:
        lazy = with_decisions(source, decided, output, alone=alone)
        with replacing(output) as temporary:
            _run(source, lambda: sink(lazy, source, output, temporary), output)
    return sum(found, NOTHING)


def _added(source: Source, gate: Gate) -> pl.Struct:
    """Return the type of what is added, from a row or, without any, from the schema."""
    row = source.collect(source.scan().select(source.needed).head(1))
    if len(row) == 0:
        inner = source.schema[source.needed[0]]
        single = getattr(inner, "inner", inner) in (pl.Float32, pl.Float16)
        kind = pl.Float32 if single else pl.Float64
        return pl.Struct({"score": kind, "accepted": pl.Boolean})
    try:
        scores = screen_batch(gate, source.predictions(row)).scores
    except InputError as error:
        source.locate()
        message = f"{source.files[0]}: {error}"
        raise FileError(message) from error
    return pl.Struct({"score": pl.Series(scores).dtype, "accepted": pl.Boolean})


def _screen_folder(  # noqa: PLR0913 - what the verb was given
    source: Source,
    gate: Gate,
    output: Path,
    memory: int | None,
    pace: Pace,
    *,
    resume: bool,
) -> Summary:
    """Screen each file by itself, keeping a journal of those that are done."""
    targets = plan_targets(source, output)
    journal = Journal(output, gate, source)
    journal.begin(resume=resume)
    require_rows(source)
    total = NOTHING
    for one in source.single():
        (file,) = one.files
        known = journal.find(file)
        if known is None or not targets[file].is_file():
            targets[file].parent.mkdir(parents=True, exist_ok=True)
            known = _screen_alone(one, gate, targets[file], memory, pace)
            journal.note(file, known)
        else:
            pace.add(known.rows)
        total += known
    return total


@contextmanager
def _within(memory: int | None, source: Source) -> Iterator[None]:
    """Have polars work in batches that leave room in the limit.

    What a row group takes four times over, unpacked, in work and on its way out, must
    fit beside the libraries; as many groups are read ahead as there is room for.
    """
    memory = memory or parse_memory(None)
    group = source.largest_group
    room = memory - BASE_MEMORY
    if 4 * group > room:
        least = 4 * group + BASE_MEMORY
        message = (
            f"{source.name} has pieces of {group / 1e6:,.0f} MB that are read as a "
            f"whole, which need about {least / 1e9:.1f} GB of memory. Give --memory "
            f"{least / 1e9:.1f}GB, or write smaller row groups (or arrays in C order)."
        )
        raise FileError(message)
    ahead = min(max(room // (8 * max(group, 1)), 1), 2 * cores())
    rows = min(max(room // (16 * cores() * source.row_bytes), 1 << 10), 1 << 17)
    _keep_freed_memory()
    settings = {
        "POLARS_ROW_GROUP_PREFETCH_SIZE": str(ahead),
        "POLARS_IDEAL_MORSEL_SIZE": str(rows),
    }
    before = {name: os.environ.get(name) for name in settings}
    os.environ.update({n: v for n, v in settings.items() if before[n] is None})
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)


def _keep_freed_memory() -> None:
    """Tell glibc to keep what threads free: batch by batch, it is needed again.

    Otherwise every batch's arrays are handed back to the system and cleared anew, which
    takes as long as all scoring does.
    """
    set_option = getattr(ctypes.CDLL(None), "mallopt", None)
    if set_option is not None:
        trim_threshold, top_pad, mmap_threshold, arenas = -1, -2, -3, -8
        set_option(mmap_threshold, 32 << 20)
        set_option(trim_threshold, 64 << 20)
        set_option(top_pad, 4 << 20)
        set_option(arenas, min(cores(), 8))
