"""The stages of a cascade: models to ask, or files and arrays of their predictions."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trustdoctor.adapters.endpoint import Endpoint
from trustdoctor.arrays import Array
from trustdoctor.atomic import file_identity
from trustdoctor.errors import InputError
from trustdoctor.opinion.align import (
    ABSENT,
    align_classes,
    as_ids,
    common_class_names,
    find_positions,
    name_row,
    require_ids,
    require_same_classes,
    require_same_rows,
)
from trustdoctor.opinion.models import (
    InputRows,
    Predictor,
    ask_model,
    join_predictions,
    predictor,
)
from trustdoctor.predictions import (
    UNKNOWN,
    Predictions,
    is_missing,
    number_labels,
    plain_name,
    refuse_decisions,
)
from trustdoctor.progress import Tell

BATCH_SIZE = 256
"""Rows per pass of a model."""

_UNLIMITED_CLASSES = 1 << 31
"""Stands for the number of classes while it is not known."""


@dataclass(frozen=True, eq=False)
class RecordedStage:
    """A model's predictions for rows, made beforehand.

    Attributes
    ----------
    name : str
    predictions : Predictions
    positions : integer array (n,)
        The position of each row in `predictions`; -1 if it is not there.
    ids : array (n,), or None
        The ids of the rows.
    """

    name: str
    predictions: Predictions
    positions: NDArray[np.int64]
    ids: Array | None = None

    def ask(self, rows: Array) -> Predictions:
        """Return the predictions for some rows."""
        positions = self.positions[rows]
        absent = positions == ABSENT
        if absent.any():
            first = rows[int(absent.argmax())]
            missing = int(absent.sum())
            rows_are = "row in doubt is" if missing == 1 else "rows in doubt are"
            message = (
                f"{missing:,} {rows_are} not in {self.name}, the first is "
                f"{name_row(first, self.ids)}. Ask that model about them, and add them."
            )
            raise InputError(message)
        return self.predictions[positions]


@dataclass(frozen=True, eq=False)
class ModelStage:
    """A model that is asked about rows.

    Attributes
    ----------
    name : str
    model : callable
    rows : InputRows
    batch_size : int
    progress : callable, or None
        Told the share of the rows that was asked about.
    """

    name: str
    model: Predictor
    rows: InputRows
    batch_size: int = BATCH_SIZE
    progress: Tell | None = None

    def ask(self, rows: Array) -> Predictions:
        """Return the model's predictions for some rows, asked batch by batch."""
        batches, size = [], self.batch_size
        for start in range(0, len(rows), size):
            if self.progress is not None:
                self.progress(start / len(rows), f"asking {self.name}")
            batch_rows = rows[start : start + size]
            model = self.model
            if isinstance(model, Endpoint):  # it reports progress within its one batch
                model = partial(model, progress=self.progress)
            inputs = self.rows.pick(batch_rows)
            batches.append(ask_model(model, inputs, len(batch_rows)))
        return join_predictions(batches)


Stage = RecordedStage | ModelStage


