"""The bundled predictions as files, to try the other commands on."""

from importlib.resources import files
from pathlib import Path

import numpy as np
import polars as pl

from trustdoctor.atomic import replacing
from trustdoctor.errors import InputError, OutputError
from trustdoctor.predictions import Predictions

CLASSES = (
    "airplane", "automobile", "bird", "cat", "deer",
    "dog", "frog", "horse", "ship", "truck",
)  # fmt: skip


MODELS = {
    "densenet": ("DenseNet-BC-100-12", "cifar10-densenet.npz"),
    "resnet-20": ("ResNet-20", "cifar10-resnet20.npz"),
}
"""What each bundled model is called, and the file of what it says."""


def bundled_file(model: str = "densenet") -> Path:
    """Return the file of a model's bundled predictions."""
    if model not in MODELS:
        message = f"expected a bundled model, {' or '.join(MODELS)}, got {model!r}."
        raise InputError(message)
    return Path(str(files("trustdoctor.demo") / MODELS[model][1]))


def save_demo(predictions: Predictions, folder: Path) -> list[Path]:
    """Write labelled.csv and new.csv, each a random half, and classes.txt."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        message = f"cannot make the folder {folder}: {error.strerror}."
        raise OutputError(message) from error
    order = np.random.default_rng(0).permutation(len(predictions))
    halves = np.array_split(order, 2)
    paths = [folder / "labelled.csv", folder / "new.csv"]
    labels = predictions.require_labels("the demo")
    for path, rows in zip(paths, halves, strict=True):
        logits = predictions.logits[rows]
        columns = {f"logit_{j}": logits[:, j] for j in range(logits.shape[1])}
        table = pl.DataFrame({"id": rows, **columns, "label": labels[rows]})
        with replacing(path) as temporary:
            table.write_csv(temporary)
    names = folder / "classes.txt"
    with replacing(names) as temporary:
        temporary.write_text("\n".join(CLASSES) + "\n", encoding="utf-8")
    return [*paths, names]
