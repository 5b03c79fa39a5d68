"""What a classifier said, checked once: the only place that checks arrays."""

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from trustdoctor import _native
from trustdoctor.errors import InputError, LabelsMissingError, RowError

if TYPE_CHECKING:
    from trustdoctor.topk import TopK

PROBS_TOLERANCE = 0.01
"""How far a row of probabilities may be from summing to 1 (rounded files are)."""

Floats = NDArray[np.floating[Any]]
Bools = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Predictions:
    """Logits of `n` rows over `C` classes, and their labels where known.

    Build one with `from_logits` or `from_probs`; nothing guesses which of the
    two an array holds.

    Attributes
    ----------
    logits : array (n, C), float16, float32 or float64
        As given, or the logarithm of the probabilities given.
    labels : integer array (n,), or None
        The true classes, 0 to C-1.
    from_probabilities : bool
        True where the logits are known only up to a constant a row. Scores that
        need true logits (energy, max_logit) refuse such predictions.

    Examples
    --------
    >>> p = Predictions.from_logits([[2.0, 0.5], [0.1, 0.3]], [0, 0])
    >>> p.predicted, p.errors
    (array([0, 1]), array([False,  True]))
    """

    logits: Floats = field(repr=False)
    labels: NDArray[np.int64] | None = field(repr=False)
    from_probabilities: bool = False

    @classmethod
    def from_logits(
        cls, logits: ArrayLike, labels: ArrayLike | None = None
    ) -> "Predictions":
        """Take logits (n, C); -inf is allowed, NaN and +inf are not."""
        array = _matrix(logits, "logits")
        if not np.isfinite(array).all():
            _refuse_rows(np.isnan(array).any(1), "logits hold NaN")
            top = array.max(1)
            _refuse_rows(top == np.inf, "logits hold +inf")
            _refuse_rows(top == -np.inf, "every logit is -inf")
        if len(array) >= 10 and _on_simplex(array):
            message = (
                "expected logits, but all rows are probabilities (not negative, "
                "sum 1). Use from_probs, or --probs on the command line."
            )
            raise InputError(message)
        return cls(array, as_labels(labels, *array.shape))

    @classmethod
    def from_probs(
        cls, probs: ArrayLike, labels: ArrayLike | None = None
    ) -> "Predictions":
        """Take probabilities (n, C); a row may miss the sum 1 by 0.01.

        They are kept as their logarithms, so a zero becomes -inf. A row that does
        not sum to exactly 1 counts as if it were divided by its sum.
        """
        array = _matrix(probs, "probs")
        _refuse_rows(np.isnan(array).any(1), "probabilities hold NaN")
        total = array.sum(1, dtype=np.float64)
        wrong = (array < 0).any(1) | ~(np.abs(total - 1) <= PROBS_TOLERANCE)
        if wrong.any():
            raise RowError(_not_probs(array, total, wrong), int(wrong.argmax()))
        if array.dtype == np.float16:
            array = array.astype(np.float32)
        with np.errstate(divide="ignore"):
            logits = np.log(array)
        return cls(logits, as_labels(labels, *array.shape), from_probabilities=True)

    @staticmethod
    def from_topk(  # noqa: PLR0913 - options, by keyword only
        probs: ArrayLike,
        classes: ArrayLike,
        labels: ArrayLike | None = None,
        *,
        log: bool = False,
        n_classes: int | None = None,
        open_rest: bool = False,
    ) -> "TopK":
        """Take the k best classes of each row alone, as remote models answer.

        Parameters
        ----------
        probs : array (n, k)
            Probabilities; 0 where a row names fewer classes.
        classes : integer array (n, k)
        labels : integer array (n,), optional
        log : bool
            Whether `probs` are log-probabilities.
        n_classes : int, optional
            How many classes there are, if known: it narrows alpha's interval.
        open_rest : bool
            Whether the rest of the mass may belong to the named classes, too.

        Examples
        --------
        >>> p = Predictions.from_topk([[0.7, 0.2]], [[4, 1]], n_classes=10)
        >>> [end.round(3).tolist() for end in p.interval("alpha")]
        [[-0.16], [-0.125]]
        """
        from trustdoctor.topk import make_topk

        return make_topk(
            probs, classes, labels, log=log, n_classes=n_classes, open_rest=open_rest
        )

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.logits)

    def __repr__(self) -> str:
        """Say what is held, in one line."""
        kind = "probabilities" if self.from_probabilities else "logits"
        text = f"Predictions({len(self):,} rows, {self.n_classes} classes, {kind}"
        if self.labels is None:
            return f"{text}, no labels)"
        return f"{text}, accuracy {1 - self.errors.mean():.2%})"

    @property
    def n_classes(self) -> int:
        """The number of classes, C."""
        return int(self.logits.shape[1])

    @cached_property
    def predicted(self) -> NDArray[np.int64]:
        """The predicted class of each row: the first largest logit."""
        if not (_native.available and self.logits.dtype in (np.float32, np.float64)):
            return self.logits.argmax(1)
        out = np.empty(len(self), np.int64)
        _native.argmax(np.ascontiguousarray(self.logits), out)
        return out

    @cached_property
    def errors(self) -> Bools:
        """True where the prediction is wrong."""
        return self.predicted != self.require_labels("errors")

    def require_labels(self, task: str) -> NDArray[np.int64]:
        """Return the labels, or say that `task` needs them."""
        if self.labels is None:
            message = (
                f"{task} needs the true labels, and these predictions have none. "
                "Pass labels, or add a label column to the file."
            )
            raise LabelsMissingError(message)
        return self.labels


