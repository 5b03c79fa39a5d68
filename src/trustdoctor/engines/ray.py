"""A cluster: the same verbs as Ray Data jobs.

Workers read Parquet, decide and count with the same core; the driver merges counts,
and writes a single output file in the order of the rows. Ray runs failed tasks again.
Every worker needs trustdoctor installed and sees the files under the same path.
"""

import logging
import os
import pickle
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from trustdoctor.adapters.arrow import Decider, to_predictions
from trustdoctor.adapters.decisions import (
    ROW_GROUP,
    Journal,
    check_names,
    check_output,
    check_outside,
    plan_targets,
)
from trustdoctor.adapters.files import Columns, suffix_of
from trustdoctor.adapters.footers import read_row_groups
from trustdoctor.adapters.scan import Source
from trustdoctor.engines import Engine, local
from trustdoctor.errors import (
    FileError,
    InputError,
    MissingPackageError,
    TrustDoctorError,
)
from trustdoctor.gate import Gate
from trustdoctor.output import replacing
from trustdoctor.progress import Pace, Tell
from trustdoctor.sketch import Sketch
from trustdoctor.summary import (
    NOTHING,
    Summary,
    require_one_width,
    summarize_errors,
)
from trustdoctor.tally import Sketches, Tally

try:
    import pyarrow as pa
    import pyarrow.parquet as pq
    import ray
except ImportError as error:
    message = (
        f"the engine ray needs {error.name}, which is not installed: "
        'pip install "trustdoctor[ray]"'
    )
    raise MissingPackageError(message) from error

SCREEN_BYTES = 32 << 20
"""Bytes of values that one task decides on."""

TALLY_BYTES = 128 << 20
"""Bytes of values that one task counts: fewer tasks leave fewer counts to merge."""


def make_engine(address: str | None) -> Engine:
    """Return the engine on the cluster at an address; None starts one here."""
    return Engine(
        "ray",
        partial(screen, address=address),
        partial(diagnose, address=address),
        partial(sketch, address=address),
    )


def screen(  # noqa: PLR0913 - options, by keyword only
    source: Source,
    gate: Gate,
    output: Path | None,
    *,
    address: str | None = None,
    memory: int | None = None,
    resume: bool = False,
    progress: Tell | None = None,
) -> Summary:
    """Decide on every row, as `trustdoctor.engines.local.screen` does.

    Into a folder each file is a task of its own; into a file the driver writes what
    the workers decided, in the order of the rows.
    """
    source = _prepared(source, output)
    local.require_rows(source)
    if output is not None and output.suffix:
        check_output(output, *source.files)
        check_outside(source, output)
    check_names(source, _WRONG, _CLASSES)
    if resume and (output is None or output.suffix):
        message = "--resume goes on over a folder. Give a folder as the output."
        raise InputError(message)
    pace = Pace(progress, f"screening {source.name}", source.rows)
    with _cluster(address), _told(source):
        if output is not None and not output.suffix:
            return _screen_folder(source, gate, output, memory, resume, pace)
        decide = partial(_decide, source, _decider(gate, source.columns))
        decided = _tasks(source, SCREEN_BYTES).map_batches(
            decide, batch_size=1, batch_format="numpy"
        )
        blocks = decided.iter_batches(batch_format="pyarrow", batch_size=None)
        if output is None:
            widths: set[int] = set()
            return sum((_count(block, pace, widths)[1] for block in blocks), NOTHING)
        with replacing(output) as temporary:
            return _write(blocks, temporary, pace)


def diagnose(
    source: Source,
    tally: Tally,
    *,
    address: str | None = None,
    memory: int | None = None,  # noqa: ARG001 - Ray keeps to its object store
    progress: Tell | None = None,
) -> Tally:
    """Count every row in a tally, and return it."""

    def fresh() -> Tally:
        return Tally(tally.asked, temperature=tally.temperature, cells=tally.cells)

    _fold(source, fresh, tally.merge, address=address, progress=progress)
    return tally


def sketch(
    source: Source,
    sketches: Sketches,
    *,
    address: str | None = None,
    memory: int | None = None,  # noqa: ARG001 - Ray keeps to its object store
    progress: Tell | None = None,
) -> Sketches:
    """Count every row's score for a calibration, and return the counts."""

    def fresh() -> Sketches:
        return replace(sketches, pooled=Sketch(), classes={}, widths=set())

    _fold(source, fresh, sketches.merge, address=address, progress=progress)
    return sketches


