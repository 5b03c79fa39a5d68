"""A second opinion: the model is asked again about views of the same input.

The doubt is the log odds that the clean prediction is wrong, under the mean over clean
input and views of the log-softmax. Asked one after another, and only about rows still
in doubt, the views cost about one pass more; `sequential` is the one scalar score whose
lazy evaluation that is, so a promise calibrated on it holds for the whole procedure.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trustdoctor.calibrate import calibrate
from trustdoctor.curves import Array
from trustdoctor.errors import InputError
from trustdoctor.gate import Gate, Margins
from trustdoctor.metrics import auroc
from trustdoctor.predictions import Predictions, as_labels
from trustdoctor.progress import Tell
from trustdoctor.scores import beta
from trustdoctor.scores.views import as_views

LEVEL = 0.002
"""Share of the rows on one side that margins let stop early on the other."""

LEAST = 40.0
"""How far below the top a logit may be, where a probability of 0 stands for it."""

Predictor = Callable[[Any], Any]


@dataclass(frozen=True, eq=False)
class Opinions:
    """What the model said of rows and of all their views.

    Attributes
    ----------
    predictions : Predictions
        Of the clean input; these are the predictions that are judged.
    doubts : array (n, passes)
        The doubt after the first pass, after the second, ...
    answers : array (n, passes)
        The class that each view by itself would get.
    confidence : array (n, passes)
        The largest probability of each view by itself.
    """

    predictions: Predictions
    doubts: Array = field(repr=False)
    answers: NDArray[np.int64] = field(repr=False)
    confidence: Array = field(repr=False)

    @property
    def scores(self) -> Array:
        """The doubt after all passes."""
        return self.doubts[:, -1]


@dataclass(frozen=True, eq=False)
class Decided:
    """What the sequential procedure decided.

    Attributes
    ----------
    predictions : Predictions
        Of the clean input.
    accepted : bool array (n,)
    passes : integer array (n,)
        How often the model was asked about each row.
    scores : array (n,)
        The last doubt of each row, moved by its margin: on the side of the threshold
        that was decided for, and the score itself where all views were asked.
    """

    predictions: Predictions
    accepted: NDArray[np.bool_]
    passes: NDArray[np.int64]
    scores: Array = field(repr=False)


@dataclass(frozen=True)
class ViewCheck:
    """What one view does.

    Attributes
    ----------
    name : str
    agreement : float
        Share of rows whose answer is that of the clean input.
    confidence : float
        The model's mean confidence on the view less that on the clean input.
    accuracy : float or None
        Of the view's own answers less that of the clean ones, where labels are known.
    auroc : float or None
        Of clean input and this view less that of the clean input alone.
    keep : bool
        False where it costs more than a point of accuracy and finds no more errors
        (without labels: a point of confidence), and where it changes nothing.
    reason : str
        Why to drop it.
    """

    name: str
    agreement: float
    confidence: float
    accuracy: float | None
    auroc: float | None
    keep: bool
    reason: str = ""


class SecondOpinion:
    """Asks a model about its inputs, and about views of them.

    Parameters
    ----------
    model
        A function of inputs to logits (n, C), a torch module, a fitted scikit-learn
        classifier, a path to an ONNX model, or a Hugging Face model: a local folder, or
        (model, processor).
    views : sequence of View or callable
        As `image_views`, `text_views` or `table_views` give them, or your own.
    batch_size : int
        Rows a pass.

    Examples
    --------
    >>> from trustdoctor.scores.views import View
    >>> weights = np.array([[2.0, -1.0], [-1.0, 2.0]])
    >>> ask = SecondOpinion(lambda x: x @ weights, [View("twice", lambda x: 2 * x)])
    >>> ask(np.array([[1.0, 0.5], [0.2, 0.3]])).doubts.round(2)
    array([[-1.5 , -2.25],
           [-0.3 , -0.45]])
    """

    def __init__(
        self, model: Any, views: Sequence[Any], *, batch_size: int = 256
    ) -> None:
        if not (isinstance(batch_size, int) and batch_size >= 1):
            message = f"expected a batch size of 1 or more, got {batch_size!r}."
            raise InputError(message)
        self.predict = predictor(model)
        self.views = as_views(views)
        self.batch_size = batch_size

    def __call__(
        self, data: Any, labels: Any = None, *, progress: Tell | None = None
    ) -> Opinions:
        """Ask about all rows and all their views."""
        n, passes = _count(data), 1 + len(self.views)
        total, kept = None, []
        for k in range(passes):
            said = self._pass(data, np.arange(n), k, progress, n * passes)
            logits = _finite(said)
            if total is None:
                judged = Predictions(
                    said.logits,
                    as_labels(labels, *said.logits.shape),
                    said.from_probabilities,
                )
            total = logits if total is None else _sum(total, logits)
            kept.append((logits, total / (k + 1)))
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
        return check_views(self(data, labels), [view.name for view in self.views])

    def calibrate(  # noqa: PLR0913 - options, by keyword only
        self,
        data: Any,
        labels: Any,
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
            Calibration rows. All their views are asked.
        share : float
            Of the rows, drawn at random, that learn the margins and set nothing else;
            beside those that the promise does not rest on (for TRR the correct ones).
        level : float
            Of the margins; 0 never stops early on a side that learned rows left.
        """
        found = self(data, labels, progress=progress)
        names = [view.name for view in self.views]
        return calibrate_opinions(
            found, names, share=share, level=level, seed=seed, **target
        )

    def screen(self, data: Any, gate: Gate, *, progress: Tell | None = None) -> Decided:
        """Decide on each row, asking views only about rows still in doubt."""
        if not isinstance(gate, Gate):
            message = f"expected a Gate, got {type(gate).__name__}."
            raise InputError(message)
        margins = gate.margins
        names = tuple(view.name for view in self.views)
        if margins is None or margins.views != names:
            known = "none" if margins is None else ", ".join(margins.views)
            message = (
                f"expected a gate for the views {', '.join(names)}, got one for "
                f"{known}. Calibrate it with these views."
            )
            raise InputError(message)
        n = _count(data)
        judged = self._pass(data, np.arange(n), 0, progress, n)
        total = _finite(judged)
        last = _doubt(total, judged.predicted)
        scores, accepted = last.copy(), np.zeros(n, bool)
        passes, still = np.ones(n, np.int64), np.arange(n)
        total = total.copy()
        for k in range(1 + len(names)):
            if k:
                heard = _finite(self._pass(data, still, k, progress, n))
                total[still] = _sum(total[still], heard)
                passes[still] += 1
                mean = total[still] / (k + 1)
                last = _doubt(mean, judged.predicted[still])
            done = margins.stopped(last, k, gate)
            moved = margins.moved(last, k, gate)
            scores[still], accepted[still] = moved, gate.accept(moved)
            still, last = still[~done], last[~done]
            if not len(still):
                break
        return Decided(judged, accepted, passes, scores)

    def _pass(
        self, data: Any, rows: Array, k: int, progress: Tell | None, total: int
    ) -> Predictions:
        """Return what is said of some rows, clean or by the k-th view."""
        out: list[Predictions] = []
        for start in range(0, len(rows), self.batch_size):
            at = rows[start : start + self.batch_size]
            inputs = _rows(data, at)
            inputs = self.views[k - 1](inputs) if k else inputs
            out.append(_said(self.predict(inputs), len(at)))
            if progress is not None:
                done = k * len(rows) + start + len(at)
                progress(min(done / total, 1.0), f"pass {k + 1}")
        if len({one.n_classes for one in out}) > 1:
            message = "the model gave other numbers of classes from batch to batch."
            raise InputError(message)
        logits = np.concatenate([one.logits for one in out])
        if out[0].from_probabilities:
            return Predictions(logits, None, from_probabilities=True)
        return Predictions.from_logits(logits)  # not probabilities by mistake


