"""Answers: rows without logits, with a confidence, a doubt or the k best classes."""

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from trustdoctor.arrays import (
    Array,
    Bools,
    Floats,
    as_labels,
    describe,
    refuse_rows,
    to_numpy,
)
from trustdoctor.errors import InputError
from trustdoctor.predictions.labels import (
    UNKNOWN,
    as_entries,
    comparable_name,
    number_correct,
)
from trustdoctor.predictions.predictions import Predictions, check_metadata

Signal = Literal["confidence", "doubt", "topk"]
"""What came with each answer: one number, or probabilities of the k best classes."""

TOPK_SCORES = ("alpha", "beta", "msp")
"""The scores that the probabilities of the k best classes bound."""

TOPK_TOLERANCE = 0.01
"""By how much top-k probabilities may exceed 1, or what the other classes can hold."""

Ends = tuple[Floats, Floats]
ClassNumbers = NDArray[np.int64]


@dataclass(frozen=True, eq=False, repr=False)
class Answers(Predictions):
    """Answers of any system, each with a confidence, a doubt, or its k best classes.

    Build them with `Predictions.from_confidence`, `from_doubt` or `from_topk`. They
    have no logits: `n_classes` is 0 and `logits` is empty.

    Attributes
    ----------
    doubts : array (n,)
        By the first of `scores`: minus the confidence, the doubt as it was given, or
        alpha of the k best classes. inf where an answer is ambiguous or missing.
    signal : str
        What came with each answer: "confidence", "doubt" or "topk".
    answer_codes : integer array (n,)
        The answers as numbers of `class_names`, or as class numbers of top-k answers;
        -1 where there is none. Without names and classes all are 0, and labels are 0
        where the answer is right and 1 where it is wrong.
    ambiguous : bool array (n,), or None
        Where the answer itself is not certain: such rows are always rejected.
    correctness_only : bool
        Whether it is known only which answers are right, and not the true ones.
    top : TopClasses, or None
        The k best classes of each row and their probabilities.

    Examples
    --------
    >>> p = Predictions.from_confidence([0.9, 0.4], correct=[True, False])
    >>> p
    Answers(2 rows, confidence, accuracy 50.00%)
    >>> p = Predictions.from_topk([[0.7, 0.2]], [[4, 1]], n_classes=10)
    >>> p.predicted, p.doubt("beta").round(3)
    (array([4]), array([-0.847]))
    """

    row_fields: ClassVar[tuple[str, ...]] = (
        *Predictions.row_fields,
        *("doubts", "answer_codes", "ambiguous", "top"),
    )

    doubts: Floats = field(default_factory=lambda: np.zeros(0), repr=False)
    signal: Signal = "confidence"
    answer_codes: ClassNumbers = field(
        default_factory=lambda: np.zeros(0, np.int64), repr=False
    )
    ambiguous: Bools | None = field(default=None, repr=False)
    correctness_only: bool = field(default=False, repr=False)
    top: "TopClasses | None" = field(default=None, repr=False)

    @property
    def scores(self) -> tuple[str, ...]:
        """The names of the scores that the signal gives, the default one first."""
        return (self.signal,) if self.signal != "topk" else TOPK_SCORES

    def doubt(self, score: str) -> Floats:
        """Return the doubt of each row by one of `scores`.

        Of top-k answers it is the upper end of the interval, so that a decision errs on
        the side of doubt; inf where an answer is ambiguous.
        """
        if self.top is None:
            return self.interval(score)[1]
        upper = self.top.interval(score)[1]
        return (
            upper if self.ambiguous is None else np.where(self.ambiguous, np.inf, upper)
        )

    def interval(self, score: str) -> Ends:
        """Return the lowest and the highest score that each row may have.

        Parameters
        ----------
        score : str
            One of `scores`; of top-k answers at temperature 1.
        """
        if self.top is not None:
            return self.top.interval(score)
        if score != self.signal:
            message = f"these answers have the score {self.signal}, got {score!r}."
            raise InputError(message)
        return self.doubts, self.doubts

    @property
    def n_classes(self) -> int:
        """0: nobody knows what else could have been answered."""
        return 0

    @property
    def predicted(self) -> ClassNumbers:
        """The answers, as numbers of `class_names` or of classes."""
        return self.answer_codes

    @property
    def predicted_names(self) -> Array | None:
        """The answers themselves; None if they are not known."""
        return super().predicted_names if self.answers_known else None

    @property
    def answers_known(self) -> bool:
        """Whether it is known what each answer is, and not only whether it is right."""
        return self.class_names is not None or self.top is not None

    @cached_property
    def abstained(self) -> Bools:
        """True where there is no answer: an error that every gate rejects."""
        return np.asarray(self.answer_codes == UNKNOWN)

    @property
    def always_rejected(self) -> Bools | None:
        """True where a row is rejected whatever the threshold; None if no row is."""
        if self.top is not None:
            return self.ambiguous
        rejected = np.isposinf(self.doubts)
        return rejected if rejected.any() else None

    @property
    def confidence(self) -> Floats | None:
        """The confidence, if it can be a probability; else None.

        Of top-k answers, the probability of the best class. 0 where a row is rejected
        whatever the threshold.
        """
        if self.signal == "doubt":
            return None
        confidence = (
            -self.doubts if self.top is None else self.top.probs[:, 0]
        ).astype(np.float64)
        if self.always_rejected is not None:
            confidence[self.always_rejected] = 0.0
        return confidence if ((confidence >= 0) & (confidence <= 1)).all() else None

    def _labels_missing_message(self, task: str) -> str:
        if self.top is not None:
            return f"{task} needs the true labels: from_topk(..., labels)."
        return (
            f"{task} needs to know which answers are right. Pass correct, or predicted "
            "and labels; on the command line --correct NAME, or --predicted NAME with "
            "--labels NAME."
        )

    @property
    def row_kind(self) -> str:
        """What a row holds, in words."""
        return self.signal if self.top is None else f"top {self.top.k} classes"


