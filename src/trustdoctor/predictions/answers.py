"""Answers with a confidence: no logits, and no set of classes."""

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from trustdoctor.arrays import Array, Bools, Floats, describe, refuse_rows, to_numpy
from trustdoctor.errors import InputError
from trustdoctor.predictions.labels import (
    UNKNOWN,
    as_entries,
    comparable_name,
    number_correct,
)
from trustdoctor.predictions.predictions import Predictions, check_metadata

Given = Literal["confidence", "doubt"]


@dataclass(frozen=True, eq=False, repr=False)
class Answers(Predictions):
    """Answers of any system, each with a confidence or a doubt.

    Build them with `Predictions.from_confidence`. Of the answers only whether they are
    right matters, so `n_classes` is 0 and the logits are empty.

    Attributes
    ----------
    doubts : array (n,)
        Minus the confidence, or the doubt that was given. Higher means trust less.
    given : str
        "confidence" or "doubt", which is also the name of the only score.
    answer_codes : integer array (n,)
        The answers, as numbers of `class_names`, and -1 where there is none; without
        names all 0, and labels are 0 where the answer is right and 1 where it is wrong.
    ambiguous : bool array (n,), or None
        Where the answer itself is not certain: the doubt is inf there, as where there
        is no answer or no confidence, and such rows are always rejected.
    correctness_only : bool
        Whether it is known only which answers are right, and not what would have been.

    Examples
    --------
    >>> p = Predictions.from_confidence([0.9, 0.4], correct=[True, False])
    >>> p
    Answers(2 rows, confidence, accuracy 50.00%)
    """

    doubts: Floats = field(default_factory=lambda: np.zeros(0), repr=False)
    given: Given = "confidence"
    answer_codes: NDArray[np.int64] = field(
        default_factory=lambda: np.zeros(0, np.int64), repr=False
    )
    ambiguous: Bools | None = field(default=None, repr=False)
    correctness_only: bool = field(default=False, repr=False)

    row_fields = (*Predictions.row_fields, "doubts", "answer_codes", "ambiguous")

    @property
    def n_classes(self) -> int:
        """0: nobody knows what else could have been answered."""
        return 0

    @property
    def predicted(self) -> NDArray[np.int64]:
        """The answers, as numbers of `class_names`."""
        return self.answer_codes

    @property
    def predicted_names(self) -> Array | None:
        """The answers themselves; None where they are not known."""
        return None if self.class_names is None else super().predicted_names

    @cached_property
    def abstained(self) -> Bools:
        """True where there is no answer: an error that every gate rejects."""
        return np.asarray(self.answer_codes == UNKNOWN)

    @property
    def always_rejected(self) -> Bools | None:
        """True where a row is rejected whatever the threshold; None for no row."""
        barred = np.isposinf(self.doubts)
        return barred if barred.any() else None

    @property
    def confidence(self) -> Floats | None:
        """The confidence, where it can be a probability; else None.

        0 where a row is rejected whatever the threshold.
        """
        stated = -self.doubts.astype(np.float64)
        if self.always_rejected is not None:
            stated[self.always_rejected] = 0.0
        inside = self.given == "confidence" and ((stated >= 0) & (stated <= 1)).all()
        return stated if inside else None

    def _labels_missing_message(self, task: str) -> str:
        return (
            f"{task} needs to know which answers are right. Pass correct, or predicted "
            "and labels; on the command line --correct NAME, or --predicted NAME with "
            "--labels NAME."
        )

    @property
    def row_kind(self) -> str:
        """What a row is, in words."""
        return self.given


def make_answers(  # noqa: PLR0913 - options, by keyword only
    values: Any,
    correct: Any = None,
    *,
    given: Given,
    predicted: Any = None,
    labels: Any = None,
    ids: Any = None,
    groups: Any = None,
    features: Any = None,
    missing: Bools | None = None,
) -> Answers:
    """Check answers with a confidence; see `Predictions.from_confidence`.

    Where a confidence is known to be `missing`, nothing stands for the answer: its
    doubt is inf.
    """
    array = _values(values, given)
    rows = len(array)
    silent = np.zeros(rows, bool) if missing is None else missing
    if correct is not None and labels is not None:
        message = "expected correct, or predicted and labels, got both. Pass one."
        raise InputError(message)
    if labels is not None and predicted is None:
        message = "labels need the answers beside them: pass predicted, or correct."
        raise InputError(message)
    names, answer_codes, known = (
        None,
        np.zeros(rows, np.int64),
        number_correct(correct, rows),
    )
    if predicted is not None:
        texts = [_texts(predicted, rows, "predicted")]
        texts += [] if labels is None else [_texts(labels, rows, "labels")]
        silent = silent | (texts[0] == "")
        names, codes = _codes(np.concatenate(texts))
        answer_codes = codes[:rows]
        if labels is not None:
            known = codes[rows:] if (codes[rows:] != UNKNOWN).any() else None
        else:
            known = _wrong_codes(answer_codes, known)
    rest = check_metadata((rows, 0), None, ids, groups, features)
    found = Answers(np.zeros((rows, 0)), known, False, *rest)  # noqa: FBT003
    return replace(
        found,
        class_names=names,
        doubts=_doubts(array, given, silent),
        given=given,
        answer_codes=answer_codes,
        correctness_only=labels is None,
    )


def _codes(texts: NDArray[Any]) -> tuple[tuple[str, ...], NDArray[np.int64]]:
    """Return the names in order, and the number of each text; blanks are unknown."""
    every, codes = np.unique(texts, return_inverse=True)
    blank = int(every[0] == "")
    codes = np.where(codes < blank, UNKNOWN, codes - blank)
    return tuple(every[blank:].tolist()), codes.astype(np.int64)


def _wrong_codes(
    answer_codes: NDArray[np.int64], wrong: NDArray[np.int64] | None
) -> NDArray[np.int64] | None:
    """Return labels that differ from the answers where these are wrong.

    What would have been right is not known, so it gets a number beyond all names. No
    answer is never right.
    """
    if wrong is None:
        return None
    other = int(answer_codes.max()) + 1
    missed = (wrong == 1) | (answer_codes == UNKNOWN)
    return np.where(wrong == UNKNOWN, UNKNOWN, np.where(missed, other, answer_codes))


def _values(values: Any, given: Given) -> Floats:
    array = to_numpy(values)
    if array.ndim != 1 or array.dtype.kind not in "fiu" or not len(array):
        message = (
            f"expected {given} as numbers of shape (n,), one per row, got "
            f"{describe(array)}."
        )
        raise InputError(message)
    if array.dtype not in (np.float32, np.float64):
        array = array.astype(np.float64)
    return array


def _doubts(values: Floats, given: Given, silent: Bools) -> Floats:
    """Return doubts; inf where there is no answer or nothing that stands for it."""
    refuse_rows(np.isnan(values) & ~silent, f"the {given} is NaN")
    if given == "confidence":
        refuse_rows(np.isinf(values) & ~silent, "the confidence is infinite")
        values = -values
    return np.where(silent, np.inf, values).astype(values.dtype, copy=False)


def _texts(values: Any, rows: int, what: str) -> NDArray[Any]:
    """Return names as text, "" where one is missing."""
    array = as_entries(values)
    if array.shape != (rows,):
        message = f"expected {rows} {what}, one per row, got {describe(array)}."
        raise InputError(message)
    return np.array([comparable_name(value) for value in array.tolist()], dtype=str)
