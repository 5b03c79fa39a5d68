"""What makes a page easier to read, where it is known."""

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
    """What makes the page easier to read, where it is known.

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
        How many these are.
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

    def of(self, predictions: Predictions, kept: Array | None) -> "Extras":
        """Return what is known of the rows that have a label, and check it."""
        names = self.class_names or predictions.class_names
        own = _of_kept(replace(self, class_names=names), kept, predictions)
        _check(predictions, own)
        return own


def _of_kept(extras: Extras, kept: Array | None, predictions: Predictions) -> Extras:
    """Return what is known of the rows that have a label, where some have none."""
    listed: dict[str, Any] = {
        name: list(given)
        for name in ("ids", "texts")
        for given in [getattr(extras, name)]
        if hasattr(given, "__len__") and not isinstance(given, str)
    }
    extras = replace(extras, **listed)  # a Series is looked up by its index
    if kept is not None:
        every: Any = extras.thumbnails
        chosen: dict[str, Any] = {}
        for name in ("ids", "texts"):
            given = getattr(extras, name)
            if hasattr(given, "__len__") and len(given) > kept[-1]:
                chosen[name] = [given[row] for row in kept]
        if predictions.ids is None:
            chosen.setdefault("ids", kept.tolist())
        if callable(every):
            chosen["thumbnails"] = lambda row: every(int(kept[row]))
        extras = replace(extras, **chosen)
    ids = predictions.ids if extras.ids is None else extras.ids
    return replace(extras, ids=ids)


def _check(predictions: Predictions, extras: Extras) -> None:
    for name, wanted in (
        ("ids", len(predictions)),
        ("texts", len(predictions)),
        ("class_names", predictions.n_classes),
    ):
        if name == "class_names" and isinstance(predictions, Answers):
            continue
        given = getattr(extras, name)
        if given is not None and not hasattr(given, "__len__"):
            message = f"expected {name} as a list, got {given!r}."
            raise InputError(message)
        if given is not None and len(given) != wanted:
            message = f"expected {wanted:,} {name}, got {len(given):,}."
            raise InputError(message)
    if extras.thumbnails is not None and not callable(extras.thumbnails):
        message = "expected thumbnails as a function of a row's number."
        raise InputError(message)
