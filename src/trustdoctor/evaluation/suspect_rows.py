"""Single rows to look at: labels the model does not believe, and rows given twice."""

from typing import TYPE_CHECKING, Any

import numpy as np

from trustdoctor.arrays import Array, as_features, to_numpy
from trustdoctor.errors import InputError
from trustdoctor.evaluation.suspicions import LabelCounts, SuspectedPair
from trustdoctor.metrics import calibration_rows
from trustdoctor.predictions import Answers, Predictions, require_predictions

if TYPE_CHECKING:
    import polars as pl

_BLOCK = 1 << 14  # rows hashed at a time
_LONG = 40  # characters of a text that a message shows


def label_quality(predictions: Predictions, *, temperature: float = 1.0) -> Array:
    """Return log p(label) of each row (n,): the lower, the more suspicious the label.

    It is taken from the logits, so rows differ where their probabilities would be
    rounded to 0 or 1. It is -inf where a probability of 0 was given, and NaN where a
    row has no label.

    Parameters
    ----------
    predictions : Predictions
        With labels. For the mean over several views of each row, build them with
        `Predictions.from_logits` from the mean of the views' log-probabilities.
    temperature : float
        Divides the logits.

    References
    ----------
    Northcutt et al., Confident Learning: Estimating Uncertainty in Dataset Labels, JAIR
    2021; its exponential is called self-confidence there.

    Examples
    --------
    >>> p = Predictions.from_probs([[0.9, 0.1], [0.8, 0.2], [0.6, 0.4]], [0, 1, 1])
    >>> label_quality(p).round(3).tolist()
    [-0.105, -1.609, -0.916]
    >>> np.argsort(label_quality(p))[:2].tolist()  # the two to look at first
    [1, 2]

    With the mean over views, here of shape (views, n, C):

    >>> from scipy.special import log_softmax
    >>> views = np.array([[[3.0, 0], [2, 0]], [[3, 1], [0, 1]]])
    >>> p = Predictions.from_logits(log_softmax(views, -1).mean(0), [0, 1])
    >>> label_quality(p).round(3).tolist()
    [-0.079, -0.974]
    """
    require_predictions(predictions)
    predictions.labelled("label quality")
    if not predictions.n_classes:
        message = (
            "expected logits or probabilities, got answers with one confidence each. "
            "Label quality is the probability of the label: give those of all classes."
        )
        raise InputError(message)
    known = predictions.known
    out = np.full(len(known), np.nan)
    if known.any():
        rows = predictions if known.all() else predictions[known]
        out[known] = -calibration_rows(rows, temperature=temperature).nll
    return out


def count_labels(
    counts: LabelCounts, predictions: Predictions, doubts: dict[str, Array]
) -> None:
    """Count the labels of rows that all have one; `doubts` hold beta of the rows.

    Examples
    --------
    >>> p, counts = Predictions.from_logits([[2.0, 0], [1, 0]], [0, 1]), LabelCounts()
    >>> count_labels(counts, p, {"beta": np.array([-2.0, -1.0])})
    >>> len(counts), counts.n_right
    (2, 1)
    """
    labels = predictions.require_labels("counting labels")
    names, answered = None, ~predictions.abstained
    if isinstance(predictions, Answers):
        names = None if predictions.judged else predictions.class_names
        confidence = predictions.confidence
    else:
        with np.errstate(over="ignore"):
            confidence = 1 / (1 + np.exp(doubts["beta"]))
    if not answered.all():
        predictions, labels = predictions[answered], labels[answered]
        confidence = None if confidence is None else confidence[answered]
    counts.update(
        labels, predictions.predicted, confidence, predictions.n_classes, names=names
    )


