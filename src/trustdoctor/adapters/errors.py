"""Errors of foreign models as input errors, which say what the models were given."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

from trustdoctor.errors import InputError, TrustDoctorError

INPUT_ERRORS = (
    *(RuntimeError, TypeError, ValueError, LookupError, AttributeError, AssertionError),
)
"""What models raise if a shape, a type or a name is not as they expect."""

MAX_SHOWN = 240
"""The largest number of characters of an error that are shown."""


@contextmanager
def as_input_errors(*inputs: Any) -> Iterator[None]:
    """Turn a model's own error into an input error of one line.

    Examples
    --------
    >>> import numpy as np
    >>> rows = np.zeros((2, 3))
    >>> try:
    ...     with as_input_errors(rows):
    ...         rows @ np.zeros((4, 5))
    ... except InputError as error:
    ...     print(str(error)[:65])
    expected inputs that the model takes, got float64 of shape (2, 3)
    """
    try:
        yield
    except TrustDoctorError:
        raise
    except INPUT_ERRORS as error:
        kind = type(error).__name__
        if kind == "OutOfMemoryError":  # torch's, a RuntimeError: not the rows' fault
            raise
        lines = str(error).strip().splitlines() or [kind]
        # The text of a KeyError is the key alone.
        first = f"{kind}: {lines[0]}" if kind == "KeyError" else lines[0]
        message = (
            f"expected inputs that the model takes, got {describe_inputs(*inputs)}, of "
            f"which it says: {first[:MAX_SHOWN].rstrip('.:')}. Give rows of the shape "
            "and type that it was trained on; inputs= and labels= name the parts of a "
            "batch."
        )
        raise InputError(message) from error


def describe_inputs(*inputs: Any) -> str:
    """Describe some inputs by type and shape, for messages.

    Examples
    --------
    >>> import numpy as np
    >>> describe_inputs(np.zeros((2, 3)), ["a text"])
    'float64 of shape (2, 3) and a list of 1'
    """
    return " and ".join(map(_description, inputs))


def _description(value: Any) -> str:
    if hasattr(value, "shape") and hasattr(value, "dtype"):
        dtype = str(value.dtype).removeprefix("torch.")
        return f"{dtype} of shape {tuple(value.shape)}"
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
        f"expected a model that gives each row one class, got {model}: its rows may "
        "have several labels or none, which no score here covers. Make a model "
        "and a gate for each label."
    )
    raise InputError(message)