def check_views(found: Opinions, names: Sequence[str]) -> list[ViewCheck]:
    """Report what each view does, from what the model said of it."""
    p, out = found.predictions, []
    for k, name in enumerate(names, start=1):
        agreement = float((found.answers[:, k] == p.predicted).mean())
        sure = float(found.confidence[:, k].mean() - found.confidence[:, 0].mean())
        accuracy = gain = None
        reason = "" if sure > -0.01 else "the model is less sure of it"
        if p.labels is not None:
            own = found.answers[:, k] != p.labels
            accuracy = float(p.errors.mean() - own.mean())
            if p.errors.any() and not p.errors.all():
                pair = _pair(found, k)
                gain = auroc(pair, p.errors) - auroc(found.doubts[:, 0], p.errors)
            harms = accuracy <= -0.01 and (gain is None or gain <= 0)
            reason = "it costs accuracy and finds no errors" if harms else ""
        same = np.allclose(found.confidence[:, k], found.confidence[:, 0], atol=1e-6)
        if same and agreement == 1:
            reason = reason or "it changes nothing"
        kept = not reason
        out.append(ViewCheck(name, agreement, sure, accuracy, gain, kept, reason))
    return out


def _pair(found: Opinions, k: int) -> Array:
    """Return a doubt from clean input and one view: its own confidence in the label."""
    agree = found.answers[:, k] == found.predictions.predicted
    sure = np.clip(found.confidence[:, k], 1e-12, 1 - 1e-12)
    own = np.log((1 - sure) / sure)
    return np.asarray(found.doubts[:, 0] + np.where(agree, own, -own))


