"""`td.read`: it imports the readers of files only when it is called."""

from pathlib import Path
from typing import Any

from trustdoctor.predictions import Predictions


def read(path: str | Path, **columns: Any) -> Predictions:
    r"""Read predictions from a file, a folder of files, or a pattern.

    Parameters
    ----------
    path : str or Path
        CSV, TSV, JSON lines, Parquet, Arrow, NPZ or NPY, by the suffix; - stands for
        standard input.
    columns
        The names of columns: logits, probs, labels, confidence, predicted, correct,
        positive, first_class, ...; see `trustdoctor.files.read`.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder) / "predictions.csv"
    ...     _ = file.write_text("prob_0,prob_1,label\n0.9,0.1,0\n0.4,0.6,0\n")
    ...     read(file)
    Predictions(2 rows, 2 classes, probabilities, accuracy 50.00%)
    """
    from trustdoctor import files  # polars takes a moment to import

    return files.read(path, **columns)
