"""A model and its images, run part by part, so that a stopped run goes on."""

from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trustdoctor.errors import InputError
from trustdoctor.reproduce.datasets import Dataset, find_dataset
from trustdoctor.reproduce.experiment import Options, choose_rows, fingerprint
from trustdoctor.reproduce.formats import Examples, resize

PART = 1_000
"""Images per step."""

BATCH = 16
"""Images per batch: gradients of more than these leave the caches of a processor, and
a DenseNet takes 160 ms for an image instead of 18."""

AGREEMENT = 0.1
"""How far stored logits may be from the model's: other machines round otherwise."""


@dataclass(eq=False)
class Bench:
    """A model on a data set's images.

    Attributes
    ----------
    local : LocalModel
    dataset : Dataset
    images : array (n, height, width, 3)
    labels : array (n,)
    options : Options
    """

    local: Any
    dataset: Dataset
    images: NDArray[np.uint8]
    labels: NDArray[np.int64]
    options: Options
    runs: int = 1
    done: float = field(default=0.0)

    @classmethod
    def load(cls, options: Options) -> "Bench":
        """Load the model of `--model` and the test images in `--data`."""
        from trustdoctor.adapters.torch.own_model import load_model

        if options.model is None or options.data is None:
            message = (
                "this runs a model on images: --model FILE.py:NAME --weights FILE "
                "--data DIR, where DIR holds the data set."
            )
            raise InputError(message)
        local = load_model(options.model, options.weights)
        return cls.of(local, find_dataset(options.about), options)

    @classmethod
    def of(cls, local: Any, dataset: Dataset, options: Options) -> "Bench":
        """Put a model before the test images of a data set in `--data`."""
        assert options.data is not None
        loaded = dataset.load(options.data)
        if not isinstance(loaded.values, np.ndarray) or loaded.labels is None:
            message = f"{dataset.title} holds texts; --model is for images."
            raise InputError(message)
        rows = choose_rows(len(loaded), options)
        taken = slice(None) if rows is None else rows
        labels = loaded.labels[taken]
        return cls(local, dataset, loaded.values[taken], labels, options)

    @property
    def name(self) -> str:
        """The model's name."""
        return str(self.local.name)

    def fitted(self, images: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """Bring images to the size that the model takes."""
        return resize(images, *self.images.shape[1:3])

    def part(self, rows: NDArray[np.int64]) -> "Bench":
        """Return the same model before some of the images."""
        return replace(self, images=self.images[rows], labels=self.labels[rows])

    def train(self, n: int) -> Examples:
        """Return n training images, drawn at random."""
        assert self.options.data is not None
        loaded = self.dataset.load(self.options.data, "train")
        rows = np.random.default_rng(self.options.seed).permutation(len(loaded))[:n]
        assert loaded.labels is not None
        return Examples(loaded.values[rows], loaded.labels[rows])

    def logits(
        self,
        score: Any = "alpha",
        temperature: float = 1.0,
        epsilon: float = 0.0,
        *,
        images: NDArray[np.uint8] | None = None,
    ) -> NDArray[Any]:
        """Return the logits at the perturbed images; by default the bench's, clean."""
        from trustdoctor.adapters.torch import Doctor

        doctor = Doctor(
            self.local.model,
            score=score,
            temperature=temperature,
            epsilon=epsilon,
            scale=self.local.scale,
            batch_size=BATCH,
        )

        def examine(pixels: NDArray[np.uint8]) -> dict[str, NDArray[Any]]:
            found = doctor(self.local.inputs(pixels), quiet=True)
            at = found.predictions if found.perturbed is None else found.perturbed
            return {"logits": at.logits}

        means = getattr(score, "means", None)
        name = score if isinstance(score, str) else score.name
        facts = [name, temperature, epsilon, *([] if means is None else [means])]
        what = f"{name} at T {temperature:g}, eps {epsilon:g}"
        return self.run(what, facts, examine, images)["logits"]

    def agrees(self, logits: NDArray[Any]) -> bool:
        """Tell whether stored logits are this model's, by its first rows."""
        few = slice(64)
        own = self.logits(images=self.images[few])
        return own.shape == logits[few].shape and bool(
            np.abs(own - logits[few]).max() < AGREEMENT
        )

    def run(
        self,
        what: str,
        facts: list[Any],
        examine: Any,
        images: NDArray[np.uint8] | None = None,
    ) -> dict[str, NDArray[Any]]:
        """Examine images part by part; each part is a step that is kept."""
        pixels = self.images if images is None else images
        made = fingerprint([self.local.digest(), *facts])
        parts = []
        for start in range(0, len(pixels), PART):
            share = (self.done + start / len(pixels)) / max(self.runs, self.done + 1)
            self.options.tell(share, what)
            part = pixels[start : start + PART]
            step = partial(examine, part)
            parts.append(self.options.steps.take("model", [made, part], step))
        self.done += 1
        return {name: np.concatenate([p[name] for p in parts]) for name in parts[0]}