@dataclass(frozen=True, eq=False)
class Stages:
    """Stages for the same rows and classes.

    Attributes
    ----------
    each : tuple of RecordedStage or ModelStage
    rows : int
    ids : array (n,), or None
    labels : integer array (n,), or None
        The true classes, -1 for a row without one.
    class_names : tuple of str, or None
        The classes in the common order, if they have names.
    first_answer : list
        The first predictions without their rows: later ones must have their classes.
    """

    each: tuple[Stage, ...]
    rows: int
    ids: Array | None = None
    labels: NDArray[np.int64] | None = None
    class_names: tuple[str, ...] | None = None
    first_answer: list[Predictions] = field(default_factory=list)

    def ask(self, k: int, rows: Array) -> Predictions:
        """Return a stage's predictions for some rows, classes in the common order."""
        stage = self.each[k]
        predictions = align_classes(stage.ask(rows), self.names_now, stage.name)
        # Ids, labels and groups are those of all stages together, see `align_stages`.
        predictions = replace(
            predictions, ids=None, groups=None, features=None, labels=None
        )
        if not self.first_answer:
            self.first_answer.append(predictions[:0])
        width = self.first_answer[0].n_classes
        if predictions.n_classes != width:
            message = (
                f"expected {width} classes from every stage, got "
                f"{predictions.n_classes} from {stage.name}. Give stages that know the "
                "same classes."
            )
            raise InputError(message)
        return predictions

    @property
    def names_now(self) -> tuple[str, ...] | None:
        """The classes in the common order, as far as they are known by now."""
        first = self.first_answer[0].class_names if self.first_answer else None
        return self.class_names or first

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the stages."""
        return tuple(stage.name for stage in self.each)

    def require_rows(self, rows: Array) -> None:
        """Refuse recorded stages that lack some of these rows, or have others."""
        for stage in self.each:
            if isinstance(stage, RecordedStage):
                require_same_rows(
                    stage.name, stage.positions, rows, stage.predictions, self.ids
                )


def align_stages(  # noqa: PLR0913 - what stages are made of
    sources: Sequence[Any],
    labels: Any = None,
    *,
    data: Any = None,
    ids: Any = None,
    names: Sequence[str] | None = None,
    by_position: bool = False,
    batch_size: int = BATCH_SIZE,
    progress: Tell | None = None,
) -> Stages:
    """Bring stages together: the same rows, the same classes, the same labels.

    `ids` are those of the rows in `data`, or the name of the column of ids in files.
    """
    stage_names = name_stages(sources, names)
    require_different(sources)
    id_column = ids if isinstance(ids, str) else None
    opened = {
        name: _predictions_or_model(source, name, id_column)
        for name, source in zip(stage_names, sources, strict=True)
    }
    recorded = {name: p for name, p in opened.items() if isinstance(p, Predictions)}
    models = [name for name in stage_names if name not in recorded]
    input_rows = _input_rows(data, models, batch_size)
    data_ids = None if ids is None or id_column is not None else as_ids(ids)
    if not by_position:
        files = len(sources) > 1 and any(map(is_file, sources))
        require_ids(recorded, data_ids, files=files, asks=input_rows is not None)
    positions, order, rows = find_positions(recorded, data_ids, by_position=by_position)
    rows = _row_count(rows, order, input_rows)
    class_names = common_class_names(recorded, sources)
    require_same_classes(recorded, sources, stage_names, class_names)
    recorded = {
        name: align_classes(p, class_names, name) for name, p in recorded.items()
    }
    each: list[Stage] = []
    for name, model in opened.items():
        if name in recorded:
            each.append(RecordedStage(name, recorded[name], positions[name], order))
        else:
            assert input_rows is not None
            # An endpoint gets all rows at once: it has its own workers and progress.
            size = rows if isinstance(model, Endpoint) else batch_size
            each.append(ModelStage(name, model, input_rows, size, progress))
    stages = Stages(tuple(each), rows, order, class_names=class_names)
    return replace(stages, labels=_common_labels(stages, labels))


def require_stages(sources: Any) -> None:
    """Refuse what is not a list of stages."""
    if isinstance(sources, (list, tuple)) and sources:
        return
    got = type(sources).__name__ if not isinstance(sources, (list, tuple)) else "none"
    message = (
        f"expected stages as a list, the cheapest first, as [small, large], got {got}."
    )
    raise InputError(message)


def name_stages(sources: Sequence[Any], names: Sequence[str] | None) -> tuple[str, ...]:
    """Return the stages' names: as given, or by their files, or by their number."""
    require_stages(sources)
    if names is None:
        file_names = name_files(sources)
        stage_names = [name or f"stage {i}" for i, name in enumerate(file_names, 1)]
    else:
        stage_names = [names] if isinstance(names, str) else list(map(str, names))
    unique = len(set(stage_names)) == len(stage_names)
    if len(stage_names) != len(sources) or not unique or "" in stage_names:
        message = (
            f"expected {len(sources)} names, each once, got {', '.join(stage_names)}. "
            "Name the stages: names=[...] (--names A,B)."
        )
        raise InputError(message)
    return tuple(stage_names)


