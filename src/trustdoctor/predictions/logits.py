"""Logits or probabilities of rows, and what is known of the rows beside them."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from trustdoctor.arrays import (
    Array,
    Bools,
    Floats,
    as_features,
    as_groups,
    as_labels,
    describe,
    refuse_rows,
    row_numbers,
    to_numpy,
)
from trustdoctor.errors import InputError, LabelsMissingError, RowError
from trustdoctor.kernels import argmax
from trustdoctor.predictions.topk import TopK, make_topk

PROBS_TOLERANCE = 0.01
"""How far a row of probabilities may be from summing to 1 (rounded files are)."""

_MISS = PROBS_TOLERANCE * (1 + 1e-9)  # so that 1.01 is within 0.01 of 1

ENOUGH = 10
"""So many rows that are all probability vectors do not come about by chance."""


@dataclass(frozen=True, eq=False)
class Predictions:
    """Logits of `n` rows over `C` classes, and what else is known of the rows.

    Build one with `from_logits` or `from_probs`; nothing guesses which of the two an
    array holds. A slice, a mask or row numbers pick rows: ``p[mask]``.

    Attributes
    ----------
    logits : array (n, C), float16, float32 or float64
        As given, or the logarithm of the probabilities given.
    labels : integer array (n,), or None
        The true classes, 0 to C-1.
    from_probabilities : bool
        True where the logits are known only up to a constant per row. Scores that
        need true logits (energy, max_logit) refuse such predictions.
    class_names : tuple of str, or None
        One per class, in the order of the columns.
    ids : array (n,), or None
        What the rows are called.
    groups : array (n,) of integers or strings, or None
        Which group each row belongs to, for gates with thresholds of their own.
    features : array (n, d), or None
        What the model saw in each row, for scores that need it.

    Examples
    --------
    >>> p = Predictions.from_logits([[2.0, 0.5], [0.1, 0.3]], [0, 0])
    >>> p.predicted, p.errors
    (array([0, 1]), array([False,  True]))
    >>> p[p.errors]
    Predictions(1 row, 2 classes, logits, accuracy 0.00%)
    """

    logits: Floats = field(repr=False)
    labels: NDArray[np.int64] | None = field(repr=False)
    from_probabilities: bool = False
    class_names: tuple[str, ...] | None = field(default=None, repr=False)
    ids: Array | None = field(default=None, repr=False)
    groups: Array | None = field(default=None, repr=False)
    features: Array | None = field(default=None, repr=False)

    @classmethod
    def from_logits(  # noqa: PLR0913 - options, by keyword only
        cls,
        logits: ArrayLike,
        labels: ArrayLike | None = None,
        *,
        class_names: Sequence[str] | None = None,
        ids: ArrayLike | None = None,
        groups: ArrayLike | None = None,
        features: ArrayLike | None = None,
    ) -> "Predictions":
        """Take logits (n, C); -inf is allowed, NaN and +inf are not.

        Parameters
        ----------
        logits : array (n, C)
        labels : integer array (n,), optional
        class_names, ids, groups, features : optional
            See the attributes.

        Examples
        --------
        >>> Predictions.from_logits([[2.0, 0.5]], class_names=["cat", "dog"])
        Predictions(1 row, 2 classes, logits, no labels)
        """
        array = _matrix(logits, "logits")
        if not np.isfinite(array).all():
            refuse_rows(np.isnan(array).any(1), "logits hold NaN")
            top = array.max(1)
            refuse_rows(top == np.inf, "logits hold +inf")
            refuse_rows(top == -np.inf, "every logit is -inf")
        refuse_probabilities(array)
        known = as_labels(labels, *array.shape)
        rest = _beside(array.shape, class_names, ids, groups, features)
        return cls(array, known, False, *rest)  # noqa: FBT003

    @classmethod
    def from_probs(  # noqa: PLR0913 - options, by keyword only
        cls,
        probs: ArrayLike,
        labels: ArrayLike | None = None,
        *,
        class_names: Sequence[str] | None = None,
        ids: ArrayLike | None = None,
        groups: ArrayLike | None = None,
        features: ArrayLike | None = None,
    ) -> "Predictions":
        """Take probabilities (n, C); a row may miss the sum 1 by 0.01.

        They are kept as their logarithms, so a zero becomes -inf. A row that does
        not sum to exactly 1 counts as if it were divided by its sum. Parameters are
        those of `from_logits`.

        Examples
        --------
        >>> Predictions.from_probs([[0.75, 0.25], [0.5, 0.5]], [0, 1]).predicted
        array([0, 0])
        """
        array = _matrix(probs, "probs")
        refuse_rows(np.isnan(array).any(1), "probabilities hold NaN")
        total = array.sum(1, dtype=np.float64)
        wrong = (array < 0).any(1) | ~(np.abs(total - 1) <= _MISS)
        if wrong.any():
            raise RowError(_not_probs(array, total, wrong), int(wrong.argmax()))
        if array.dtype == np.float16:
            array = array.astype(np.float32)
        with np.errstate(divide="ignore"):
            logits = np.log(array)
        known = as_labels(labels, *array.shape)
        rest = _beside(array.shape, class_names, ids, groups, features)
        return cls(logits, known, True, *rest)  # noqa: FBT003

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
        return make_topk(
            probs, classes, labels, log=log, n_classes=n_classes, open_rest=open_rest
        )

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.logits)

    def __getitem__(self, rows: Any) -> "Predictions":
        """Return some of the rows: those of a slice, a mask, or row numbers."""
        at = row_numbers(rows, len(self))
        parts = (self.labels, self.ids, self.groups, self.features)
        labels, *rest = (None if part is None else part[at] for part in parts)
        return Predictions(
            self.logits[at], labels, self.from_probabilities, self.class_names, *rest
        )

    def __repr__(self) -> str:
        """Say what is held, in one line."""
        kind = "probabilities" if self.from_probabilities else "logits"
        rows = "1 row" if len(self) == 1 else f"{len(self):,} rows"
        text = f"Predictions({rows}, {self.n_classes} classes, {kind}"
        if self.labels is None:
            return f"{text}, no labels)"
        if not len(self):
            return f"{text})"
        return f"{text}, accuracy {1 - self.errors.mean():.2%})"

    @property
    def n_classes(self) -> int:
        """The number of classes, C."""
        return int(self.logits.shape[1])

    @cached_property
    def predicted(self) -> NDArray[np.int64]:
        """The predicted class of each row: the first largest logit."""
        return argmax(self.logits)

    @cached_property
    def errors(self) -> Bools:
        """True where the prediction is wrong."""
        return self.predicted != self.require_labels("finding errors")

    def require_labels(self, task: str) -> NDArray[np.int64]:
        """Return the labels, or say that `task` needs them."""
        if self.labels is None:
            message = (
                f"{task} needs the true labels, and these predictions have none. "
                "Pass labels, or add a label column to the file."
            )
            raise LabelsMissingError(message)
        return self.labels


def require_predictions(given: Any) -> None:
    """Refuse arrays where predictions are expected, naming the ways to make them."""
    if not isinstance(given, Predictions):
        message = (
            f"expected Predictions, got {type(given).__name__}. Build them with "
            "Predictions.from_logits or from_probs."
        )
        raise InputError(message)


def _matrix(values: Any, name: str) -> Floats:
    array = to_numpy(values)
    if array.ndim != 2 or array.dtype.kind not in "fiu":
        message = (
            f"expected {name} as numbers of shape (n, C), got {describe(array)}. "
            "Give one row per prediction and one column per class."
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


def refuse_probabilities(logits: NDArray[Any]) -> None:
    """Refuse 10 or more rows that are all probability vectors: they are not logits."""
    if logits.ndim < 2 or logits.dtype.kind not in "fiu" or not logits.shape[-1]:
        return
    rows = logits.reshape(-1, logits.shape[-1])
    if len(rows) >= ENOUGH and _on_simplex(rows):
        message = (
            "expected logits, but all rows are probabilities (not negative, sum 1). "
            "Use Predictions.from_probs, or --probs on the command line."
        )
        raise InputError(message)


def _on_simplex(array: NDArray[Any]) -> bool:
    # The first row answers for nearly every array of logits, at no cost.
    for part in (array[:1], array):
        if float(part.min()) < 0:
            return False
        total = np.asarray(part.sum(1, dtype=np.float64))
        if not (np.abs(total - 1) <= _MISS).all():
            return False
    return True


def _beside(
    shape: tuple[int, ...], class_names: Any, ids: Any, groups: Any, features: Any
) -> tuple[tuple[str, ...] | None, Array | None, Array | None, Array | None]:
    """Check what is known of rows and classes beside the numbers."""
    rows, classes = shape
    names = None if class_names is None else tuple(map(str, class_names))
    if names is not None and not len(names) == len(set(names)) == classes:
        message = (
            f"expected {classes} different class names, one per column, got "
            f"{len(names)} ({len(set(names))} different)."
        )
        raise InputError(message)
    called = None if ids is None else to_numpy(ids)
    if called is not None and called.shape != (rows,):
        message = f"expected {rows} ids, one per row, got {describe(called)}."
        raise InputError(message)
    return (
        names,
        called,
        None if groups is None else as_groups(groups, rows=rows),
        None if features is None else as_features(features, rows=rows),
    )


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
        "(--logits); otherwise fix those rows."
    )
