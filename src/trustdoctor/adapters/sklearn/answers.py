"""What a fitted classifier said of some rows, in numbers: no scikit-learn needed."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from trustdoctor.adapters.asking import refuse_multi_label
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


class Answers(NamedTuple):
    """What a fitted classifier said of some rows.

    Attributes
    ----------
    logits : array (n, C)
    labels : array (n,)
        The classifier's own, which need not be the largest logits'.
    numbers : integer array (n,)
        Their columns; -1 of a label that is no class.
    truth : integer array (n,)
        The true classes' columns; -1 where they are not known.
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
        """How many labels are not the class of a largest logit."""
        at = np.arange(len(self.numbers)), np.maximum(self.numbers, 0)
        likeliest = self.logits[at] == self.logits.max(1)
        return int((~likeliest | (self.numbers < 0)).sum())

    def predictions(self, *, decided: bool) -> Predictions:
        """Return the same as predictions, with the classifier's labels as decisions."""
        p = Predictions(self.logits, None, self.from_probabilities)
        if not decided:
            return p
        return replace(p, decisions=self.numbers, decided_by=AS_PREDICTED)

    def scores(self, score: Score, *, decided: bool) -> NDArray[Any]:
        """Score the rows; a score about one class is about the label given.

        With `decided`, where labels are not always those of the largest logits, a score
        that is not about the label is refused.
        """
        p = self.predictions(decided=decided or score.about_class)
        return np.asarray(score(p))

    def lists(self, short: Shortlist, accepted: NDArray[Any]) -> NDArray[np.bool_]:
        """Return the lists of rejected rows, (n, C); each holds the label given."""
        out = np.zeros(self.logits.shape, bool)
        rejected = np.flatnonzero(~accepted)
        own = self.known_numbers()[rejected]
        out[rejected] = short.prediction_sets(self.logits[rejected], own)
        return out

    def known_numbers(self) -> NDArray[np.int64]:
        """Return the labels' columns, refusing labels that are no class."""
        odd = np.flatnonzero(self.numbers < 0)
        if len(odd):
            (label,) = self.labels[odd[:1]].tolist()
            message = (
                "a shortlist needs a classifier that answers with its own classes, got "
                f"{label!r}. Leave shortlist out, or the classifier's reject label."
            )
            raise InputError(message)
        return self.numbers

    def named(self, mask: NDArray[np.bool_], classes: NDArray[Any]) -> list[Any]:
        """Return the classes of each list, the most probable first."""
        found = []
        for on, logits in zip(mask, self.logits, strict=True):
            order = np.argsort(-logits[on], kind="stable")
            found.append(classes[on][order])
        return found


def joined(parts: list[Answers]) -> Answers:
    """Return what was said of the rows of all parts."""
    if len(parts) == 1:
        return parts[0]
    *names, _ = Answers._fields
    whole: dict[str, Any] = {
        name: np.concatenate([getattr(part, name) for part in parts]) for name in names
    }
    return parts[0]._replace(**whole)


def calibrate_lists(
    said: Answers,
    doubts: NDArray[Any],
    short: Shortlist,
    make_gate: Callable[[Any], Gate],
    *,
    same: bool,
) -> Gate:
    """Make a gate of some rows and its lists of the same, or of others.

    Of others: a third sets the lists, as in `calibrate`, and the rest the gate.
    """
    mine: Any = slice(None)
    rest: Any = mine
    if not same:
        order = np.random.default_rng(SHORTLIST_SEED).permutation(len(doubts))
        mine, rest = np.split(order, [int(SHORTLIST_SHARE * len(doubts))])
        if not len(mine):
            message = f"expected more rows than {len(doubts)} for a gate and its lists."
            raise InputError(message)
    p = Predictions(said.logits[mine], said.truth[mine], said.from_probabilities)
    own = said.known_numbers()[mine]
    gate = calibrate_shortlist(make_gate(rest), short, p, doubts[mine], predicted=own)
    return gate if same else gate.with_notes(split_note(len(mine), len(rest)))


def answers(fitted: Any, x: Any, y: Any, classes: NDArray[Any]) -> Answers:
    """Ask for labels and logits; the errors are those of the labels."""
    labels, classes = one_label(fitted, x), np.asarray(classes)
    wrong = np.zeros(len(labels), bool) if y is None else np.asarray(labels != y)
    return Answers(
        _aligned(fitted, x, classes),
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


def refuse_several(what: str, labels: Any) -> None:
    """Refuse rows with more than one label, as an indicator matrix has them."""
    known: tuple[int, ...] = np.shape(labels) if isinstance(labels, list) else ()
    shape = getattr(labels, "shape", known)
    if len(shape) > 1 and shape[1] != 1:
        refuse_multi_label(what)


def _columns(classes: NDArray[Any], labels: Any) -> NDArray[np.int64]:
    """Return where labels stand among classes of any order; -1 where they do not."""
    order = np.argsort(classes)
    at = np.searchsorted(classes, labels, sorter=order)
    found = order[np.minimum(at, len(classes) - 1)]
    return np.where(classes[found] == labels, found, -1)


def check_known(fitted: Any, y: NDArray[Any]) -> NDArray[Any]:
    """Return the classes of a fitted classifier, refusing other labels."""
    classes = getattr(fitted, "classes_", None)
    if isinstance(classes, list):  # those of each label
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
    tested = np.concatenate([test for _, test in folds])
    seen = any(len(np.intersect1d(train, test)) for train, test in folds)
    if seen or len(np.unique(tested)) < len(tested):
        message = (
            "expected a cv that tests each row at most once, on a model that has not "
            "seen it; this one repeats rows. Take KFold, or one ShuffleSplit."
        )
        raise InputError(message)


def _aligned(fitted: Any, x: Any, classes: NDArray[Any]) -> NDArray[Any]:
    """Return logits, one column per class; -inf for classes a fold did not know."""
    if hasattr(fitted, "predict_proba"):
        probs = np.asarray(fitted.predict_proba(x), np.float64)
        with np.errstate(divide="ignore"):
            own = np.log(probs)
    elif hasattr(fitted, "decision_function"):
        own = np.asarray(fitted.decision_function(x), np.float64)
        if own.ndim == 1:
            own = np.stack([np.zeros_like(own), own], axis=1)
        if own.shape[1] != len(fitted.classes_) or _votes(fitted):
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
        return own
    wide = np.full((len(own), len(classes)), -np.inf)
    wide[:, _columns(classes, fitted.classes_)] = own
    return wide


def _votes(fitted: Any) -> bool:
    """Tell whether decision values are of pairs, looking into pipelines and searches.

    Three classes make three pairs, so the number of columns does not tell.
    """
    while fitted is not None:
        if getattr(fitted, "decision_function_shape", "ovr") == "ovo":
            return True
        steps = getattr(fitted, "steps", None)
        inner = getattr(fitted, "best_estimator_", getattr(fitted, "estimator_", None))
        fitted = steps[-1][1] if steps else inner
    return False


def replaced(labels: NDArray[Any], accepted: NDArray[np.bool_], reject: Any) -> Any:
    """Put a label where answers are rejected, keeping the others as they are."""
    kinds = np.asarray(reject).dtype.kind, labels.dtype.kind
    if set(kinds) <= set("iufb"):
        wide = np.result_type(labels.dtype, np.min_scalar_type(reject))
        return np.where(accepted, labels.astype(wide), np.asarray(reject, wide))
    if kinds[0] == kinds[1]:
        return np.where(accepted, labels, reject)
    out = labels.astype(object)
    out[~accepted] = reject
    return out