def require_different(sources: Sequence[Any]) -> None:
    """Refuse one file, by whatever name, as two stages: they would always agree."""
    paths: dict[Any, Any] = {}
    for source in sources:
        if not isinstance(source, (str, Path)):
            continue
        file = file_identity(Path(source))
        if file in paths:
            also = "" if source == paths[file] else f" (as {paths[file]}, too)"
            message = (
                f"expected one FILE per stage, got {source}{also} for two of them. "
                "Give each model's own."
            )
            raise InputError(message)
        paths[file] = source


def name_files(sources: Sequence[Any]) -> list[str]:
    """Return the names of files without their suffix; if these repeat, the folders'.

    Examples
    --------
    >>> name_files(["small.csv", "large.csv"]), name_files(["a/test.csv", "b/test.csv"])
    (['small', 'large'], ['a', 'b'])
    """
    paths = [Path(s) if isinstance(s, (str, Path)) else None for s in sources]
    stems = ["" if path is None else _stem(path) for path in paths]
    folders = ["" if path is None else path.resolve().parent.name for path in paths]
    ambiguous = len(set(filter(None, stems))) < len(list(filter(None, stems)))
    ambiguous |= any("*" in stem or "?" in stem for stem in stems)
    return folders if ambiguous and len(set(folders)) == len(folders) else stems


def _stem(path: Path) -> str:
    """Return a file's name without the suffix that says its format."""
    from trustdoctor.files import suffix_of

    return path.name.removesuffix(suffix_of(path)) or path.name


def is_file(source: Any) -> bool:
    """Tell whether a stage is a file, a pattern or a folder of predictions."""
    if not isinstance(source, (str, Path)):
        return False
    from trustdoctor.files import FORMATS, suffix_of

    path = Path(source)
    if not path.is_dir():
        return suffix_of(path) in FORMATS
    is_model = (path / "config.json").exists()  # a Hugging Face model
    return not is_model and any(suffix_of(file) in FORMATS for file in path.iterdir())


def read_stage(path: Any, columns: Any = None) -> Predictions:
    """Read a model's predictions; a column called id has the ids, if none is named.

    A named column of labels may be missing: another stage may have it.
    """
    from trustdoctor.files import Columns, find_source

    columns = replace(columns or Columns(), need_labels=False)
    names = find_source(path, replace(columns, labels=None, ids=None)).names
    if columns.ids is None and "id" in names:
        columns = replace(columns, ids="id")
    if columns.labels is not None and columns.labels not in names:
        columns = replace(columns, labels=None)
    return find_source(path, columns).read()


def _predictions_or_model(source: Any, name: str, id_column: str | None) -> Any:
    """Return the predictions of a stage, or its function of inputs to logits."""
    if is_file(source):
        from trustdoctor.files import Columns

        source = read_stage(source, Columns(ids=id_column))
    if isinstance(source, Predictions) and not source.n_classes:
        message = (
            f"expected logits or probabilities of every class from {name}, got "
            f"{type(source).__name__}: a cascade compares whole answers."
        )
        raise InputError(message)
    if isinstance(source, Predictions):
        refuse_decisions(source, "a stage of a cascade")
        return source
    if hasattr(source, "__array__") or isinstance(source, list):
        return Predictions.from_logits(source)
    return predictor(source)


def _input_rows(data: Any, models: Sequence[str], batch_size: Any) -> InputRows | None:
    """Return the rows that models are asked about, if there are models."""
    if not models and data is None:
        return None
    if not models:
        message = "expected data only beside models to ask, got none. Leave it out."
        raise InputError(message)
    if data is None:
        message = f"{models[0]} is a model, so it needs rows to be asked about: data=."
        raise InputError(message)
    if not (type(batch_size) is int and batch_size >= 1):
        message = f"expected a batch size of 1 or more, got {batch_size!r}."
        raise InputError(message)
    _check_data(data)
    return InputRows(data)


