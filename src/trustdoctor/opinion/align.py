"""Aligned stages: the same rows, by ids or by position, and the same classes."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trustdoctor.arrays import Array
from trustdoctor.errors import InputError
from trustdoctor.opinion.models import class_names_of
from trustdoctor.predictions import UNKNOWN, Predictions, is_missing

ABSENT = -1
"""The position of a row that a stage does not have."""


def as_ids(ids: Any) -> Array:
    """Return ids as text, so that 7, 7.0, "7" and " 7" are the same.

    Examples
    --------
    >>> as_ids([7.0, 12.0])
    array(['7', '12'], dtype='<U2')
    """
    array = np.asarray(ids)
    if array.ndim != 1:
        message = f"expected one id per row, got an array of shape {array.shape}."
        raise InputError(message)
    if array.dtype.kind in "iu":
        return array.astype(str)
    values = array.tolist()
    missing = [row for row, value in enumerate(values) if is_missing(value)]
    if missing:
        message = (
            f"expected an id for every row, row {missing[0]} has none. Give it one, or "
            "leave the row out."
        )
        raise InputError(message)
    return np.array(list(map(_id_text, values)), str)


def _id_text(value: Any) -> str:
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    text = value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
    return text.strip()


def name_row(row: int, ids: Array | None) -> str:
    """Return the name of a row for a message: its id, or its number."""
    return f"row {row}" if ids is None else f"id {str(ids[row])!r}"


def find_positions(
    recorded: Mapping[str, Predictions], ids: Array | None, *, by_position: bool
) -> tuple[dict[str, NDArray[np.int64]], Array | None, int | None]:
    """Return the common rows' positions in each stage, their ids and their number.

    The rows are those of `ids`, or of the first stage. The number is None if it is not
    known, since no stage is recorded and there are no ids.
    """
    first = next((as_ids(p.ids) for p in recorded.values() if p.ids is not None), None)
    order = first if ids is None else ids
    if not recorded:
        return {}, order, None if order is None else len(order)
    if by_position or any(p.ids is None for p in recorded.values()):
        rows = _common_length(recorded)
        _require_same_order(recorded, order)
        return dict.fromkeys(recorded, np.arange(rows)), order, rows
    assert order is not None
    _require_unique(order, "the rows")
    positions = {
        name: _positions(order, as_ids(predictions.ids), name)
        for name, predictions in recorded.items()
    }
    return positions, order, len(order)


def _common_length(recorded: Mapping[str, Predictions]) -> int:
    sizes = {name: len(predictions) for name, predictions in recorded.items()}
    if len(set(sizes.values())) > 1:
        shown = ", ".join(f"{name} has {size:,}" for name, size in sizes.items())
        message = f"expected stages with the same rows, got different numbers: {shown}."
        raise InputError(message)
    return next(iter(sizes.values()))


def _require_same_order(
    recorded: Mapping[str, Predictions], order: Array | None
) -> None:
    """Refuse rows that are said to be in one order, and whose ids say otherwise."""
    for name, predictions in recorded.items():
        if order is None or predictions.ids is None or len(predictions) != len(order):
            continue
        ids = as_ids(predictions.ids)
        differs = ids != order
        if differs.any():
            row = int(differs.argmax())
            message = (
                f"expected rows in the same order, as by_position says, but row {row} "
                f"of {name} has the id {str(ids[row])!r}, not {str(order[row])!r}. "
                "Leave by_position out: ids match rows."
            )
            raise InputError(message)


def _require_unique(ids: Array, name: str) -> None:
    values, counts = np.unique(ids, return_counts=True)
    if (counts > 1).any():
        repeated = str(values[int(counts.argmax())])
        message = (
            f"expected every id once, {repeated!r} comes {counts.max()} times in "
            f"{name}. Give ids that tell rows apart."
        )
        raise InputError(message)


def _positions(order: Array, stage_ids: Array, name: str) -> NDArray[np.int64]:
    """Return the position of each row in a stage, by its id; ABSENT if it has none."""
    _require_unique(stage_ids, name)
    by_id = np.argsort(stage_ids)
    ranks = np.searchsorted(stage_ids, order, sorter=by_id)
    candidates = by_id[np.minimum(ranks, len(stage_ids) - 1)]
    return np.where(stage_ids[candidates] == order, candidates, ABSENT)


def require_ids(
    recorded: Mapping[str, Predictions], ids: Any, *, files: bool, asks: bool
) -> None:
    """Refuse rows of which some can be matched by id and some cannot."""
    with_ids = {name for name, p in recorded.items() if p.ids is not None}
    complete = with_ids == set(recorded) and (ids is not None or not asks)
    if complete or not (with_ids or files):
        return
    without_ids = next((name for name in recorded if name not in with_ids), None)
    if without_ids is None:
        message = (
            "expected ids of the rows in data, since the other stages match rows by "
            "id. Pass ids=, or say that rows are in the same order: by_position=True."
        )
        raise InputError(message)
    message = (
        f"expected ids in every stage, {without_ids} has none, so rows cannot be "
        "matched. Name the column of ids (--ids NAME, ids='NAME'), or say that rows "
        "are in the same order: --by-position, by_position=True."
    )
    raise InputError(message)


def require_same_rows(
    name: str,
    positions: NDArray[np.int64],
    rows: Array,
    predictions: Predictions,
    ids: Array | None,
) -> None:
    """Refuse a stage that lacks some of the rows, or has rows with other ids."""
    missing = rows[positions[rows] == ABSENT]
    if len(missing):
        message = (
            f"expected the same ids in every stage, {len(missing):,} are not in {name},"
            f" the first is {name_row(missing[0], ids)}. Calibration needs every "
            "stage's answer to every labelled row."
        )
        raise InputError(message)
    used = np.zeros(len(predictions), bool)
    used[positions[positions != ABSENT]] = True
    if not used.all():
        first = name_row(int((~used).argmax()), as_ids(predictions.ids))
        message = (
            f"expected the same ids in every stage, {int((~used).sum()):,} are only in "
            f"{name}, the first is {first}. Leave those rows out."
        )
        raise InputError(message)


def common_class_names(
    recorded: Mapping[str, Predictions], models: Sequence[Any]
) -> tuple[str, ...] | None:
    """Return the names of classes: of the first file that has some, or model."""
    in_files = (predictions.class_names for predictions in recorded.values())
    in_models = (class_names_of(model) for model in models)
    return next((names for names in (*in_files, *in_models) if names), None)


def require_same_classes(
    recorded: Mapping[str, Predictions],
    models: Sequence[Any],
    stage_names: Sequence[str],
    class_names: tuple[str, ...] | None,
) -> None:
    """Refuse a model that declares other classes, before it is asked."""
    width = next((predictions.n_classes for predictions in recorded.values()), None)
    for model, stage in zip(models, stage_names, strict=True):
        declared = class_names_of(model)
        if declared is None:
            continue
        other_names = class_names and set(class_names) != set(declared)
        if width not in (None, len(declared)) or other_names:
            shown = ", ".join(class_names[:5]) if class_names else f"{width} classes"
            message = (
                f"expected the same classes in every stage, {shown}; {stage} answers "
                f"with {', '.join(declared[:5])}. Give stages that know the same "
                "classes."
            )
            raise InputError(message)


def align_classes(
    predictions: Predictions, class_names: tuple[str, ...] | None, stage: str
) -> Predictions:
    """Return predictions with their classes in the order of these names."""
    if class_names is None or predictions.class_names in (None, class_names):
        return predictions
    assert predictions.class_names is not None
    not_shared = sorted(set(class_names) ^ set(predictions.class_names))
    if not_shared:
        message = (
            f"expected the same classes in every stage, {not_shared[0]!r} is not in all"
            f" of them ({stage}). Give stages that know the same classes."
        )
        raise InputError(message)
    order = np.array([predictions.class_names.index(name) for name in class_names])
    # Labels index this: UNKNOWN is -1, the last entry.
    new_numbers = np.append(np.argsort(order), UNKNOWN)
    labels = predictions.labels
    return replace(
        predictions,
        logits=predictions.logits[:, order],
        labels=None if labels is None else new_numbers[labels],
        class_names=class_names,
    )
