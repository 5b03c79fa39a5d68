"""What all experiments share: options, the paper's numbers, and cached steps."""

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trustdoctor._version import __version__
from trustdoctor.atomic import replacing
from trustdoctor.progress import Tell
from trustdoctor.reproduce.report import make_folder

Arrays = dict[str, NDArray[Any]]


def _silent(_share: float, _doing: str) -> None:
    """Ignore the progress."""


class Steps:
    """Keeps the steps of a run in a folder, so that a stopped run can resume.

    A step is found again by its name and by all that it depends on, so that one of
    other data, settings or versions is never taken for it. Without a folder nothing is
    kept.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder

    def take(self, name: str, facts: list[Any], make: Callable[[], Arrays]) -> Arrays:
        """Return what the step made, now or in an earlier run."""
        if self.folder is None:
            return make()
        path = make_folder(self.folder) / f"{name}-{fingerprint(facts)}.npz"
        try:
            with path.open("rb") as raw, np.load(raw, allow_pickle=False) as archive:
                return dict(archive)
        except Exception:  # absent, or damaged in one of many ways: made again
            arrays = make()
        with replacing(path) as temporary, temporary.open("wb") as file:
            np.savez(file, **arrays)  # type: ignore[arg-type]
        return arrays

    def child(self, name: str) -> Path | None:
        """Return a folder for work that keeps its own steps."""
        return None if self.folder is None else make_folder(self.folder / name)


def fingerprint(facts: list[Any]) -> str:
    """Return a name for what a step depends on: numbers, words and arrays."""
    digest = hashlib.blake2b(__version__.encode(), digest_size=8)
    for fact in facts:
        array = isinstance(fact, np.ndarray)
        digest.update(fact.tobytes() if array else repr(fact).encode())
    return digest.hexdigest()


@dataclass(frozen=True)
class Options:
    """How to run an experiment.

    Attributes
    ----------
    seed : int
        Of everything that is drawn at random.
    protocol : str
        "exact", or "grid" for the evaluation as it was published.
    predictions : Path or None
        A file of softmax outputs or logits, and labels.
    data : Path or None
        A folder with data sets and prediction files.
    dataset : str or None
        What `predictions` or `model` is about; by default what the file's name says,
        or CIFAR-10.
    model : str or None
        FILE.py:NAME, where NAME() builds a torch model.
    weights : Path or None
        The model's, as safetensors.
    ood : tuple of str
        What is mixed in: names of data sets, folders of pictures, prediction files.
    layers : tuple of str
        The model's layers for Mahalanobis; by default its blocks.
    rows : int or None
        At most this many rows, drawn at random.
    fine : bool
        Whether sweeps go through all of the paper's settings.
    draws : int
        How often the mixtures are drawn.
    steps : Steps
        Where a stopped run goes on from.
    tell : callable
        Told the share of the work done and what comes next.
    """

    seed: int = 0
    protocol: str = "exact"
    predictions: Path | None = None
    data: Path | None = None
    dataset: str | None = None
    model: str | None = None
    weights: Path | None = None
    ood: tuple[str, ...] = ()
    layers: tuple[str, ...] = ()
    rows: int | None = None
    draws: int = 10
    fine: bool = False
    steps: Steps = field(default_factory=Steps)
    tell: Tell = _silent

    @property
    def about(self) -> str:
        """The data set's name."""
        return self.dataset or "cifar10"


def paper(name: str) -> dict[str, Any]:
    """Return the paper's own numbers for an experiment."""
    text = (files("trustdoctor.reproduce") / "paper.json").read_text(encoding="utf-8")
    return dict(json.loads(text)[name])


def choose_rows(n: int, options: Options) -> NDArray[np.int64] | None:
    """Draw `--rows` of n rows; None is all of them."""
    if options.rows is None or options.rows >= n:
        return None
    rng = np.random.default_rng(options.seed)
    return np.sort(rng.permutation(n)[: options.rows])