def suspected_rows(predictions: Predictions, pair: SuspectedPair) -> Array:
    """Return the rows of a pair (k,), the most suspicious first.

    Answers without probabilities come in their own order.

    Examples
    --------
    >>> p = Predictions.from_logits([[0.0, 2], [0, 5], [3, 0]], [0, 0, 0])
    >>> suspected_rows(p, SuspectedPair(0, 1, 2, 3, 0.94, 0.95)).tolist()
    [1, 0]
    """
    labels = predictions.require_labels("finding the rows of a pair")
    names = predictions.class_names or ()
    label, predicted = (
        names.index(of) if isinstance(of, str) else of
        for of in (pair.label, pair.predicted)
    )
    rows = np.flatnonzero((labels == label) & (predictions.predicted == predicted))
    if len(rows) and predictions.n_classes:
        rows = rows[np.argsort(label_quality(predictions[rows]), kind="stable")]
    return rows


def repeats(
    ids: Any = None, texts: Any = None, features: Any = None
) -> tuple[str, ...]:
    """Say in one line each how many ids, texts and rows of features come again.

    Parameters
    ----------
    ids, texts : arrays (n,), optional
        None and NaN are missing, and do not count.
    features : array (n, d), optional
        Rows are the same where all their numbers are equal.

    Examples
    --------
    >>> print(*repeats(ids=["a", "b", "a"]))
    1 row repeats the id of an earlier row, the first 'a' at rows 0 and 2: check that \
no row is counted twice.
    >>> repeats(features=[[1.0, 2.0], [2.0, 1.0]])
    ()
    """
    out = []
    for what, values in (("id", ids), ("text", texts)):
        if values is not None:
            series = _series(values)
            if series.null_count() == len(series):
                continue
            again = (~series.is_first_distinct() & series.is_not_null()).to_numpy()
            if again.any():
                *before, own = series.head(int(again.argmax()) + 1).to_list()
                out.append(_again(what, again, before.index(own), f" {_short(own)}"))
    if features is not None:
        x = as_features(features) + 0.0  # -0 equals 0, and has other bits
        again = _again_rows(x)
        if again.any():
            first = int((x == x[again.argmax()]).all(1).argmax())
            out.append(_again("features", again, first, ""))
    return tuple(out)


def _again(what: str, again: Array, first: int, which: str) -> str:
    n = int(again.sum())
    rows = "1 row repeats" if n == 1 else f"{n:,} rows repeat"
    return (
        f"{rows} the {what} of an earlier row, the first{which} at rows {first} and "
        f"{int(again.argmax())}: check that no row is counted twice."
    )


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _LONG else f"{text[:_LONG]}..."


def _series(values: Any) -> "pl.Series":
    """Return values that polars compares fast; null where one is missing."""
    import polars as pl

    array = to_numpy(values)
    if array.ndim != 1:
        message = f"expected one id or text per row, got an array {array.shape}."
        raise InputError(message)
    if array.dtype.kind in "biu":
        return pl.Series(array)
    if array.dtype.kind == "f":
        return pl.Series(array).fill_nan(None)
    missing = ("NoneType", "NAType", "NaTType")
    plain = [
        None if type(v).__name__ in missing or v != v else v for v in array.tolist()
    ]
    return pl.Series(plain, strict=False)


def _again_rows(x: Array) -> Array:
    """Tell which rows are equal to an earlier one: by hashes, then exactly."""
    import polars as pl

    again = np.zeros(len(x), bool)
    if not x.shape[1]:
        return again
    bits = np.ascontiguousarray(x).view(np.uint64)
    draw = np.random.default_rng(0)
    odd = draw.integers(1 << 63, size=x.shape[1], dtype=np.uint64) * 2 + 1
    hashes = np.empty(len(x), np.uint64)
    for start in range(0, len(x), _BLOCK):
        part = bits[start : start + _BLOCK]
        # The low bits of numbers with few digits are 0, and would stay so.
        hashes[start : start + _BLOCK] = (part ^ (part >> np.uint64(32))) @ odd
    alike = np.flatnonzero(pl.Series(hashes).is_duplicated().to_numpy())
    exact = pl.Series([row.tobytes() for row in bits[alike]], dtype=pl.Binary)
    again[alike] = ~exact.is_first_distinct().to_numpy()
    return again
