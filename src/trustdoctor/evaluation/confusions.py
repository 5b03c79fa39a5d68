"""The confusion that most of the errors that go out have in common."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from trustdoctor.arrays import to_numpy
from trustdoctor.errors import InputError
from trustdoctor.predictions import UNKNOWN, Predictions

LEAST_ERRORS = 10
"""Of fewer errors that go out, a dominant confusion says little."""

# Two integers, so that exactly two thirds are compared without rounding.
DOMINANT = (2, 3)
"""The share of these errors, as a fraction, from which a confusion is dominant."""


@dataclass(frozen=True)
class DominantConfusion:
    """One label that is predicted as one other class in most errors that go out.

    Attributes
    ----------
    label, predicted : str
        Their names in quotes, or "class 3" where classes have none.
    n_out, errors_out : int
        Accepted rows of this confusion, and all accepted errors.
    n_confused, n_labelled : int
        All rows of this confusion, accepted or not, and all rows with this label.

    Examples
    --------
    >>> confusion = DominantConfusion("'yes'", "'no'", 66, 70, 315, 790)
    >>> accepted, labelled = confusion.sentence().split("; ")
    >>> accepted
    "66 of the 70 errors that go out are 'yes' predicted as 'no'"
    >>> labelled
    "of all 790 rows labelled 'yes', 315 are predicted as 'no'."
    """

    label: str
    predicted: str
    n_out: int
    errors_out: int
    n_confused: int
    n_labelled: int

    @classmethod
    def of(cls, predictions: Predictions, accepted: Any) -> "DominantConfusion | None":
        """Return that of predictions; None where only right or wrong is known."""
        unnamed = predictions.correctness_only or not predictions.answers_known
        if unnamed or predictions.labels is None:
            return None
        inside, p = ~predictions.outside, predictions.inside
        return dominant_confusion(
            p.labels, p.predicted, np.asarray(accepted)[inside], p.class_names
        )

    @classmethod
    def dominating(
        cls,
        label: int,
        predicted: int,
        class_names: Sequence[str] | None = None,
        **counts: int,
    ) -> "DominantConfusion | None":
        """Return the confusion with these counts; None where it does not dominate.

        Examples
        --------
        >>> counts = {"n_confused": 20, "n_labelled": 90}
        >>> DominantConfusion.dominating(0, 1, n_out=5, errors_out=10, **counts)
        """
        n_out, errors_out = counts["n_out"], counts["errors_out"]
        if errors_out < LEAST_ERRORS or DOMINANT[1] * n_out < DOMINANT[0] * errors_out:
            return None
        return cls(
            _class_name(label, class_names),
            _class_name(predicted, class_names),
            **counts,
        )

    def sentence(self) -> str:
        """Describe the confusion in one sentence."""
        all_errors = self.n_out == self.errors_out
        share = "All" if all_errors else f"{self.n_out:,} of the"
        return (
            f"{share} {self.errors_out:,} errors that go out are {self.label} "
            f"predicted as {self.predicted}; of all {self.n_labelled:,} rows labelled "
            f"{self.label}, {self.n_confused:,} are predicted as {self.predicted}."
        )


def dominant_confusion(
    labels: Any,
    predicted: Any,
    accepted: Any,
    class_names: Sequence[str] | None = None,
) -> DominantConfusion | None:
    """Return the confusion that makes up most errors that go out, if there is one.

    It dominates from two thirds of at least 10 accepted errors.

    Parameters
    ----------
    labels, predicted : integer array (n,)
        Numbers of classes; a label is -1 where it is not known.
    accepted : bool array (n,)
        Which predictions go out.
    class_names : sequence of str, optional

    Examples
    --------
    >>> labels = np.repeat([1, 0], [20, 80])
    >>> predicted = np.repeat([0, 1, 0], [12, 8, 80])  # 12 of 20 are missed
    >>> accepted = np.arange(100) >= 2  # two of them are rejected
    >>> dominant_confusion(labels, predicted, accepted, ["no", "yes"]).sentence()[:53]
    "All 10 errors that go out are 'yes' predicted as 'no'"
    """
    label, guess, goes_out = _checked_columns(labels, predicted, accepted)
    errors_out = goes_out & (label != guess) & (label != UNKNOWN)
    pairs, sizes = np.unique(
        np.stack([label[errors_out], guess[errors_out]], axis=1),
        axis=0,
        return_counts=True,
    )
    if not len(sizes):
        return None
    confused_label, confused_guess = pairs[sizes.argmax()].tolist()
    rows = label == confused_label
    return DominantConfusion.dominating(
        confused_label,
        confused_guess,
        class_names,
        n_out=int(sizes.max()),
        errors_out=int(sizes.sum()),
        n_confused=int((rows & (guess == confused_guess)).sum()),
        n_labelled=int(rows.sum()),
    )


def _checked_columns(*columns: Any) -> list[Any]:
    label, guess, goes_out = map(to_numpy, columns)
    same_shape = label.ndim == 1 and label.shape == guess.shape == goes_out.shape
    kinds = (label.dtype.kind, guess.dtype.kind, goes_out.dtype.kind)
    if (
        not same_shape
        or kinds[0] not in "iu"
        or kinds[1] not in "iu"
        or kinds[2] != "b"
    ):
        message = (
            "expected labels and predicted as numbers of classes and accepted as "
            f"booleans, one each per row, got {label.dtype} of shape {label.shape}, "
            f"{guess.dtype} of shape {guess.shape} and {goes_out.dtype} of shape "
            f"{goes_out.shape}."
        )
        raise InputError(message)
    return [label, guess, goes_out]


def _class_name(number: int, class_names: Sequence[str] | None) -> str:
    return f"class {number}" if class_names is None else repr(str(class_names[number]))
