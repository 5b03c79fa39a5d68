"""A model and its images, run in chunks, so that a stopped run can resume."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trustdoctor.errors import InputError
from trustdoctor.reproduce.datasets import Dataset, find_dataset
from trustdoctor.reproduce.experiment import (
    Arrays,
    Options,
    choose_rows,
    fingerprint,
)
from trustdoctor.reproduce.formats import Examples, resize

CHUNK = 1_000
"""Images per step."""

BATCH = 16
"""Images per batch: gradients of more than these leave the caches of a processor, and
a DenseNet takes 160 ms for an image instead of 18."""

AGREEMENT = 0.1
"""How far stored logits may be from the model's: other machines round otherwise."""


@dataclass(eq=False)
class ModelRun:
    """A model on a data set's images.

    Attributes
    ----------
    local : LocalModel
    dataset : Dataset
    images : array (n, height, width, 3)
    labels : array (n,)
    options : Options
    expected_passes : int
        How many passes over images there will be, for the progress that is told.
    finished_passes : int
    """

    local: Any
    dataset: Dataset
    images: NDArray[np.uint8]
    labels: NDArray[np.int64]
    options: Options
    expected_passes: int = 1
    finished_passes: int = field(default=0)

    @classmethod
    def load(cls, options: Options) -> "ModelRun":
        """Load the model of `--model` and the test images in `--data`."""
        from trustdoctor.reproduce.local_model import load_model

        if options.model is None or options.data is None:
            message = (
                "this runs a model on images: --model FILE.py:NAME --weights FILE "
                "--data DIR, where DIR holds the data set."
            )
            raise InputError(message)
        local = load_model(options.model, options.weights)
        return cls.on_test_images(local, find_dataset(options.about), options)

    @classmethod
    def on_test_images(
        cls, local: Any, dataset: Dataset, options: Options
    ) -> "ModelRun":
        """Return a run of a model on the test images of a data set in `--data`."""
        assert options.data is not None
        examples = dataset.load(options.data)
        if not isinstance(examples.values, np.ndarray) or examples.labels is None:
            message = f"{dataset.title} holds texts; --model is for images."
            raise InputError(message)
        rows = choose_rows(len(examples), options)
        images, labels = examples.values, examples.labels
        if rows is not None:
            images, labels = images[rows], labels[rows]
        return cls(local, dataset, images, labels, options)

    @property
    def name(self) -> str:
        """The model's name."""
        return str(self.local.name)

    def resized(self, images: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """Return images in the size that the model takes."""
        return resize(images, *self.images.shape[1:3])

    def take(self, rows: NDArray[np.int64]) -> "ModelRun":
        """Return the same model before some of the images."""
        return replace(self, images=self.images[rows], labels=self.labels[rows])

    def training_examples(self, n: int) -> Examples:
        """Return n training images, drawn at random."""
        assert self.options.data is not None
        examples = self.dataset.load(self.options.data, "train")
        rows = np.random.default_rng(self.options.seed).permutation(len(examples))[:n]
        assert examples.labels is not None
        return Examples(examples.values[rows], examples.labels[rows])

    def logits(
        self,
        score: Any = "alpha",
        temperature: float = 1.0,
        epsilon: float = 0.0,
        *,
        images: NDArray[np.uint8] | None = None,
    ) -> NDArray[Any]:
        """Return the logits at perturbed images; by default at its own, unperturbed."""
        from trustdoctor.adapters.torch import Doctor

        doctor = Doctor(
            self.local.model,
            score=score,
            temperature=temperature,
            epsilon=epsilon,
            scale=self.local.scale,
            batch_size=BATCH,
        )

        def examine(pixels: NDArray[np.uint8]) -> Arrays:
            examination = doctor(self.local.inputs(pixels), quiet=True)
            perturbed = examination.perturbed
            at_input = examination.predictions if perturbed is None else perturbed
            return {"logits": at_input.logits}

        # A fitted score of one name can have been fitted on other rows.
        means = getattr(score, "means", None)
        name = score if isinstance(score, str) else score.name
        facts = [name, temperature, epsilon, *([] if means is None else [means])]
        title = f"{name} at T {temperature:g}, eps {epsilon:g}"
        return self.examine(title, facts, examine, images)["logits"]

    def reproduces(self, logits: NDArray[Any]) -> bool:
        """Return whether stored logits are this model's, by the first rows."""
        first = slice(64)
        computed = self.logits(images=self.images[first])
        return computed.shape == logits[first].shape and bool(
            np.abs(computed - logits[first]).max() < AGREEMENT
        )

    def examine(
        self,
        title: str,
        facts: list[Any],
        examine: Callable[[NDArray[np.uint8]], Arrays],
        images: NDArray[np.uint8] | None = None,
    ) -> Arrays:
        """Examine images chunk by chunk; each chunk is a step that is kept."""
        pixels = self.images if images is None else images
        run_id = fingerprint([self.local.digest(), *facts])
        chunks: list[Arrays] = []
        passes = max(self.expected_passes, self.finished_passes + 1)
        for start in range(0, len(pixels), CHUNK):
            share = (self.finished_passes + start / len(pixels)) / passes
            self.options.tell(share, title)
            chunk = pixels[start : start + CHUNK]
            step = partial(examine, chunk)
            chunks.append(self.options.steps.take("model", [run_id, chunk], step))
        self.finished_passes += 1
        return {name: np.concatenate([c[name] for c in chunks]) for name in chunks[0]}
