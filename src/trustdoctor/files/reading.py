"""Predictions from files.

NPZ: arrays `logits` or `probs`, and `labels`. CSV and Parquet: columns `logit_0..`
or `prob_0..` (or one list column `logits` or `probs`, in Parquet), and `label`. The
original DOCTOR layout, columns `0..C-1, label, true_label`, where `label` is the
prediction, is read as probabilities. Other names are given by `logits=`, `probs=`
and `labels=`.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from trustdoctor.errors import FileError, InputError
from trustdoctor.files.columns import Columns
from trustdoctor.files.source import find_source
from trustdoctor.predictions import Predictions


def read(  # noqa: PLR0913 - options, by keyword only
    path: str | Path,
    *,
    logits: str | None = None,
    probs: str | None = None,
    labels: str | None = None,
    features: str | None = None,
    groups: str | None = None,
    ids: str | None = None,
    class_names: Sequence[str] | None = None,
    need_labels: bool = True,
) -> Predictions:
    r"""Read predictions from a file, a folder of files, or a pattern.

    Parameters
    ----------
    path : str or Path
        Parquet, CSV, NPZ or NPY; the suffix says what it is.
    logits, probs : str, optional
        The array, list column or column prefix that holds them, if it is not
        called `logits` / `logit_` or `probs` / `prob_`.
    labels : str, optional
        The array or column of true labels, if not `labels` / `label`.
    features : str, optional
        An array, a list column or a column prefix, for scores that need features.
    groups, ids : str, optional
        Columns of groups and of ids.
    class_names : sequence of str, optional
        One per class, in the order of the columns.
    need_labels : bool
        False takes a file whose labels are missing in part, or are not numbers, as one
        without labels.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder) / "predictions.csv"
    ...     _ = file.write_text("logit_0,logit_1,label\n2.0,0.5,0\n0.1,0.3,0\n")
    ...     read(file)
    Predictions(2 rows, 2 classes, logits, accuracy 50.00%)
    """
    columns = Columns(
        logits, probs, labels, features, groups, ids, need_labels=need_labels
    )
    found = find_source(path, columns).read()
    return found if class_names is None else with_class_names(found, class_names)


def with_class_names(predictions: Predictions, names: Sequence[str]) -> Predictions:
    """Return predictions with names of their classes."""
    given = tuple(map(str, names))
    if not len(given) == len(set(given)) == predictions.n_classes:
        message = (
            f"expected {predictions.n_classes} different class names, one per class, "
            f"got {len(given)} ({len(set(given))} different)."
        )
        raise InputError(message)
    return replace(predictions, class_names=given)


def read_class_names(path: str | Path) -> list[str]:
    """Return a text file's lines, one per class in the order of the columns."""
    try:
        return Path(path).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        message = f"cannot read class names from {path}, one per line: {error}."
        raise FileError(message) from error
