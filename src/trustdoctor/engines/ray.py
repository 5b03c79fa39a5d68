"""A cluster: fold and map as Ray Data jobs.

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
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import ray

from trustdoctor.adapters.arrow import to_predictions
from trustdoctor.atomic import replacing
from trustdoctor.engines.contract import SHORTLIST, AnyState, Decide, Engine
from trustdoctor.engines.local import LocalEngine
from trustdoctor.engines.memory import parse_memory, tuned
from trustdoctor.errors import FileError, InputError, TrustDoctorError
from trustdoctor.files import (
    PARQUET,
    ROW_GROUP,
    Source,
    check_names,
    read_row_groups,
    suffix_of,
)
from trustdoctor.gates import NO_OUTCOME, Gate, Outcome, add_width
from trustdoctor.predictions import assume_logits
from trustdoctor.progress import Pace

SCREEN_BYTES = 32 << 20
"""Bytes of values in a task that decides."""

TALLY_BYTES = 128 << 20
"""Bytes of values in a task that counts: fewer tasks leave fewer counts to merge."""

_COUNTED = "trustdoctor_counted"
"""A temporary column of blocks; its first row holds what was counted in the block."""


class RayEngine(Engine):
    """Ray Data, on a cluster at an address; without one it is started here."""

    name = "ray"

    def __init__(self, address: str | None = None) -> None:
        self.address = address

    def check(self, source: Source, output: Path | None = None) -> Source:
        """Return the source by paths that every worker can follow; Parquet alone."""
        outputs = [] if output is None or not output.suffix else [suffix_of(output)]
        kinds = [suffix_of(source.files[0]), *outputs]
        refused = [kind for kind in kinds if kind not in PARQUET.suffixes]
        if refused:
            message = (
                f"the engine ray reads and writes .parquet, got {refused[0]}. Use "
                "--engine local, or Parquet files."
            )
            raise FileError(message)
        files = tuple(file.resolve() for file in source.files)
        return Source(files, source.columns, source.root and source.root.resolve())

    def fold(
        self,
        source: Source,
        state: AnyState,
        *,
        memory: int | None,  # noqa: ARG002 - Ray keeps to its object store
        pace: Pace,
    ) -> AnyState:
        """Count rows in tasks, and merge what they counted."""
        with _cluster(self.address), _naming_bad_rows(source):
            counted = _tasks(source, TALLY_BYTES).map_batches(
                partial(_count_task, state.fresh(), source),
                batch_size=1,
                batch_format="numpy",
            )
            for row in counted.iter_rows():
                state.merge(pickle.loads(row["counted"]))
                pace.add(row["rows"])
        return state

    def map(  # noqa: PLR0913 - options, by keyword only
        self,
        source: Source,
        function: Decide,
        output: Path | None,
        *,
        alone: bool = False,  # noqa: ARG002 - files of a folder go to `map_files`
        only: str | None = None,
        memory: int | None,  # noqa: ARG002
        pace: Pace,
    ) -> Outcome:
        """Decide in tasks; the driver writes the blocks in the order of the rows."""
        lists = [SHORTLIST] if getattr(function, "has_shortlist", False) else []
        check_names(source, _COUNTED, *lists)
        with _cluster(self.address), _naming_bad_rows(source):
            decided = _tasks(source, SCREEN_BYTES).map_batches(
                partial(_decide_task, source, function),
                batch_size=1,
                batch_format="numpy",
            )
            blocks = decided.iter_batches(batch_format="pyarrow", batch_size=None)
            if output is None:
                widths: set[int] = set()
                outcomes = (_split_off(block, pace, widths)[1] for block in blocks)
                return sum(outcomes, NO_OUTCOME)
            with replacing(output) as temporary:
                return _write_blocks(blocks, temporary, pace, only)

    def map_files(
        self,
        targets: list[tuple[Source, Path]],
        function: Decide,
        **options: Any,
    ) -> Iterator[tuple[Path, Outcome]]:
        """Screen each file as a task; yield each as soon as it is written."""
        if not targets:
            return
        memory, pace = options["memory"], options["pace"]
        for _, target in targets:
            target.parent.mkdir(parents=True, exist_ok=True)
        files = tuple(source.files[0] for source, _ in targets)
        first = targets[0][0]
        all_files = Source(files, first.columns, first.root)
        numbers = [{"number": number} for number in range(len(files))]
        absolute = [(source, target.absolute()) for source, target in targets]
        with _cluster(self.address), _naming_bad_rows(all_files):
            screened = ray.data.from_items(
                numbers, override_num_blocks=len(files)
            ).map_batches(
                partial(_map_files, absolute, function, memory, options.get("only")),
                batch_size=1,
                batch_format="numpy",
            )
            for row in screened.iter_rows():
                outcome = pickle.loads(row["outcome"])
                pace.add(outcome.rows)
                yield files[row["number"]], outcome


def _tasks(source: Source, size: int) -> Any:
    """Return a dataset of rows to read: entire row groups of about `size` bytes."""
    # Ray's own reader does not keep the order of row groups. So tasks name rows, and
    # workers read them as the local engine does.
    most_rows = max(1, size // source.row_bytes)
    tasks: list[dict[str, int]] = []
    for number, file in enumerate(source.files):
        first = 0
        for group in read_row_groups(file):
            if not group.rows:
                continue
            last = tasks[-1] if tasks else None
            if first and last and last["rows"] + group.rows <= most_rows:
                last["rows"] += group.rows
            else:
                tasks.append({"file": number, "first": first, "rows": group.rows})
            first += group.rows
    return ray.data.from_items(tasks, override_num_blocks=len(tasks))


def _read_task(source: Source, task: dict[str, Any], columns: list[str] | None) -> Any:
    """Return the rows of a task as an Arrow table."""
    file = source.files[int(task["file"][0])]
    lazy = Source((file,), source.columns, source.root).scan()
    lazy = lazy if columns is None else lazy.select(columns)
    first, rows = int(task["first"][0]), int(task["rows"][0])
    return lazy.slice(first, rows).collect(engine="streaming").to_arrow()


def _decide_task(source: Source, function: Decide, task: dict[str, Any]) -> Any:
    """Decide on the rows of a task; the first of them also says what was counted."""
    block = _read_task(source, task, None)
    counted = [b""] * block.num_rows
    if block.num_rows:
        with assume_logits():
            predictions = to_predictions(block, source.columns)
            added, outcome = function(predictions)
        counted[0] = pickle.dumps((outcome, predictions.n_classes))
        for name, values in added.items():
            block = block.append_column(name, pa.array(values))
    return block.append_column(_COUNTED, pa.array(counted, pa.binary()))


def _split_off(block: Any, pace: Pace, widths: set[int]) -> tuple[Any, Outcome]:
    """Return the rows of a block, and what was counted in it."""
    # A block may hold the rows of several tasks.
    total = NO_OUTCOME
    for content in block[_COUNTED].to_pylist():
        if content:
            outcome, n_classes = pickle.loads(content)
            add_width(widths, n_classes)
            total += outcome
    pace.add(block.num_rows)
    return block.drop_columns([_COUNTED]), total


def _write_blocks(
    blocks: Any, temporary: Path, pace: Pace, only: str | None
) -> Outcome:
    """Write blocks in their order, each as row groups of its own."""
    total, writer, widths = NO_OUTCOME, None, set[int]()
    try:
        for block in blocks:
            rows, outcome = _split_off(block, pace, widths)
            total += outcome
            if only is not None:
                accepted = rows["accepted"]
                rejected = pc.invert(accepted)
                rows = rows.filter(accepted if only == "accepted" else rejected)
            if writer is None:
                writer = pq.ParquetWriter(temporary, rows.schema, compression="zstd")
            writer.write_table(rows, row_group_size=ROW_GROUP)
    finally:
        if writer is not None:
            writer.close()
    with temporary.open("rb") as file:
        os.fsync(file.fileno())
    return total


def _map_files(
    targets: list[tuple[Source, Path]],
    function: Decide,
    memory: int | None,
    only: str | None,
    batch: dict[str, Any],
) -> dict[str, Any]:
    """Run the local engine on entire files, in a worker."""
    outcomes = []
    limit = memory or parse_memory(None)
    for number in batch["number"]:
        source, target = targets[int(number)]
        with tuned(source, limit, all_columns=True):
            outcome = LocalEngine().map(
                source,
                function,
                target,
                alone=True,
                only=only,
                memory=limit,
                pace=Pace(None, "", 1),
            )
        outcomes.append(pickle.dumps(outcome))
    return {"number": batch["number"], "outcome": np.array(outcomes, object)}


def _count_task(empty: Any, source: Source, task: dict[str, Any]) -> Any:
    """Count the rows of a task in a state of its own."""
    block, state = _read_task(source, task, source.needed), empty.fresh()
    if block.num_rows:
        with assume_logits():
            state.update(to_predictions(block, source.columns))
    # Counts of many distinct scores may exceed the 2 GB of a binary array.
    content = pa.array([pickle.dumps(state)], pa.large_binary())
    return pa.table({"counted": content, "rows": [block.num_rows]})


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
    """Run a torch model over a Ray dataset, with one `Doctor` per worker.

    Parameters
    ----------
    dataset : ray.data.Dataset
    build : callable
        Makes the model; called once in every worker.
    column : str
        The column of inputs, an array per row.
    gate : Gate, optional
        Calibrated on the scores of such a doctor; adds `accepted`.
    workers : int
        The number of actors.
    gpus : float
        For each worker; 0 runs on processors.
    batch_size : int
        Rows per pass.
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
    """A doctor that stays in a worker, so that its model is loaded once."""

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
        scored = self.doctor(inputs, quiet=True)
        added = {"logits": scored.predictions.logits, "score": scored.scores}
        if self.gate is not None:
            added["accepted"] = self.doctor.decide(scored, self.gate).accepted
        return batch | added


@contextmanager
def _cluster(address: str | None) -> Iterator[None]:
    """Connect to a cluster, or start one; what was started here is shut down again."""
    starts = not ray.is_initialized()
    if starts:
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
    # Ray logs every failure with its traceback; `_naming_bad_rows` says it in a line.
    for name in ("ray", "ray.data"):
        logging.getLogger(name).setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        context.execution_options.preserve_order, context.enable_progress_bars = before
        if starts:
            ray.shutdown()


@contextmanager
def _naming_bad_rows(source: Source) -> Iterator[None]:
    """Turn errors of tasks into one that names the file and the row."""
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