def examine(  # noqa: PLR0913 - options, by keyword only
    dataset: Any,
    build: Callable[[], Any],
    *,
    column: str,
    gate: Gate | None = None,
    workers: int = 1,
    gpus: float = 0.0,
    batch_size: int = 256,
    **options: Any,
) -> Any:
    """Run a torch model over a Ray dataset, each worker with a `Doctor` of its own.

    Parameters
    ----------
    dataset : ray.data.Dataset
    build : callable
        Makes the model; called once in every worker.
    column : str
        The column of inputs, an array a row.
    gate : Gate, optional
        Calibrated on what such a doctor finds; adds `accepted`.
    workers : int
        How many actors.
    gpus : float
        Of each; 0 runs on processors.
    batch_size : int
        Rows a pass.
    options
        Of `trustdoctor.adapters.torch.Doctor`: score, temperature, epsilon, scale, ...

    Returns
    -------
    ray.data.Dataset
        The rows with `logits`, `score` and, with a gate, `accepted`.
    """
    return dataset.map_batches(
        _DoctorActor,
        fn_constructor_args=(build, column, gate, gpus > 0, options),
        batch_format="numpy",
        batch_size=batch_size,
        num_gpus=gpus or None,
        compute=ray.data.ActorPoolStrategy(size=workers),
    )


class _DoctorActor:
    """A doctor that stays in a worker, with its model loaded."""

    def __init__(
        self,
        build: Callable[[], Any],
        column: str,
        gate: Gate | None,
        on_gpu: bool,  # noqa: FBT001
        options: dict[str, Any],
    ) -> None:
        from trustdoctor.adapters.torch import Doctor

        model = build().to("cuda") if on_gpu else build()
        self.doctor, self.column, self.gate = Doctor(model, **options), column, gate

    def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
        import torch

        values = np.ascontiguousarray(batch[self.column], np.float32)
        inputs = torch.from_numpy(values.copy())
        if self.gate is None:
            found, accepted = self.doctor(inputs, quiet=True), None
        else:
            found, accepted = self.doctor.screen(inputs, self.gate, quiet=True)
        added = {"logits": found.predictions.logits, "score": found.scores}
        return batch | added | ({} if accepted is None else {"accepted": accepted})


def _prepared(source: Source, output: Path | None = None) -> Source:
    """Return the source by paths that every worker can follow; Parquet alone."""
    outputs = [] if output is None or not output.suffix else [suffix_of(output)]
    odd = [kind for kind in (source.kind, *outputs) if kind != ".parquet"]
    if odd:
        message = (
            f"the engine ray reads and writes .parquet, got {odd[0]}. Use --engine "
            "local, or Parquet files."
        )
        raise FileError(message)
    files = tuple(file.resolve() for file in source.files)
    return Source(files, source.columns, source.root and source.root.resolve())


def _decider(gate: Gate, columns: Columns) -> Decider:
    return Decider(
        gate, logits=columns.logits, probs=columns.probs, labels=columns.labels
    )


