"""The stages of a cascade: models to ask, or files and arrays of what they said."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trustdoctor.adapters.endpoint import Endpoint
from trustdoctor.arrays import Array
from trustdoctor.atomic import same_file
from trustdoctor.errors import InputError
from trustdoctor.opinion.models import Predictor, ask_model, predictor
from trustdoctor.opinion.parts import Part, join_predictions
from trustdoctor.opinion.same_classes import (
    align_classes,
    common_names,
    require_classes,
)
from trustdoctor.opinion.same_rows import (
    ABSENT,
    as_ids,
    find_places,
    name_row,
    require_all,
    require_ids,
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

BATCH = 256
"""Rows per pass of a model."""

_MANY = 1 << 31  # classes, where it is not known how many there are


@dataclass(frozen=True, eq=False)
class Known:
    """What a model said of rows, known beforehand.

    Attributes
    ----------
    name : str
    said : Predictions
    places : integer array (n,)
        Where each row is in `said`; -1 where it is not.
    ids : array (n,), or None
        What the rows are called.
    """

    name: str
    said: Predictions
    places: NDArray[np.int64]
    ids: Array | None = None

    def ask(self, rows: Array) -> Predictions:
        """Return what was said of some rows."""
        at = self.places[rows]
        if (at == ABSENT).any():
            first = rows[int((at == ABSENT).argmax())]
            missing = int((at == ABSENT).sum())
            rows_are = "row in doubt is" if missing == 1 else "rows in doubt are"
            message = (
                f"{missing:,} {rows_are} not in {self.name}, the first is "
                f"{name_row(first, self.ids)}. Ask that model about them, and add them."
            )
            raise InputError(message)
        return self.said[at]


@dataclass(frozen=True, eq=False)
class Asked:
    """A model that is asked about rows.

    Attributes
    ----------
    name : str
    model : callable
    rows : Part
    batch_size : int
    progress : callable, or None
        Told the share of the rows that was asked about.
    """

    name: str
    model: Predictor
    rows: Part
    batch_size: int = BATCH
    progress: Tell | None = None

    def ask(self, rows: Array) -> Predictions:
        """Return what the model says of some rows, batch by batch."""
        said, size = [], self.batch_size
        for at in range(0, len(rows), size):
            if self.progress is not None:
                self.progress(at / len(rows), f"asking {self.name}")
            some = rows[at : at + size]
            model = self.model
            if isinstance(model, Endpoint):  # which tells how far it is itself
                model = partial(model, progress=self.progress)
            said.append(ask_model(model, self.rows.pick(some), len(some)))
        return join_predictions(said)


Stage = Known | Asked


@dataclass(frozen=True, eq=False)
class Stages:
    """Stages that speak of the same rows and classes.

    Attributes
    ----------
    each : tuple of Known or Asked
    rows : int
    ids : array (n,), or None
    labels : integer array (n,), or None
        The true classes, -1 where a row has none.
    class_names : tuple of str, or None
        The classes in the common order, where they have names.
    first : list
        What was said first, by which later answers are judged.
    """

    each: tuple[Stage, ...]
    rows: int
    ids: Array | None = None
    labels: NDArray[np.int64] | None = None
    class_names: tuple[str, ...] | None = None
    first: list[Predictions] = field(default_factory=list)

    def ask(self, k: int, rows: Array) -> Predictions:
        """Return what a stage says of some rows, its classes in the common order."""
        stage = self.each[k]
        said = align_classes(stage.ask(rows), self.names_now, stage.name)
        said = replace(said, ids=None, groups=None, features=None, labels=None)
        if not self.first:
            self.first.append(said[:0])
        width = self.first[0].n_classes
        if said.n_classes != width:
            message = (
                f"expected {width} classes from every stage, got {said.n_classes} from "
                f"{stage.name}. Give stages that know the same classes."
            )
            raise InputError(message)
        return said

    @property
    def names_now(self) -> tuple[str, ...] | None:
        """The classes in the common order, as far as they are known by now."""
        heard = self.first[0].class_names if self.first else None
        return self.class_names or heard

    @property
    def names(self) -> tuple[str, ...]:
        """What the stages are called."""
        return tuple(stage.name for stage in self.each)

    def require_rows(self, rows: Array) -> None:
        """Refuse stages that lack some of the rows, or have others."""
        for stage in self.each:
            if isinstance(stage, Known):
                require_all(stage.name, stage.places, rows, stage.said, self.ids)


def take_stages(  # noqa: PLR0913 - what stages are made of
    given: Sequence[Any],
    labels: Any = None,
    *,
    data: Any = None,
    ids: Any = None,
    names: Sequence[str] | None = None,
    by_position: bool = False,
    batch_size: int = BATCH,
    progress: Tell | None = None,
) -> Stages:
    """Bring stages together: the same rows, the same classes, the same labels.

    `ids` are those of the rows in `data`, or the name of the column of ids in files.
    """
    called = name_stages(given, names)
    require_different(given)
    column = ids if isinstance(ids, str) else None
    found = [_as_stage(one, n, column) for one, n in zip(given, called, strict=True)]
    known = {n: p for n, p in zip(called, found, strict=True) if _is_known(p)}
    part = _part(data, [n for n in called if n not in known], batch_size)
    own = None if ids is None or column is not None else as_ids(ids)
    if not by_position:
        files = len(given) > 1 and any(map(is_file, given))
        require_ids(known, own, files=files, asks=part is not None)
    places, order, rows = find_places(known, own, by_position=by_position)
    rows = _count(rows, order, part)
    class_names = common_names(known, given)
    require_classes(known, given, called, class_names)
    known = {n: align_classes(p, class_names, n) for n, p in known.items()}
    each: list[Stage] = []
    for name, one in zip(called, found, strict=True):
        if name in known:
            each.append(Known(name, known[name], places[name], order))
        else:
            assert part is not None
            size = rows if isinstance(one, Endpoint) else batch_size
            each.append(Asked(name, one, part, size, progress))
    stages = Stages(tuple(each), rows, order, class_names=class_names)
    return replace(stages, labels=_truth(stages, labels))


def require_stages(given: Any) -> None:
    """Refuse what is not a list of stages."""
    if isinstance(given, (list, tuple)) and given:
        return
    got = type(given).__name__ if not isinstance(given, (list, tuple)) else "none"
    message = (
        f"expected stages as a list, the cheapest first, as [small, large], got {got}."
    )
    raise InputError(message)


def name_stages(given: Sequence[Any], names: Sequence[str] | None) -> tuple[str, ...]:
    """Return what stages are called: as said, by their files, or by their number."""
    require_stages(given)
    if names is None:
        files = name_files(given)
        called = [name or f"stage {i}" for i, name in enumerate(files, start=1)]
    else:
        called = [names] if isinstance(names, str) else list(map(str, names))
    if len(called) != len(given) or len(set(called)) < len(called) or "" in called:
        message = (
            f"expected {len(given)} names, each once, got {', '.join(called)}. Name "
            "the stages: names=[...] (--names A,B)."
        )
        raise InputError(message)
    return tuple(called)


def require_different(given: Sequence[Any]) -> None:
    """Refuse one file, by whatever name, as two stages: they would always agree."""
    places: dict[Any, Any] = {}
    for one in given:
        if not isinstance(one, (str, Path)):
            continue
        place = same_file(Path(one))
        if place in places:
            known = "" if one == places[place] else f" (as {places[place]}, too)"
            message = (
                f"expected one FILE per stage, got {one}{known} for two of them. Give "
                "each model's own."
            )
            raise InputError(message)
        places[place] = one


def name_files(given: Sequence[Any]) -> list[str]:
    """Return the names of files without their suffix; of like ones, the folders'.

    Examples
    --------
    >>> name_files(["small.csv", "large.csv"]), name_files(["a/test.csv", "b/test.csv"])
    (['small', 'large'], ['a', 'b'])
    """
    paths = [Path(one) if isinstance(one, (str, Path)) else None for one in given]
    stems = ["" if path is None else _stem(path) for path in paths]
    folders = ["" if path is None else path.resolve().parent.name for path in paths]
    alike = len(set(filter(None, stems))) < len(list(filter(None, stems)))
    alike |= any("*" in stem or "?" in stem for stem in stems)
    return folders if alike and len(set(folders)) == len(folders) else stems


def _stem(path: Path) -> str:
    """Return a file's name without the suffix that says its format."""
    from trustdoctor.files import suffix_of

    return path.name.removesuffix(suffix_of(path)) or path.name