def make_answers(  # noqa: PLR0913 - options, by keyword only
    values: Any,
    correct: Any = None,
    *,
    signal: Literal["confidence", "doubt"],
    predicted: Any = None,
    labels: Any = None,
    ids: Any = None,
    groups: Any = None,
    features: Any = None,
    missing: Bools | None = None,
    ambiguous: Bools | None = None,
) -> Answers:
    """Check answers with a confidence or a doubt; see `Predictions.from_confidence`.

    The doubt is inf where the confidence is `missing`, and where the answer is
    `ambiguous`.
    """
    array = _signal_values(values, signal)
    rows = len(array)
    without_doubt = np.zeros(rows, bool) if missing is None else missing
    if ambiguous is not None:
        without_doubt = without_doubt | ambiguous
    if correct is not None and labels is not None:
        message = "expected correct, or predicted and labels, got both. Pass one."
        raise InputError(message)
    if labels is not None and predicted is None:
        message = "labels need the answers beside them: pass predicted, or correct."
        raise InputError(message)
    names, codes = None, np.zeros(rows, np.int64)
    label_codes = number_correct(correct, rows)
    if predicted is not None:
        texts = [_texts(predicted, rows, "predicted")]
        texts += [] if labels is None else [_texts(labels, rows, "labels")]
        without_doubt = without_doubt | (texts[0] == "")
        names, text_codes = _codes(np.concatenate(texts))
        codes = text_codes[:rows]
        if labels is None:
            label_codes = _labels_of_correctness(codes, label_codes)
        elif (text_codes[rows:] != UNKNOWN).any():
            label_codes = text_codes[rows:]
    metadata = check_metadata((rows, 0), None, ids, groups, features)
    return Answers(
        np.zeros((rows, 0)),
        label_codes,
        False,  # noqa: FBT003
        names,
        *metadata[1:],
        doubts=_doubts(array, signal, without_doubt),
        signal=signal,
        answer_codes=codes,
        ambiguous=ambiguous,
        correctness_only=labels is None,
    )