def to_numpy(array: Any) -> NDArray[Any]:
    """Bring a list, a numpy array or a torch tensor of any device to numpy."""
    if hasattr(array, "detach"):  # a torch tensor, without importing torch
        array = array.detach().cpu()
        if str(array.dtype) == "torch.bfloat16":  # numpy has no such type
            array = array.float()
    if isinstance(array, np.ma.MaskedArray) and np.ma.is_masked(array):
        message = "expected plain arrays, got one with masked entries. Fill them first."
        raise InputError(message)
    try:
        return np.asarray(array)
    except ValueError as error:
        message = (
            "expected rows of equal length, got ragged rows. Give every row the "
            "same number of classes."
        )
        raise InputError(message) from error


def as_scores(scores: Any) -> Floats:
    """Check doubt scores: one float a row, no NaN."""
    array = to_numpy(scores)
    if array.ndim != 1 or array.dtype.kind not in "fiu":
        message = (
            f"expected scores of shape (n,), one number a row, got "
            f"{_describe(array)}. Score the rows first, e.g. alpha(logits)."
        )
        raise InputError(message)
    if len(array) == 0:
        message = "expected at least one score, got none."
        raise InputError(message)
    if array.dtype.kind != "f":
        array = array.astype(np.float64)
    if np.isnan(array).any():
        at = int(np.isnan(array).argmax())
        message = f"expected scores without NaN, got NaN at row {at}. Mend that row."
        raise InputError(message)
    return array


def as_errors(errors: Any, *, rows: int) -> Bools:
    """Check errors: one bool (or 0 and 1) a row, True where the prediction is wrong."""
    array = to_numpy(errors)
    if array.dtype.kind in "iu" and not ((array == 0) | (array == 1)).all():
        message = (
            "expected errors as booleans (True = misclassified), got integers other "
            "than 0 and 1. Pass predicted != labels."
        )
        raise InputError(message)
    if array.shape != (rows,) or array.dtype.kind not in "biu":
        message = (
            f"expected errors as {rows} booleans, one a score, got "
            f"{_describe(array)}. Pass predicted != labels of the same rows."
        )
        raise InputError(message)
    return array.astype(bool, copy=False)


def _matrix(values: Any, name: str) -> Floats:
    array = to_numpy(values)
    if array.ndim != 2 or array.dtype.kind not in "fiu":
        message = (
            f"expected {name} as numbers of shape (n, C), got {_describe(array)}. "
            "Give one row a prediction and one column a class."
        )
        raise InputError(message)
    rows, classes = array.shape
    if rows == 0:
        message = f"expected at least one row of {name}, got none."
        raise InputError(message)
    if classes < 2:
        message = (
            f"expected {name} of at least 2 classes, got {classes}. For a binary "
            "model with one output z, pass the columns 0 and z."
        )
        raise InputError(message)
    array = array.astype(array.dtype.newbyteorder("="), copy=False)
    if array.dtype not in (np.float16, np.float32, np.float64):
        array = array.astype(np.float64)
    return array


def as_labels(labels: Any, rows: int, classes: int) -> NDArray[np.int64] | None:
    """Check labels: one class from 0 to C - 1 a row."""
    if labels is None:
        return None
    given = to_numpy(labels)
    if given.shape != (rows,) or given.dtype.kind not in "iuf":
        message = (
            f"expected labels as {rows} integers, one a row, got {_describe(given)}. "
            "Number the classes 0 to C-1 in the order of the columns."
        )
        raise InputError(message)
    if given.dtype.kind == "f":
        _refuse_rows(np.isnan(given), "the label is missing")
        _refuse_rows(given != np.floor(given), "the label is no whole number")
    outside = (given < 0) | (given >= classes)
    if outside.any():
        at = int(outside.argmax())
        message = (
            f"expected labels from 0 to {classes - 1} for {classes} classes, got "
            f"{given[at]} at row {{row}}. Number the classes from 0."
        )
        raise RowError(message, at)
    return given.astype(np.int64)


def _refuse_rows(bad: Any, what: str) -> None:
    if bad.any():
        message = (
            f"{what} at row {{row}} ({int(bad.sum())} of {len(bad)} "
            "rows). Mend or drop those rows."
        )
        raise RowError(message, int(bad.argmax()))


def _on_simplex(array: Floats) -> bool:
    if array[0].min() < 0 or array.min() < 0:
        return False
    total = array.sum(1, dtype=np.float64)
    return bool((np.abs(total - 1) <= 1e-3).all())


def _not_probs(array: Floats, total: Floats, wrong: Bools) -> str:
    at = int(wrong.argmax())
    count = f"{int(wrong.sum())} of {len(array)} rows"
    if (np.abs(total - 100) <= 1).all() and (array >= 0).all():
        return (
            "expected probabilities, got percentages (rows sum to 100). Divide by 100."
        )
    if wrong.mean() > 0.5 and ((array < -0.01).any() or (array > 1.01).any()):
        return (
            "expected probabilities, but these look like logits (row {row} runs from "
            f"{array[at].min():.4g} to {array[at].max():.4g} and sums to "
            f"{total[at]:.4g}). Use from_logits, or --logits on the command line."
        )
    if array[at].min() < 0:
        what = f"the probability {array[at].min():.4g} at row {{row}}"
    else:
        what = f"a row that sums to {total[at]:.6g} at row {{row}}"
    return (
        f"expected probabilities, none negative and each row summing to 1 within "
        f"{PROBS_TOLERANCE}, got {what} ({count}). If they are logits, use from_logits "
        "(--logits); otherwise mend those rows."
    )


def _describe(array: NDArray[Any]) -> str:
    return f"{array.dtype} of shape {array.shape}"
