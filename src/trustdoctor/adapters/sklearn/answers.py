"""A fitted classifier's answers to some rows, in numbers: no scikit-learn needed."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from trustdoctor.adapters.errors import refuse_multi_label
from trustdoctor.errors import InputError
from trustdoctor.gates import (
    SHORTLIST_SEED,
    SHORTLIST_SHARE,
    Gate,
    Shortlist,
    calibrate_shortlist,
    split_note,
)
from trustdoctor.predictions import AS_PREDICTED, Predictions
from trustdoctor.scores import Score


class ClassifierAnswers(NamedTuple):
    """A fitted classifier's answers to some rows.

    Attributes
    ----------
    logits : array (n, C)
    labels : array (n,)
        The classifier's own, which need not be those of the largest logits.
    numbers : integer array (n,)
        Their columns; -1 for a label that is no class.
    truth : integer array (n,)
        The true classes' columns; -1 if they are not known.
    wrong : bool array (n,)
    from_probabilities : bool
    """

    logits: NDArray[Any]
    labels: NDArray[Any]
    numbers: NDArray[np.int64]
    truth: NDArray[np.int64]
    wrong: NDArray[np.bool_]
    from_probabilities: bool

    @property
    def overruled(self) -> int:
        """The number of labels that are not the class of a largest logit."""
        cells = np.arange(len(self.numbers)), np.maximum(self.numbers, 0)
        likeliest = self.logits[cells] == self.logits.max(1)
        return int((~likeliest | (self.numbers < 0)).sum())

    def predictions(self, *, decided: bool) -> Predictions:
        """Return the same as predictions, with the classifier's labels as decisions."""
        p = Predictions(self.logits, None, self.from_probabilities)
        if not decided:
            return p
        return replace(p, decisions=self.numbers, decided_by=AS_PREDICTED)

    def scores(self, score: Score, *, decided: bool) -> NDArray[Any]:
        """Score the rows; a score about one class is about the answered label.

        With `decided`, if labels are not always those of the largest logits, a score
        that is not about the label is refused.
        """
        p = self.predictions(decided=decided or score.about_class)
        return np.asarray(score(p))

    def lists(self, shortlist: Shortlist, accepted: NDArray[Any]) -> NDArray[np.bool_]:
        """Return the lists of rejected rows, (n, C); each holds the answered label."""
        mask = np.zeros(self.logits.shape, bool)
        rejected = np.flatnonzero(~accepted)
        numbers = self.class_numbers()[rejected]
        mask[rejected] = shortlist.prediction_sets(self.logits[rejected], numbers)
        return mask

    def class_numbers(self) -> NDArray[np.int64]:
        """Return the labels' columns, refusing labels that are no class."""
        unknown = np.flatnonzero(self.numbers < 0)
        if len(unknown):
            (label,) = self.labels[unknown[:1]].tolist()
            message = (
                "a shortlist needs a classifier that answers with its own classes, got "
                f"{label!r}. Leave shortlist out, or the classifier's reject label."
            )
            raise InputError(message)
        return self.numbers

    def named_lists(
        self, mask: NDArray[np.bool_], classes: NDArray[Any]
    ) -> list[NDArray[Any]]:
        """Return the classes of each list, the most probable first."""
        lists = []
        for listed, logits in zip(mask, self.logits, strict=True):
            order = np.argsort(-logits[listed], kind="stable")
            lists.append(classes[listed][order])
        return lists


def join_answers(folds: list[ClassifierAnswers]) -> ClassifierAnswers:
    """Return the answers to the rows of all folds."""
    if len(folds) == 1:
        return folds[0]
    *names, _ = ClassifierAnswers._fields
    joined: dict[str, Any] = {
        name: np.concatenate([getattr(answers, name) for answers in folds])
        for name in names
    }
    return folds[0]._replace(**joined)


def calibrate_lists(
    answers: ClassifierAnswers,
    doubts: NDArray[Any],
    shortlist: Shortlist,
    make_gate: Callable[[Any], Gate],
    *,
    same_rows: bool,
) -> Gate:
    """Make a gate on some rows, and its lists on the same or on others.

    On others: a third sets the lists, as in `calibrate`, and the remaining rows the
    gate.
    """
    list_rows: Any = slice(None)
    gate_rows: Any = slice(None)
    if not same_rows:
        order = np.random.default_rng(SHORTLIST_SEED).permutation(len(doubts))
        list_rows, gate_rows = np.split(order, [int(SHORTLIST_SHARE * len(doubts))])
        if not len(list_rows):
            message = f"expected more rows than {len(doubts)} for a gate and its lists."
            raise InputError(message)
    p = Predictions(
        answers.logits[list_rows], answers.truth[list_rows], answers.from_probabilities
    )
    gate = calibrate_shortlist(
        make_gate(gate_rows),
        shortlist,
        p,
        doubts[list_rows],
        predicted=answers.class_numbers()[list_rows],
    )
    if same_rows:
        return gate
    return gate.with_notes(split_note(len(list_rows), len(gate_rows)))