def _check_data(data: Any) -> None:
    """Refuse data that cannot be counted and picked: later models need some rows."""
    shape = getattr(data, "shape", None)
    picks = hasattr(data, "__getitem__") and not isinstance(data, (str, bytes, Mapping))
    counts = bool(shape) if shape is not None else isinstance(data, (list, tuple))
    if not picks or not counts or type(data).__module__.startswith("pyarrow"):
        message = (
            "expected rows that can be counted and picked (an array, a tensor, a "
            f"list, a table of pandas or polars), got {type(data).__name__}."
        )
        raise InputError(message)
    if len(InputRows(data)) == 0:
        message = "expected at least one row in data, got none."
        raise InputError(message)


def _row_count(
    stage_rows: int | None, order: Array | None, input_rows: InputRows | None
) -> int:
    """Return the number of rows, refusing ids or data of another number."""
    lengths = {
        "stages": stage_rows,
        "ids": None if order is None else len(order),
        "data": None if input_rows is None else len(input_rows),
    }
    present = {name: length for name, length in lengths.items() if length is not None}
    if len(set(present.values())) > 1:
        shown = ", ".join(f"{length:,} in {name}" for name, length in present.items())
        message = f"expected as many ids and rows of data as stages have, got {shown}."
        raise InputError(message)
    return next(iter(present.values()))


def _common_labels(stages: Stages, labels: Any) -> NDArray[np.int64] | None:
    """Return the given labels, completed by those of the stages; refuse a conflict."""
    recorded = [stage for stage in stages.each if isinstance(stage, RecordedStage)]
    common = np.full(stages.rows, UNKNOWN, np.int64)
    if labels is not None:
        common = _class_numbers(stages, labels, recorded)
    for stage in recorded:
        if stage.predictions.labels is None:
            continue
        stage_labels = np.where(
            stage.positions != ABSENT,
            stage.predictions.labels[stage.positions],
            UNKNOWN,
        )
        both = (stage_labels != UNKNOWN) & (common != UNKNOWN)
        conflict = both & (stage_labels != common)
        if conflict.any():
            message = _conflict_message(stages, stage, stage_labels, common, conflict)
            raise InputError(message)
        common = np.where(common == UNKNOWN, stage_labels, common)
    return common if (common != UNKNOWN).any() else None


def _class_numbers(
    stages: Stages, labels: Any, recorded: list[RecordedStage]
) -> NDArray[np.int64]:
    """Return labels as class numbers; if all stages are models, they may be names."""
    names = stages.class_names
    if recorded or names is None:
        width = recorded[0].predictions.n_classes if recorded else _UNLIMITED_CLASSES
    else:
        width = len(names)
        labels = _as_plain_names(labels)
    numbers = number_labels(labels, stages.rows, width, names=names)
    return np.full(stages.rows, UNKNOWN) if numbers is None else numbers


def _as_plain_names(labels: Any) -> Any:
    """Return labels as text, as the models' own classes are written."""
    entries = [] if isinstance(labels, str) else np.asarray(labels).tolist()
    if not isinstance(entries, list) or any(isinstance(e, list) for e in entries):
        return labels  # `number_labels` refuses them
    return np.array([None if is_missing(e) else plain_name(e) for e in entries])


def _conflict_message(
    stages: Stages,
    stage: RecordedStage,
    stage_labels: Array,
    earlier: Array,
    conflict: Array,
) -> str:
    row = int(conflict.argmax())
    names = stages.class_names
    here, before = (
        int(label) if names is None else names[label]
        for label in (stage_labels[row], earlier[row])
    )
    return (
        f"expected the same label for a row everywhere, {name_row(row, stages.ids)} is "
        f"{here!r} in {stage.name} and {before!r} before; {int(conflict.sum()):,} rows "
        "differ. Are the rows the same?"
    )