def is_file(given: Any) -> bool:
    """Tell whether a stage is a file, a pattern or a folder of predictions."""
    if not isinstance(given, (str, Path)):
        return False
    from trustdoctor.files import FORMATS, suffix_of

    path = Path(given)
    if not path.is_dir():
        return suffix_of(path) in FORMATS
    model = (path / "config.json").exists()  # of Hugging Face
    return not model and any(suffix_of(one) in FORMATS for one in path.iterdir())


def read_stage(path: Any, columns: Any = None) -> Predictions:
    """Read what a model said; a column called id has the ids, if none is named.

    A column of labels that is named may be missing: another stage may have it.
    """
    from trustdoctor.files import Columns, find_source

    wanted = replace(columns or Columns(), need_labels=False)
    names = find_source(path, replace(wanted, labels=None, ids=None)).names
    if wanted.ids is None and "id" in names:
        wanted = replace(wanted, ids="id")
    if wanted.labels is not None and wanted.labels not in names:
        wanted = replace(wanted, labels=None)
    return find_source(path, wanted).read()


def _is_known(found: Any) -> bool:
    return isinstance(found, Predictions)


def _as_stage(given: Any, name: str, ids: str | None) -> Any:
    """Return predictions, or a function of inputs to logits."""
    if is_file(given):
        from trustdoctor.files import Columns

        given = read_stage(given, Columns(ids=ids))
    if isinstance(given, Predictions) and not given.n_classes:
        message = (
            f"expected logits or probabilities of every class from {name}, got "
            f"{type(given).__name__}: a cascade compares whole answers."
        )
        raise InputError(message)
    if isinstance(given, Predictions):
        refuse_decisions(given, "a stage of a cascade")
        return given
    if hasattr(given, "__array__") or isinstance(given, list):
        return Predictions.from_logits(given)
    return predictor(given)