def ask_classifier(
    fitted: Any, x: Any, y: Any, classes: NDArray[Any]
) -> ClassifierAnswers:
    """Ask for labels and logits; the errors are those of the labels."""
    labels, classes = one_label(fitted, x), np.asarray(classes)
    wrong = np.zeros(len(labels), bool) if y is None else np.asarray(labels != y)
    return ClassifierAnswers(
        _aligned_logits(fitted, x, classes),
        labels,
        _columns(classes, labels),
        np.full(len(labels), -1) if y is None else _columns(classes, y),
        wrong,
        hasattr(fitted, "predict_proba"),
    )


def one_label(fitted: Any, x: Any) -> NDArray[Any]:
    """Return the label of each row, refusing classifiers that give several."""
    labels = fitted.predict(x)
    refuse_several(f"a {type(fitted).__name__} that was fitted on several", labels)
    # CatBoost answers with a column.
    return labels[:, 0] if getattr(labels, "ndim", 1) == 2 else labels


def refuse_several(source: str, labels: Any) -> None:
    """Refuse rows with more than one label, as an indicator matrix has them."""
    list_shape: tuple[int, ...] = np.shape(labels) if isinstance(labels, list) else ()
    shape = getattr(labels, "shape", list_shape)
    if len(shape) > 1 and shape[1] != 1:
        refuse_multi_label(source)


def _columns(classes: NDArray[Any], labels: Any) -> NDArray[np.int64]:
    """Return the places of labels among classes of any order; -1 if there is none."""
    order = np.argsort(classes)
    ranks = np.searchsorted(classes, labels, sorter=order)
    candidates = order[np.minimum(ranks, len(classes) - 1)]
    return np.where(classes[candidates] == labels, candidates, -1)


def classes_of(fitted: Any, y: NDArray[Any]) -> NDArray[Any]:
    """Return the classes of a fitted classifier, refusing labels beyond them."""
    classes = getattr(fitted, "classes_", None)
    if isinstance(classes, list):  # multi-label: one array for each label
        refuse_multi_label(f"a {type(fitted).__name__} that was fitted on several")
    if classes is None:
        message = (
            f"expected a classifier with classes_, got {type(fitted).__name__}. Give "
            "one that predicts classes."
        )
        raise InputError(message)
    unknown = np.setdiff1d(y, classes)
    if len(unknown):
        message = (
            f"expected classes that the estimator knows, got {unknown[0]!r}. Give "
            "rows of its own classes."
        )
        raise InputError(message)
    return np.asarray(classes)


def check_folds(folds: list[tuple[Any, Any]]) -> None:
    """Refuse folds that count a row twice, or that test what they trained on."""
    test_rows = np.concatenate([test for _, test in folds])
    overlap = any(len(np.intersect1d(train, test)) for train, test in folds)
    if overlap or len(np.unique(test_rows)) < len(test_rows):
        message = (
            "expected a cv that tests each row at most once, on a model that has not "
            "seen it; this one repeats rows. Take KFold, or one ShuffleSplit."
        )
        raise InputError(message)


def _aligned_logits(fitted: Any, x: Any, classes: NDArray[Any]) -> NDArray[Any]:
    """Return logits, one column per class; -inf for classes that a fold lacks."""
    if hasattr(fitted, "predict_proba"):
        probs = np.asarray(fitted.predict_proba(x), np.float64)
        with np.errstate(divide="ignore"):
            logits = np.log(probs)
    elif hasattr(fitted, "decision_function"):
        logits = np.asarray(fitted.decision_function(x), np.float64)
        if logits.ndim == 1:  # of two classes, the second against the first
            logits = np.stack([np.zeros_like(logits), logits], axis=1)
        if logits.shape[1] != len(fitted.classes_) or _decides_by_pairs(fitted):
            message = (
                "the decision values are of pairs of classes, not one per class. Set "
                "decision_function_shape='ovr', or use predict_proba."
            )
            raise InputError(message)
    else:
        message = (
            f"expected a classifier with predict_proba or decision_function, got "
            f"{type(fitted).__name__}."
        )
        raise InputError(message)
    if np.array_equal(fitted.classes_, classes):
        return logits
    aligned = np.full((len(logits), len(classes)), -np.inf)
    aligned[:, _columns(classes, fitted.classes_)] = logits
    return aligned


def _decides_by_pairs(fitted: Any) -> bool:
    """Tell whether decision values are of pairs, also within pipelines and searches."""
    # Three classes make three pairs, so the number of columns does not tell.
    while fitted is not None:
        if getattr(fitted, "decision_function_shape", "ovr") == "ovo":
            return True
        steps = getattr(fitted, "steps", None)
        inner = getattr(fitted, "best_estimator_", getattr(fitted, "estimator_", None))
        fitted = steps[-1][1] if steps else inner
    return False


def with_reject_label(
    labels: NDArray[Any], accepted: NDArray[np.bool_], reject_label: Any
) -> Any:
    """Return labels with another where answers are rejected, of a type for both."""
    kinds = np.asarray(reject_label).dtype.kind, labels.dtype.kind
    if set(kinds) <= set("iufb"):
        dtype = np.result_type(labels.dtype, np.min_scalar_type(reject_label))
        return np.where(accepted, labels.astype(dtype), np.asarray(reject_label, dtype))
    if kinds[0] == kinds[1]:
        return np.where(accepted, labels, reject_label)
    # Numbers beside text: numpy would turn both into text.
    mixed = labels.astype(object)
    mixed[~accepted] = reject_label
    return mixed