def _codes(texts: NDArray[Any]) -> tuple[tuple[str, ...], ClassNumbers]:
    """Return the names in order, and the number of each text; blanks are unknown."""
    names, codes = np.unique(texts, return_inverse=True)
    blank = int(names[0] == "")
    codes = np.where(codes < blank, UNKNOWN, codes - blank)
    return tuple(names[blank:].tolist()), codes.astype(np.int64)


def _labels_of_correctness(
    codes: ClassNumbers, wrong: ClassNumbers | None
) -> ClassNumbers | None:
    """Return labels that equal the answers where these are right, and differ elsewhere.

    What would have been right is not known, so a wrong answer's label is a number
    beyond all names. A missing answer is never right.
    """
    if wrong is None:
        return None
    other = int(codes.max()) + 1
    missed = (wrong == 1) | (codes == UNKNOWN)
    return np.where(wrong == UNKNOWN, UNKNOWN, np.where(missed, other, codes))


def _signal_values(values: Any, signal: Signal) -> Floats:
    array = to_numpy(values)
    if array.ndim != 1 or array.dtype.kind not in "fiu" or not len(array):
        message = (
            f"expected {signal} as numbers of shape (n,), one per row, got "
            f"{describe(array)}."
        )
        raise InputError(message)
    if array.dtype not in (np.float32, np.float64):
        array = array.astype(np.float64)
    return array


def _doubts(values: Floats, signal: Signal, without_doubt: Bools) -> Floats:
    """Return doubts; inf where there is no answer, or no number that counts."""
    refuse_rows(np.isnan(values) & ~without_doubt, f"the {signal} is NaN")
    if signal == "confidence":
        infinite = np.isinf(values) & ~without_doubt
        refuse_rows(infinite, "the confidence is infinite")
        values = -values
    return np.where(without_doubt, np.inf, values).astype(values.dtype, copy=False)


def _texts(values: Any, rows: int, name: str) -> NDArray[Any]:
    """Return names as text, "" where one is missing."""
    array = as_entries(values)
    if array.shape != (rows,):
        message = f"expected {rows} {name}, one per row, got {describe(array)}."
        raise InputError(message)
    return np.array([comparable_name(value) for value in array.tolist()], dtype=str)


