"""What to type for a file whose columns do not say what they hold."""

from typing import Any

import numpy as np
import polars as pl

from trustdoctor.files.columns import CORRECT, LABELS, PREDICTED
from trustdoctor.files.labels import as_text

_STATED = ("confidence", "conf", "certainty")
_LABELS = (
    *(*LABELS, "y_true", "y", "target", "truth", "true_class", "class"),
    *("true", "actual", "gold", "ground_truth"),
)
_PREDICTED = (*PREDICTED, "pred", "y_pred", "predicted_label", "predicted_class")


def advise_columns(head: pl.DataFrame) -> str:
    """Return the options that the first rows of a file suggest; "" for none.

    Examples
    --------
    >>> head = pl.DataFrame({"id": ["a"], "cat": ["0.9"], "dog": ["0.1"], "y": ["cat"]})
    >>> advise_columns(head)
    '--probs cat,dog --labels y'
    """
    names = head.columns
    if "choices" in names and head["choices"].dtype != pl.String:
        return "--choices A,B --truth FILE: these are a language model's responses"
    stated = next((n for n in names if n.lower() in _STATED), None)
    if stated is not None:
        return _answers(names, stated)
    numbers = {name: _numbers(head[name]) for name in names}
    shares = [
        name
        for name, values in numbers.items()
        if values is not None
        and name not in _LABELS
        and values.min() >= 0
        and values.max() <= 1
        and not np.isin(values, (0, 1)).all()
    ]
    label = _label(names, [*shares, *CORRECT])
    if len(shares) == 1:
        return f"--probs {shares[0]} --positive LABEL{label}"
    if len(shares) > 1 and _sums(numbers, shares):
        return f"--probs {','.join(shares)}{label}"
    return ""


def _answers(names: list[str], stated: str) -> str:
    right, said, true = (
        next((name for name in known if name in names), None)
        for known in (CORRECT, _PREDICTED, _LABELS)
    )
    if right is not None or said is None:
        return f"--confidence {stated} --correct {right or 'NAME'}"
    return f"--confidence {stated} --predicted {said} --labels {true or 'NAME'}"


def _label(names: list[str], taken: list[str]) -> str:
    usual = [name for name in names if name.lower() in _LABELS and name not in taken]
    if not usual:
        return " --labels NAME"
    return "" if usual[0] in LABELS else f" --labels {usual[0]}"


def _numbers(column: pl.Series) -> Any:
    """Return numbers, a decimal comma included; None where there are others."""
    if column.dtype.is_nested() or column.dtype == pl.Boolean or not len(column):
        return None
    text = as_text(column).str.replace(r"^([^,.]*),([^,.]*)$", "${1}.${2}")
    found = text.cast(pl.Float64, strict=False)
    return None if found.null_count() or found.is_nan().any() else found.to_numpy()


def _sums(numbers: dict[str, Any], names: list[str]) -> bool:
    total = np.sum([numbers[name] for name in names], axis=0)
    return bool((np.abs(total - 1) < 0.05).all())
