"""A second opinion: the model is asked again about views of the same input.

The doubt is the log odds that the clean prediction is wrong, under the mean over clean
input and views of the log-softmax. Asked one after another, and only about rows still
in doubt, five views cost 0.55 (coverage 0.9) to 0.83 (TRR 0.95) passes more per row of
CIFAR-10 (ResNet-20, benchmarks/opinion.py); `sequential` is the one scalar score whose
lazy evaluation that is, so a promise calibrated on it holds for the whole procedure.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from msgspec import structs

from trustdoctor.adapters.errors import describe_inputs
from trustdoctor.arrays import Array, as_classes
from trustdoctor.errors import InputError
from trustdoctor.gates import (
    TARGETS,
    Gate,
    Margins,
    Screened,
    TargetValue,
    calibrate_scores,
    requested_targets,
)
from trustdoctor.kernels import normalise
from trustdoctor.opinion.models import (
    InputRows,
    ask_model,
    check_rows,
    join_predictions,
    predictor,
)
from trustdoctor.opinion.run import ask_lazily, finite_logits
from trustdoctor.opinion.views import ViewCheck, as_views, check_views
from trustdoctor.predictions import Opinions, Predictions
from trustdoctor.progress import Tell
from trustdoctor.scores import beta, find_logit_score

if TYPE_CHECKING:
    from trustdoctor.adapters.torch.batches import Batch

LEVEL = 0.002
"""The share of rows that margins may stop early on the wrong side of the threshold."""


class SecondOpinion:
    """Asks a model about its inputs, and about views of them.

    It keeps nothing between calls: threads may share one if they may share the model.

    Parameters
    ----------
    model
        A function of inputs to logits (n, C), a torch module, a fitted scikit-learn
        classifier, a path to an ONNX model, or a Hugging Face model: a local folder, or
        (model, processor). Torch modules that a function refers to are in eval mode
        while it is called.
    views : sequence of View or callable
        As `image_views`, `text_views` or `table_views` give them, or your own.
    batch_size : int
        Rows per pass.
    inputs, labels : int or str, optional
        Where a batch has them, for data that come in batches: positions in tuples or
        keys of dicts. By default tuples are (input, labels, ...) and dicts have the
        usual keys.
    max_length : int, optional
        The largest number of tokens per text, for a Hugging Face model; by default the
        tokenizer's.
    p, t : float, optional
        Average logits divided by their p-norm and by t, as in `normalised_alpha`. By
        default the logits themselves are averaged: for our networks that is better on
        clean images, and normalised logits on blurred ones (docs/tuning.md).

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
        max_length: int | None = None,
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
        self.model, self.max_length = model, max_length
        self.predict = predictor(model, max_length=max_length)
        self.views = as_views(views)
        self.batch_size = batch_size
        self.inputs, self.labels = inputs, labels

    def __getstate__(self) -> dict[str, Any]:
        """Return what a copy in another process needs: the model, not its function."""
        return {k: v for k, v in self.__dict__.items() if k != "predict"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Restore what `__getstate__` returned."""
        self.__dict__.update(state)
        self.predict = predictor(self.model, max_length=self.max_length)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the views for gates; they say how answers are averaged."""
        averaging = "" if self.p is None else f" (p={self.p:g}, t={self.t:g})"
        return tuple(f"{view.name}{averaging}" for view in self.views)

    def _averaged_logits(self, predictions: Predictions) -> Array:
        """Return the logits that enter the mean over passes."""
        logits = finite_logits(predictions)
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
            DataLoader or another iterator, a torch data set, a dict, a tuple.
        labels : array (n,) or one-hot (n, C), optional
            The labels of rows; batches bring theirs.
        """
        batches = self._batches(data, labels, progress)
        return join_opinions([self._opinions(batch, tell) for batch, tell in batches])

    def _batches(
        self, data: Any, labels: Any, progress: Tell | None
    ) -> Iterator[tuple[InputRows, Tell]]:
        """Yield the batches of the data, each with a function that reports progress."""
        names = {"inputs": self.inputs, "key": self.labels}
        batches, count = as_batches(data, labels, batch_size=self.batch_size, **names)
        for i, batch in enumerate(batches):

            def tell(share: float, task: str, i: int = i) -> None:
                if progress is not None:
                    progress((i + share) / count if count else 0.0, task)

            yield batch, tell

    def _opinions(self, batch: InputRows, tell: Tell) -> Opinions:
        """Ask about all rows of a batch and all their views."""
        n, passes = len(batch), 1 + len(self.views)
        total = None
        logits_by_pass, means = [], []
        for k in range(passes):
            predictions = self._pass(batch, np.arange(n), k, tell, n * passes)
            logits = self._averaged_logits(predictions)
            if total is None:
                clean = batch.with_labels(predictions)
            total = logits if total is None else _sum(total, logits)
            logits_by_pass.append(finite_logits(predictions))
            means.append(total / (k + 1))
        own_doubts = [beta(logits) for logits in logits_by_pass]
        return Opinions(
            clean,
            np.stack([_doubt(mean, clean.predicted) for mean in means], 1),
            np.stack([logits.argmax(1) for logits in logits_by_pass], 1),
            # beta is the log odds of the other classes, so this is the top probability
            np.stack([1 / (1 + np.exp(doubt)) for doubt in own_doubts], 1),
        )

    def check(self, data: Any, labels: Any = None) -> list[ViewCheck]:
        """Report the effect of each view on the answers, and propose views to drop."""
        return check_views(self(data, labels), list(self.names))

    def calibrate(  # noqa: PLR0913 - options, by keyword only
        self,
        data: Any,
        labels: Any = None,
        *,
        risk: TargetValue = None,
        frr: TargetValue = None,
        trr: TargetValue = None,
        joint: TargetValue = None,
        coverage: TargetValue = None,
        cost: float | None = None,
        threshold: float | None = None,
        target: Mapping[str, TargetValue] | None = None,
        confidence: float = 0.9,
        mode: Literal["confidence", "expectation"] | None = None,
        label_noise: float = 0.0,
        share: float = 0.25,
        level: float = LEVEL,
        seed: int = 0,
        progress: Tell | None = None,
    ) -> Gate:
        """Calibrate the sequential procedure.

        Parameters
        ----------
        data, labels
            Calibration rows, or batches that have labels. All their views are asked.
        risk, frr, trr, joint, coverage, cost, threshold, target
            The target, as in `trustdoctor.calibrate`.
        confidence, mode, label_noise
            As in `trustdoctor.calibrate`.
        share : float
            The share of the rows, drawn at random, that learn the margins and nothing
            else. Rows on which the promise does not rest (for TRR the correct ones)
            learn them, too.
        level : float
            The share of the learning rows that all views would reject which margins
            may accept early, and the reverse; 0 allows none.
        """
        targets = requested_targets(
            target,
            risk=risk,
            frr=frr,
            trr=trr,
            joint=joint,
            coverage=coverage,
            cost=cost,
            threshold=threshold,
        )
        opinions = self(data, labels, progress=progress)
        return calibrate_opinions(
            opinions,
            list(self.names),
            targets,
            share=share,
            level=level,
            seed=seed,
            confidence=confidence,
            mode=mode,
            label_noise=label_noise,
        )

    def screen(
        self, data: Any, gate: Gate, *, progress: Tell | None = None
    ) -> Screened:
        """Decide on each row, asking views only about rows still in doubt.

        The score of a row that stops early is its last doubt, moved by its margin
        towards the threshold; the score of a row with all views is its last doubt.
        """
        if not isinstance(gate, Gate):
            message = f"expected a Gate, got {type(gate).__name__}."
            raise InputError(message)
        margins = gate.margins
        names = self.names
        if margins is None or margins.views != names:
            gate_views = "none" if margins is None else ", ".join(margins.views)
            message = (
                f"expected a gate for the views {', '.join(names)}, got one for "
                f"{gate_views}. Calibrate it with these views."
            )
            raise InputError(message)
        decisions = [
            self._decisions(batch, gate, tell)
            for batch, tell in self._batches(data, None, progress)
        ]
        return join_screened(decisions)

    def _decisions(self, batch: InputRows, gate: Gate, tell: Tell) -> Screened:
        """Decide on the rows of a batch; the label is that of the clean input."""
        n, margins = len(batch), gate.margins
        assert margins is not None
        scores, accepted = np.zeros(n), np.zeros(n, bool)
        passes = np.zeros(n, np.int64)
        clean: Predictions | None = None
        total = np.zeros((0, 0))

        def settle(k: int, rows: Array, predictions: Predictions) -> Array:
            nonlocal total, clean
            logits = self._averaged_logits(predictions)
            if clean is None:
                clean = batch.with_labels(predictions)
                total = logits.copy()
            else:
                total[rows] = _sum(total[rows], logits)
            passes[rows] += 1
            mean = total[rows] / (k + 1)
            doubts = _doubt(mean, clean.predicted[rows])
            moved = margins.settled_doubts(doubts, k, gate)
            scores[rows], accepted[rows] = moved, gate.accept(moved)
            return margins.settled(doubts, k, gate)

        def ask(k: int, rows: Array) -> Predictions:
            return self._pass(batch, rows, k, tell, n)

        ask_lazily(n, 1 + len(self.views), ask, settle)
        assert clean is not None
        return Screened(
            scores, accepted, _named(clean), passes=passes, predictions=clean
        )

    def _pass(
        self, batch: InputRows, rows: Array, k: int, tell: Tell, total: int
    ) -> Predictions:
        """Return predictions for some rows: of the clean input, or of the k-th view."""
        answers: list[Predictions] = []
        for start in range(0, len(rows), self.batch_size):
            indices = rows[start : start + self.batch_size]
            inputs = batch.pick(indices)
            inputs = self.views[k - 1](inputs) if k else inputs
            answers.append(ask_model(self.predict, inputs, len(indices)))
            finished = k * len(rows) + start + len(indices)
            tell(min(finished / total, 1.0), f"pass {k + 1}")
        return join_predictions(answers)


def _sum(total: Array, logits: Array) -> Array:
    if total.shape != logits.shape:
        message = (
            f"expected {total.shape[1]} classes for every view, got {logits.shape[1]}."
        )
        raise InputError(message)
    return np.asarray(total + logits)


def _named(predictions: Predictions) -> Array:
    """Return the predicted classes, by name where the classes have names."""
    return np.asarray(predictions.predicted_names)


def _doubt(mean: Array, predicted: Array) -> Array:
    return np.asarray(beta(mean, predicted=predicted))


def as_batches(
    data: Any, labels: Any, *, batch_size: int, inputs: Any, key: Any
) -> tuple[Iterator[InputRows], int | None]:
    """Return the batches of the data, and their number if it is known.

    A DataLoader, another iterable of batches, a data set, a dict and a tuple (input,
    labels) bring their labels along; `inputs` and `key` name the two. Everything else
    is rows, all in one batch.
    """
    if not _in_batches(data):
        check_rows(data)
        classes, width = (None, 0) if labels is None else as_classes(labels)
        return iter([InputRows(data, classes, width)]), 1
    if labels is not None:
        message = (
            "expected labels in the batches or beside rows, got batches and labels. "
            "Leave the labels out; labels= of SecondOpinion names them in a batch."
        )
        raise InputError(message)
    from trustdoctor.adapters.torch.batches import ONE_INPUT, BatchLayout, batches

    layout = BatchLayout(inputs, key, takes=ONE_INPUT)
    torch_batches, count = batches(data, batch_size=batch_size, layout=layout)
    return map(_rows_of_batch, torch_batches), count


def _in_batches(data: Any) -> bool:
    """Tell batches from rows, without importing torch."""
    if isinstance(data, tuple) and data:
        return isinstance(data[0], list) or getattr(data[0], "ndim", 0) > 1
    modules = {base.__module__ for base in type(data).__mro__}
    if isinstance(data, Mapping) or any(
        module.startswith("torch.utils.data") for module in modules
    ):
        return True
    return isinstance(data, Iterable) and not hasattr(data, "__getitem__")


def _rows_of_batch(batch: "Batch") -> InputRows:
    if len(batch.inputs) != 1:
        message = (
            "expected one input per batch, of which views are made, got "
            f"{describe_inputs(*batch.inputs.values())}. Name one with inputs=."
        )
        raise InputError(message)
    (rows,) = batch.inputs.values()
    labels = None if batch.labels is None else batch.labels.numpy()
    return InputRows(rows, labels, batch.classes)


def join_opinions(batches: list[Opinions]) -> Opinions:
    """Join opinions on one batch after another."""
    _require_batches(batches)
    return Opinions(
        join_predictions([batch.predictions for batch in batches]),
        np.concatenate([batch.doubts for batch in batches]),
        np.concatenate([batch.answers for batch in batches]),
        np.concatenate([batch.confidence for batch in batches]),
    )


def join_screened(batches: list[Screened]) -> Screened:
    """Join decisions on one batch after another."""
    _require_batches(batches)
    return Screened(
        np.concatenate([batch.doubts for batch in batches]),
        np.concatenate([batch.accepted for batch in batches]),
        np.concatenate([batch.predicted for batch in batches]),
        passes=np.concatenate([b.passes for b in batches if b.passes is not None]),
        predictions=join_predictions([b.predictions for b in batches if b.predictions]),
    )


def _require_batches(batches: list[Any]) -> None:
    if not batches:
        message = "expected at least one row, got none."
        raise InputError(message)


def calibrate_opinions(  # noqa: PLR0913 - options, by keyword only
    opinions: Opinions,
    views: Sequence[str],
    target: Mapping[str, TargetValue],
    *,
    share: float = 0.25,
    level: float = LEVEL,
    seed: int = 0,
    **options: Any,
) -> Gate:
    """Learn margins on a share of the rows, and set the threshold on the others.

    `options` are those of `calibrate_scores`.
    """
    errors = opinions.predictions.errors
    _check_options(share, level, seed, len(errors))
    order = np.random.default_rng(seed).permutation(len(errors))
    size = min(max(1, round(share * len(order))), len(order) - 1)
    margin_rows, threshold_rows = np.split(order, [size])
    provisional = _provisional_gate(
        opinions.scores[margin_rows], errors[margin_rows], target, options
    )
    margin_rows = _margin_rows(errors, margin_rows, target)
    margins = learn_margins(
        opinions.doubts[margin_rows], provisional, tuple(views), level=level
    )
    scores = margins.sequential(opinions.doubts[threshold_rows])
    gate = calibrate_scores(scores, errors[threshold_rows], target=target, **options)
    certificate = gate.certificate
    assert certificate is not None
    note = (
        f"{len(margin_rows):,} rows on which the promise does not rest learned the "
        "margins at which views stop being asked; rates that are not promised include "
        f"such rows. Views: {', '.join(views)}."
    )
    certificate = structs.replace(certificate, notes=(*certificate.notes, note))
    return replace(gate, margins=margins, certificate=certificate)


def _check_options(share: Any, level: Any, seed: Any, rows: int) -> None:
    """Refuse options that no second opinion can be calibrated with."""
    are_numbers = all(isinstance(value, (int, float)) for value in (share, level))
    if not (are_numbers and 0 < share < 1 and 0 <= level < 0.5):
        message = (
            f"expected a share between 0 and 1 and a level below 0.5, got {share!r} "
            f"and {level!r}."
        )
        raise InputError(message)
    if not (type(seed) is int and seed >= 0) or rows < 2:
        message = f"expected two rows or more and a seed of 0 or more, got {seed!r}."
        raise InputError(message)


def _provisional_gate(
    scores: Array,
    errors: Array,
    target: Mapping[str, TargetValue],
    options: dict[str, Any],
) -> Gate:
    """Guess the threshold around which margins are learned."""
    # In expectation: with confidence, few rows would give a threshold far from the
    # final one, and margins about the wrong place.
    requested = [entry for name, entry in TARGETS.items() if name in target]
    # On average a risk is met far beyond where it is promised with confidence.
    has_expectation = (
        len(requested) == 1 and requested[0].promised and requested[0].by_rank
    )
    mode = {"mode": "expectation"} if has_expectation else {}
    return calibrate_scores(scores, errors, target=target, **(options | mode))


def _margin_rows(
    errors: Array, drawn: Array, target: Mapping[str, TargetValue]
) -> Array:
    """Return the rows that may learn margins: those that do not set the threshold.

    A threshold for TRR rests on errors alone, so every correct row is spare, and the
    other way round for FRR.
    """
    rests_on = {TARGETS[name].rests_on for name in target if name in TARGETS}
    spare = np.zeros(len(errors), bool)
    spare[drawn] = True
    if rests_on == {"errors"}:
        spare |= ~errors
    elif rests_on == {"correct"}:
        spare |= errors
    return np.flatnonzero(spare)


def learn_margins(
    doubts: Array, gate: Gate, views: tuple[str, ...], *, level: float
) -> Margins:
    """Learn how far from the threshold a doubt is settled, from rows with all views.

    The margin for accepting after k passes is such that a share `level` of the rows
    that all views would reject lie below; for rejecting, the other way round.
    """
    rejected = ~gate.accept(doubts[:, -1])
    threshold = gate.threshold
    if gate.state != "threshold" or rejected.all() or not rejected.any():
        endless = (np.inf,) * len(views)
        return Margins(views, endless, endless)
    low = np.quantile(doubts[rejected][:, :-1], level, axis=0)
    high = np.quantile(doubts[~rejected][:, :-1], 1 - level, axis=0)
    accept = threshold - low
    # The two may cross on few rows; no doubt may be settled on both sides.
    reject = np.maximum(high - threshold, -accept)
    return Margins(views, tuple(map(float, accept)), tuple(map(float, reject)))