@dataclass(frozen=True, eq=False)
class TopClasses:
    """The k best classes of `n` rows with their probabilities, best first.

    How the rest of the probability is distributed is not known, so a score is an
    interval: its ends are the scores of the distributions that are most and least
    favourable among those that fit.

    Attributes
    ----------
    probs : array (n, k)
        Descending; 0 where a row names fewer classes.
    classes : array (n, k)
    not_top : array (n,)
        1 - p of the best class, exact also where p is next to 1.
    n_classes : int or None
        The number of classes, if that is known.
    open_rest : bool
        Whether the rest of the probability may belong to the named classes, too, as
        with a language model's tokens; else it belongs to other classes, each with at
        most the least probability named.
    """

    probs: Floats = field(repr=False)
    classes: ClassNumbers = field(repr=False)
    not_top: Floats = field(repr=False)
    n_classes: int | None = None
    open_rest: bool = False

    def __getitem__(self, rows: Any) -> "TopClasses":
        """Return the rows of a slice, a mask, or row numbers."""
        return TopClasses(
            self.probs[rows],
            self.classes[rows],
            self.not_top[rows],
            self.n_classes,
            self.open_rest,
        )

    @property
    def k(self) -> int:
        """The number of classes named per row."""
        return int(self.probs.shape[1])

    @property
    def rest(self) -> Floats:
        """The probability that no named class has."""
        return np.maximum(0.0, self.not_top - self.probs[:, 1:].sum(1))

    @property
    def ambiguous(self) -> Bools:
        """Where the rest could make another class the best."""
        if not self.open_rest:
            return np.zeros(len(self.probs), bool)
        second = self.probs[:, 1] if self.k > 1 else 0.0
        return np.asarray(second + self.rest >= self.probs[:, 0]) & (self.rest > 0)

    def interval(self, score: str) -> Ends:
        """Return the lowest and the highest score that each row may have."""
        if score not in TOPK_SCORES:
            message = (
                f"top-k answers have the scores {', '.join(TOPK_SCORES)}, got "
                f"{score!r}."
            )
            raise InputError(message)
        if score == "alpha":
            lowest, highest = self._sums_of_squares()
            return self._alpha(highest), self._alpha(lowest)
        for_named = self.rest if self.open_rest else 0.0
        not_top = np.maximum(0.0, self.not_top - for_named), self.not_top
        with np.errstate(divide="ignore"):
            low, high = (np.log(end) for end in not_top)
            if score == "msp":
                return low, high
            top = self.probs[:, 0]
            return (
                low - np.log(np.minimum(1.0, top + for_named)),
                high - np.log(top),
            )

    def _alpha(self, squares: Floats) -> Floats:
        """Return log((1 - g) / g) for g = p^2 + `squares`, p the top probability."""
        # 1 - p^2 = (1 - p) (1 + p) keeps its digits where p is next to 1.
        impurity = self.not_top * (2 - self.not_top) - squares
        with np.errstate(divide="ignore"):
            return np.log(np.maximum(impurity, 0.0)) - np.log1p(
                -np.clip(impurity, 0.0, 1.0)
            )

    def _sums_of_squares(self) -> Ends:
        """Return the least and the greatest sum of the other classes' squares.

        Sums of squares are convex: spreading the rest evenly makes them least, and
        giving it to as few classes as possible, greatest.
        """
        named = (self.probs[:, 1:] ** 2).sum(1)
        mass = self.rest
        if self.open_rest:
            top = self.probs[:, 0]
            return self._levelled_squares() - top**2, named + mass * (2 * top + mass)
        k = (self.probs > 0).sum(1)
        n_unnamed = np.inf if self.n_classes is None else self.n_classes - k
        least_named = self.probs[np.arange(len(self.probs)), np.maximum(k - 1, 0)]
        with np.errstate(divide="ignore", invalid="ignore"):
            spread = np.where(n_unnamed > 0, mass**2 / n_unnamed, 0.0)
            full = np.where(least_named > 0, np.floor(mass / least_named), 0.0)
        remainder = mass - full * least_named
        greatest = named + full * least_named**2 + remainder**2
        return np.minimum(named + spread, greatest), greatest

    def _levelled_squares(self) -> Floats:
        """Return the least sum of squares if the rest may go to any class.

        By water-filling: the rest raises the smallest probabilities to a common level.
        Without a number of classes it spreads over arbitrarily many and adds nothing.
        """
        if self.n_classes is None:
            return np.asarray((self.probs**2).sum(1))
        rows = len(self.probs)
        probs = np.zeros((rows, self.n_classes))
        probs[:, : self.k] = self.probs
        probs = np.sort(probs, axis=1)
        sums = np.cumsum(probs, axis=1)
        sizes = np.arange(1, self.n_classes + 1)
        levels = (self.rest[:, None] + sums) / sizes
        above = np.concatenate([probs[:, 1:], np.full((rows, 1), np.inf)], axis=1)
        filled = np.argmax(levels <= above, axis=1)
        level = levels[np.arange(rows), filled]
        return np.asarray((np.maximum(probs, level[:, None]) ** 2).sum(1))


