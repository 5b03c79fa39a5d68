"""What every experiment shares: options, the paper's numbers, softmax files."""

import json
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trustdoctor.errors import FileError
from trustdoctor.progress import Tell


def _silent(_share: float, _what: str) -> None:
    """Tell nobody."""


@dataclass(frozen=True)
class Options:
    """How to run an experiment.

    Attributes
    ----------
    seed : int
    predictions : Path or None
        A file of softmax outputs and labels.
    tell : callable
        Told the share of the work done and what comes next.
    """

    seed: int = 0
    predictions: Path | None = None
    tell: Tell = _silent


def paper(name: str) -> dict[str, Any]:
    """Return the paper's own numbers for an experiment."""
    text = (files("trustdoctor.reproduce") / "paper.json").read_text(encoding="utf-8")
    return dict(json.loads(text)[name])


def read_softmax(path: Path) -> tuple[NDArray[Any], NDArray[Any]]:
    """Read softmax outputs to the bit as they are stored, and labels.

    The published evaluation depends on how they were rounded, so nothing is converted.
    """
    from trustdoctor.adapters.files import read_predictions

    probs, labels = "values", "label"
    if path.suffix.lower() != ".npz":
        message = f"expected softmax outputs as NPZ, got {path.name!r}."
        raise FileError(message)
    try:
        p = read_predictions(path, probs=probs, labels=labels)
    except FileError:
        probs, labels = "probs", "labels"
        p = read_predictions(path, probs=probs, labels=labels)
    with np.load(path, allow_pickle=False) as archive:
        return archive[probs], p.require_labels("intervals")
