"""Metrics for a training loop: `update` batch by batch, `compute`, `reset`."""

from typing import Any

import torch
from torch import Tensor, distributed

from trustdoctor.errors import InputError
from trustdoctor.metrics import RANK_METRICS, Points, Sketch, undefined
from trustdoctor.scores import ROUNDING, find_logit_score


class RejectionMetrics:
    """How well a score tells right from wrong, over batches and processes.

    It has the verbs of torchmetrics and needs no more than torch. What is kept is a
    sketch of a few megabytes, whatever the number of rows. In a distributed run
    `compute` gives every process the metrics of all rows.

    Parameters
    ----------
    score : str
        A name from `SCORES`.
    temperature : float
        Divides the logits.
    metrics : sequence of str
        Names of the functions in `trustdoctor.metrics`.
    points : Points, optional
        Where FRR@TRR and its like are taken.
    process_group : optional
        The processes to gather from; by default all.

    Examples
    --------
    >>> metric = RejectionMetrics("alpha")
    >>> logits = torch.tensor([[4.0, 0], [3, 0], [1, 0], [0, 1]])
    >>> metric.update(logits, torch.tensor([0, 0, 1, 1]))
    >>> round(float(metric.compute()["auroc"]), 3)
    0.833
    """

    def __init__(
        self,
        score: str = "alpha",
        *,
        temperature: float = 1.0,
        metrics: tuple[str, ...] = ("auroc", "frr_at_trr", "aurc"),
        points: Points | None = None,
        process_group: Any = None,
    ) -> None:
        unknown = [name for name in metrics if name not in RANK_METRICS]
        if unknown:
            names = ", ".join(RANK_METRICS)
            message = f"expected metrics out of {names}, got {unknown[0]!r}."
            raise InputError(message)
        self.score = find_logit_score(score)
        self.temperature = temperature
        self.metrics = metrics
        self.points = points or Points()
        self.process_group = process_group
        self.sketch = Sketch()

    def update(self, logits: Tensor, labels: Tensor) -> None:
        """Count a batch of logits (n, C) and labels (n,) of any device."""
        with torch.no_grad():
            if logits.ndim != 2 or labels.shape != logits.shape[:1]:
                message = (
                    "expected logits (n, C) and labels (n,), got shapes "
                    f"{tuple(logits.shape)} and {tuple(labels.shape)}."
                )
                raise InputError(message)
            if len(logits) == 0:
                return
            integers = not (labels.is_floating_point() or labels.is_complex())
            if not integers or bool(((labels < 0) | (labels >= logits.shape[1])).any()):
                message = (
                    f"expected labels from 0 to {logits.shape[1] - 1}, as integers. "
                    "Leave rows that are to be ignored out."
                )
                raise InputError(message)
            doubts = self.score.function(logits, temperature=self.temperature)
            wrong = logits.argmax(-1) != labels
        self.sketch.update(doubts, wrong)

    def compute(self) -> dict[str, Tensor]:
        """Return each metric over all rows of all processes."""
        bounds = self.bounds()
        return {name: torch.tensor((low + high) / 2) for name, (low, high) in bounds}

    def bounds(self) -> list[tuple[str, tuple[float, float]]]:
        """Return the bounds of each metric, over all rows of all processes.

        Metrics that do not exist on the rows, as AUROC without an error, are NaN.
        """
        sketch = self._gathered().tied(ROUNDING)
        missing = undefined(sketch.counts)
        nothing = (float("nan"), float("nan"))
        return [
            (name, nothing)
            if name in missing or len(sketch) == 0
            else (name, sketch.bounds(name, points=self.points))
            for name in self.metrics
        ]

    def reset(self) -> None:
        """Forget all rows."""
        self.sketch = Sketch()

    def merge_state(self, other: "RejectionMetrics") -> None:
        """Count the rows of another metric, too."""
        if (self.score, self.temperature) != (other.score, other.temperature):
            message = "expected a metric of the same score and temperature, got others."
            raise InputError(message)
        self.sketch.merge(other.sketch)

    def __call__(self, logits: Tensor, labels: Tensor) -> dict[str, Tensor]:
        """Count a batch, and return the metrics of this batch alone."""
        before, self.sketch = self.sketch, Sketch()
        try:
            self.update(logits, labels)
            bounds = self._bounds_of_this_process()
            before.merge(self.sketch)
        finally:
            self.sketch = before
        return {name: torch.tensor((low + high) / 2) for name, (low, high) in bounds}

    def _bounds_of_this_process(self) -> list[tuple[str, tuple[float, float]]]:
        group, self.process_group = self.process_group, _ALONE
        try:
            return self.bounds()
        finally:
            self.process_group = group

    def _gathered(self) -> Sketch:
        alone = not (distributed.is_available() and distributed.is_initialized())
        if alone or self.process_group is _ALONE:
            return self.sketch
        group = self.process_group
        # Sketches, not logits: a few megabytes, whatever each process has counted.
        contents: list[Any] = [None] * distributed.get_world_size(group)
        distributed.all_gather_object(contents, self.sketch.to_bytes(), group=group)
        joined = Sketch()
        for content in contents:
            joined.merge(Sketch.from_bytes(content))
        return joined

    def state_dict(self) -> dict[str, Any]:
        """Return the state for a checkpoint."""
        facts = {"score": self.score.name, "temperature": self.temperature}
        return {"sketch": self.sketch.to_bytes(), **facts}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Resume from a checkpoint."""
        stored = (state.get("score"), state.get("temperature"))
        if stored != (self.score.name, self.temperature) or "sketch" not in state:
            message = (
                f"expected the state of {self.score.name} at temperature "
                f"{self.temperature:g}, got that of {stored[0]} at {stored[1]}."
            )
            raise InputError(message)
        self.sketch = Sketch.from_bytes(state["sketch"])


_ALONE = object()