def _tasks(source: Source, size: int) -> Any:
    """Return a dataset of what to read: whole row groups of about `size` bytes.

    Ray's own reader does not keep the order of row groups, so the rows are named here
    and read in the workers, in the way of the local engine.
    """
    most = max(1, size // source.row_bytes)
    tasks: list[dict[str, int]] = []
    for number, file in enumerate(source.files):
        first = 0
        for group in read_row_groups(file):
            last = tasks[-1] if tasks else None
            if first and last and last["rows"] + group.rows <= most:
                last["rows"] += group.rows
            else:
                tasks.append({"file": number, "first": first, "rows": group.rows})
            first += group.rows
    return ray.data.from_items(tasks, override_num_blocks=len(tasks))


def _rows(source: Source, task: dict[str, Any], columns: list[str] | None) -> Any:
    """Read the rows of a task."""
    file = source.files[int(task["file"][0])]
    lazy = Source((file,), source.columns, source.root).scan()
    lazy = lazy if columns is None else lazy.select(columns)
    first, rows = int(task["first"][0]), int(task["rows"][0])
    return lazy.slice(first, rows).collect(engine="streaming").to_arrow()


_WRONG, _CLASSES = "trustdoctor_wrong", "trustdoctor_classes"


def _decide(source: Source, decider: Decider, task: dict[str, Any]) -> Any:
    """Decide on rows, and say where they were wrong: 0, 1, or 2 where not known."""
    block = _rows(source, task, None)
    decided, rows = decider.decide(block)
    wrong = np.full(block.num_rows, 2, np.int8)
    if rows is not None and rows.labels is not None:
        wrong = rows.errors.astype(np.int8)
    classes = np.full(block.num_rows, 0 if rows is None else rows.n_classes, np.int32)
    decided = decided.append_column(_WRONG, pa.array(wrong))
    return decided.append_column(_CLASSES, pa.array(classes))


def _count(block: Any, pace: Pace, widths: set[int]) -> tuple[Any, Summary]:
    """Take off where a block was wrong, and count it."""
    for width in block[_CLASSES].unique().to_pylist():
        require_one_width(widths, width)
    wrong = block[_WRONG].to_numpy(zero_copy_only=False)
    accepted = block["accepted"].to_numpy(zero_copy_only=False)
    pace.add(block.num_rows)
    rest = block.drop_columns([_WRONG, _CLASSES])
    if (wrong == 2).any():
        return rest, Summary(len(wrong), int(accepted.sum()))
    return rest, summarize_errors(wrong.astype(bool), accepted)


def _write(blocks: Any, temporary: Path, pace: Pace) -> Summary:
    """Write blocks in their order, in whole row groups."""
    total, writer, widths = NOTHING, None, set[int]()
    try:
        for block in blocks:
            rows, counted = _count(block, pace, widths)
            total += counted
            if writer is None:
                writer = pq.ParquetWriter(temporary, rows.schema, compression="zstd")
            writer.write_table(rows, row_group_size=ROW_GROUP)
    finally:
        if writer is not None:
            writer.close()
    with temporary.open("rb") as file:
        os.fsync(file.fileno())
    return total


def _screen_folder(  # noqa: PLR0913 - what the verb was given
    source: Source,
    gate: Gate,
    output: Path,
    memory: int | None,
    resume: bool,  # noqa: FBT001
    pace: Pace,
) -> Summary:
    """Screen each file as a task; whole files appear, and are noted as they do."""
    targets = plan_targets(source, output)
    journal = Journal(output, gate, source)
    journal.begin(resume=resume)
    total, tasks = NOTHING, []
    for file, target in targets.items():
        target.parent.mkdir(parents=True, exist_ok=True)
        known = journal.find(file) if target.is_file() else None
        if known is None:
            tasks.append({"file": str(file.resolve()), "target": str(target.resolve())})
        else:
            total += known
            pace.add(known.rows)
    if not tasks:
        return total
    work = partial(_screen_files, gate, source, memory)
    done = ray.data.from_items(tasks, override_num_blocks=len(tasks)).map_batches(
        work, batch_size=1, batch_format="numpy"
    )
    for row in done.iter_rows():
        summary = pickle.loads(row["summary"])
        journal.note(Path(row["file"]), summary)
        pace.add(summary.rows)
        total += summary
    return total


def _screen_files(
    gate: Gate, whole: Source, memory: int | None, batch: dict[str, Any]
) -> dict[str, Any]:
    """Run the local engine on whole files, in a worker."""
    found = []
    for file, target in zip(batch["file"], batch["target"], strict=True):
        source = Source((Path(file),), whole.columns, whole.root)
        done = local.screen_alone(source, gate, Path(target), memory=memory)
        found.append(pickle.dumps(done))
    return {"file": batch["file"], "summary": np.array(found, object)}


def _fold(
    source: Source,
    fresh: Callable[[], Any],
    merge: Callable[[Any], None],
    *,
    address: str | None,
    progress: Tell | None,
) -> None:
    """Count rows in tasks, and merge what they counted."""
    source = _prepared(source)
    local.require_rows(source)
    pace = Pace(progress, f"reading {source.name}", source.rows)
    with _cluster(address), _told(source):
        counted = _tasks(source, TALLY_BYTES).map_batches(
            partial(_tally, fresh, source, source.needed),
            batch_size=1,
            batch_format="numpy",
        )
        for row in counted.iter_rows():
            merge(pickle.loads(row["counted"]))
            pace.add(row["rows"])


def _tally(
    fresh: Callable[[], Any], source: Source, needed: list[str], task: dict[str, Any]
) -> Any:
    block, state = _rows(source, task, needed), fresh()
    if block.num_rows:
        state.update(to_predictions(block, source.columns))
    content = pa.array([pickle.dumps(state)], pa.large_binary())
    return pa.table({"counted": content, "rows": [block.num_rows]})


@contextmanager
def _cluster(address: str | None) -> Iterator[None]:
    """Work on a cluster; one that was started here ends with the work."""
    own = not ray.is_initialized()
    if own:
        try:
            ray.init(
                address=address,
                log_to_driver=False,
                logging_level=logging.ERROR,
                include_dashboard=None if address else False,
            )
        except (ConnectionError, ValueError, RuntimeError, TimeoutError) as error:
            message = (
                f"cannot reach the Ray cluster at {address}: "
                f"{str(error).splitlines()[0]} Check the address and its token."
            )
            raise InputError(message) from error
    context = ray.data.DataContext.get_current()
    before = (context.execution_options.preserve_order, context.enable_progress_bars)
    context.execution_options.preserve_order = True
    context.enable_progress_bars = False
    for name in ("ray", "ray.data"):  # what fails is told in one line, below
        logging.getLogger(name).setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        context.execution_options.preserve_order, context.enable_progress_bars = before
        if own:
            ray.shutdown()


@contextmanager
def _told(source: Source) -> Iterator[None]:
    """Tell a user's mistake in the data with its row and file."""
    try:
        yield
    except (ray.exceptions.RayError, TrustDoctorError) as error:
        source.locate()
        if isinstance(error, TrustDoctorError):
            raise
        reasons = re.findall(r"^[\w.]*(?:Error|Exception): .*$", str(error), re.M)
        reason = reasons[-1] if reasons else type(error).__name__
        message = f"the Ray job on {source.name} failed: {reason}"
        raise FileError(message) from error
