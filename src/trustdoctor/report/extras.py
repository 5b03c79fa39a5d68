"""What makes a page easier to read: names, texts, pictures, the file it is about."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from trustdoctor.arrays import Array
from trustdoctor.errors import InputError
from trustdoctor.evaluation import Protocols
from trustdoctor.predictions import Answers, Predictions

Thumbnail = Callable[[int], bytes | None]


@dataclass(frozen=True)
class Extras:
    """What makes a page easier to read, if it is known.

    Attributes
    ----------
    class_names : sequence of str
        By default the predictions' own.
    ids : sequence
        One per row; by default the predictions' own, or numbers from 0.
    texts : sequence of str
        What was classified, one per row.
    thumbnails : callable
        Row number to a small JPEG or PNG, or None.
    source, file : str
        What the predictions came from: its name, and its path for commands.
    options : tuple of str
        Options of the command line that reading it takes.
    digest : str
        The file's SHA-256.
    perturbed : dict of str to Protocols
        Scores at perturbed inputs, by name.
    calibrate_on : str
        The path of other rows, which had no part in this page and may make the gate.
    calibration_rows : int, optional
        Their number.
    shared_rows : int
        How many of them are rows of this page, too, as far as was looked.
    score_files : dict of str to str
        The file of each fitted score, by the score's name.
    """

    class_names: Sequence[str] | None = None
    ids: Any = None
    texts: Sequence[str] | None = None
    thumbnails: Thumbnail | None = None
    source: str = ""
    file: str = ""
    options: tuple[str, ...] = ()
    digest: str = ""
    perturbed: Mapping[str, Protocols] = field(default_factory=dict)
    calibrate_on: str = ""
    calibration_rows: int | None = None
    shared_rows: int = 0
    score_files: Mapping[str, str] = field(default_factory=dict)

    def of(self, predictions: Predictions, labelled: Array | None) -> "Extras":
        """Return the extras of the rows that are evaluated, and check them.

        `labelled` are the rows that have a label, if some have none.
        """
        extras = replace(
            self,
            class_names=self.class_names or predictions.class_names,
            ids=_as_list(self.ids),
            texts=_as_list(self.texts),
        )
        if labelled is not None:
            extras = _of_rows(extras, labelled, has_ids=predictions.ids is not None)
        if extras.ids is None:
            extras = replace(extras, ids=predictions.ids)
        _check(predictions, extras)
        return extras


def _as_list(values: Any) -> Any:
    """Return values as a list, for a Series would be looked up by its index."""
    is_sequence = hasattr(values, "__len__") and not isinstance(values, str)
    return list(values) if is_sequence else values


def _of_rows(extras: Extras, rows: Array, *, has_ids: bool) -> Extras:
    """Return the extras of some rows; those that are for these rows already stay."""
    selected: dict[str, Any] = {}
    for name in ("ids", "texts"):
        values = getattr(extras, name)
        if hasattr(values, "__len__") and len(values) > rows[-1]:
            selected[name] = [values[row] for row in rows]
    if not has_ids:
        selected.setdefault("ids", rows.tolist())
    thumbnail = extras.thumbnails
    if thumbnail is not None and callable(thumbnail):
        selected["thumbnails"] = lambda row: thumbnail(int(rows[row]))
    return replace(extras, **selected)


def _check(predictions: Predictions, extras: Extras) -> None:
    lengths = {"ids": len(predictions), "texts": len(predictions)}
    if not isinstance(predictions, Answers):
        lengths["class_names"] = predictions.n_classes
    for name, length in lengths.items():
        values = getattr(extras, name)
        if values is not None and not hasattr(values, "__len__"):
            message = f"expected {name} as a list, got {values!r}."
            raise InputError(message)
        if values is not None and len(values) != length:
            message = f"expected {length:,} {name}, got {len(values):,}."
            raise InputError(message)
    if extras.thumbnails is not None and not callable(extras.thumbnails):
        message = "expected thumbnails as a function of a row's number."
        raise InputError(message)
