"""Predictions from files.

NPZ: arrays `logits` or `probs`, and `labels`. Tables: columns `logit_0..` or `prob_0..`
(or `prob_cat..`, or one list column `logits` or `probs`), and `label`. The original
DOCTOR layout, columns `0..C-1, label, true_label`, where `label` is the prediction, is
read as probabilities. Other names are given by `Columns`.
"""

from dataclasses import fields
from pathlib import Path
from typing import Any

from trustdoctor import envelope
from trustdoctor.errors import InputError
from trustdoctor.files.columns import Columns
from trustdoctor.files.finding import find_source
from trustdoctor.predictions import Predictions


def read(path: str | Path, **columns: Any) -> Predictions:
    r"""Read predictions from a file, a folder of files, or a pattern.

    Parameters
    ----------
    path : str or Path
        What it is, its suffix says; - stands for standard input.
    columns
        What is called how; see `trustdoctor.files.Columns`. The command line has an
        option of the same name for each.

        logits, probs : the array, list column or column prefix that holds them, or the
        columns themselves; by default `logits` / `logit_` or `probs` / `prob_`.
        labels : the true labels, by default `label`. features, groups, ids : columns.
        confidence or doubt, with predicted or correct : answers without logits.
        positive : the label that a binary model's one column speaks for.
        predicted : what the system answers, blank where it does not; or cutoff : of two
        classes, the probability from which on it answers the second. one_vs_rest :
        whether probabilities are of one class against the rest.
        first_class : the number of the first class. percent : whether values are
        percentages. class_names : one per class, in the order of the columns.
        last_line : "keep" takes a CSV file whose last line has no line end, or too few
        values, as it stands; by default it is refused, for it may be cut short.
        choices, truth : of a language model's responses. need_labels : False takes
        labels that are not classes as missing.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder) / "predictions.csv"
    ...     _ = file.write_text("logit_0,logit_1,label\n2.0,0.5,0\n0.1,0.3,0\n")
    ...     read(file)
    Predictions(2 rows, 2 classes, logits, accuracy 50.00%)
    """
    if not isinstance(path, (str, Path)):
        message = (
            f"expected the path of a file, got {type(path).__name__}. For tables in "
            "memory use Predictions.from_frame."
        )
        raise InputError(message)
    known = {one.name for one in fields(Columns)} - {"comma", "texts", "names_file"}
    unknown = sorted(set(columns) - known)
    if unknown:
        message = (
            f"expected options out of {', '.join(sorted(known))}, got {unknown[0]!r}."
        )
        raise InputError(message)
    return find_source(path, Columns(**columns)).read()


def read_class_names(path: str | Path) -> list[str]:
    """Return a text file's lines, one per class in the order of the columns."""
    return envelope.read_bounded(path, "list of class names").splitlines()
