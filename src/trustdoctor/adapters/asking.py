"""Asking a foreign model: what it complains of, and labels in its forms."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

import numpy as np

from trustdoctor.arrays import Array, describe, refuse_rows, to_numpy
from trustdoctor.errors import InputError, TrustDoctorError

COMPLAINTS = (
    *(RuntimeError, TypeError, ValueError, LookupError, AttributeError, AssertionError),
)
"""What models raise where a shape, a type or a name is not as they expect."""

LONGEST = 240
"""So many characters of a complaint are told."""


@contextmanager
def complaining(*inputs: Any) -> Iterator[None]:
    """Turn what a model complains of into one line that says what it was given.

    Examples
    --------
    >>> rows = np.zeros((2, 3))
    >>> try:
    ...     with complaining(rows):
    ...         rows @ np.zeros((4, 5))
    ... except InputError as error:
    ...     print(str(error)[:65])
    expected inputs that the model takes, got float64 of shape (2, 3)
    """
    try:
        yield
    except TrustDoctorError:
        raise
    except COMPLAINTS as error:
        if type(error).__name__ == "OutOfMemoryError":  # torch's: no fault of the rows
            raise
        kind = type(error).__name__
        lines = str(error).strip().splitlines() or [kind]
        lines[0] = f"{kind}: {lines[0]}" if kind == "KeyError" else lines[0]
        said = lines[0][:LONGEST].rstrip(".:")
        message = (
            f"expected inputs that the model takes, got {describe_inputs(*inputs)}, of "
            f"which it says: {said}. Give rows of the shape and type that it was "
            "trained on; inputs= and labels= name the parts of a batch."
        )
        raise InputError(message) from error


def describe_inputs(*inputs: Any) -> str:
    """Say what some inputs are, for messages.

    Examples
    --------
    >>> describe_inputs(np.zeros((2, 3)), ["a text"])
    'float64 of shape (2, 3) and a list of 1'
    """
    return " and ".join(map(_described, inputs))


def _described(value: Any) -> str:
    if hasattr(value, "shape") and hasattr(value, "dtype"):
        kind = str(value.dtype).removeprefix("torch.")
        return f"{kind} of shape {tuple(value.shape)}"
    size = f" of {len(value)}" if isinstance(value, (list, tuple, dict)) else ""
    return f"a {type(value).__name__}{size}"


def refuse_multi_label(model: str) -> NoReturn:
    """Raise the error for a model whose rows may have several labels, or none.

    Examples
    --------
    >>> try:
    ...     refuse_multi_label("a model of sigmoids")
    ... except InputError as error:
    ...     print(str(error)[:71])
    expected a model that gives each row one class, got a model of sigmoids
    """
    message = (
        f"expected a model that gives each row one class, got {model}: a row may have "
        "several labels there, or none, and no score here is about that. Make a model "
        "and a gate for each label."
    )
    raise InputError(message)


def as_classes(labels: Any) -> tuple[Array, int]:
    """Return labels as one class per row, and how many classes one-hot rows have.

    Parameters
    ----------
    labels : array (n,), (n, 1) or one-hot (n, C)

    Returns
    -------
    classes : array (n,)
    width : int
        C for one-hot rows, otherwise 0: not known.

    Examples
    --------
    >>> as_classes([[0, 1, 0], [1, 0, 0]])
    (array([1, 0]), 3)
    >>> as_classes([2, 0])
    (array([2, 0]), 0)
    """
    given = to_numpy(labels)
    if given.ndim == 2 and given.shape[1] == 1:
        given = given[:, 0]
    if given.dtype.kind not in "biuf" or given.ndim not in (1, 2):
        message = (
            f"expected labels as one class per row, or one-hot rows (n, C), got "
            f"{describe(given)}. Number the classes from 0; inputs= and labels= name "
            "the parts of a batch."
        )
        raise InputError(message)
    if given.ndim == 2:
        return _hot(given), given.shape[1]
    if given.dtype.kind == "f":
        refuse_rows(given % 1 > 0, "the label is not a whole number")
        return (given if np.isnan(given).any() else given.astype(np.int64)), 0
    return given.astype(np.int64), 0


def _hot(rows: Array) -> Array:
    """Return where the one of each row is, refusing rows that are not one-hot."""
    if ((rows == 0) | (rows == 1)).all() and (rows.sum(1) == 1).all():
        return rows.argmax(1)
    soft = (rows >= 0).all() and np.allclose(rows.sum(1, dtype=float), 1, atol=1e-3)
    what = "soft labels" if soft else "rows that are not one-hot"
    message = (
        f"expected labels as one class per row, or one-hot rows of a single 1, got "
        f"{what} ({describe(rows)}). Give the class of each row, as labels.argmax(1) "
        "does; inputs= and labels= name the parts of a batch."
    )
    raise InputError(message)