def make_topk(  # noqa: PLR0913 - options, by keyword only
    probs: Any,
    classes: Any,
    labels: Any = None,
    *,
    log: bool = False,
    n_classes: int | None = None,
    open_rest: bool = False,
    ids: Any = None,
    groups: Any = None,
    features: Any = None,
) -> Answers:
    """Check top-k answers and put them in order; see `Predictions.from_topk`."""
    p, c = _topk_arrays(probs, classes)
    if n_classes is not None and (type(n_classes) is not int or n_classes < 2):
        message = f"expected n_classes as a whole number above 1, got {n_classes!r}."
        raise InputError(message)
    not_top = -np.expm1(p) if log else 1 - p
    p = np.exp(p) if log else p
    _check_topk_rows(p, c, n_classes)
    order = np.argsort(-p, axis=1, kind="stable")
    p, c, not_top = (np.take_along_axis(array, order, 1) for array in (p, c, not_top))
    total = p.sum(1, keepdims=True)
    complete = p.shape[1] == n_classes and not open_rest
    divided = (total > 1) | complete
    p = p / np.where(divided, total, 1.0)
    named = p[:, 1:].sum(1)
    exact_not_top = np.where(
        divided[:, 0], named, np.maximum(np.clip(not_top[:, 0], 0, 1), named)
    )
    top = TopClasses(p, c, exact_not_top, n_classes, open_rest)
    _check_rest(top)
    ambiguous = top.ambiguous if open_rest else None
    doubts = top.interval(TOPK_SCORES[0])[1]
    rows = len(p)
    metadata = check_metadata((rows, 0), None, ids, groups, features)
    return Answers(
        np.zeros((rows, 0)),
        _topk_labels(labels, c, n_classes),
        False,  # noqa: FBT003
        None,
        *metadata[1:],
        doubts=doubts if ambiguous is None else np.where(ambiguous, np.inf, doubts),
        signal="topk",
        answer_codes=c[:, 0],
        ambiguous=ambiguous,
        top=top,
    )


def _topk_arrays(probs: Any, classes: Any) -> tuple[Floats, ClassNumbers]:
    try:
        p = np.asarray(to_numpy(probs), np.float64)
        c = np.asarray(to_numpy(classes))
    except (TypeError, ValueError) as error:
        message = f"expected probabilities and classes as numbers (n, k): {error}."
        raise InputError(message) from error
    if p.ndim != 2 or p.shape != c.shape or not p.size or c.dtype.kind not in "iu":
        message = (
            f"expected probabilities (n, k) and classes (n, k) as whole numbers, got "
            f"shapes {p.shape} and {c.shape} ({c.dtype})."
        )
        raise InputError(message)
    return p, c.astype(np.int64)


def _topk_labels(
    labels: Any, classes: ClassNumbers, n_classes: int | None
) -> ClassNumbers | None:
    if labels is None:
        return None
    array = np.asarray(to_numpy(labels))
    width = n_classes
    if width is None and array.dtype.kind in "iu":
        width = max(int(classes.max()), int(array.max(initial=0))) + 1
    return as_labels(array, len(classes), width or int(classes.max()) + 1)


def _check_rest(top: TopClasses) -> None:
    """Refuse a rest that the unnamed classes, each below the least, cannot hold."""
    if top.open_rest or top.n_classes is None:
        return
    k = (top.probs > 0).sum(1)
    least = top.probs[np.arange(len(k)), k - 1]
    room = (top.n_classes - k) * least
    over = top.rest > room * (1 + 1e-6) + TOPK_TOLERANCE
    if over.any():
        row = int(np.argmax(over))
        message = (
            f"row {row} leaves {top.rest[row]:.3g} to {top.n_classes - k[row]} classes "
            f"of at most {least[row]:.3g} each: these are not its best, or n_classes "
            "is too small. Pass open_rest=True if the rest may belong to any class."
        )
        raise InputError(message)


def _check_topk_rows(p: Floats, c: ClassNumbers, n_classes: int | None) -> None:
    sums = p.sum(1)
    valid = (p >= 0).all(1) & (p.max(1) > 0) & (sums <= 1 + TOPK_TOLERANCE)
    if not valid.all():
        row = int(np.argmin(valid))
        message = (
            f"expected probabilities of 0 or more that sum to at most 1, got "
            f"{p[row].tolist()} in row {row}. Pass log=True for log-probabilities."
        )
        raise InputError(message)
    if c.min() < 0 or (n_classes is not None and c.max() >= n_classes):
        message = (
            f"expected classes from 0 to {n_classes or 'C'} - 1, got {c.min()} to "
            f"{c.max()}."
        )
        raise InputError(message)
    named = np.sort(np.where(p > 0, c, -1 - np.arange(c.shape[1])), axis=1)
    repeated = (np.diff(named, axis=1) == 0).any(1)
    if repeated.any():
        row = int(np.argmax(repeated))
        message = f"expected different classes in a row, row {row} has one twice."
        raise InputError(message)