def _part(data: Any, models: Sequence[str], batch_size: Any) -> Part | None:
    """Return the rows that models are asked about, where there are models."""
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
    return Part(data)


def _check_data(data: Any) -> None:
    """Refuse what cannot be counted and picked: batches are asked about once only."""
    shape = getattr(data, "shape", None)
    picks = hasattr(data, "__getitem__") and not isinstance(data, (str, bytes, Mapping))
    counts = bool(shape) if shape is not None else isinstance(data, (list, tuple))
    if not picks or not counts or type(data).__module__.startswith("pyarrow"):
        message = (
            "expected rows that can be counted and picked (an array, a tensor, a "
            f"list, a table of pandas or polars), got {type(data).__name__}."
        )
        raise InputError(message)
    if len(Part(data)) == 0:
        message = "expected at least one row in data, got none."
        raise InputError(message)


def _count(rows: int | None, order: Array | None, part: Part | None) -> int:
    """Return how many rows there are, refusing ids or data of another number."""
    sizes = {"stages": rows, "ids": None if order is None else len(order)}
    sizes["data"] = None if part is None else len(part)
    given = {name: size for name, size in sizes.items() if size is not None}
    if len(set(given.values())) > 1:
        said = ", ".join(f"{size:,} in {name}" for name, size in given.items())
        message = f"expected as many ids and rows of data as stages have, got {said}."
        raise InputError(message)
    return next(iter(given.values()))


def _truth(stages: Stages, labels: Any) -> NDArray[np.int64] | None:
    """Return the labels that were given, and those of the stages; refuse others."""
    known = [stage for stage in stages.each if isinstance(stage, Known)]
    out = np.full(stages.rows, UNKNOWN, np.int64)
    if labels is not None:
        out = _numbered(stages, labels, known)
    for stage in known:
        if stage.said.labels is None:
            continue
        there = stage.places != ABSENT
        own = np.where(there, stage.said.labels[stage.places], UNKNOWN)
        clash = (own != UNKNOWN) & (out != UNKNOWN) & (own != out)
        if clash.any():
            raise InputError(_clash(stages, stage, own, out, clash))
        out = np.where(out == UNKNOWN, own, out)
    return out if (out != UNKNOWN).any() else None


def _numbered(stages: Stages, labels: Any, known: list[Known]) -> NDArray[np.int64]:
    """Return labels as numbers of classes; those of models alone may be their names."""
    names = stages.class_names
    if known or names is None:
        width = known[0].said.n_classes if known else _MANY
    else:
        width = len(names)
        labels = _as_named(labels)
    found = number_labels(labels, stages.rows, width, names=names)
    return np.full(stages.rows, UNKNOWN) if found is None else found


def _as_named(labels: Any) -> Any:
    """Return labels as text, as the models' own classes are written."""
    given = [] if isinstance(labels, str) else np.asarray(labels).tolist()
    if not isinstance(given, list) or any(isinstance(one, list) for one in given):
        return labels  # which is refused
    return np.array([None if is_missing(one) else plain_name(one) for one in given])


def _clash(stages: Stages, stage: Known, own: Array, other: Array, clash: Array) -> str:
    row = int(clash.argmax())
    names = stages.class_names
    one, two = (int(k) if names is None else names[k] for k in (own[row], other[row]))
    return (
        f"expected the same label for a row everywhere, {name_row(row, stages.ids)} is "
        f"{one!r} in {stage.name} and {two!r} before; {int(clash.sum()):,} rows "
        "differ. Are the rows the same?"
    )