def calibrate_opinions(
    found: Opinions,
    views: Sequence[str],
    *,
    share: float = 0.25,
    level: float = LEVEL,
    seed: int = 0,
    **target: Any,
) -> Gate:
    """Learn margins on a share of the rows, and set the threshold on the others."""
    real = all(isinstance(value, (int, float)) for value in (share, level))
    if not (real and 0 < share < 1 and 0 <= level < 0.5):
        message = (
            f"expected a share between 0 and 1 and a level below 0.5, got {share!r} "
            f"and {level!r}."
        )
        raise InputError(message)
    for name in ("score", "temperature", "groups", "grouped_by"):
        if name in target:
            message = f"{name} has no meaning for a second opinion. Leave it out."
            raise InputError(message)
    errors = found.predictions.errors
    if not (type(seed) is int and seed >= 0) or len(errors) < 2:
        message = f"expected two rows or more and a seed of 0 or more, got {seed!r}."
        raise InputError(message)
    order = np.random.default_rng(seed).permutation(len(errors))
    size = min(max(1, round(share * len(order))), len(order) - 1)
    learn, rest = np.split(order, [size])
    provisional = _provisional(found.scores[learn], errors[learn], target)
    also = _spare(errors, learn, target)
    margins = learn_margins(found.doubts[also], provisional, tuple(views), level=level)
    scores = margins.sequential(found.doubts[rest])
    gate = calibrate(scores, errors[rest], **target)
    certificate = gate.certificate
    assert certificate is not None
    note = (
        f"{len(also):,} rows on which the promise does not rest learned the margins at "
        f"which views stop being asked; rates that are not promised were seen on them, "
        f"too. Views: {', '.join(views)}."
    )
    certificate = replace(certificate, notes=(*certificate.notes, note))
    return replace(gate, margins=margins, certificate=certificate)


def _provisional(scores: Array, errors: Array, target: dict[str, Any]) -> Gate:
    """Guess the threshold, without the caution that few rows would ask for."""
    plain = {"frr", "trr", "joint", "coverage"} & set(target)
    mode = {"mode": "expectation"} if len(plain) == 1 else {}
    return calibrate(scores, errors, **(target | mode))


def _spare(errors: Array, learn: Array, target: dict[str, Any]) -> Array:
    """Return the rows that may learn margins: those that do not set the threshold.

    A threshold for TRR rests on errors alone, so every correct row is spare, and the
    other way round for FRR.
    """
    asked = {"frr", "trr"} & set(target)
    spare = np.zeros(len(errors), bool)
    spare[learn] = True
    if len(asked) == 1:
        spare |= ~errors if asked == {"trr"} else errors
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
    reject = np.maximum(high - threshold, -accept)
    return Margins(views, tuple(map(float, accept)), tuple(map(float, reject)))


def predictor(model: Any) -> Predictor:
    """Return a function of inputs to logits, for a model of any known kind."""
    if isinstance(model, (str, Path)) and str(model).endswith(".onnx"):
        return _adapter("onnx").predictor(model)
    if isinstance(model, (str, Path, tuple)):
        return _adapter("transformers").predictor(model)
    if hasattr(model, "predict_proba"):
        return _adapter("sklearn").predictor(model)
    if hasattr(model, "state_dict") and hasattr(model, "forward"):
        return _adapter("torch").predictor(model)
    if callable(model):
        return model
    message = (
        f"expected a model (a function of inputs to logits, a torch module, a "
        f"scikit-learn classifier, ...), got {type(model).__name__}."
    )
    raise InputError(message)


def _adapter(name: str) -> Any:
    return import_module(f"trustdoctor.adapters.{name}")


def _count(data: Any) -> int:
    rows = hasattr(data, "__len__") and hasattr(data, "__getitem__")
    if not rows or isinstance(data, (str, bytes, dict)):
        message = (
            f"expected rows that can be counted and picked (an array, a tensor, a "
            f"list, a table), got {type(data).__name__}."
        )
        raise InputError(message)
    if len(data) == 0:
        message = "expected at least one row, got none."
        raise InputError(message)
    return len(data)


def _rows(data: Any, at: Array) -> Any:
    if hasattr(data, "iloc"):  # a table of pandas
        return data.iloc[at]
    if isinstance(data, (list, tuple)):
        return [data[i] for i in at]
    return data[at]


def _said(answer: Any, rows: int) -> Predictions:
    """Check what a model said."""
    if isinstance(answer, Predictions):
        found = answer
    else:
        found = Predictions.from_logits(answer)
    if len(found) != rows:
        message = f"the model gave {len(found)} answers to {rows} rows."
        raise InputError(message)
    return found


def _finite(said: Predictions) -> Array:
    """Return logits that can be averaged: nothing is less than LEAST below the top.

    A probability of 0 would otherwise settle a row by one view alone.
    """
    z = said.logits.astype(np.float64)
    top = z.max(1, keepdims=True)
    least = LEAST if said.from_probabilities else np.inf
    return np.maximum(np.where(np.isneginf(z), top - LEAST, z), top - least)


def _sum(total: Array, logits: Array) -> Array:
    if total.shape != logits.shape:
        message = (
            f"expected {total.shape[1]} classes for every view, got {logits.shape[1]}."
        )
        raise InputError(message)
    return np.asarray(total + logits)


def _doubt(mean: Array, predicted: Array) -> Array:
    return np.asarray(beta(mean, predicted=predicted))
