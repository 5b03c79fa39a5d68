"""A second opinion: the model is asked again about views of the same input.

The doubt is the log odds that the clean prediction is wrong, under the mean over clean
input and views of the log-softmax. Asked one after another, and only about rows still
in doubt, five views cost 0.55 (coverage 0.9) to 0.83 (TRR 0.95) passes more per row of
CIFAR-10 (ResNet-20, benchmarks/opinion.py); `sequential` is the one scalar score whose
lazy evaluation that is, so a promise calibrated on it holds for the whole procedure.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from trustdoctor.arrays import Array
from trustdoctor.errors import InputError
from trustdoctor.gates import Gate, Screened
from trustdoctor.kernels import normalise
from trustdoctor.opinion.checks import ViewCheck, check_views
from trustdoctor.opinion.lazily import ask_lazily, finite_logits
from trustdoctor.opinion.models import ask_model, predictor
from trustdoctor.opinion.parts import (
    Part,
    join_opinions,
    join_predictions,
    join_screened,
    split,
)
from trustdoctor.opinion.sequential import LEVEL, calibrate_opinions
from trustdoctor.opinion.views import as_views
from trustdoctor.predictions import Opinions, Predictions
from trustdoctor.progress import Tell
from trustdoctor.scores import beta, find_logit_score


class SecondOpinion:
    """Asks a model about its inputs, and about views of them.

    Parameters
    ----------
    model
        A function of inputs to logits (n, C), a torch module, a fitted scikit-learn
        classifier, a path to an ONNX model, or a Hugging Face model: a local folder, or
        (model, processor). Of a function, the networks that it names are in eval mode
        while they are asked.
    views : sequence of View or callable
        As `image_views`, `text_views` or `table_views` give them, or your own.
    batch_size : int
        Rows per pass.
    inputs, labels : int or str, optional
        Which parts of a batch they are, for data that come in batches: positions in
        tuples, keys of dicts. By default tuples are (input, labels, ...) and dicts have
        usual keys.
    p, t : float, optional
        Average logits whose p-norm was taken out, divided by t, as `normalised_alpha`
        has them. By default the logits themselves are averaged: on clean images that
        was better for our networks, on blurred ones this is (docs/tuning.md).

    Examples
    --------
    >>> from trustdoctor import View
    >>> weights = np.array([[2.0, -1.0], [-1.0, 2.0]])
    >>> ask = SecondOpinion(lambda x: x @ weights, [View("twice", lambda x: 2 * x)])
    >>> ask(np.array([[1.0, 0.5], [0.2, 0.3]])).doubts.round(2)
    array([[-1.5 , -2.25],
           [-0.3 , -0.45]])
    """

    def __init__(  # noqa: PLR0913 - options, by keyword only
        self,
        model: Any,
        views: Sequence[Any],
        *,
        batch_size: int = 256,
        inputs: int | str | None = None,
        labels: int | str | None = None,
        p: float | None = None,
        t: float = 0.3,
    ) -> None:
        if p is not None:
            # Refuses values of p and t that are out of range.
            find_logit_score("normalised_alpha").with_parameters(p=p, t=t)
        self.p, self.t = p, t
        if not (isinstance(batch_size, int) and batch_size >= 1):
            message = f"expected a batch size of 1 or more, got {batch_size!r}."
            raise InputError(message)
        self.predict = predictor(model)
        self.views = as_views(views)
        self.batch_size = batch_size
        self.inputs, self.labels = inputs, labels

    @property
    def names(self) -> tuple[str, ...]:
        """What gates call the views; how they are averaged belongs to it."""
        how = "" if self.p is None else f" (p={self.p:g}, t={self.t:g})"
        return tuple(f"{view.name}{how}" for view in self.views)

    def _heard(self, said: Predictions) -> Array:
        """Return what is averaged of an answer."""
        logits = finite_logits(said)
        if self.p is None:
            return logits
        return np.asarray(normalise(logits, float(self.p))[0] / self.t)

    def __call__(
        self, data: Any, labels: Any = None, *, progress: Tell | None = None
    ) -> Opinions:
        """Ask about all rows and all their views.

        Parameters
        ----------
        data
            Rows: an array, a tensor, a list, a table. Or batches with their labels: a
            DataLoader or another iterator, a data set of torch's, a dict, a tuple.
        labels : array (n,) or one-hot (n, C), optional
            Of rows.
        """
        parts = self._parts(data, labels, progress)
        return join_opinions([self._asked(part, tell) for part, tell in parts])

    def _parts(
        self, data: Any, labels: Any, progress: Tell | None
    ) -> Iterator[tuple[Part, Tell]]:
        """Yield the parts of the data, each with a way to tell how far it is."""
        names = {"inputs": self.inputs, "key": self.labels}
        parts, total = split(data, labels, batch_size=self.batch_size, **names)
        for i, part in enumerate(parts):

            def tell(share: float, what: str, i: int = i) -> None:
                if progress is not None:
                    progress((i + share) / total if total else 0.0, what)

            yield part, tell

    def _asked(self, part: Part, tell: Tell) -> Opinions:
        n, passes = len(part), 1 + len(self.views)
        total, kept = None, []
        for k in range(passes):
            said = self._pass(part, np.arange(n), k, tell, n * passes)
            heard = self._heard(said)
            if total is None:
                judged = part.judged(said)
            total = heard if total is None else _sum(total, heard)
            kept.append((finite_logits(said), total / (k + 1)))
        doubts = [_doubt(mean, judged.predicted) for _, mean in kept]
        own = [beta(logits) for logits, _ in kept]
        return Opinions(
            judged,
            np.stack(doubts, 1),
            np.stack([logits.argmax(1) for logits, _ in kept], 1),
            np.stack([1 / (1 + np.exp(doubt)) for doubt in own], 1),
        )

    def check(self, data: Any, labels: Any = None) -> list[ViewCheck]:
        """Report what each view does to answers, and propose which to drop."""
        return check_views(self(data, labels), list(self.names))

    def calibrate(  # noqa: PLR0913 - options, by keyword only
        self,
        data: Any,
        labels: Any = None,
        *,
        share: float = 0.25,
        level: float = LEVEL,
        seed: int = 0,
        progress: Tell | None = None,
        **target: Any,
    ) -> Gate:
        """Calibrate the sequential procedure; targets and options as in `calibrate`.

        Parameters
        ----------
        data, labels
            Calibration rows, or batches that have labels. All their views are asked.
        share : float
            Of the rows, drawn at random, that learn the margins and set nothing else;
            beside those that the promise does not rest on (for TRR the correct ones).
        level : float
            Of the margins; 0 never stops early on a side that learned rows left.
        """
        found = self(data, labels, progress=progress)
        return calibrate_opinions(
            found, list(self.names), share=share, level=level, seed=seed, **target
        )

    def screen(
        self, data: Any, gate: Gate, *, progress: Tell | None = None
    ) -> Screened:
        """Decide on each row, asking views only about rows still in doubt.

        The score of a row is its last doubt, moved by its margin: on the side of the
        threshold that was decided for, and the score itself where all views were asked.
        """
        if not isinstance(gate, Gate):
            message = f"expected a Gate, got {type(gate).__name__}."
            raise InputError(message)
        margins = gate.margins
        names = self.names
        if margins is None or margins.views != names:
            known = "none" if margins is None else ", ".join(margins.views)
            message = (
                f"expected a gate for the views {', '.join(names)}, got one for "
                f"{known}. Calibrate it with these views."
            )
            raise InputError(message)
        done = [
            self._screened(part, gate, tell)
            for part, tell in self._parts(data, None, progress)
        ]
        return join_screened(done)

    def _screened(self, part: Part, gate: Gate, tell: Tell) -> Screened:
        """Decide on the rows of one part; the label is that of the clean input."""
        n, margins = len(part), gate.margins
        assert margins is not None
        scores, accepted = np.zeros(n), np.zeros(n, bool)
        passes, first = np.zeros(n, np.int64), list[Predictions]()
        total = np.zeros((0, 0))

        def settle(k: int, still: Array, said: Predictions) -> Array:
            nonlocal total
            heard = self._heard(said)
            if not first:
                first.append(part.judged(said))
                total = heard.copy()
            else:
                total[still] = _sum(total[still], heard)
            passes[still] += 1
            mean = total[still] / (k + 1)
            doubts = _doubt(mean, first[0].predicted[still])
            moved = margins.settled_doubts(doubts, k, gate)
            scores[still], accepted[still] = moved, gate.accept(moved)
            return margins.settled(doubts, k, gate)

        def ask(k: int, still: Array) -> Predictions:
            return self._pass(part, still, k, tell, n)

        ask_lazily(n, 1 + len(self.views), ask, settle)
        judged = first[0]
        return Screened(scores, accepted, judged.predicted, passes, judged)

    def _pass(
        self, part: Part, rows: Array, k: int, tell: Tell, total: int
    ) -> Predictions:
        """Return what is said of some rows, clean or by the k-th view."""
        out: list[Predictions] = []
        for start in range(0, len(rows), self.batch_size):
            at = rows[start : start + self.batch_size]
            inputs = part.pick(at)
            inputs = self.views[k - 1](inputs) if k else inputs
            out.append(ask_model(self.predict, inputs, len(at)))
            done = k * len(rows) + start + len(at)
            tell(min(done / total, 1.0), f"pass {k + 1}")
        return join_predictions(out)


def _sum(total: Array, logits: Array) -> Array:
    if total.shape != logits.shape:
        message = (
            f"expected {total.shape[1]} classes for every view, got {logits.shape[1]}."
        )
        raise InputError(message)
    return np.asarray(total + logits)


def _doubt(mean: Array, predicted: Array) -> Array:
    return np.asarray(beta(mean, predicted=predicted))
