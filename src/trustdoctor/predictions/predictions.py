"""Predictions: logits or probabilities of rows, with labels, ids and groups."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from trustdoctor.arrays import (
    Array,
    Bools,
    Floats,
    as_features,
    as_groups,
    describe,
    read_only,
    refuse_rows,
    row_numbers,
    to_numpy,
)
from trustdoctor.errors import InputError, LabelsMissingError
from trustdoctor.kernels import argmax
from trustdoctor.predictions.labels import (
    OUTSIDE,
    UNKNOWN,
    number_labels,
    plain_name,
    system_decisions,
)
from trustdoctor.predictions.probabilities import (
    divide_by_sums,
    largest_sum_error,
    refuse_probabilities,
)

if TYPE_CHECKING:
    from trustdoctor.predictions.answers import Answers


@dataclass(frozen=True, eq=False)
class Predictions:
    """Logits of `n` rows over `C` classes, with the labels, ids and groups of the rows.

    Build one with `from_logits` or `from_probs`; nothing guesses which of the two an
    array holds. A slice, a mask or row numbers pick rows: ``p[mask]``.

    Attributes
    ----------
    logits : array (n, C), float16, float32 or float64
        As given, or the logarithm of the probabilities given.
    labels : integer array (n,), or None
        The true classes, 0 to C-1; -1 where the label is not known, -2 where the row
        belongs to no class (`with_outside`).
    from_probabilities : bool
        True where the logits are known only up to a constant per row. Scores that
        need true logits (energy, max_logit) refuse such predictions.
    class_names : tuple of str, or None
        One per class, in the order of the columns.
    ids : array (n,), or None
        The rows' ids.
    groups : array (n,) of integers or strings, or None
        The group of each row, for gates with a threshold per group.
    features : array (n, d), or None
        What the model saw in each row, for scores that need it.
    sum_error : float
        How far the farthest row of probabilities was from summing to 1.
    decisions : integer array (n,), or None
        The classes that the system itself decided on, if these are not those of the
        largest logits; -1 where it gave no answer.
    decided_by : str
        What made those decisions: "cutoff 0.3", or "predicted" if they were given.
    one_vs_rest : bool
        Whether the probabilities were each of one class against the rest, so that every
        row was divided by its sum.
    draw_design : str
        How the rows were drawn from a pool to be labelled, as `LabelDraw.to_text` says
        it; "" if they were not.

    Examples
    --------
    >>> p = Predictions.from_logits([[2.0, 0.5], [0.1, 0.3]], [0, 0])
    >>> p.predicted, p.errors
    (array([0, 1]), array([False,  True]))
    >>> p[p.errors]
    Predictions(1 row, 2 classes, logits, accuracy 0.00%)
    """

    row_fields: ClassVar[tuple[str, ...]] = (
        *("logits", "labels", "ids", "groups", "features", "decisions"),
    )
    """The fields that have one entry per row."""

    logits: Floats = field(repr=False)
    labels: NDArray[np.int64] | None = field(repr=False)
    from_probabilities: bool = False
    class_names: tuple[str, ...] | None = field(default=None, repr=False)
    ids: Array | None = field(default=None, repr=False)
    groups: Array | None = field(default=None, repr=False)
    features: Array | None = field(default=None, repr=False)
    sum_error: float = field(default=0.0, repr=False)
    decisions: NDArray[np.int64] | None = field(default=None, repr=False)
    decided_by: str = field(default="", repr=False)
    one_vs_rest: bool = field(default=False, repr=False)
    draw_design: str = field(default="", repr=False)

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
        predicted: ArrayLike | None = None,
        cutoff: float | None = None,
    ) -> "Predictions":
        """Take logits (n, C); -inf is allowed, NaN and +inf are not.

        Parameters
        ----------
        logits : array (n, C)
        labels : array (n,), optional
            Class numbers, or names if `class_names` are given; None or NaN where a row
            has none.
        class_names, ids, groups, features : optional
            See the attributes.
        predicted : array (n,), optional
            The system's own answers, if they are not always the class of the largest
            logit; numbers or names, None or NaN where it gave no answer. Errors and
            doubts are then those of these answers.
        cutoff : float, optional
            Of two classes, instead: the probability of the second class from which on
            the system answers it.

        Examples
        --------
        >>> Predictions.from_logits([[2.0, 0.5]], class_names=["cat", "dog"])
        Predictions(1 row, 2 classes, logits, no labels)
        >>> Predictions.from_logits([[1.0, 0.5]], [0], cutoff=0.3).errors
        array([ True])
        """
        array = _matrix(logits, "logits")
        if not np.isfinite(array).all():
            refuse_rows(np.isnan(array).any(1), "logits hold NaN")
            top = array.max(1)
            refuse_rows(top == np.inf, "logits hold +inf")
            refuse_rows(top == -np.inf, "every logit is -inf")
        refuse_probabilities(array)
        metadata = check_metadata(array.shape, class_names, ids, groups, features)
        label_numbers = number_labels(labels, *array.shape, names=metadata[0])
        decisions = system_decisions(array, predicted, cutoff, metadata[0], logits=True)
        return cls(array, label_numbers, False, *metadata, 0.0, *decisions)  # noqa: FBT003

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
        predicted: ArrayLike | None = None,
        cutoff: float | None = None,
        one_vs_rest: bool = False,
    ) -> "Predictions":
        """Take probabilities (n, C); a row may miss the sum 1 by 0.01.

        A row of few decimals may miss it by as much as their rounding explains, 0.05 at
        most. Stored are the logarithms, so a zero becomes -inf. A row that does not sum
        to exactly 1 counts as if it were divided by its sum. The parameters are those
        of `from_logits`, and

        one_vs_rest : bool
            Whether each value is the probability of one class against the rest: rows
            then sum to anything, and each is divided by its sum.

        Examples
        --------
        >>> Predictions.from_probs([[0.75, 0.25], [0.5, 0.5]], [0, 1]).predicted
        array([0, 0])
        """
        array = _matrix(probs, "probs")
        refuse_rows(np.isnan(array).any(1), "probabilities hold NaN")
        metadata = check_metadata(array.shape, class_names, ids, groups, features)
        names = metadata[0]
        decisions = system_decisions(array, predicted, cutoff, names, logits=False)
        if one_vs_rest:
            array = divide_by_sums(array)
        sum_error = largest_sum_error(array)
        if array.dtype == np.float16:
            array = array.astype(np.float32)
        with np.errstate(divide="ignore"):
            logits = np.log(array)
        label_numbers = number_labels(labels, *array.shape, names=names)
        return cls(
            logits,
            label_numbers,
            True,  # noqa: FBT003
            *metadata,
            sum_error,
            *decisions,
            one_vs_rest,
        )

    @staticmethod
    def from_confidence(  # noqa: PLR0913 - options, by keyword only
        confidence: ArrayLike,
        correct: ArrayLike | None = None,
        *,
        predicted: ArrayLike | None = None,
        labels: ArrayLike | None = None,
        ids: ArrayLike | None = None,
        groups: ArrayLike | None = None,
        features: ArrayLike | None = None,
    ) -> "Answers":
        """Take answers of any system with a confidence each, and no logits.

        Parameters
        ----------
        confidence : array (n,)
            Higher means trust more. Any numbers; those from 0 to 1 also count as
            probabilities of being right.
        correct : bool array (n,), optional
            Which answers are right; NaN or None where that is not known.
        predicted, labels : arrays (n,), optional
            Instead of `correct`: the answers and the true ones, as text or numbers. A
            row without an answer (None, NaN or "") counts as an error and is rejected
            whatever the threshold; it needs no confidence.
        ids, groups, features : optional
            See the attributes.

        Examples
        --------
        >>> p = Predictions.from_confidence([0.9, 0.4], [True, False])
        >>> p.doubts, p.errors
        (array([-0.9, -0.4]), array([False,  True]))
        """
        from trustdoctor.predictions.answers import make_answers

        return make_answers(
            confidence,
            correct,
            signal="confidence",
            predicted=predicted,
            labels=labels,
            ids=ids,
            groups=groups,
            features=features,
        )

    @staticmethod
    def from_doubt(
        doubt: ArrayLike, correct: ArrayLike | None = None, **options: Any
    ) -> "Answers":
        """Take answers with a doubt each: higher means trust less.

        Parameters are those of `from_confidence`.

        Examples
        --------
        >>> Predictions.from_doubt([0.1, 3.0], predicted=["a", "b"], labels=["a", "a"])
        Answers(2 rows, doubt, accuracy 50.00%)
        """
        from trustdoctor.predictions.answers import make_answers

        return make_answers(doubt, correct, signal="doubt", **options)

    @staticmethod
    def from_frame(table: Any, **columns: Any) -> "Predictions":
        """Take the columns of a pandas, polars or Arrow table.

        Parameters
        ----------
        table : DataFrame or Table
        columns
            The names of the columns, as in `trustdoctor.read`: probs="prob_" or a list,
            labels="y", confidence=..., positive=..., ...

        Examples
        --------
        >>> import polars as pl
        >>> table = pl.DataFrame({"cat": [0.9], "dog": [0.1], "y": ["cat"]})
        >>> Predictions.from_frame(table, probs=["cat", "dog"], labels="y")
        Predictions(1 row, 2 classes, probabilities, accuracy 100.00%)
        """
        from trustdoctor.files import from_frame

        return from_frame(table, **columns)

    @staticmethod
    def from_topk(  # noqa: PLR0913 - options, by keyword only
        probs: ArrayLike,
        classes: ArrayLike,
        labels: ArrayLike | None = None,
        *,
        log: bool = False,
        n_classes: int | None = None,
        open_rest: bool = False,
        ids: ArrayLike | None = None,
        groups: ArrayLike | None = None,
        features: ArrayLike | None = None,
    ) -> "Answers":
        """Take only the k best classes of each row, as remote models answer.

        Parameters
        ----------
        probs : array (n, k)
            Probabilities; 0 where a row names fewer classes.
        classes : integer array (n, k)
        labels : integer array (n,), optional
        log : bool
            Whether `probs` are log-probabilities.
        n_classes : int, optional
            The number of classes, if known: it narrows alpha's interval.
        open_rest : bool
            Whether the rest of the probability may belong to the named classes, too, as
            with a language model's tokens.
        ids, groups, features : optional
            See the attributes.

        Examples
        --------
        >>> p = Predictions.from_topk([[0.7, 0.2]], [[4, 1]], n_classes=10)
        >>> [end.round(3).tolist() for end in p.interval("alpha")]
        [[-0.16], [-0.125]]
        """
        from trustdoctor.predictions.answers import make_topk

        return make_topk(
            probs,
            classes,
            labels,
            log=log,
            n_classes=n_classes,
            open_rest=open_rest,
            ids=ids,
            groups=groups,
            features=features,
        )

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.logits)

    def __getitem__(self, rows: Any) -> "Predictions":
        """Return the rows of a slice, a mask, or row numbers."""
        selection = row_numbers(rows, len(self))
        columns = {name: getattr(self, name) for name in self.row_fields}
        selected: dict[str, Any] = {
            name: None if column is None else column[selection]
            for name, column in columns.items()
        }
        return replace(self, **selected)

    def __repr__(self) -> str:
        """Describe the predictions in one line."""
        size = "1 row" if len(self) == 1 else f"{len(self):,} rows"
        kind = f"{self.n_classes} classes, {self._kind}"
        kind = kind if self.n_classes else self.row_kind
        text = f"{type(self).__name__}({size}, {kind}"
        labelled = int(self.has_label.sum())
        if self.labels is None:
            return f"{text}, no labels)"
        if not labelled:
            return f"{text})"
        coverage = "" if labelled == len(self) else f" of {labelled:,} with labels"
        accuracy = 1 - self.labelled("accuracy").errors.mean()
        return f"{text}, accuracy {accuracy:.2%}{coverage})"

    @property
    def row_kind(self) -> str:
        """What a row holds, in words."""
        return f"{self._kind} of {self.n_classes} classes"

    @property
    def _kind(self) -> str:
        return "probabilities" if self.from_probabilities else "logits"

    @property
    def n_classes(self) -> int:
        """The number of classes, C."""
        return int(self.logits.shape[1])

    @cached_property
    def predicted(self) -> NDArray[np.int64]:
        """The class of each row: the system's decision, or the first largest logit.

        -1 where the system gave no answer.
        """
        return argmax(self.logits) if self.decisions is None else self.decisions

    @cached_property
    def abstained(self) -> Bools:
        """True where the system gave no answer: an error that every gate rejects."""
        if self.decisions is None:
            return np.zeros(len(self), bool)
        return np.asarray(self.decisions == UNKNOWN)

    @property
    def always_rejected(self) -> Bools | None:
        """True where a row is rejected whatever the threshold; None if no row is."""
        return None if self.decisions is None else self.abstained

    @property
    def ambiguous(self) -> Bools | None:
        """True where the answer itself is not certain; None if every answer is."""
        return None

    @property
    def answers_known(self) -> bool:
        """Whether it is known what each answer is, and not only whether it is right."""
        return True

    @property
    def correctness_only(self) -> bool:
        """Whether labels tell only which answers are right, and not the true ones."""
        return False

    def without_decisions(self) -> "Predictions":
        """Return the same rows, predicted as the class of the largest logit.

        Examples
        --------
        >>> p = Predictions.from_probs([[0.6, 0.4]], cutoff=0.3)
        >>> p.predicted, p.without_decisions().predicted
        (array([1]), array([0]))
        """
        if self.decisions is None:
            return self
        return replace(self, decisions=None, decided_by="")

    @property
    def predicted_names(self) -> Array | None:
        """The predicted classes by name; their numbers if they have no names.

        Empty where the system gave no answer.
        """
        if self.class_names is None:
            return self.predicted
        return np.array([*self.class_names, ""], dtype=object)[self.predicted]

    def with_outside(self, rows: "Predictions | ArrayLike") -> "Predictions":
        """Return these rows and others that belong to no class, for mixed evaluations.

        Whatever is predicted for those is an error, so a score has to find both the
        model's own errors and the rows that it should never have been asked about.
        Calibration errors, NLL and the Brier score remain those of the rows within.

        Parameters
        ----------
        rows : Predictions, or array (m, C)
            Of the same model, with the same classes; an array holds what these
            predictions hold, logits or probabilities. Labels, if any, do not count.

        Examples
        --------
        >>> p = Predictions.from_logits([[2.0, 0.5], [0.1, 0.3]], [0, 1])
        >>> mixed = p.with_outside([[3.0, 2.9]])
        >>> mixed.errors, mixed.outside
        (array([False, False,  True]), array([False, False,  True]))
        """
        labels = self.require_labels("rows outside of all classes")
        if isinstance(rows, Predictions):
            others = rows
        elif self.from_probabilities:
            others = Predictions.from_probs(rows)
        else:
            others = Predictions.from_logits(rows)
        kinds = [(p.n_classes, p.from_probabilities) for p in (self, others)]
        if kinds[0] != kinds[1] or self.decisions is not None:
            message = (
                f"expected rows like these ({self.row_kind}, without decisions of "
                f"their own), got {others.row_kind}."
            )
            raise InputError(message)
        joined: dict[str, Any] = {}
        for name in ("ids", "groups", "features"):
            both = [getattr(p, name) for p in (self, others)]
            missing = any(values is None for values in both)
            joined[name] = None if missing else np.concatenate(both)
        outside = np.full(len(others), OUTSIDE)
        return replace(
            self,
            logits=np.concatenate([self.logits, others.logits]),
            labels=np.concatenate([labels, outside]),
            **joined,
        )

    @cached_property
    def outside(self) -> Bools:
        """True where a row belongs to no class."""
        if self.labels is None:
            return np.zeros(len(self), bool)
        return np.asarray(self.labels == OUTSIDE)

    @property
    def inside(self) -> "Predictions":
        """The rows that are not outside of all classes."""
        return self[~self.outside] if self.outside.any() else self

    @cached_property
    def has_label(self) -> Bools:
        """True where a row has a label."""
        if self.labels is None:
            return np.zeros(len(self), bool)
        return np.asarray(self.labels != UNKNOWN)

    def labelled(self, task: str) -> "Predictions":
        """Return the rows with a label, or raise an error that `task` needs labels.

        Examples
        --------
        >>> p = Predictions.from_probs([[0.9, 0.1], [0.4, 0.6]], [0, None])
        >>> len(p), len(p.labelled("accuracy"))
        (2, 1)
        """
        if self.labels is None:
            raise LabelsMissingError(self._labels_missing_message(task))
        return self if self.has_label.all() else self[self.has_label]

    def _labels_missing_message(self, task: str) -> str:
        return (
            f"{task} needs the true labels, and these predictions have none. "
            "Pass labels, or add a label column to the file."
        )

    @cached_property
    def errors(self) -> Bools:
        """True where the prediction is wrong; every row needs a label."""
        return self.predicted != self.require_labels("finding errors")

    def require_labels(self, task: str) -> NDArray[np.int64]:
        """Return the labels, or raise an error that `task` needs one for every row."""
        if self.labels is None:
            raise LabelsMissingError(self._labels_missing_message(task))
        if not self.has_label.all():
            missing = int((~self.has_label).sum())
            message = (
                f"{task} needs the true label of every row, and {missing:,} of "
                f"{len(self):,} have none. Use p.labelled({task!r})."
            )
            raise LabelsMissingError(message)
        return self.labels


@dataclass(frozen=True, eq=False)
class Opinions:
    """Predictions for rows and for all their views.

    Attributes
    ----------
    predictions : Predictions
        For the clean input; these are judged.
    doubts : array (n, passes)
        The doubt after the first pass, after the second, ...
    answers : array (n, passes)
        The class that each view by itself would get.
    confidence : array (n, passes)
        The largest probability of each view by itself.

    Examples
    --------
    >>> p = Predictions.from_logits([[2.0, 0.0]])
    >>> doubts = np.array([[-2.0, -1.0]])
    >>> Opinions(p, doubts, np.zeros((1, 2), int), np.array([[0.88, 0.73]])).scores
    array([-1.])
    """

    predictions: Predictions
    doubts: Array = field(repr=False)
    answers: NDArray[np.int64] = field(repr=False)
    confidence: Array = field(repr=False)

    @property
    def scores(self) -> Array:
        """The doubt after all passes."""
        return self.doubts[:, -1]


def require_predictions(value: Any) -> None:
    """Refuse arrays where predictions are expected, naming the ways to make them."""
    if not isinstance(value, Predictions):
        message = (
            f"expected Predictions, got {type(value).__name__}. Build them with "
            "Predictions.from_logits or from_probs."
        )
        raise InputError(message)


def require_all_classes(predictions: Any, task: str) -> None:
    """Refuse answers, which give no probability to every class, for a task.

    Examples
    --------
    >>> require_all_classes(Predictions.from_probs([[0.6, 0.4]]), "tuning")
    """
    require_predictions(predictions)
    if not predictions.n_classes:
        message = (
            f"{task} needs the logits or probabilities of every class, got answers "
            f"with their {predictions.row_kind}. Build them with "
            "Predictions.from_logits or from_probs."
        )
        raise InputError(message)


def _matrix(values: Any, name: str) -> Floats:
    array = to_numpy(values)
    if array.ndim == 1 and array.dtype.kind in "fiu" and name == "probs":
        message = (
            f"expected probs of every class (n, C), got {describe(array)}. If p is the "
            "probability of the second of two classes: np.column_stack([1 - p, p])."
        )
        raise InputError(message)
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
    if array.dtype not in (np.float16, np.float32, np.float64):
        array = array.astype(np.float64)
    return read_only(array, values)


def check_metadata(
    shape: tuple[int, ...], class_names: Any, ids: Any, groups: Any, features: Any
) -> tuple[tuple[str, ...] | None, Array | None, Array | None, Array | None]:
    """Check the names of the classes, and the ids, groups and features of the rows."""
    rows, classes = shape
    names = None if class_names is None else tuple(map(plain_name, class_names))
    if names is not None and not len(names) == len(set(names)) == classes:
        message = (
            f"expected {classes} different class names, one per column, got "
            f"{len(names)} ({len(set(names))} different)."
        )
        raise InputError(message)
    id_array = None if ids is None else to_numpy(ids)
    if id_array is not None and id_array.shape != (rows,):
        message = f"expected {rows} ids, one per row, got {describe(id_array)}."
        raise InputError(message)
    return (
        names,
        None if id_array is None else read_only(id_array, ids),
        None if groups is None else read_only(as_groups(groups, rows=rows), groups),
        None if features is None else as_features(features, rows=rows),
    )
